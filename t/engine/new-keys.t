# "new_keys=" of zones with Redis: a network that brings too many values has one
# counter for the fleet, in each way of following it. Which values are known is
# a matter of each gateway.

use t::RateLimit 'no_plan';
use t::Gateway qw( header passed tally wait_for );

my %ZONES = (
    strict => 'rate=6r/d sync=strict',
    lease => 'rate=6r/d',
    split => 'rate=6r/d sync=strict shards=2',
    log => 'algorithm=sliding_log rate=6r/d',
    local => 'rate=6r/d sync=strict fail_mode=local',
);

my @fleet = t::Gateway->limited(
    gateways => 2, workers => 2, redis => redis_port(),
    zone => { map { $_ => "new_keys=1r/d redis=r $ZONES{$_}" } keys %ZONES },
    http => 'real_ip_header X-Address; set_real_ip_from 127.0.0.1;',
    locations => { map { ("/$_" => "ratelimit zone=$_;") } keys %ZONES });
my ($one, $two) = @fleet;

my $made = 0;

# so many values that nobody has seen
sub invented {
    my ($gateway, $zone, $n, $address) = @_;
    return t::Gateway::send_all(
        [map { [$gateway, "/$zone?k=" . $made++, "X-Address: $address"] }
         1 .. $n], 60);
}

for my $zone (sort keys %ZONES) {
    my @known = ("/$zone?k=known", 'X-Address: 198.51.100.1');
    is($_->get(@known)->{status}, 200, "$zone: a value") for @fleet;
    # a lease may reject early, while another worker holds a token
    my $passed = 0;
    ok(wait_for(sub {
        $passed += passed(invented($_, $zone, 4, '198.51.100.2')) for @fleet;
        return $passed >= 6;
    }), "$zone: the limit of the network");
    is($passed, 6, "$zone: once for the fleet");
    is(tally(map { invented($_, $zone, 5, '198.51.100.3') } @fleet),
       '10 x 429', "$zone: rejected everywhere");
    is($_->get(@known)->{status}, 200, "$zone: the value goes on") for @fleet;
    is(tally(invented($one, $zone, 1, '203.0.113.1')), '1 x 200',
       "$zone: another network");
}

$_->stop for @fleet;

# async, and a Redis that is away
my $away = t::Gateway->limited(
    workers => 2, redis => 'server 127.0.0.1:1; timeout 100ms',
    zone => {
        async => 'new_keys=1r/d redis=r rate=3r/d sync=async',
        local => 'new_keys=1r/d redis=r rate=3r/d fail_mode=local',
        emergency => 'new_keys=1r/d redis=r rate=9r/d emergency=3r/d',
    },
    http => 'real_ip_header X-Address; set_real_ip_from 127.0.0.1;',
    locations => { map { ("/$_" => "ratelimit zone=$_;") }
                   qw( async local emergency ) });

for my $zone (qw( async local emergency )) {
    is($away->get("/$zone?k=known", 'X-Address: 198.51.100.1')->{status}, 200,
       "$zone, without Redis: a value");
    is(tally(invented($away, $zone, 9, '198.51.100.2')), '3 x 200, 6 x 429',
       "$zone, without Redis: the network");
    is($away->get("/$zone?k=known", 'X-Address: 198.51.100.1')->{status}, 200,
       "$zone, without Redis: the value goes on");
}

$away->stop;
