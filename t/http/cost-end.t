# What a request has cost when its response has ended: cost_end=, in shared
# memory and in Redis; and cost_every=, before the end.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( connect_to header told wait_for );
use t::Api;
use t::Http2;

my $LIMIT = 1_000_000;
my $WINDOW = "algorithm=fixed_window limit=$LIMIT window=calendar:month";
my $REST = $LIMIT - 10;

my $redis = redis_port();
my ($up, $slow, $away, $grpc) = map { t::Gateway::free_port() } 1 .. 4;

# how a counter may be kept: the parameters of its zone, and of its rule
my %kept = (local => ['', ''], strict => ['redis=r', 'sync=strict'],
            lease => ['redis=r', ''], async => ['redis=r', 'sync=async'],
            here => ['redis=r', 'sync=strict fail_mode=local'],
            gone => ['redis=away', '']);

my @RULES = ("ten zone=Z $WINDOW cost=10 cost_end=\$arg_end",
             "every zone=Z $WINDOW cost=\$arg_c cost_end=\$body_bytes_sent"
             . ' cost_every=64k');

# name => the rule, and what its location does
my %cases = (
    body => ['cost_end=$body_bytes_sent', "proxy_pass http://127.0.0.1:$up;"],
    sent => ['cost_end=$seen', "proxy_pass http://127.0.0.1:$up;"],
    status => ['cost_end=$by_status', ''],
    late => ['cost_end=$by_status', "proxy_pass http://127.0.0.1:$slow;"],
    bad => ['cost_end=$by_status', 'proxy_pass http://127.0.0.1:1;'],
    plain => ['cost_end=$by_ratio', "proxy_pass http://127.0.0.1:$up;"],
    gzip => ['cost_end=$by_ratio', "gzip on; proxy_pass http://127.0.0.1:$up;"],
    trailer => ['cost=7 cost_end=$upstream_trailer_x_cost',
                "grpc_pass grpc://127.0.0.1:$grpc;"],
    header => ['cost_header=X-Cost', "proxy_pass http://127.0.0.1:$up;"],
    auth => ['cost_end=9', 'auth_request /sub;'],
    mirror => ['cost_end=9', 'mirror /sub;'],
    page => ['cost_end=9', 'proxy_intercept_errors on; error_page 404 /local/ten;'
             . "proxy_pass http://127.0.0.1:$up/404;"],
    accel => ['cost_end=9', "proxy_pass http://127.0.0.1:$up/accel;"],
    post => ['cost_end=9', 'post_action /local/ten;'],
);

$_->[0] =~ s/cost_end=9/cost_end=\$nine/ for values %cases;

sub rule { return "ratelimit zone=$_[0] rule=$_[1];" }

my $gateway = t::Gateway->limited(
    redis => { r => $redis, away => $away }, api => 1,
    zone => { z => '', map { $_ => $kept{$_}[0] } keys %kept },
    rules => [
        (map { my $zone = $_; map { s/Z/$zone/r . " $kept{$zone}[1]" } @RULES }
         sort keys %kept),
        (map { "$_ zone=local $WINDOW $cases{$_}[0]" } sort keys %cases),
        'dry zone=local algorithm=fixed_window limit=10 window=1h'
        . ' cost_end=$arg_end dry_run',
        'owes zone=local rate=100r/h cost_end=$arg_end',
        'waits zone=local algorithm=leaky_bucket rate=1r/h burst=100'
        . ' cost_end=$arg_end',
    ],
    http => <<"CONF",
    map \$status \$by_status { 499 50; 502 20; default 5; }
    map \$gzip_ratio \$by_ratio { '' 3; default 30; }
    map \$bytes_sent \$seen { volatile; default \$bytes_sent; }
    map '' \$nine { default 9; }
    log_format cost '\$arg_k [\$ratelimit_rule] [\$ratelimit_cost] '
                    '[\$ratelimit_remaining] \$status \$bytes_sent';
    access_log cost.log cost;
    log_subrequest on;
    gzip_http_version 1.0;
    gzip_types *;
    gzip_min_length 1;
    gzip_proxied any;
    server {
        access_log off;
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$arg_cost; return 200 "${\('x' x 1000)}"; }
        location /404 { return 404; }
        location /accel { add_header X-Accel-Redirect /local/ten; return 200; }
    }
    server {
        access_log off;
        listen 127.0.0.1:$grpc http2;
        location / { add_trailer X-Cost \$arg_end; return 200 "x"; }
    }
