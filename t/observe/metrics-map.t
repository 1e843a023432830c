# ratelimit_redis_breaker_state has the Redis nodes of the current slot map: one
# that was killed is gone when its hash slots have moved, also after a reload.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

use File::Temp ();

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

my $flags = File::Temp->newdir;
my ($first, $second) = map { t::Gateway::free_port() } 1, 2;

# CLUSTER SLOTS' answer of [first, last, port]
sub slots {
    return '*' . @_ . "\r\n" . join '', map {
        "*3\r\n:$_->[0]\r\n:$_->[1]\r\n*3\r\n\$9\r\n127.0.0.1\r\n:$_->[2]\r\n\$2\r\nid\r\n"
    } @_;
}

sub node {
    my $port = shift;
    return t::FakeRedis->new(sub {
        return $GOOD if $_[0] ne 'CLUSTER';
        return -e "$flags/moved"
               ? slots([0, 16383, $first])
               : slots([0, 8191, $first], [8192, 16383, $second]);
    }, port => $port);
}

# "<port or slot map>:<state> ..."
sub states {
    my $gateway = shift;
    my %states = $gateway->get('/metrics')->{body}
        =~ /^ratelimit_redis_breaker_state\{redis="r",node="(?:127\.0\.0\.1:)?(.*)"\} (\d)$/mg;
    return join ' ', map { "$_:" . ($states{$_} ? 'open' : 'closed') } sort keys %states;
}

# Requests for many keys, until the gateway says so.
sub becomes {
    my ($gateway, $states, $name) = @_;
    my $now;
    ok(wait_for(sub {
        $gateway->get('/?k=' . rand) for 1 .. 5;
        return ($now = states($gateway)) eq $states;
    }), $name) or diag("$now\n" . $gateway->log);
}

# while there is no map, what waits for it has a breaker
my $gateway = t::Gateway->limited(workers => 2, timeout => '200ms',
    redis => "cluster 127.0.0.1:$first", zone => 'rate=10r/h sync=strict');

is(states($gateway), 'slot map:closed', 'no map');
becomes($gateway, 'slot map:open', 'no map: its breaker opens');

my $one = node($first);
my $two = node($second);
my $both = join ' ', sort "$first:closed", "$second:closed";

becomes($gateway, $both, 'a map: its nodes, and nothing else');

# a node that is killed, and whose hash slots stay, is in the map
$two->stop;
becomes($gateway, join(' ', sort "$first:closed", "$second:open"),
        'killed: its breaker is open');

open my $flag, '>', "$flags/moved" or die;
becomes($gateway, "$first:closed", 'its slots have moved: it is gone');

$gateway->reload;
is(states($gateway), "$first:closed", 'it stays away after a reload');
$gateway->stop;
