# What a leaky bucket's delay is to a request: it ends with the client, holds
# no worker up, and no other request; a reload and a quit wait for it. And what
# it is beside other rules, and in Redis. The clock stands still: whatever is
# answered without an advance was not delayed.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told wait_for );
use t::Http2;

use IO::Socket::INET;

my $redis = redis_start();

# A token comes back each 0.4 s, but for "slow": each minute.
sub gateway {
    my $leaky = 'algorithm=leaky_bucket';
    return t::Gateway->limited(
        redis => { r => $redis, gone => 'server 127.0.0.1:1; timeout 100ms' },
        zone => {
            b => "rate=5r/2s $leaky burst=3",
            d => "rate=5r/2s $leaky burst=3 delay=1",
            n => "rate=5r/2s $leaky burst=3 nodelay",
            slow => "rate=1r/m $leaky burst=1000",
            fast => "rate=100r/s $leaky burst=99",
            third => "rate=3r/s $leaky burst=3",
            two => 'rate=2r/h',
            fleet => "rate=5r/2s $leaky burst=3 redis=r",
            'fleet-third' => "rate=3r/s $leaky burst=3 redis=r",
            'fleet-slow' => "rate=1r/m $leaky burst=9 redis=r",
            'fleet-two' => 'rate=2r/h redis=r',
            degraded => 'rate=2r/h redis=gone',
            try => "rate=5r/2s $leaky burst=3 dry_run",
        },
        http => <<'CONF',
    # at debug every line is written, else one of a kind in a second
    error_log %%DIR%%/error.log debug;
    log_format rl '$uri $arg_k $status $ratelimit_status '
                  '[$ratelimit_delay] $request_time [$request_body]';
    access_log %%DIR%%/access.log rl;
    server {
        listen unix:%%DIR%%/api.sock;
        access_log off;
        lingering_timeout 100ms;
        return 200 "$content_length\n";
    }
CONF
        server => 'listen unix:%%DIR%%/h2.sock http2;',
        locations => {
            '/free' => '',
            '/after' => 'ratelimit zone=b; ratelimit_phase after_auth;',
            '/body' => 'ratelimit zone=b; proxy_pass http://unix:%%DIR%%/api.sock;',
            '/and-two' => 'ratelimit zone=b; ratelimit zone=two;',
            '/3fleet' => 'ratelimit zone=fleet-third;',
            '/slow-fleet' => 'ratelimit zone=fleet-slow;',
            '/and-fleet' => 'ratelimit zone=b; ratelimit zone=fleet-two;',
            '/fleet-and-b' => 'ratelimit zone=fleet; ratelimit zone=b;',
            '/degraded' => 'ratelimit zone=b; ratelimit zone=degraded;',
            map { ("/$_" => "ratelimit zone=$_;") }
                qw( b d n slow fast third two fleet try ) });
}

my $gateway = gateway();

t::Clock::stop();

# Sends a request and does not wait for the answer.
sub client {
    my ($path, $more) = @_;
    my $client = $gateway->connect_to;
    $path = "GET $path" if $path !~ /^[A-Z]+ /;
    syswrite $client, join "\r\n", "$path HTTP/1.1", 'Host: a',
             $more // (), '', '';
    return $client;
}