CONF
    locations => {
        (map { my $zone = $_;
               map { ("/$zone/$_" => rule($zone, $_),
                      "/$zone/slow/$_" => rule($zone, $_)
                          . 'send_timeout 1d; proxy_read_timeout 1d;'
                          . 'proxy_buffering off; proxy_http_version 1.1;'
                          . 'proxy_set_header Upgrade $http_upgrade;'
                          . 'proxy_set_header Connection $http_connection;'
                          . "proxy_pass http://127.0.0.1:$slow;") }
               qw( ten every ) } sort keys %kept),
        (map { ("/$_" => rule('local', $_) . $cases{$_}[1]) } keys %cases),
        '/dry' => rule('local', 'dry'),
        '/owes' => rule('local', 'owes'),
        '/waits' => rule('local', 'waits'),
        '/both' => rule('local', 'ten') . rule('local', 'header')
                   . "proxy_pass http://127.0.0.1:$up;",
        '/sub' => rule('local', 'ten'),
        '/z' => 'ratelimit zone=z;',
    });

# An upstream that sends as many bytes as a file says, and ends with the file.
my $upstream = t::Gateway::beside(sub {
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64,
                                       LocalPort => $slow, ReuseAddr => 1)
        or die "listen: $!";
    $SIG{CHLD} = 'IGNORE';
    while (my $client = $listen->accept) {
        next if fork;
        my ($head, $sent) = ('', 0);
        1 while $head !~ /\r\n\r\n/ && sysread $client, $head, 65536, length $head;
        my $name = $head =~ /[?&]k=(\w+)/ ? $1 : 'none';
        my $file = "$gateway->{dir}/$name";
        local $SIG{PIPE} = sub { POSIX::_exit(0) };
        while (-e $file) {
            my ($wanted) = $gateway->read($name) =~ /^(\d+)\n/ or next;
            if ($wanted && !$sent) {
                print $client $head =~ /^Upgrade: /mi
                    ? "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                      . "Connection: Upgrade\r\n\r\n"
                    : "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
            }
            print $client 'y' x ($wanted - $sent);
            $client->flush;
            $gateway->write($name, "$wanted\nsent\n") if $sent != $wanted;
            $sent = $wanted;
            select undef, undef, undef, 0.01;
        }
        POSIX::_exit(0);
    }
});

END { kill KILL => $upstream if $upstream }

# The upstream's response of that key has so many bytes; undef: it ends.
sub response {
    my ($k, $bytes) = @_;
    return unlink "$gateway->{dir}/$k" if !defined $bytes;
    $gateway->write("$k.new", "$bytes\n");
    rename "$gateway->{dir}/$k.new", "$gateway->{dir}/$k" or die $!;
}

# What is left, by a request that costs nothing by that rule.
sub left {
    my ($path) = @_;
    return header($gateway->get($path), 'X-RateLimit-Remaining');
}

# Sends the request and reads nothing of the answer.
sub begin {
    my ($path, @headers) = @_;
    my $socket = connect_to($gateway);
    print $socket join "\r\n", "GET $path HTTP/1.1", 'Host: a', @headers, "\r\n";
    $socket->flush;
    return $socket;
}

# Reads so many bytes behind the header; more than there are: to the end.
sub receive {
    my ($socket, $bytes) = @_;
    my $in = '';
    local $SIG{ALRM} = sub { die "no answer\n" };
    alarm 60;
    1 while (index($in, "\r\n\r\n") < 0
             || length($in) - 4 - index($in, "\r\n\r\n") < $bytes)
            && sysread $socket, $in, 65536, length $in;
    alarm 0;
}

