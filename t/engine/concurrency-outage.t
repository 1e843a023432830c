# What an outage leaves of slots: a call that had no answer in time may have
# taken one, and so may a probe. They come back with Redis, not half a minute
# later.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( wait_for );

my $port = redis_start();
my $gateway = t::Gateway->limited(
    redis => $port, timeout => '1s', zone => 'algorithm=concurrency limit=2');

sub told { return t::Gateway::told($gateway->get('/?k=a')) }

t::Clock::stop();
is(told(), '200 PASSED 1', 'a slot is left beside it');
t::Clock::go();

kill STOP => redis_pid($port);
is(told(), '200 DEGRADED -1', 'no answer') for 1 .. 10;
kill CONT => redis_pid($port);

# a lease is 30 s
ok(wait_for(sub { told() eq '200 PASSED 1' }, 15), 'the slots are back');

$gateway->stop;
redis_stop($port);
