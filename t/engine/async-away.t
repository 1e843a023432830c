# sync=async while Redis is away: each gateway goes on alone, for as long as it
# takes, and clients that are gone cost nothing.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( passed wait_for );

my $port = redis_start();

my $gateway = t::Gateway->limited(
    workers => 2, redis => $port, timeout => '200ms',
    rules => ['bucket rate=10r/s match=/bucket sync=async',
              map { "$_ algorithm=${_}_window limit=10 window=1s match=/$_"
                    . ' sync=async' } qw( fixed sliding )]);

# calls to Redis, however they ended
sub calls {
    my ($calls, $body) = (0, $gateway->get('/metrics')->{body});
    $calls += $1
        while $body =~ /^ratelimit_redis_calls_total\{\S* (\d+)/mg;
    return $calls;
}

t::Clock::stop();
is(passed($gateway->burst(30, "/$_?k=a")), 10, "$_: a limit")
    for qw( bucket fixed sliding );
t::Clock::go();

redis_stop($port);

# none is let pass too many, and none is shut out for ever
my %passed;
my $begin = t::Clock::now();

while (t::Clock::now() < $begin + 8) {
    for my $rule (qw( bucket fixed sliding )) {
        $passed{$rule} += passed($gateway->burst(5, "/$rule?k=b"));
    }
    advance(0.1);
}

my $seconds = t::Clock::now() - $begin;

for my $rule (qw( bucket fixed sliding )) {
    cmp_ok($passed{$rule}, '<=', 10 * (2 + $seconds),
           "$rule: alone it admits its limit, and no more");
    cmp_ok($passed{$rule}, '>=', 30, "$rule: and goes on admitting");
}

# a client that has gone is asked about no more
$gateway->get("/bucket?k=gone$_") for 1 .. 100;

my ($before, $after) = (0, 1);

ok(wait_for(sub {
       $before = calls();
       for (1 .. 10) { advance(0.1); calls() }
       $after = calls();
       return $after - $before <= 5;
   }), 'nobody asks for clients that are gone')
    or diag($after - $before, ' calls in a second');

$gateway->stop;