sub logged {
    my ($line, $name) = @_;
    ok(wait_for(sub { $gateway->read('cost.log') =~ /^$line$/m }), "logged: $name")
        or diag($gateway->read('cost.log') =~ /^(.*)$/mg);
}

t::Clock::hurry();
my $k = 0;

# more than it took, less, the same, nothing said, more than all; and no numbers
my @ENDS = ([40, 40], [4, 4], [10, 10], ['', 10], [0, 0], [5000000000, $LIMIT],
            ['99999999999999999999', $LIMIT],
            map { [$_, 10] } qw( x -1 1.5 1+ ));

for my $zone (qw( local strict lease here )) {
    for (@ENDS) {
        my ($end, $cost) = @$_;
        # what comes back to a lease, Redis learns a little later
        next if $zone eq 'lease' && $cost < 10;
        $k++;
        is($gateway->told("/$zone/ten?k=k$k&end=$end"), "204 PASSED $REST"
           =~ s/204/200/r, "$zone: taken, at the end \"$end\"");
        $gateway->settled($redis) if $zone ne 'local';
        my $left = $REST - $cost;
        is($gateway->told("/$zone/ten?k=k$k&end="),
           $left < 0 ? '429 REJECTED 0' : "200 PASSED $left",
           "$zone: it has cost $cost");
        my $logged = $cost == $LIMIT ? 4294967295 : $cost;
        logged("k$k \\[ten\\] \\[$logged\\] \\[\\d+\\] 200 \\d+", "$zone: $end");
    }
}

$gateway->get('/async/ten?k=a&end=5000000000');
ok(wait_for(sub { $gateway->get('/async/ten?k=a&end=')->{status} == 429 }),
   'async: it is charged');

is($gateway->told('/gone/ten?k=a&end=100'), '200 DEGRADED -1',
   'without Redis nobody counts');

ok(index($gateway->log, 'ratelimit rule "ten" has a cost of "x" by its '
         . '"cost_end=$arg_end", expected a number of 0 or more; it is not '
         . 'counted') > 0, 'the log says what is no number');

# The tokens that a rule's requests took.
sub taken {
    my $rule = shift;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_cost_total\{zone="local",rule="$rule"\} (\d+)/m ? $1 : 0;
}

# what is owed is waited for; a dry run counts what it has admitted
t::Clock::stop();
is($gateway->told('/owes?k=a&end=150'), '200 PASSED 99', 'admitted');
is(header($gateway->get('/owes?k=a'), 'Retry-After'), 36 * 51, 'what it owes');
t::Clock::go();

is($gateway->told('/dry?k=a&end=10'), '200 PASSED ', 'a dry run is admitted');
is($gateway->told('/dry?k=a&end=10'), '200 REJECTED_DRY_RUN ', 'then is not');
is(taken('dry'), 10, 'and not charged');

is($gateway->told("/dry?k=b&end=$$_[0]"), "200 $$_[1] ", "a dry run: $$_[0] more")
    for [4, 'PASSED'], [5, 'PASSED'], [1, 'PASSED'], [0, 'REJECTED_DRY_RUN'];
is(taken('dry'), 20, 'a dry run is charged what was said');

# what is known at the end alone: sizes, the status, of a body filter, a trailer
for (['body', 200, 1000], ['status', 200, 5], ['bad', 502, 20],
     ['plain', 200, 3], ['gzip', 200, 30], ['trailer', 200, 25])
{
    my ($case, $status, $cost) = @$_;
    my $took = $case eq 'trailer' ? 7 : 1;
    is($gateway->told("/$case?k=$case&end=25", 'Accept-Encoding: gzip'),
       "$status PASSED " . ($LIMIT - $took), "$case: taken");
    is(left("/$case?k=$case&end="), $LIMIT - $cost - $took, "$case: $cost");
}

