# $ratelimit_check_time: how long a request waits for Redis.

use t::RateLimit 'no_plan';
use t::Clock;
use t::FakeRedis;
use t::Gateway qw( header told wait_for );

my $fake = t::FakeRedis->new(sub { '' });
my $gateway = t::Gateway->limited(redis => $fake->{port}, timeout => '200ms',
    zone => { z => 'rate=10r/h redis=r sync=strict', here => 'rate=10r/h' },
    server => 'add_header X-Time $ratelimit_check_time always;',
    locations => { '/' => 'ratelimit zone=z;', '/here' => 'ratelimit zone=here;',
                   '/free' => '' });

t::Clock::hurry();

my $begun = $gateway->begin(1, '/?k=a');
ok(wait_for(sub { t::Gateway::answered($begun) }), 'Redis does not answer');

my ($answer) = t::Gateway::finish($begun);
is(told($answer), '200 DEGRADED -1', 'so the request passes');
like(header($answer, 'X-Time'), qr/^(?:0\.[2-9]|[1-9]\d*\.)\d+$/,
     'when it has waited for the timeout');

is(header($gateway->get('/here?k=a'), 'X-Time'), '0.000', 'decided at once');
is(header($gateway->get('/free'), 'X-Time'), '', 'nothing is checked');

$gateway->stop;
$fake->stop;
