# What a leaky bucket's delay is to a request: it ends with the client, holds
# no worker up, and no other request; a reload and a quit wait for it. And what
# it is beside other rules, and in Redis.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Http2;

use IO::Socket::INET;
use Time::HiRes qw( sleep time );

my $redis = redis_start();

# A token comes back each 0.4 s, but for "slow": each minute.
sub gateway {
    return t::Gateway->new(http => <<"CONF")->start;
    # at debug every line is written, else one of a kind in a second
    error_log %%DIR%%/error.log debug;
    ratelimit_redis r { server 127.0.0.1:$redis; timeout 5s; }
    ratelimit_redis gone { server 127.0.0.1:1; timeout 100ms; }
    log_format rl '\$uri \$arg_k \$status \$ratelimit_status '
                  '[\$ratelimit_delay] \$request_time [\$request_body]';
    access_log %%DIR%%/access.log rl;

    ratelimit_zone \$arg_k zone=b:1m rate=5r/2s algorithm=leaky_bucket burst=3;
    ratelimit_zone \$arg_k zone=d:1m rate=5r/2s algorithm=leaky_bucket burst=3
                   delay=1;
    ratelimit_zone \$arg_k zone=n:1m rate=5r/2s algorithm=leaky_bucket burst=3
                   nodelay;
    ratelimit_zone \$arg_k zone=slow:1m rate=1r/m algorithm=leaky_bucket
                   burst=1000;
    ratelimit_zone \$arg_k zone=fast:1m rate=100r/s algorithm=leaky_bucket
                   burst=99;
    ratelimit_zone \$arg_k zone=third:1m rate=3r/s algorithm=leaky_bucket
                   burst=3;
    ratelimit_zone \$arg_k zone=two:1m rate=2r/h;
    ratelimit_zone \$arg_k zone=fleet:1m rate=5r/2s algorithm=leaky_bucket
                   burst=3 redis=r;
    ratelimit_zone \$arg_k zone=fleet-third:1m rate=3r/s
                   algorithm=leaky_bucket burst=3 redis=r;
    ratelimit_zone \$arg_k zone=fleet-slow:1m rate=1r/m
                   algorithm=leaky_bucket burst=9 redis=r;
    ratelimit_zone \$arg_k zone=fleet-two:1m rate=2r/h redis=r;
    ratelimit_zone \$arg_k zone=degraded:1m rate=2r/h redis=gone;
    ratelimit_zone \$arg_k zone=try:1m rate=5r/2s algorithm=leaky_bucket
                   burst=3 dry_run;

    server {
        listen unix:%%DIR%%/api.sock;
        access_log off;
        lingering_timeout 100ms;
        return 200 "\$content_length\\n";
    }
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        listen unix:%%DIR%%/h2.sock http2;
        add_header X-Status \$ratelimit_status always;
        location /b { ratelimit zone=b; empty_gif; }
        location /d { ratelimit zone=d; empty_gif; }
        location /n { ratelimit zone=n; empty_gif; }
        location /slow { ratelimit zone=slow; empty_gif; }
        location /fast { ratelimit zone=fast; empty_gif; }
        location /third { ratelimit zone=third; empty_gif; }
        location /after {
            ratelimit zone=b; ratelimit_phase after_auth; empty_gif;
        }
        location /body {
            ratelimit zone=b; proxy_pass http://unix:%%DIR%%/api.sock;
        }
        location /and-two { ratelimit zone=b; ratelimit zone=two; empty_gif; }
        location /two { ratelimit zone=two; empty_gif; }
        location /fleet { ratelimit zone=fleet; empty_gif; }
        location /3fleet { ratelimit zone=fleet-third; empty_gif; }
        location /slow-fleet { ratelimit zone=fleet-slow; empty_gif; }
        location /and-fleet {
            ratelimit zone=b; ratelimit zone=fleet-two; empty_gif;
        }
        location /fleet-and-b {
            ratelimit zone=fleet; ratelimit zone=b; empty_gif;
        }
        location /degraded {
            ratelimit zone=b; ratelimit zone=degraded; empty_gif;
        }
        location /try { ratelimit zone=try; empty_gif; }
        location /free { empty_gif; }
    }
CONF
}

