# Log lines about Redis: of one Redis node and kind, one a second from all
# workers together, and the next one says how many were suppressed.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

use Time::HiRes qw( sleep );

# wherever a second begins, one of the nodes gets its first error near its end
my $NODES = 10;
my $ROUNDS = 30;

# an error that says nothing of the node's health: no breaker opens
my @fakes = map { t::FakeRedis->new(sub { "-WRONGTYPE x\r\n" }) } 1 .. $NODES;

my ($redis, $locations) = ('', '');

for my $i (0 .. $#fakes) {
    $redis .= "ratelimit_redis r$i { server 127.0.0.1:$fakes[$i]{port}; timeout 5s; }\n"
              . "ratelimit_zone \$arg_k zone=z$i:64k rate=10r/h redis=r$i sync=strict;\n";
    $locations .= "location /$i { ratelimit zone=z$i; empty_gif; }\n";
}

my $gateway = t::Gateway->new(workers => 2, http => <<"CONF")->start;
    $redis
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
    }
CONF

my @asked = (0) x $NODES;

for my $round (1 .. $ROUNDS) {
    for my $i (grep { $_ < $round } 0 .. $#fakes) {
        $gateway->get("/$i?k=a");
        $asked[$i]++;
    }
    sleep 0.1;
}

# one more line of each tells what was suppressed until then
sleep 1.1;
$gateway->get("/$_?k=a"), $asked[$_]++ for 0 .. $#fakes;

my $log = $gateway->log;

for my $i (0 .. $#fakes) {
    my (%seconds, $lines, $suppressed);
    while ($log =~ /^(\S+ \S+) \[error\].* "r$i": .* answered a check with WRONGTYPE(.*)$/mg) {
        $seconds{$1}++;
        $lines++;
        $suppressed += $2 =~ /\((\d+) similar lines? suppressed\)/ ? $1 : 0;
    }
    is(join(', ', grep { $seconds{$_} > 1 } sort keys %seconds), '',
       "node $i: no second has two lines");
    is($lines + $suppressed, $asked[$i],
       "node $i: every error is written, or counted as suppressed");
}

$gateway->stop;

# A reason that comes when the places of all reasons have just been used, and
# opens the breaker: its line comes within seconds, not a minute later.
my @words = map { "E$_" } 'A' .. 'H';
my $answers = 0;
my $fake = t::FakeRedis->new(sub {
    my $word = $words[$answers++] // 'OOM';
    return "-$word x\r\n";
});

$gateway = t::Gateway->limited(
    redis => $fake->{port},
    zone => { 'z:64k' => 'rate=10r/h sync=strict redis=r' });

$gateway->get("/?k=$_") for 1 .. 80;

ok(wait_for(sub {
    $gateway->get('/?k=a');
    $gateway->log =~ /answered a check with OOM/;
}), 'the line of a reason that found no place');

$gateway->stop;
