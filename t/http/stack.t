# Several limits on one request, some of this gateway and some of the fleet: all
# or nothing, the strictest answers.

use t::RateLimit 'no_plan';
use t::Gateway qw( told );

my $redis = redis_port();
my $gone = 'server 127.0.0.1:' . t::Gateway::free_port() . '; timeout 200ms';

my $gateway = t::Gateway->limited(
    redis => { r => $redis, gone => $gone },
    zone => { node => 'rate=10r/h', fleet => 'rate=20r/h redis=r sync=strict',
              lost => 'rate=5r/h redis=gone' },
    rules => ['tenant zone=fleet sync=strict rate=3r/h key=$arg_t',
              'plan zone=fleet sync=strict rate=$arg_plan'],
    locations => {
        '/both' => 'ratelimit zone=node; ratelimit zone=fleet;',
        '/node' => 'ratelimit zone=node;',
        '/fleet' => 'ratelimit zone=fleet rule=fleet;',
        '/lost' => 'ratelimit zone=node; ratelimit zone=lost;',
    });

sub row {
    my ($path, $expected, $name) = @_;
    is(told($gateway->get($path), 'X-Rule', 'X-Source'), $expected, $name);
}

# the strictest of both places
row('/both?k=a', '200 PASSED 9 node local', 'the gateway is the strictest');
row('/both?k=a&t=x', '200 PASSED 2 tenant redis', 'the tenant is');
row('/fleet?k=a', '200 PASSED 17 fleet redis', 'each counted once');

# the fleet denies by a key of its own: the gateway and the other key get back,
# in Redis behind the answer
$gateway->get("/both?k=b$_&t=x") for 1 .. 2;
row('/both?k=c&t=x', '429 REJECTED 0 tenant redis', 'the tenant is spent');
$gateway->settled($redis);
row('/fleet?k=c', '200 PASSED 19 fleet redis',
    'the client\'s counter in Redis had its token back');
row('/node?k=c', '200 PASSED 9 node local', 'and that of the gateway');

# the gateway denies: Redis is not even asked
$gateway->get('/node?k=d') for 1 .. 10;
row('/both?k=d&t=y', '429 REJECTED 0 node local', 'the gateway is spent');
row('/fleet?k=d', '200 PASSED 19 fleet redis', 'the fleet was not asked');

# two rules of one key go in one call, all or nothing
row('/both?k=e&plan=2r/h', '200 PASSED 1 plan redis', 'a plan');
row('/both?k=e&plan=2r/h', '200 PASSED 0 plan redis', 'a plan, spent');
row('/both?k=e&plan=2r/h', '429 REJECTED 0 plan redis', 'a plan, denied');
row('/fleet?k=e', '200 PASSED 17 fleet redis', 'the other was not charged');
row('/node?k=e', '200 PASSED 7 node local', 'nor that of the gateway');

# one place has no answer: what has one still holds
row('/lost?k=f', '200 DEGRADED -1 lost fallback', 'degraded');
$gateway->get('/lost?k=f') for 1 .. 9;
row('/lost?k=f', '429 REJECTED 0 node local', 'the gateway still rejects');

$gateway->stop;