$gateway->get('/sent?k=sent');
ok($gateway->read('cost.log') =~ /^sent \[sent\] \[(\d+)\] \[(\d+)\] 200 (\d+)$/m
   && $1 == $3 && $2 == $LIMIT - $3, 'a map of $bytes_sent');

# a rule beside it that the header charges
$gateway->get('/both?k=b&cost=20&end=30');
is(left('/both?k=b&end='), $LIMIT - 40, 'cost_end= charges its own counter');
is(left('/header?k=b'), $LIMIT - 22, 'cost_header= once, too');

# once, whatever becomes of the request inside
for my $case (qw( auth mirror page accel post )) {
    $gateway->get("/$case?k=$case&end=70");
    is(left("/$case?k=$case"), $LIMIT - 10, "$case: once");
}

is(left('/local/ten?k=auth'), $REST, 'a subrequest is not charged');
is(left("/local/ten?k=$_"), $REST, "$_: nor is it by the rules of another location")
    for qw( page accel post );

# a client that leaves has cost what it took, or more
for (['late', 1, 50], ['local/slow/ten', 10, 10, 'end=0'],
     ['local/slow/ten', 10, 80, 'end=80'])
{
    my ($path, $took, $cost, $end) = @$_;
    $k++;
    $end //= '';
    response("k$k", 0);
    my $client = begin("/$path?k=k$k&$end");
    ok(wait_for(sub { $gateway->waiting }), "left: $path, $end: it waits");
    close $client;
    logged("k$k \\[\\w+\\] \\[$cost\\] \\[\\d+\\] 499 0", "left: $path, $end");
    response("k$k");
    is(left('/' . $path =~ s/slow\///r . "?k=k$k&end=") // '',
       $LIMIT - $cost - $took, "left: $path, $end") if $path ne 'late';
}

$gateway->get('/waits?k=w&end=');
my $delayed = begin('/waits?k=w&end=30');
ok(wait_for(sub { $gateway->waiting }), 'a leaky bucket delays it');
close $delayed;
logged('w \[waits\] \[30\] \[\d+\] 499 0', 'left while it was delayed');

# on the way: what has been sent, at the end the rest
for my $zone (qw( local strict lease here )) {
    for my $headers (['Connection: close'], ['Upgrade: x', 'Connection: Upgrade']) {
        $k++;
        response("k$k", 300000);
        my $client = begin("/$zone/slow/every?k=k$k&c=5", @$headers);
        receive($client, 300000);
        my ($first, $last);
        ok(wait_for(sub {
            $gateway->settled($redis) if $zone ne 'local';
            $first = left("/$zone/every?k=k$k&c=1");
            return $first < $LIMIT - 299000;
        }), "$zone: charged on the way: @$headers") or diag($first);
        # what nginx keeps of $body_bytes_sent is read anew
        response("k$k", 500000);
        ok(wait_for(sub {
            $gateway->settled($redis) if $zone ne 'local';
            $first = left("/$zone/every?k=k$k&c=1");
            return $first < $LIMIT - 499000;
        }), "$zone: and again") or diag($first);
        # less than 64k more, and the end
        response("k$k", 500100);
        ok(wait_for(sub { $gateway->read("k$k") =~ /sent/ }), "$zone: sent");
        response("k$k");
        receive($client, 1e9);
        ok(wait_for(sub { $gateway->read('cost.log') =~ /^k$k .* [12]0[01] 5\d+$/m }),
           "$zone: the end");
        $gateway->settled($redis) if $zone ne 'local';
        $last = left("/$zone/every?k=k$k&c=1");
        # a gif of 43 bytes each time that somebody looked
        cmp_ok($first - $last, '<', 2000, "$zone: then the rest alone");
    }
}

# over HTTP/2, where a request has no connection of its own
my $h2 = t::Gateway->limited(listen => 'http2', zone => { local => '' },
    rules => [map { s/Z/local/r } @RULES],
    http => 'log_format cost "$arg_k [$ratelimit_cost] [$ratelimit_remaining]";' . "\n"
            . 'access_log cost.log cost;',
    locations => { '/every' => rule('local', 'every'),
                   '/slow' => rule('local', 'every') . 'proxy_buffering off;'
                              . "proxy_pass http://127.0.0.1:$slow;" });

response('h2', 300000);
open my $nghttp, '-|',
     "timeout 60 nghttp -n 'http://127.0.0.1:$h2->{port}/slow?k=h2&c=0' 2>&1" or die;

ok(wait_for(sub {
    my $looks = t::Http2->new($h2->{port});
    $looks->get(1, '/every?k=h2&c=0');
    $looks->ended(1);
    return $h2->read('cost.log') =~ /^h2 \[43\] \[69\d+\]/m;
}), 'HTTP/2: charged on the way');
response('h2');
close $nghttp;
ok(wait_for(sub { $h2->read('cost.log') =~ /^h2 \[30\d+\] \[69\d+\]/m }),
   'HTTP/2: and at the end');

# a stream that its client ends, when the window is full
my $stream = t::Http2->new($h2->{port});
my ($got, $in) = (0, '');

response('reset', 100000);
$stream->get(1, '/slow?k=reset&c=0');
ok(wait_for(sub {
    $got += sysread $stream->{socket}, $in, 65536
        if IO::Select->new($stream->{socket})->can_read(0.01);
    return $got > 60000;
}), 'HTTP/2: it is sent');
$stream->reset(1);
ok(wait_for(sub {
    return $h2->read('cost.log') =~ /^reset \[(\d+)\] \[(\d+)\]/m
           && $1 > 60000 && $1 < 100000 && $1 + $2 == $LIMIT;
}), 'HTTP/2: what was sent, when its client ends it') or diag($h2->read('cost.log'));
response('reset');
$h2->stop;

# rules of a document
my $api = t::Api->new($gateway);
my $rule = { id => 'end', algorithm => 'fixed_window',
             params => { limit => $LIMIT, window => 'calendar:month' } };

for ([{ cost_end => '$none_such' }, 'cost_end'], [{ cost_end => '5' }, 'cost_end'],
     [{ cost_end => '$arg_e', cost_every => '1k' }, 'cost_every'],
     [{ cost_every => '1m' }, 'cost_every'])
{
    my ($wrong, $at) = @$_;
    my $answer = $api->put('/document', { rules => [{ %$rule, %$wrong }] },
                           'If-Match: *');
    like("$answer->{status} $answer->{body}", qr/^422 .*"\/rules\/0\/$at/s,
         "a document has $at " . ($wrong->{$at} // ''));
}

is($api->put('/document', { rules => [{ %$rule, cost_end => '$arg_end',
                                     cost_every => '1m' }] }, 'If-Match: *')->{status},
   201, 'a document with cost_end and cost_every');
ok(wait_for(sub { header($gateway->get('/z?k=0'), 'X-Rule') eq 'end' }), 'it is in use');
is($gateway->told('/z?k=a&end=50'), '200 PASSED ' . ($LIMIT - 1), 'it takes');
is(left('/z?k=a'), $LIMIT - 51, 'and charges at the end');

# a worker that ends still charges
response('quit', 200000);
my $client = begin('/strict/slow/every?k=quit&c=1', 'Connection: close');
receive($client, 200000);
$gateway->signal('HUP');
ok(wait_for(sub { $gateway->workers > 1 || $gateway->log =~ /gracefully shutting down/ }),
   'the worker is to end');
response('quit', 210000);
ok(wait_for(sub { $gateway->read('quit') =~ /sent/ }), 'it goes on');
response('quit');
receive($client, 1e9);
ok(wait_for(sub { $gateway->read('cost.log') =~ /^quit \[every\]/m }), 'its response ends');

# HEAD: a look costs nothing in the end
ok(wait_for(sub { left('HEAD /strict/every?k=quit&c=1') < $LIMIT - 210000 }),
   'and is charged');

kill KILL => $upstream;
waitpid $upstream, 0;
$upstream = 0;
$gateway->stop;