my $gateway = gateway();

# Sends a request and does not wait for the answer.
sub client {
    my ($path, $more) = @_;

    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $gateway->{port})
        or die "connect: $!";

    $path = "GET $path" if $path !~ /^[A-Z]+ /;
    syswrite $client, join "\r\n", "$path HTTP/1.1", 'Host: a',
             $more // (), '', '';

    return $client;
}

# What the log says of the requests of a path and key: "200 DELAYED [0.400]".
sub logged {
    my ($path, $n) = @_;

    my @lines;
    t::Gateway::wait_for(sub {
        @lines = $gateway->read('access.log') =~ /^\Q$path\E (\S+ \S+ \S+) /mg;
        return @lines >= ($n // 1);
    });

    return @lines;
}

sub seconds {
    my $path = shift;
    logged($path);
    return ($gateway->read('access.log') =~ /^\Q$path\E \S+ \S+ \S+ (\S+)/m)[0];
}

# Answers by what they say, and how long the longest took at least.
sub outcome {
    my %n;
    $n{"$_->{status} " . t::Gateway::header($_, 'X-Status')}++ for @_;

    return join ', ', map { "$n{$_} x $_" } sort keys %n;
}

sub longest {
    return (sort { $b <=> $a } map { $_->{seconds} } @_)[0];
}

# what is delayed, and for how long

my @answers = $gateway->burst(6, '/b?k=a');
is(outcome(@answers), '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
   'one passes, a burst is delayed, the rest rejected');
cmp_ok(longest(@answers), '>', 0.8, 'the last of the burst waits longest');

# The delays of a burst that arrives within 100 ms, as a busy machine's may not.
sub delays_ok {
    my ($path, $name) = @_;

    my $delays = qr/^200\ DELAYED\ \[0\.(?:3\d\d|400)\]
                    \ 200\ DELAYED\ \[0\.(?:7\d\d|800)\]
                    \ 200\ DELAYED\ \[1\.(?:1\d\d|200)\]
                    \ 200\ PASSED\ \[-\]\ 429\ REJECTED\ \[-\]
                    \ 429\ REJECTED\ \[-\]$/x;
    my @said;

    for my $attempt (1 .. 5) {
        $gateway->burst(6, "$path?k=delays$attempt");
        @said = sort +(logged("$path delays$attempt", 6));
        last if "@said" =~ $delays;
    }

    like("@said", $delays, $name);
}

delays_ok('/b', 'the log says how long each');

is(outcome($gateway->burst(6, '/d?k=a')),
   '2 x 200 DELAYED, 2 x 200 PASSED, 2 x 429 REJECTED', 'delay=');
is(outcome($gateway->burst(6, '/n?k=a')),
   '4 x 200 PASSED, 2 x 429 REJECTED', 'nodelay');
is(outcome($gateway->burst(6, '/after?k=after')),
   '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
   'behind the access phase');
is(outcome($gateway->burst(6, '/try?k=try')),
   '3 x 200 DELAYED_DRY_RUN, 1 x 200 PASSED, 2 x 200 REJECTED_DRY_RUN',
   'a dry run');
ok(t::Gateway::wait_for(sub {
       longest($gateway->burst(3, '/try?k=' . rand)) < 0.4
   }), 'a dry run delays nobody');

my $answer = $gateway->get('/b?k=head');
is(t::Gateway::header($answer, 'X-RateLimit-Limit') . ' '
   . t::Gateway::header($answer, 'X-RateLimit-Remaining'), '4 3',
   'the limit is the burst and the one that is served');

# a machine so busy that a second passes between two requests is out of order
@answers = $gateway->burst(5, '/b?k=retry');
my ($denied) = grep { $_->{status} == 429 } @answers;
is(t::Gateway::header($denied, 'Retry-After'), 1, 'Retry-After, rounded up');
sleep 1;
is($gateway->get('/b?k=retry')->{status}, 200, 'a retry at that time passes');

# nobody waits for another

# where all of them do not come within 10 ms one more fits: then once more

my $fast;

ok(t::Gateway::wait_for(sub {
    @answers = $gateway->burst(120, '/fast?k=' . rand);
    $fast = outcome(@answers) =~ s/\d+ x 200 (DELAYED|PASSED)/$1/gr;

    my $rejected = grep { $_->{status} == 429 } @answers;
    cmp_ok($rejected, '<=', 20, 'no fewer than a hundred pass');
    return $rejected == 20;
}, 60), 'a hundred at once');
is($fast, 'DELAYED, PASSED, 20 x 429 REJECTED', 'of whom all but one wait');
cmp_ok(longest(@answers), '<', 10, 'in parallel');

# clients leave

my @clients = map { client('/slow?k=gone') } 1 .. 50;
t::Gateway::wait_for(sub {
    49 <= (() = $gateway->log =~ /request delayed.*slow\?k=gone/g)
});
close $_ for @clients;
my @gone = logged('/slow gone', 50);
is(scalar(grep { /^499 DELAYED \[\d+\.\d\d\d\]/ } @gone), 49,
   'clients that leave are let go');
cmp_ok(seconds('/slow gone'), '<', 20, 'at once');

# a client that has left when the delay begins: the worker is held up until
# the request and the end of the connection are both there

client('/slow?k=left');
logged('/slow left');

my ($worker) = $gateway->workers;
kill STOP => $worker;
close client('/slow?k=left');
sleep 0.1;
kill CONT => $worker;
like((logged('/slow left', 2))[1] // '', qr/^499 DELAYED \[\d\d\./,
     'a client that had left before');

# of HTTP/2, one stream leaves

my $http2 = t::Http2->new("$gateway->{dir}/h2.sock");

$http2->get($_, '/b?k=h2') for 1, 3, 5, 7;
t::Gateway::wait_for(sub {
    3 == (() = $gateway->log =~ /request delayed.*b\?k=h2/g)
});
$http2->reset(5);
like((logged('/b h2', 2))[1], qr/^499 DELAYED \[0\.(?:7\d\d|800)\]/,
     'HTTP/2: a stream is reset');
ok($http2->ended($_), "HTTP/2: stream $_ is served") for 1, 3, 7;
is(join(' ', map { /(\S+ \S+)/ } logged('/b h2', 4)),
   '200 PASSED 499 DELAYED 200 DELAYED 200 DELAYED', 'HTTP/2: in their order');

$http2->get($_, '/slow?k=h2') for map { 2 * $_ + 9 } 1 .. 20;
t::Gateway::wait_for(sub {
    19 == (() = $gateway->log =~ /request delayed.*slow\?k=h2/g)
});
$http2->close;
is(scalar(grep { /^499 DELAYED/ } logged('/slow h2', 20)), 19,
   'HTTP/2: the connection ends');

# a connection goes on

my $client = client('/b?k=keep');
syswrite $client, "GET /b?k=keep HTTP/1.1\r\nHost: a\r\n\r\n" x 2;
my $text = '';
t::Gateway::wait_for(sub {
    sysread $client, $text, 65536, length $text;
    3 == (() = $text =~ /HTTP\/1\.1 200/g);
});
is(join(' ', $text =~ /^X-Status: (\S+?)\r$/mg), 'PASSED DELAYED DELAYED',
   'pipelined requests are delayed one after the other');

# bodies

$client = client('POST /body?k=body', "Content-Length: 5\r\nConnection: close");
syswrite $client, 'first';
is(do { local $/; <$client> } =~ /\r\n\r\n(.*)\n/ && $1, 5, 'a body');

$client = client('POST /body?k=body', "Content-Length: 5\r\nConnection: close");
sleep 0.1;
syswrite $client, 'later';
is(do { local $/; <$client> } =~ /\r\n\r\n(.*)\n/ && $1, 5,
   'a body that comes during the delay');

$client = client('POST /body?k=body',
                 "Content-Length: 300000\r\nConnection: close");
syswrite $client, 'x' x 300000;
is(do { local $/; <$client> } =~ /\r\n\r\n(.*)\n/ && $1, 300000,
   'a body longer than the buffers');
is(join(' ', map { /(PASSED|DELAYED)/ } logged('/body body', 3)),
   'PASSED DELAYED DELAYED', 'and they were delayed');
like($gateway->read('access.log'), qr/^\/body body 200 .*\[later\]$/m,
     'the body was read');

# all or nothing

$gateway->get('/two?k=both') for 1 .. 2;
@answers = $gateway->burst(3, '/and-two?k=both');
is(outcome(@answers), '3 x 429 REJECTED', 'another rule denies');
ok(t::Gateway::wait_for(sub {
       longest($gateway->burst(3, '/and-two?k=both')) < 0.4
   }), 'at once');
is(t::Gateway::told($gateway->get('/b?k=both')), '200 PASSED 3',
   'and the bucket was not charged');

$gateway->get('/two?k=late') for 1 .. 2;
$gateway->get('/b?k=late');
$gateway->get('/and-two?k=late');
is((logged('/and-two late'))[0], '429 REJECTED [-]',
   'nor is a delay logged, that the bucket alone would have had');

# Redis

is(outcome($gateway->burst(6, '/fleet?k=a')),
   '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED', 'Redis: a burst');
delays_ok('/fleet', 'Redis: how long each');
is(t::Gateway::told($gateway->get("/3fleet?k=$_")), '200 PASSED 3',
   'Redis: what it rounds up delays nobody') for 1 .. 5;
is(outcome($gateway->burst(3, '/and-fleet?k=a')) =~ s/\d x 200/n x 200/gr,
   'n x 200 DELAYED, n x 200 PASSED, 1 x 429 REJECTED',
   'a bucket here, a limit in Redis');
is(outcome(map { $gateway->get('/and-fleet?k=later') } 1 .. 3),
   '1 x 200 DELAYED, 1 x 200 PASSED, 1 x 429 REJECTED',
   'a bucket here, then Redis denies');
is(outcome($gateway->burst(6, '/fleet-and-b?k=ab')),
   '3 x 200 DELAYED, 1 x 200 PASSED, 2 x 429 REJECTED',
   'a bucket here and one in Redis');

@answers = $gateway->burst(3, '/degraded?k=a');
is(outcome(@answers), '3 x 200 DEGRADED', 'a bucket here, and no Redis');
cmp_ok(longest(@answers), '>', 0.5, 'the delay holds');

client('/slow-fleet?k=gone');
logged('/slow-fleet gone');
$client = client('/slow-fleet?k=gone');
t::Gateway::wait_for(sub {
    $gateway->log =~ /request delayed.*slow-fleet\?k=gone/
});
close $client;
like((logged('/slow-fleet gone', 2))[1] // '', qr/^499 DELAYED \[[56]\d\./,
     'Redis: a client leaves during the delay');

# a reload, a quit: who is delayed is served, and nobody else waits for that

my @pending = map { client('/b?k=reload', 'Connection: close') } 1 .. 4;
sleep 0.2;
$gateway->signal('HUP');
$text = join '', map { my $c = $_; local $/; <$c> // '' } @pending;
is(scalar(() = $text =~ /HTTP\/1\.1 200/g), 4, 'a reload: all are served');
ok(t::Gateway::wait_for(sub { $gateway->workers == 1 }),
   'a reload: the old worker leaves');

@pending = map { client('/b?k=quit', 'Connection: close') } 1 .. 4;
sleep 0.2;
$gateway->signal('QUIT');
$text = join '', map { my $c = $_; local $/; <$c> // '' } @pending;
is(scalar(() = $text =~ /HTTP\/1\.1 200/g), 4, 'a quit: all are served');

# nothing is left of those who left, whose delays were minutes
$gateway->stop;

# an end at once

$gateway = gateway();
@pending = map { client('/slow?k=term', 'Connection: close') } 1 .. 4;
sleep 0.2;
my $begin = time;
$gateway->stop('TERM');
cmp_ok(time - $begin, '<', 10, 'a fast end waits for no delay');

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

$gateway = t::Gateway->new(http => <<'CONF')->start;
    log_format rl '$uri $arg_k $status $ratelimit_status [$ratelimit_delay] x';
    access_log %%DIR%%/access.log rl;
    ratelimit_zone $arg_k zone=z:1m algorithm=leaky_bucket rate=1r/24d burst=1;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF

$gateway->get('/?k=longest');
close client('/?k=longest');
like((logged('/ longest', 2))[1], qr/^499 DELAYED \[20(?:735\d\d|73600)\./,
     'the longest delay ends with its client');
$gateway->stop;
