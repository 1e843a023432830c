# A broken client retries at once, whatever it gets. After step 2 of
# docs/under-attack.md it costs no more than its answers, and its connections are
# closed.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally );

use t::hostile::Attack;

# no token comes back meanwhile
t::Clock::stop();

my $gateway = t::hostile::Attack::gateway('2. A client retries at once',
    'access_log %%DIR%%/api.log; return 200 "hello\n";',
    http => 'real_ip_header X-Address; set_real_ip_from 127.0.0.1;');

sub requests {
    my ($n, $address) = @_;
    return map { $gateway->get('/', "X-Address: $address") } 1 .. $n;
}

is(tally(requests(121, '203.0.113.7')), '100 x 200, 21 x 429', 'the limit');

my @got = requests(1000, '203.0.113.7');

is(tally(@got), '1000 x 429', 'a thousand more');
like($got[0]{body}, qr/"PENALIZED"/, 'are penalized');
like($got[999]{body}, qr/"PENALIZED"/, 'also the last one');
is(() = $gateway->read('api.log') =~ /^/mg, 100, 'none reached the API');
is(tally(requests(50, '198.51.100.1')), '50 x 200', 'others are served');

my $answer = $gateway->raw(
    "GET / HTTP/1.1\r\nHost: t\r\nX-Address: 203.0.113.7\r\n\r\n" x 10);

is(() = $answer =~ m{^HTTP/1.1 429}mg, 1, 'a connection has one answer');

like($gateway->get('/metrics')->{body},
     qr/^ratelimit_requests_total\{zone="address",rule="",outcome="penalized",
        source="local"\}\ 1001$/mx, 'the metric');

$gateway->stop;