# What the log says of the requests of a path and key: "200 DELAYED [0.400]".
sub logged {
    my ($path, $n) = @_;
    my @lines;
    wait_for(sub {
        @lines = $gateway->read('access.log') =~ /^\Q$path\E (\S+ \S+ \S+) /mg;
        return @lines >= ($n // 1);
    });
    return @lines;
}

# How many requests of a path, with its arguments, were delayed.
sub delayed {
    my $path = shift;
    return scalar(() = $gateway->log =~ /request delayed.*"GET \Q$path\E /g);
}

# n requests at once; once all of them are answered or delayed, as many seconds
# pass.
sub burst {
    my ($n, $path, $seconds) = @_;
    my $before = delayed($path);
    my $begun = $gateway->begin($n, $path);
    wait_for(sub {
        t::Gateway::answered($begun) + delayed($path) - $before == $n
    }) or diag("$path: neither answered nor delayed");
    advance($seconds // 1.2);
    return t::Gateway::finish($begun);
}

# Answers by what they say.
sub outcome {
    my %n;
    $n{"$_->{status} " . header($_, 'X-Status')}++ for @_;
    return join ', ', map { "$n{$_} x $_" } sort keys %n;
}

# what is delayed, and for how long

# A burst, of which one after the other is served as time goes by.
sub delays_ok {
    my ($path, $name, @delays) = @_;
    my $begun = $gateway->begin(6, "$path?k=delays");
    for my $passed (0 .. 3) {
        ok(wait_for(sub {
            t::Gateway::answered($begun) == 3 + $passed
            && delayed("$path?k=delays") == 3
        }), "$name: $passed delays later");
        advance(0.4) if $passed < 3;
    }
    is(outcome(t::Gateway::finish($begun)),
       '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
       "$name: one passes, a burst is delayed, the rest rejected");
    is(join(' ', sort +(logged("$path delays", 6))),
       join(' ', map({ "200 DELAYED [$_]" } @delays), '200 PASSED [-]',
                 '429 REJECTED [-]', '429 REJECTED [-]'),
       "$name: the log says how long");
}

delays_ok('/b', 'in shared memory', '0.400', '0.800', '1.200');

is(outcome(burst(6, '/d?k=a')),
   '2 x 200 DELAYED, 2 x 200 PASSED, 2 x 429 REJECTED', 'delay=');
is(outcome($gateway->burst(6, '/n?k=a')),
   '4 x 200 PASSED, 2 x 429 REJECTED', 'nodelay');
is(outcome(burst(6, '/after?k=after')),
   '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
   'behind the access phase');
is(outcome($gateway->burst(6, '/try?k=try')),
   '3 x 200 DELAYED_DRY_RUN, 1 x 200 PASSED, 2 x 200 REJECTED_DRY_RUN',
   'a dry run delays nobody');

my $answer = $gateway->get('/b?k=head');
is(header($answer, 'X-RateLimit-Limit') . ' '
   . header($answer, 'X-RateLimit-Remaining'), '4 3',
   'the limit is the burst and the one that is served');

my $held = $gateway->begin(5, '/b?k=retry');
wait_for(sub { t::Gateway::answered($held) == 2 });
my ($denied) = grep { $_->{status} == 429 } @{ $held->{answers} };
is(header($denied, 'Retry-After'), 1, 'Retry-After, rounded up');
advance(1);
is((burst(1, '/b?k=retry'))[0]{status}, 200, 'a retry at that time passes');

# nobody waits for another
is(outcome(burst(120, '/fast?k=a')),
   '99 x 200 DELAYED, 1 x 200 PASSED, 20 x 429 REJECTED', 'a hundred at once');

# clients leave
my @clients = map { client('/slow?k=gone') } 1 .. 50;
wait_for(sub { delayed('/slow?k=gone') == 49 });
close $_ for @clients;
my @gone = logged('/slow gone', 50);
is(scalar(grep { /^499 DELAYED \[\d+\.\d\d\d\]/ } @gone), 49,
   'clients that leave are let go at once');

# a client that has left when the delay begins: the worker is held up until
# the request and the end of the connection are both there
client('/slow?k=left');
logged('/slow left');

my ($worker) = $gateway->workers;
kill STOP => $worker;
close client('/slow?k=left');
kill CONT => $worker;
like((logged('/slow left', 2))[1] // '', qr/^499 DELAYED \[60\.000/,
     'a client that had left before');

# of HTTP/2, one stream leaves
my $http2 = t::Http2->new("$gateway->{dir}/h2.sock");

$http2->get($_, '/b?k=h2') for 1, 3, 5, 7;
wait_for(sub { delayed('/b?k=h2') == 3 });
$http2->reset(5);
like((logged('/b h2', 2))[1], qr/^499 DELAYED \[0\.800\]/,
     'HTTP/2: a stream is reset');
ok($http2->ended(1), 'HTTP/2: a stream is served');
advance(0.4);
ok($http2->ended(3), 'HTTP/2: another');
advance(0.8);
ok($http2->ended(7), 'HTTP/2: and the last');
is(join(' ', map { /(\S+ \S+)/ } logged('/b h2', 4)),
   '200 PASSED 499 DELAYED 200 DELAYED 200 DELAYED', 'HTTP/2: in their order');

$http2->get($_, '/slow?k=h2') for map { 2 * $_ + 9 } 1 .. 20;
wait_for(sub { delayed('/slow?k=h2') == 19 });
$http2->close;
is(scalar(grep { /^499 DELAYED/ } logged('/slow h2', 20)), 19,
   'HTTP/2: the connection ends');

# a connection goes on
my $client = client('/b?k=keep');
syswrite $client, "GET /b?k=keep HTTP/1.1\r\nHost: a\r\n\r\n" x 2;
my $text = '';
for my $delayed (1, 2) {
    wait_for(sub { delayed('/b?k=keep') == $delayed });
    advance(0.4);
}
wait_for(sub {
    sysread $client, $text, 65536, length $text;
    3 == (() = $text =~ /HTTP\/1\.1 200/g);
});
is(join(' ', $text =~ /^X-Status: (\S+?)\r$/mg), 'PASSED DELAYED DELAYED',
   'pipelined requests are delayed one after the other');

# bodies
sub delayed_posts {
    my $n = shift;
    wait_for(sub {
        $n == (() = $gateway->log =~ /request delayed.*body\?k=body/g)
    });
}

sub body_of {
    my $from = shift;
    local $/;
    return <$from> =~ /\r\n\r\n(.*)\n/ && $1;
}

$client = client('POST /body?k=body', "Content-Length: 5\r\nConnection: close");
syswrite $client, 'first';
is(body_of($client), 5, 'a body');

$client = client('POST /body?k=body', "Content-Length: 5\r\nConnection: close");
delayed_posts(1);
syswrite $client, 'later';
advance(0.4);
is(body_of($client), 5, 'a body that comes during the delay');

$client = client('POST /body?k=body',
                 "Content-Length: 300000\r\nConnection: close");
delayed_posts(2);
advance(0.4);
syswrite $client, 'x' x 300000;
is(body_of($client), 300000, 'a body longer than the buffers');
close $client;
is(join(' ', map { /(PASSED|DELAYED)/ } logged('/body body', 3)),
   'PASSED DELAYED DELAYED', 'and they were delayed');
like($gateway->read('access.log'), qr/^\/body body 200 .*\[later\]$/m,
     'the body was read');

# all or nothing
$gateway->get('/two?k=both') for 1 .. 2;
my @answers = $gateway->burst(3, '/and-two?k=both');
is(outcome(@answers), '3 x 429 REJECTED', 'another rule denies at once');
is(told($gateway->get('/b?k=both')), '200 PASSED 3',
   'and the bucket was not charged');

$gateway->get('/two?k=late') for 1 .. 2;
$gateway->get('/b?k=late');
$gateway->get('/and-two?k=late');
is((logged('/and-two late'))[0], '429 REJECTED [-]',
   'nor is a delay logged, that the bucket alone would have had');

# Redis

# a millisecond less, so that rounding delays nobody
delays_ok('/fleet', 'in Redis', '0.399', '0.799', '1.199');
is(told($gateway->get("/3fleet?k=$_")), '200 PASSED 3',
   'Redis: what it rounds up delays nobody') for 1 .. 5;
is(outcome(burst(3, '/and-fleet?k=a')) =~ s/\d x 200/n x 200/gr,
   'n x 200 DELAYED, n x 200 PASSED, 1 x 429 REJECTED',
   'a bucket here, a limit in Redis');
is(outcome(map { burst(1, '/and-fleet?k=later', $_) } 0, 0.4, 0),
   '1 x 200 DELAYED, 1 x 200 PASSED, 1 x 429 REJECTED',
   'a bucket here, then Redis denies');
is(outcome(burst(6, '/fleet-and-b?k=ab')),
   '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
   'a bucket here and one in Redis');

my $open = $gateway->waiting;
my $begun = $gateway->begin(3, '/degraded?k=a');

wait_for(sub {
    t::Gateway::answered($begun) + $gateway->waiting >= $open + 3
});
wait_for(sub {
    advance(0.05);
    return t::Gateway::answered($begun) == 3;
});
is(outcome(t::Gateway::finish($begun)), '3 x 200 DEGRADED',
   'a bucket here, and no Redis');
is(scalar(grep { /\[0\.\d+\]/ } logged('/degraded a', 3)), 2,
   'the delay holds');

client('/slow-fleet?k=gone');
logged('/slow-fleet gone');
$client = client('/slow-fleet?k=gone');
wait_for(sub { delayed('/slow-fleet?k=gone') == 1 });
close $client;
like((logged('/slow-fleet gone', 2))[1] // '', qr/^499 DELAYED \[59\.999/,
     'Redis: a client leaves during the delay');

# a reload, a quit: who is delayed is served, and nobody else waits for that
my @pending = map { client('/b?k=reload', 'Connection: close') } 1 .. 4;
wait_for(sub { delayed('/b?k=reload') == 3 });
$gateway->signal('HUP');
wait_for(sub { $gateway->workers == 2 });
advance(1.2);
$text = join '', map { my $c = $_; local $/; <$c> // '' } @pending;
is(scalar(() = $text =~ /HTTP\/1\.1 200/g), 4, 'a reload: all are served');
ok(wait_for(sub { $gateway->workers == 1 }), 'a reload: the old worker leaves');

@pending = map { client('/b?k=quit', 'Connection: close') } 1 .. 4;
wait_for(sub { delayed('/b?k=quit') == 3 });
$gateway->signal('QUIT');
wait_for(sub { $gateway->log =~ /gracefully shutting down/ });
advance(1.2);
$text = join '', map { my $c = $_; local $/; <$c> // '' } @pending;
is(scalar(() = $text =~ /HTTP\/1\.1 200/g), 4, 'a quit: all are served');

# nothing is left of those who left, whose delays were minutes
$gateway->stop;

# an end at once
$gateway = gateway();
@pending = map { client('/slow?k=term', 'Connection: close') } 1 .. 4;
wait_for(sub { delayed('/slow?k=term') == 3 });
$gateway->stop('TERM');

redis_stop($redis);

# a burst that no timer can delay: 24 days are the most
sub accepts {
    my $more = shift;
    my ($ok, $said) = t::Gateway->new(http => <<"CONF")->check;
    ratelimit_zone \$arg_k zone=z:1m algorithm=leaky_bucket $more;
    server { listen 127.0.0.1:%%PORT%%; ratelimit zone=z; }
CONF
    return ($ok, $said);
}

for ('rate=1r/m burst=34561', 'rate=1r/m burst=10000000',
     'rate=1r/366d burst=1', 'rate=1r/m burst=34600 delay=39')
{
    my ($ok, $said) = accepts($_);
    ok(!$ok && $said =~ /\[emerg\].* expected a burst that the rate drains within 24 days, or "delay=" or "nodelay"/,
       "$_ is refused") or diag($said);
}

for ('rate=1r/m burst=34560', 'rate=1r/m burst=34600 delay=40',
     'rate=1r/m burst=1000000 nodelay', 'rate=1r/d burst=24')
{
    my ($ok, $said) = accepts($_);
    ok($ok, "$_ is accepted") or diag($said);
}

# and the longest that there is ends with its client, too
$gateway = t::Gateway->limited(
    zone => 'algorithm=leaky_bucket rate=1r/24d burst=1',
    http => <<'CONF');
    log_format rl '$uri $arg_k $status $ratelimit_status [$ratelimit_delay] x';
    access_log %%DIR%%/access.log rl;
CONF

$gateway->get('/?k=longest');
close client('/?k=longest');
like((logged('/ longest', 2))[1], qr/^499 DELAYED \[2073600\.000/,
     'the longest delay ends with its client');
$gateway->stop;
