# Several limits on one request, some of this node and some of the fleet: all or
# nothing, the strictest answers.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis r {
        server 127.0.0.1:$redis; prefix $prefix; timeout 5s;
    }
    ratelimit_redis gone {
        server 127.0.0.1:@{[t::Gateway::free_port()]}; timeout 200ms;
    }
    ratelimit_zone \$arg_k zone=node:1m rate=10r/h;
    ratelimit_zone \$arg_k zone=fleet:1m rate=20r/h redis=r
                   sync=strict;
    ratelimit_rule tenant zone=fleet sync=strict rate=3r/h key=\$arg_t;
    ratelimit_rule plan zone=fleet sync=strict rate=\$arg_plan;
    ratelimit_zone \$arg_k zone=lost:1m rate=5r/h redis=gone;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        add_header X-Rule \$ratelimit_rule always;
        add_header X-Source \$ratelimit_source always;
        location /both { ratelimit zone=node; ratelimit zone=fleet; empty_gif; }
        location /node { ratelimit zone=node; empty_gif; }
        location /fleet { ratelimit zone=fleet rule=fleet; empty_gif; }
        location /lost { ratelimit zone=node; ratelimit zone=lost; empty_gif; }
    }
CONF

sub told {
    my $answer = $gateway->get(@_);

    return join ' ', t::Gateway::told($answer),
                     map { t::Gateway::header($answer, $_) }
                     qw( X-Rule X-Source );
}

# Redis gives back behind the answer
sub in_time {
    my ($path, $expected, $name) = @_;

    $gateway->settled($redis);
    is(told($path), $expected, $name);
}

# the strictest of both places

is(told('/both?k=a'), '200 PASSED 9 node local', 'the node is the strictest');
is(told('/both?k=a&t=x'), '200 PASSED 2 tenant redis', 'the tenant is');
is(told('/fleet?k=a'), '200 PASSED 17 fleet redis', 'each counted once');

# the fleet denies by a key of its own: the node and the other key get back

told("/both?k=b$_&t=x") for 1 .. 2;
is(told('/both?k=c&t=x'), '429 REJECTED 0 tenant redis', 'the tenant is spent');
in_time('/fleet?k=c', '200 PASSED 19 fleet redis',
        'the client\'s counter in Redis had its token back');
is(told('/node?k=c'), '200 PASSED 9 node local', 'and that of the node');

# the node denies: Redis is not even asked

told('/node?k=d') for 1 .. 10;
is(told('/both?k=d&t=y'), '429 REJECTED 0 node local', 'the node is spent');
is(told('/fleet?k=d'), '200 PASSED 19 fleet redis', 'the fleet was not asked');

# two rules of one key go in one call, all or nothing

is(told('/both?k=e&plan=2r/h'), '200 PASSED 1 plan redis', 'a plan');
is(told('/both?k=e&plan=2r/h'), '200 PASSED 0 plan redis', 'a plan, spent');
is(told('/both?k=e&plan=2r/h'), '429 REJECTED 0 plan redis', 'a plan, denied');
is(told('/fleet?k=e'), '200 PASSED 17 fleet redis', 'the other was not charged');
is(told('/node?k=e'), '200 PASSED 7 node local', 'nor that of the node');

# one place has no answer: what has one still holds

is(told('/lost?k=f'), '200 DEGRADED -1 lost fallback', 'degraded');
told('/lost?k=f') for 1 .. 9;
is(told('/lost?k=f'), '429 REJECTED 0 node local', 'the node still rejects');

$gateway->stop;
