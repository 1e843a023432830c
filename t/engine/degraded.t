# Redis fails in every way: the traffic does not. Each request passes within the
# timeout and is told so, and when Redis is back the limit is.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally told wait_for );
use t::FakeRedis;
use Time::HiRes qw( sleep );

use constant TIMEOUT => '200ms';

t::Clock::hurry();

sub gateway {
    my ($port, $workers) = @_;
    return t::Gateway->limited(workers => $workers // 1, redis => $port,
                               timeout => TIMEOUT, zone => 'rate=10r/h');
}

sub degraded {
    my ($gateway, $name) = @_;
    # a key of its own: of another one a lease may hold tokens
    my $path = '/?k=' . rand;
    my $answer = $gateway->get($path);
    is(told($answer), '200 DEGRADED -1', "$name: it passes");
    is(header($answer, $_->[0]), $_->[1], "$name: $_->[0]")
        for ['X-RateLimit-Policy', 'degraded'],
            ['X-RateLimit-Status', 'degraded'], ['X-RateLimit-Limit', 10],
            ['X-RateLimit-Reset', ''], ['Retry-After', ''],
            ['X-Source', 'fallback'];
    my @answers = $gateway->burst(100, $path);
    is(tally(@answers), '100 x 200', "$name: a hundred at once");
}

sub recovers {
    my ($gateway, $name) = @_;
    # each worker has a connection of its own
    ok(wait_for(sub {
        tally($gateway->burst(30, '/?k=' . rand))
            eq '10 x 200, 20 x 429'
    }), "$name: it recovers by itself and is exact again");
}

# a real server that is not there, comes, is stopped, killed, full, lost
my $port = t::Gateway::free_port();
my $gateway = gateway($port, 2);

degraded($gateway, 'no server');
# a busy machine may answer requests before a worker has seen its connect fail
my $refused = qr/\[error\] .*ratelimit redis "r": no connection to 127\.0\.0\.1:$port: connect\(\) failed \(111: /;
ok(wait_for(sub { $gateway->log =~ $refused }), 'no server: the log');

redis_start(port => $port);
recovers($gateway, 'a server comes');

kill STOP => redis_pid($port);
degraded($gateway, 'stopped');
kill CONT => redis_pid($port);
recovers($gateway, 'goes on');

redis_stop($port);
degraded($gateway, 'killed');
redis_start(port => $port);
recovers($gateway, 'started empty');
like($gateway->log, qr/\[notice\] .*ratelimit redis "r": connected to 127\.0\.0\.1:$port again/,
     'and the log says so');

redis_cli($port, 'config', 'set', 'maxmemory', 1);
degraded($gateway, 'full');

# whichever came first in its second
like($gateway->log, qr/\[error\] .*(?:answered a check with OOM|calls end with "oom")/,
     'full: the log');
redis_cli($port, 'config', 'set', 'maxmemory', 0);
recovers($gateway, 'not full');

redis_cli($port, 'config', 'set', 'min-replicas-to-write', 1);
degraded($gateway, 'no replica');
# a worker logs one such line a second
ok(wait_for(sub {
    $gateway->get('/?k=a');
    $gateway->log =~ /\[error\] .*answered a check with NOREPLICAS/
}), 'no replica: the log');
redis_cli($port, 'config', 'set', 'min-replicas-to-write', 0);
recovers($gateway, 'no replica needed');

redis_cli($port, 'client', 'kill', 'type', 'normal') for 1 .. 3;
recovers($gateway, 'connections killed');

redis_cli($port, 'replicaof', '127.0.0.1', 1);
degraded($gateway, 'read-only');
redis_cli($port, 'replicaof', 'no', 'one');
recovers($gateway, 'not read-only');

# silent under load, and back: whatever is answered is an answer
kill STOP => redis_pid($port);

my @answers = $gateway->burst(200, '/?k=' . rand);

is(scalar(grep { header($_, 'X-Status') eq 'DEGRADED' } @answers),
   200, 'silence: no request is checked');

my $starter = t::Gateway::beside(sub {
    sleep 0.5;
    kill CONT => redis_pid($port);
});

push @answers, map { $gateway->burst(200, '/?k=' . rand) } 1 .. 10;
waitpid $starter, 0;

is(scalar(grep { $_->{status} !~ /^(?:200|429)$/ } @answers), 0,
   'silence: every request is answered');
recovers($gateway, 'after the silence');

$gateway->stop;
redis_stop($port);

# a server that answers nonsense
my $good = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

for (['an error', "-ERR no\r\n"],
     ['an error without an end', '-ERR' . 'x' x 100_000],
     ['a status', "+OK\r\n"],
     ['nil', "\$-1\r\n"],
     ['an empty array', "*0\r\n"],
     ['too few values', "*3\r\n:1\r\n:2\r\n:3\r\n"],
     ['values out of range', "*4\r\n:1\r\n:-5\r\n:1\r\n:0\r\n"],
     ['more left than there can be', "*4\r\n:1\r\n:99999\r\n:1\r\n:0\r\n"],
     ['huge values', "*4\r\n" . ":9223372036854775807\r\n" x 4],
     ['no integers', "*4\r\n" . "\$1\r\na\r\n" x 4],
     ['nested arrays', "*1\r\n" x 9 . $good],
     ['too many values', '*100000' . "\r\n" . ":1\r\n" x 1000],
     ['a huge bulk', "\$400000000\r\nx"],
     ['another protocol', "HTTP/1.1 400 Bad Request\r\n\r\n"],
     ['zeros', "\0" x 100],
     ['MOVED from a single server', "-MOVED 1 127.0.0.1:1\r\n"],
     ['MOVED to nowhere', "-MOVED\r\n"],
     ['TRYAGAIN for ever', "-TRYAGAIN later\r\n"],
     ['NOSCRIPT for ever', "-NOSCRIPT no\r\n"],
     ['silence', ''],
     ['the end of the connection', undef])
{
    my ($name, $bytes) = @$_;
    my $fake = t::FakeRedis->new(sub { $bytes });
    my $gateway = gateway($fake->{port});
    my $answer = $gateway->get('/?k=a');
    is(told($answer), '200 DEGRADED -1', "$name: it passes");
    is(tally($gateway->burst(50, '/?k=a')), '50 x 200', "$name: fifty at once");
    $fake->stop;
    $fake = t::FakeRedis->new(sub { $good }, port => $fake->{port});
    ok(wait_for(sub {
        told($gateway->get('/?k=a')) eq '200 PASSED 9'
    }), "$name: it recovers");
    $gateway->stop;
    $fake->stop;
}

# one reply too many, and replies in single bytes
my $fake = t::FakeRedis->new(sub { $good . $good });
$gateway = gateway($fake->{port});
is(tally($gateway->burst(50, '/?k=a')), '50 x 200', 'replies to nobody');
like($gateway->log, qr/a reply to no call/, 'the log says so');
$gateway->stop;
$fake->stop;
