# Limits of one gateway, kept in shared memory: what counts, by what, and how
# far.

use t::Blocks 'no_plan';

no_root_location();
run_tests();

__DATA__

=== TEST 1: exactly the limit passes, and each answer counts down
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=3r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ ("GET /?k=a") x 5 ]
--- error_code eval
[ 200, 200, 200, 429, 429 ]
--- response_headers eval
[ map { "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: $_\n"
        . ($_ eq '0 ' ? "Retry-After: 1200" : "!Retry-After") }
      2, 1, 0, '0 ', '0 ' ]

=== TEST 2: keys count apart
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ map { "GET /?k=$_" } qw( a a b aa b a ) ]
--- error_code eval
[ 200, 429, 200, 200, 429, 429 ]

=== TEST 3: an empty key is not limited
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / {
        ratelimit zone=z;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
--- request eval
[ 'GET /', 'GET /', 'GET /?k=', 'GET /?k=a' ]
--- error_code eval
[ 200, 200, 200, 200 ]
--- response_headers eval
[ ("X-Status: BYPASSED\n!X-RateLimit-Limit\n!X-RateLimit-Remaining") x 3,
  "X-Status: PASSED\nX-RateLimit-Remaining: 0" ]

=== TEST 4: the strictest rule answers, and a rejection costs the others nothing
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=10r/h;
    ratelimit_rule small zone=z rate=2r/h match=/small;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ ("GET /small?k=a") x 5, "GET /large?k=a" ]
--- error_code eval
[ 200, 200, 429, 429, 429, 200 ]
--- response_headers eval
[ (map { "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: $_" } 1, 0, 0, 0, 0),
  "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 7" ]

=== TEST 5: of two that pass, the one with fewer tokens left answers
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=3r/h;
    ratelimit_rule other zone=z rate=100r/h;
--- config
    location / {
        ratelimit zone=z;
        add_header X-Rule $ratelimit_rule;
        empty_gif;
    }
    location /other {
        ratelimit zone=z rule=other;
        empty_gif;
    }
--- request eval
[ 'GET /?k=a', ('GET /other?k=a') x 2 ]
--- response_headers eval
[ "X-Rule: z\nX-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2",
  map { "X-RateLimit-Limit: 100\nX-RateLimit-Remaining: $_" } 98, 97 ]

=== TEST 6: zones stack, and a rejection in one gives back in the other
--- http_config
    ratelimit_zone $arg_a zone=a:1m rate=10r/h;
    ratelimit_zone $arg_b zone=b:1m rate=1r/h;
--- config
    location / {
        ratelimit zone=a;
        ratelimit zone=b;
        empty_gif;
    }
    location /a { ratelimit zone=a; empty_gif; }
--- request eval
[ ('GET /?a=1&b=1') x 4, 'GET /?a=1&b=2', 'GET /a?a=1' ]
--- error_code eval
[ 200, 429, 429, 429, 200, 200 ]
--- response_headers eval
[ (("X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0") x 5),
  "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 7" ]

=== TEST 7: a path template
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule user zone=z rate=1r/h "match=/users/{id}/**";
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ map { "GET $_?k=a" } '/users/1', '/users/2/', '/users/3/mail/9',
  '/users', '/users//', '/other/users/1', '/%75sers/1', '//users/1',
  '/x/../users/1' ]
--- error_code eval
[ 200, 429, 429, 200, 200, 200, 429, 429, 429 ]

=== TEST 8: a regular expression, with and without case
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule exact zone=z rate=1r/h match=~^/Exact$;
    ratelimit_rule any zone=z rate=1r/h match=~*^/any;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ map { "GET $_?k=a" } '/Exact', '/Exact', '/exact', '/Exact1', '/any', '/ANY1',
  '/many' ]
--- error_code eval
[ 200, 429, 200, 200, 200, 429, 200 ]

=== TEST 9: methods
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule write zone=z rate=1r/h methods=PUT,DELETE;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ map { "$_ /?k=a" } qw( GET PUT GET DELETE PUT POST ) ]
--- error_code eval
[ 200, 405, 200, 429, 429, 405 ]

=== TEST 10: rule= takes one rule of a zone
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
    ratelimit_rule big zone=z rate=5r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
    location /big { ratelimit zone=z rule=big; empty_gif; }
--- request eval
[ ('GET /big?k=a') x 3, ('GET /?k=a') x 2 ]
--- error_code eval
[ 200, 200, 200, 200, 429 ]
--- response_headers eval
[ (map { "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: $_" } 4, 3, 2),
  ("X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0") x 2 ]

