# "ratelimit ... look": a location that tells a client what is left, over all
# gateways, takes nothing and rejects nobody.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally told );

my $redis = redis_start();

my %LIMITS = (
    bucket => 'rate=100r/d',
    costly => 'rate=100r/d cost=$arg_cost',
    strict => 'rate=100r/d sync=strict',
    async => 'rate=100r/d sync=async',
    leaky => 'algorithm=leaky_bucket rate=100r/d burst=99 nodelay',
    slow => 'algorithm=leaky_bucket rate=100r/s burst=99',
    fixed => 'algorithm=fixed_window limit=100 window=calendar:month',
    sliding => 'algorithm=sliding_window limit=100 window=1d',
    log => 'algorithm=sliding_log limit=100 window=1d',
    concurrency => 'algorithm=concurrency limit=100',
    logins => 'rate=100r/d count_status=204',
    told => 'rate=100r/d cost_header=X-Cost',
    ended => 'rate=100r/d cost_end=$arg_cost',
    closed => 'rate=100r/d fail_mode=closed',
    local => 'rate=100r/d fail_mode=local',
    growth => 'rate=100r/d retry=growth',
);
my @local = grep { !/async|strict|closed|local/ } keys %LIMITS;

# $ratelimit_status has BYPASSED where nothing counts
my ($one, $two) = t::Gateway->limited(
    gateways => 2, redis => { r => $redis }, workers => 2,
    zone => { fleet => 'redis=r', here => '' },
    rules => [(map { "$_ zone=fleet $LIMITS{$_}" } sort keys %LIMITS),
              map { "$_ zone=here $LIMITS{$_}" } sort @local],
    server => 'add_header X-Cost 7;',
    locations => {
        map { my ($zone, $name) = @$_;
              ("/$zone/$name" => "ratelimit zone=$zone rule=$name;",
               "/usage/$zone/$name" => "ratelimit zone=$zone rule=$name look;") }
        (map { [fleet => $_] } keys %LIMITS), map { [here => $_] } @local
    });

for my $name (sort @local) {
    my $path = "here/$name?k=a&cost=1";
    is($one->told("/usage/$path"), '200 PASSED 100', "$name: all of it, here");
    is(tally($one->burst(5, "/$path")), '5 x 200', 'five requests');
    my $told = $one->told("/usage/$path");
    is(join(' ', map { $one->told("/usage/$path") eq $told ? 'same' : 'less' } 1 .. 3),
       'same same same', 'to look takes nothing') if $name ne 'slow';
    is($told, '200 PASSED 95', 'what is left')
        if $name !~ /slow|concurrency|logins|told/;
    is(tally($one->burst(120, "/usage/$path")), '120 x 200', 'nobody is rejected');
}

for my $name (sort keys %LIMITS) {
    my $path = "fleet/$name?k=a&cost=1";
    is($one->told("/usage/$path"), '200 PASSED 100', "$name: all of it");
    is(tally($one->burst(30, "/$path")), '30 x 200', 'thirty requests');
    $one->settled($redis);
    my $sum = 0;
    ok(t::Gateway::wait_for(sub { ($sum) = $two->told("/usage/$path") =~ /(\d+)$/;
                                  $sum == 70 }), "the other gateway tells it: $sum")
        if $name !~ /slow|concurrency|logins|told/;
    is(tally($two->burst(120, "/usage/$path")), '120 x 200', 'nobody is rejected');
    is($two->told("/usage/$path"), '200 PASSED 70', 'and nothing was taken')
        if $name !~ /slow|concurrency|logins|told/;
}

# one that has nothing left, and one without Redis
is(tally($two->burst(100, '/fleet/strict?k=b')), '100 x 200', 'all is spent');
is($two->told('/fleet/strict?k=b'), '429 REJECTED 0', 'a request is rejected');
is($two->told('/usage/fleet/strict?k=b'), '200 PASSED 0', 'a look is not');
is($one->told('/usage/fleet/strict?k=b'), '200 PASSED 0', 'there as well');

redis_stop($redis);

for my $name (qw( bucket strict closed local )) {
    is($one->told("/usage/fleet/$name?k=a"), '200 DEGRADED -1',
       "$name: without Redis it is not known");
}

$_->stop for $one, $two;
