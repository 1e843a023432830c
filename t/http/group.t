# Rules in one group replace each other: the first that applies, by priority,
# then in the order of definition.

use t::Blocks 'no_plan';

t::RateLimit::redis_port();
t::RateLimit::key_prefix();

no_root_location();
run_tests();

__DATA__

=== TEST 1: of one group one rule, those without a group stack
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=50r/h;
    ratelimit_rule first zone=z rate=9r/h group=g;
    ratelimit_rule second zone=z rate=2r/h group=g;
    ratelimit_rule other zone=z rate=20r/h group=h;
--- config
    location / { ratelimit zone=z; empty_gif; }
    location /one { ratelimit zone=z rule=second; empty_gif; }
    location /zone { ratelimit zone=z rule=z; empty_gif; }
    location /other { ratelimit zone=z rule=other; empty_gif; }
--- request eval
[ 'GET /?k=a', 'GET /?k=a', 'GET /?k=a', 'GET /one?k=a', 'GET /zone?k=a',
  'GET /other?k=a' ]
--- response_headers eval
[ (map { "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: $_" } 8, 7, 6),
  "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1",
  "X-RateLimit-Limit: 50\nX-RateLimit-Remaining: 46",
  "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 16" ]

=== TEST 2: the higher priority first, the default 0 above a negative one
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule low zone=z rate=1r/h group=g priority=-1;
    ratelimit_rule middle zone=z rate=2r/h group=g match=/a/**;
    ratelimit_rule high zone=z rate=3r/h group=g priority=10 match=/a/b;
--- request eval
[ 'GET /a/b?k=a', 'GET /a/c?k=a', 'GET /d?k=a' ]
--- response_headers eval
[ "X-Rule: high", "X-Rule: middle", "X-Rule: low" ]

=== TEST 3: the zone's own rule is the last resort of its group
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h group=g priority=-1000000;
    ratelimit_rule writes zone=z rate=2r/h group=g methods=POST;
--- request eval
[ 'GET /?k=a', "POST /?k=a\n" ]
--- error_code eval
[ 200, 405 ]
--- response_headers eval
[ "X-Rule: z", "X-Rule: writes" ]

=== TEST 4: what does not apply leaves its group to the next: no key, no limit
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule tenant zone=z rate=2r/h group=g key=$arg_t;
    ratelimit_rule plan zone=z limit=$arg_plan window=1h group=g;
    ratelimit_rule rest zone=z rate=5r/h group=g;
--- request eval
[ 'GET /?k=a&t=x&plan=7', 'GET /?k=a&plan=7', 'GET /?k=a' ]
--- response_headers eval
[ "X-Rule: tenant", "X-Rule: plan\nX-RateLimit-Limit: 7", "X-Rule: rest" ]

=== TEST 5: nor does a limit of nonsense apply
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule plan zone=z limit=$arg_plan window=1h group=g;
    ratelimit_rule rest zone=z rate=5r/h group=g;
--- request
GET /?k=a&plan=free
--- response_headers
X-Rule: rest
--- error_log
ratelimit rule "plan" of zone "z" has a limit of "free", expected a number from 0 to 1073741824, or "unlimited"; it is not applied

=== TEST 6: groups of two zones are two
--- http_config
    ratelimit_zone $arg_k zone=y:1m;
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule r zone=y rate=3r/h group=g;
    ratelimit_rule r zone=z rate=2r/h group=g;
--- config
    location / { ratelimit zone=y; ratelimit zone=z; empty_gif; }
    location /y { ratelimit zone=y; empty_gif; }
    location /z { ratelimit zone=z; empty_gif; }
--- request eval
[ 'GET /?k=a', 'GET /y?k=a', 'GET /z?k=a' ]
--- response_headers eval
[ map { "X-RateLimit-Remaining: $_" } 1, 1, 0 ]

=== TEST 7: rules that a location names alone are not of their group there
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule first zone=z rate=3r/h group=g;
    ratelimit_rule second zone=z rate=2r/h group=g;
--- config
    location / {
        ratelimit zone=z rule=first;
        ratelimit zone=z rule=second;
        empty_gif;
    }
--- request
GET /?k=a
--- response_headers
X-RateLimit-Limit: 2

=== TEST 8: with more rules for a path than the stack has room for
--- http_config eval
"ratelimit_zone \$arg_k zone=z:1m;\n"
. (CORE::join '', map { "ratelimit_rule r$_ zone=z rate=9r/h group=g priority="
                        . "$_ methods=POST;\n" } 1 .. 200)
. "ratelimit_rule last zone=z rate=5r/h group=g;\n"
. "ratelimit_rule never zone=z rate=4r/h group=g priority=-1;\n"
--- request eval
[ 'GET /?k=a', "POST /?k=a\n" ]
--- response_headers eval
[ "X-Rule: last", "X-Rule: r200" ]
--- error_code eval
[ 200, 405 ]

=== TEST 9: the fleet's
--- http_config
    ratelimit_redis r {
        server 127.0.0.1:$TEST_NGINX_REDIS_PORT; prefix $TEST_NGINX_PREFIX;
        timeout 5s;
    }
    ratelimit_zone $arg_k zone=z:1m redis=r;
    ratelimit_rule first zone=z rate=9r/h group=g methods=POST;
    ratelimit_rule second zone=z rate=2r/h group=g;
    ratelimit_rule third zone=z rate=1r/h group=g;
--- request eval
[ ('GET /?k=a') x 3 ]
--- error_code eval
[ 200, 200, 429 ]

=== TEST 10: a dry run neither takes the place of a rule of its group nor needs it
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule plan zone=z rate=2r/h group=plan;
    ratelimit_rule next zone=z rate=1r/h group=plan priority=1 dry_run;
    ratelimit_rule late zone=z rate=1r/h group=plan priority=-1 dry_run;
--- request eval
[ ('GET /?k=a') x 3 ]
--- error_code eval
[ 200, 200, 429 ]
--- response_headers eval
[ "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 1\nX-Rule: next",
  "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-Rule: next",
  "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 0\nX-Rule: plan" ]

=== TEST 11: a location that tries all has one rule of a group
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule first zone=z rate=9r/h group=g;
    ratelimit_rule second zone=z rate=1r/h group=g;
--- config
    location / { ratelimit zone=z; ratelimit_dry_run on; empty_gif;
                 add_header X-Rule $ratelimit_rule always; }
--- request eval
[ ('GET /?k=a') x 2 ]
--- response_headers eval
[ ("X-Rule: first") x 2 ]