=== TEST 11: inherited where a location says nothing, replaced where it does
--- http_config
    ratelimit_zone $arg_k zone=a:1m rate=1r/h;
    ratelimit_zone $arg_k zone=b:1m rate=2r/h;
    ratelimit zone=a;
--- config
    location / { empty_gif; }
    location /b { ratelimit zone=b; empty_gif; }
    location /off {
        ratelimit off;
        location /off/b { ratelimit zone=b; empty_gif; }
        location /off/deep { empty_gif; }
        empty_gif;
    }
--- request eval
[ map { "GET $_?k=a" } '/', '/', '/b', '/off', '/off/deep', '/off/b', '/b' ]
--- error_code eval
[ 200, 429, 200, 200, 200, 200, 429 ]
--- response_headers eval
[ ("X-RateLimit-Limit: 1") x 2, "X-RateLimit-Limit: 2",
  ("!X-RateLimit-Limit") x 2, ("X-RateLimit-Limit: 2") x 2 ]

=== TEST 12: a rule's own key
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=10r/h;
    ratelimit_rule tenant zone=z rate=2r/h key=$arg_t;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ 'GET /?k=a&t=x', 'GET /?k=b&t=x', 'GET /?k=c&t=x', 'GET /?k=a&t=y',
  'GET /?k=a' ]
--- error_code eval
[ 200, 200, 429, 200, 200 ]
--- response_headers eval
[ (map { "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: $_" } 1, 0, 0, 1),
  "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 7" ]

=== TEST 13: a key of several variables and text
--- http_config
    ratelimit_zone $arg_a:$arg_b zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ 'GET /?a=1&b=2', 'GET /?a=1&b=2', 'GET /?a=1&b=3', 'GET /?a=12', 'GET /' ]
--- error_code eval
[ 200, 429, 200, 200, 200 ]

=== TEST 14: the rate comes from a map; an empty one limits nothing
--- http_config
    map $arg_plan $rate { gold 5r/h; free 1r/h; default ''; }
    ratelimit_zone $arg_k zone=z:1m rate=$rate;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ map { "GET /?k=$_->[0]&plan=$_->[1]" } ['a', 'free'], ['a', 'free'],
  ['b', 'gold'], ['b', 'gold'], ['c', ''], ['c', ''] ]
--- error_code eval
[ 200, 429, 200, 200, 200, 200 ]
--- response_headers eval
[ ("X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0") x 2,
  (map { "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: $_" } 4, 3),
  ("!X-RateLimit-Limit") x 2 ]

=== TEST 15: a rate of nonsense is not applied, and the log says so
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=${arg_n}r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request
GET /?k=a&n=many
--- response_headers
!X-RateLimit-Limit
--- error_log
ratelimit rule "z" of zone "z" has a limit of "manyr/h", expected a number of requests from 0 to 1073741824; it is not applied

=== TEST 16: a spent bucket stays spent when the rate changes
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=${arg_n}r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ ('GET /?k=a&n=2') x 3, 'GET /?k=a&n=100', ('GET /?k=b&n=4') x 2,
  'GET /?k=b&n=100' ]
--- error_code eval
[ 200, 200, 429, 429, 200, 200, 200 ]
--- response_headers_like eval
[ ("X-RateLimit-Limit: 2") x 3, "X-RateLimit-Limit: 100",
  ("X-RateLimit-Limit: 4") x 2, "X-RateLimit-Remaining: 4[89]" ]

=== TEST 17: a capacity above and below the rate
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule above zone=z rate=1r/h capacity=3 match=/above;
    ratelimit_rule below zone=z rate=100r/h capacity=1 match=/below;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ ('GET /above?k=a') x 4, ('GET /below?k=a') x 2 ]
--- error_code eval
[ 200, 200, 200, 429, 200, 429 ]
--- response_headers_like eval
[ (map { "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: $_" } 2, 1, 0),
  "X-RateLimit-Limit: 3\nRetry-After: (?:3600|359\\d)",
  "X-RateLimit-Limit: 1", "X-RateLimit-Limit: 1\nRetry-After: 3[3-6]" ]

=== TEST 18: without a ratelimit nothing happens
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / {
        add_header X-Status "[$ratelimit_status]";
        empty_gif;
    }
--- request eval
[ ('GET /?k=a') x 2 ]
--- response_headers eval
[ ("X-Status: []\n!X-RateLimit-Limit") x 2 ]

=== TEST 19: more rules than one request may meet
--- http_config eval
"ratelimit_zone \$arg_k zone=z:1m rate=100r/h;\n"
. CORE::join '', map { "ratelimit_rule r$_ zone=z rate=9r/h;\n" } 1 .. 16
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request
GET /?k=a
--- error_log eval
qr/more than 16 ratelimit rules match one request, rule "r16" of zone "z" is not counted, nor is any after it/
