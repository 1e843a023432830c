# A rejection in odd places: after another error, of a request that waits for
# "100 Continue", without any answer.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

use IO::Socket::INET;

my $gateway = t::Gateway->new(http => <<'CONF')->start;
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
    ratelimit zone=z;

    server {
        listen 127.0.0.1:%%PORT%%;

        location / { empty_gif; }

        location /after-error {
            ratelimit off;
            root /nonexistent;
            error_page 404 = /limited?$args;
        }

        # nginx takes no second error page where the first forbids it
        location = /limited {
            recursive_error_pages on;
            error_page 429 /page;
            empty_gif;
        }

        location = /page { return 200 "page\n"; }

        location /closed { ratelimit_status 444; empty_gif; }
    }
CONF

sub answers { return map { $gateway->get($_[0]) } 1 .. 2 }

my ($first, $second) = answers('/after-error?k=a');

is(t::Gateway::tally($first), '1 x 200', 'after an error: it passes');
is(t::Gateway::tally($second), '1 x 429', 'after an error: it is rejected');
like($second->{body}, qr/^\{"error":\{"code":"RATE_LIMIT_EXCEEDED"/,
     'after an error: with our body');

($first, $second) = answers('/limited?k=b');

is($second->{body}, "page\n", 'with the error page, where there is one');

($first, $second) = answers('/closed?k=c');

is(t::Gateway::tally($first), '1 x 200', '444: it passes');
is(t::Gateway::tally($second), '1 x 0', '444: no answer at all');

# a client asks whether to send its body

my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                   PeerPort => $gateway->{port});
my $text = '';

$gateway->get('/?k=d');

print $client "POST /?k=d HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
              . "Content-Length: 9\r\n\r\n";
$client->flush;

t::Gateway::wait_for(sub {
    sysread $client, $text, 65536, length $text;
    $text =~ /RATE_LIMIT_EXCEEDED/;
});

like($text, qr/^HTTP\/1\.1 429 /, 'a body is not asked for and then refused');
close $client;

$gateway->stop;
