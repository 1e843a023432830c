# $ratelimit_api_key: where it comes from, and what a key may look like.

use t::Blocks 'no_plan';

no_root_location();
run_tests();

__DATA__

=== TEST 1: the sources in their order; an empty one is passed over
--- config
    location / {
        ratelimit_api_key header:X-Key bearer header:Last;
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ ('GET /') x 6 ]
--- more_headers eval
[ "Last: c\nAuthorization: Bearer b\nX-Key: a",
  "Last: c\nAuthorization: Bearer b",
  "Last: c\nAuthorization: Basic b",
  "X-Key:\nAuthorization: Bearer\nLast: c",
  "X-Key: \nAuthorization: Bearer    \nLast: c",
  'X-API-Key: a' ]
--- response_headers eval
[ map { "X-Got: [$_]" } qw( a b c c c ), '' ]

=== TEST 2: unless told otherwise, X-API-Key and then Bearer
--- config
    location / {
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ ('GET /') x 3 ]
--- more_headers eval
[ "Authorization: Bearer b\nX-API-Key: a", 'Authorization: Bearer b', 'Key: k' ]
--- response_headers eval
[ map { "X-Got: [$_]" } 'a', 'b', '' ]

=== TEST 3: the scheme in any case, spaces before the token, and what is no token
--- config
    location / {
        ratelimit_api_key bearer;
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ ('GET /') x 7 ]
--- more_headers eval
[ map { "Authorization: $_" } 'bearer t', 'BEARER t', 'Bearer    t',
  'Bearer t u', 'Bearert', 'Bearer', 'Basic t' ]
--- response_headers eval
[ map { "X-Got: [$_]" } 't', 't', 't', 't u', '', '', '' ]

=== TEST 4: a header's name in any case, and its first of several
--- config
    location / {
        ratelimit_api_key header:x-KEY;
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ ('GET /') x 4 ]
--- more_headers eval
[ 'X-Key: a', 'x-key: a', 'X-KEY: a', "X-Key: a\nx-key: b" ]
--- response_headers eval
[ ('X-Got: [a]') x 4 ]

=== TEST 5: inherited, and replaced
--- config
    ratelimit_api_key header:A;
    location / { add_header X-Got "[$ratelimit_api_key]"; empty_gif; }
    location /b {
        ratelimit_api_key header:B;
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ 'GET /', 'GET /b' ]
--- more_headers
A: a
B: b
--- response_headers eval
[ 'X-Got: [a]', 'X-Got: [b]' ]

=== TEST 6: case matters in a key
--- http_config
    ratelimit_zone $ratelimit_api_key zone=z:1m rate=1r/h;
--- request eval
[ ('GET /') x 4 ]
--- more_headers eval
[ map { "X-API-Key: $_" } qw( a A a A ) ]
--- error_code eval
[ 200, 200, 429, 429 ]

=== TEST 7: keys of 4k that differ in their last byte
--- http_config
    ratelimit_zone $ratelimit_api_key zone=z:1m rate=1r/h;
--- request eval
[ ('GET /') x 4 ]
--- more_headers eval
[ map { 'X-API-Key: ' . 'k' x 4095 . $_ } qw( a b a b ) ]
--- error_code eval
[ 200, 200, 429, 429 ]

=== TEST 8: bytes of any kind
--- http_config
    ratelimit_zone $ratelimit_api_key zone=z:1m rate=1r/h;
--- request eval
[ ('GET /') x 6 ]
--- more_headers eval
[ map { "X-API-Key: $_" } "\xff\xfe\x80", "\xff\xfe\x81", "\x01\x7f", "\x01",
  "\xff\xfe\x80", "\x01" ]
--- error_code eval
[ 200, 200, 200, 200, 429, 429 ]

=== TEST 9: no key, no limit
--- http_config
    ratelimit_zone $ratelimit_api_key zone=z:1m rate=1r/h;
--- request eval
[ ('GET /') x 3 ]
--- more_headers eval
[ 'X-API-Key:', '', 'Authorization: Basic YTpi' ]
--- error_code eval
[ 200, 200, 200 ]

=== TEST 10: a bearer token that is a JWT is who is signed, whatever its signature
--- config
    location / {
        ratelimit_api_key bearer;
        add_header X-Got "[$ratelimit_api_key]";
        empty_gif;
    }
--- request eval
[ ('GET /') x 12 ]
--- more_headers eval
[ map { "Authorization: Bearer $_" } 'eyJh.eyJi.aQ', 'eyJh.eyJi.af==', 'eyJh.eyJi.aR', 'eyJh.eyJi.x',
  'eyJh.eyJi.a/+9', 'eyJh.eyJi.',
  'ewoJ.eyJi.x', 'SG.id.secret', 'ey.b', 'eyJh.b.c.d.e', 'eyJh', 'e.b.c' ]
--- response_headers eval
[ map { "X-Got: [$_]" } ('eyJh.eyJi.aQ') x 3, 'eyJh.eyJi.x', 'eyJh.eyJi.a_-9', 'eyJh.eyJi.',
  'ewoJ.eyJi.x', 'SG.id.secret', 'ey.b',
  'eyJh.b.c.d.e', 'eyJh', 'e.b.c' ]
