# The endpoint's connection to Redis breaks: a healthy one is made anew with the
# next call, at once; one that breaks again and again, once a second.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway;
use t::Api;

my $port = redis_start();
my $gateway = t::Gateway->limited(redis => $port, zone => 'rate=2r/h', api => 1);
my $api = t::Api->new($gateway);

sub reset_ok {
    my ($status, $name) = @_;
    is($api->delete('/counters?rule=z&key=a')->{status}, $status, $name);
}

# All connections end, and the worker has read that.
sub break_all {
    redis_cli($port, 'CLIENT', 'KILL', 'TYPE', 'normal');
    $gateway->get('/?k=b') for 1 .. 2;
}

t::Clock::stop();
reset_ok(200, 'the first call connects');
advance(0.1);
break_all();
reset_ok(200, 'the next one connects again');
break_all();
reset_ok(503, 'not if it has broken at once');
advance(1);
reset_ok(200, 'but a second later');

t::Clock::go();
$gateway->stop;
