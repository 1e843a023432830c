# $ratelimit_api_key: where it comes from, and what a key may look like.

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->limited(
    zone => 'key=$ratelimit_api_key rate=1r/h',
    http => 'large_client_header_buffers 4 16k;',
    server => 'add_header X-Got "[$ratelimit_api_key]" always;',
    locations => {
        '/' => 'ratelimit zone=z;', '/default' => '',
        '/several' => 'ratelimit_api_key header:X-Key bearer header:Last;',
        '/bearer' => 'ratelimit_api_key bearer;',
        '/header' => 'ratelimit_api_key header:x-KEY;',
        '/a' => 'ratelimit_api_key header:A; location /a/inherits { empty_gif; }'
                . 'location /a/b { ratelimit_api_key header:B; empty_gif; }' });

# The key of each request, by its headers.
sub keys_are {
    my ($name, $path, @rows) = @_;
    while (my ($headers, $key) = splice @rows, 0, 2) {
        my @headers = split /\n/, $headers;
        is($gateway->shown('X-Got', [$path, @headers]), "200/[$key]",
           "$name: " . substr($headers, 0, 40));
    }
}

# The statuses of requests of a client each.
sub counts {
    my ($name, $expected, @headers) = @_;
    is($gateway->statuses(map { ['/', $_] } @headers), $expected, $name);
}

keys_are('the sources in their order; an empty one is passed over', '/several',
         "Last: c\nAuthorization: Bearer b\nX-Key: a" => 'a',
         "Last: c\nAuthorization: Bearer b" => 'b',
         "Last: c\nAuthorization: Basic b" => 'c',
         "X-Key:\nAuthorization: Bearer\nLast: c" => 'c',
         "X-Key: \nAuthorization: Bearer    \nLast: c" => 'c',
         'X-API-Key: a' => '');
keys_are('unless told otherwise, X-API-Key and then Bearer', '/default',
         "Authorization: Bearer b\nX-API-Key: a" => 'a',
         'Authorization: Bearer b' => 'b', 'Key: k' => '');
keys_are('the scheme in any case, spaces before the token, what is no token',
         '/bearer', map { ("Authorization: $_->[0]" => $_->[1]) }
         ['bearer t', 't'], ['BEARER t', 't'], ['Bearer    t', 't'],
         ['Bearer t u', 't u'], ['Bearert', ''], ['Bearer', ''],
         ['Basic t', '']);
keys_are("a header's name in any case, and its first of several", '/header',
         map { ($_ => 'a') } 'X-Key: a', 'x-key: a', 'X-KEY: a',
         "X-Key: a\nx-key: b");
keys_are('inherited', '/a/inherits', "A: a\nB: b" => 'a');
keys_are('replaced', '/a/b', "A: a\nB: b" => 'b');
counts('case matters in a key', '200 200 429 429',
       map { "X-API-Key: $_" } qw( a A a A ));
counts('keys of 4k that differ in their last byte', '200 200 429 429',
       map { 'X-API-Key: ' . 'k' x 4095 . $_ } qw( a b a b ));
counts('bytes of any kind', '200 200 200 200 429 429',
       map { "X-API-Key: $_" } "\xff\xfe\x80", "\xff\xfe\x81", "\x01\x7f",
       "\x01", "\xff\xfe\x80", "\x01");
counts('no key, no limit', '200 200 200',
       'X-API-Key:', 'Other: x', 'Authorization: Basic YTpi');
keys_are('a bearer token that is a JWT is who is signed, whatever its signature',
         '/bearer', map { ("Authorization: Bearer $_->[0]" => $_->[1] // $_->[0]) }
         ['eyJh.eyJi.aQ'], ['eyJh.eyJi.af==', 'eyJh.eyJi.aQ'],
         ['eyJh.eyJi.aR', 'eyJh.eyJi.aQ'], ['eyJh.eyJi.x'],
         ['eyJh.eyJi.a/+9', 'eyJh.eyJi.a_-9'], ['eyJh.eyJi.'],
         ['ewoJ.eyJi.x'], ['SG.id.secret'], ['ey.b'], ['eyJh.b.c.d.e'],
         ['eyJh'], ['e.b.c']);
$gateway->stop;
