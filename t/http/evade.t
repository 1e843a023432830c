# What a client writes differently is still the same client to the API, so it is
# the same counter; and what a rewrite makes of a request is what counts.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $h2 = t::Gateway::free_port();

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_zone \$ratelimit_api_key zone=key:1m rate=1r/h;
    ratelimit_zone \$uri zone=uri:1m rate=1r/h;
    ratelimit_zone \$ratelimit_route zone=route:1m rate=1r/h;

    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:$h2 http2;

        ratelimit_api_key header:X-Other bearer header:X-Key;

        if (\$uri = /never) { return 404; }
        if (\$ratelimit_route = /never) { return 404; }
        if (\$ratelimit_api_key = never) { return 404; }

        location / { ratelimit zone=key; empty_gif; }

        location /own { ratelimit_api_key header:X-Key; ratelimit zone=key;
                        empty_gif; }

        location /to-uri { rewrite ^ /uri/same last; }
        location /uri { ratelimit zone=uri; empty_gif; }
        location /to-route { rewrite ^ /route/same last; }
        location /route { ratelimit zone=route; empty_gif; }
    }
CONF

sub statuses { return join ' ', map { $gateway->get(@$_)->{status} } @_ }

# blanks around a value, which nginx leaves and the API does not see

is(statuses(map { ['/', $_] } 'X-Key: a', "X-Key: a\t", "X-Key:\ta",
            "X-Key: \t a \t "), '200 429 429 429', 'blanks around a key');

is(statuses(map { ['/', $_] } 'Authorization: Bearer b',
            "Authorization: Bearer b\t", "Authorization:\tBearer b",
            "Authorization: bearer\tb", "Authorization: Bearer \t b"),
   '200 429 429 429 429', 'blanks around a token');

is(statuses((['/', "X-Key: \t", "Authorization: Bearer \t"]) x 2), '200 200',
   'blanks alone are no key');

for my $header ('x-key:a ', 'x-key:a  ', "x-key:a\t", 'authorization:Bearer b ',
                "authorization:Bearer b\t")
{
    open my $out, '-|', 'nghttp', '-v', '-H', $header, "http://127.0.0.1:$h2/"
        or die "nghttp: $!";
    my $text = do { local $/; <$out> } // '';
    close $out;

    like($text, qr/:status: 429/, "HTTP/2: \"$header\"");
}

# an empty header before the one that the API may take

is(statuses(['/', 'X-Key: c'], ['/', 'X-Key:', 'X-Key: c'],
            ['/', "X-Key: \t", 'X-Key: c']), '200 429 429',
   'an empty header of the same name');

# what was read in the server, before there was a location

is(statuses(map { ['/own', 'X-Key: d', "X-Other: $_"] } 1 .. 2), '200 429',
   'the key is that of the location\'s sources');

is(statuses(map { ["/to-uri/$_"] } 1 .. 2), '200 429',
   'the key is the rewritten URI');

is(statuses(map { ["/to-route/x$_"] } 1 .. 2), '200 429',
   'the key is the rewritten route');

$gateway->stop;
