# X-RateLimit-Reset is true: at that second the bucket is full.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway;

my $gateway = t::Gateway->new(http => <<'CONF')->start;
    ratelimit_zone $arg_k zone=z:1m rate=1r/s;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF

# late in a second, where rounding down would be seen most

t::Clock::stop();
t::Clock::align(1, 0.7);

my $now = t::Clock::now();
my $answer = $gateway->get('/?k=a');
my $reset = t::Gateway::header($answer, 'X-RateLimit-Reset');

is($answer->{status}, 200, 'the bucket is spent');
is($reset, int($now) + 2, 'Reset is rounded up');

advance($reset - $now);

$answer = $gateway->get('/?k=a');
is($answer->{status}, 200, 'at Reset a whole bucket is there');

$gateway->stop;
