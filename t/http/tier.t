# Rules for one tier, and what names a request's tier.

use t::Blocks 'no_plan';

no_root_location();
run_tests();

__DATA__

=== TEST 1: a rule for each tier, one for the rest
--- http_config
    map $arg_k $plan { ~^g gold; ~^f free; default ''; }
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule gold zone=z tier=gold rate=5r/h group=plan;
    ratelimit_rule free zone=z tier=free rate=1r/h group=plan;
    ratelimit_rule rest zone=z rate=2r/h group=plan priority=-1;
    ratelimit_tier $plan;
--- request eval
[ map { "GET /?k=$_" } 'g1', 'f1', 'f1', 'x1', 'g1' ]
--- error_code eval
[ 200, 200, 429, 200, 200 ]
--- response_headers eval
[ "X-Rule: gold\nX-RateLimit-Remaining: 4",
  "X-Rule: free\nX-RateLimit-Remaining: 0", "X-Rule: free",
  "X-Rule: rest\nX-RateLimit-Remaining: 1",
  "X-Rule: gold\nX-RateLimit-Remaining: 3" ]

=== TEST 2: the whole text counts, its case too
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule r zone=z "tier=gold plan" rate=1r/h;
--- config
    ratelimit_tier "gold$arg_t";
    location / {
        ratelimit zone=z;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
    location /same {
        ratelimit zone=z;
        ratelimit_tier "gold plan";
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
    location /case {
        ratelimit zone=z;
        ratelimit_tier "Gold plan";
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
--- request eval
[ 'GET /?k=a', 'GET /?k=a&t=x', 'GET /case?k=a', 'GET /same?k=a' ]
--- response_headers eval
[ ("X-Status: BYPASSED") x 3, "X-Status: PASSED" ]

=== TEST 3: without a tier its rules do not apply
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule r zone=z tier=gold rate=1r/h;
--- config
    location / {
        ratelimit zone=z;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
    location /rule {
        ratelimit zone=z rule=r;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
--- request eval
[ 'GET /?k=a', 'GET /rule?k=a' ]
--- response_headers eval
[ ("X-Status: BYPASSED") x 2 ]

=== TEST 4: the tier is inherited, and one level's own replaces it
--- http_config
    ratelimit_zone $arg_k zone=z:1m;
    ratelimit_rule gold zone=z tier=gold rate=5r/h;
    ratelimit_rule free zone=z tier=free rate=1r/h;
    ratelimit_tier gold;
--- config
    ratelimit zone=z;
    add_header X-Rule $ratelimit_rule;
    location / { empty_gif; }
    location /free { ratelimit_tier free; empty_gif; }
--- request eval
[ 'GET /?k=a', 'GET /free?k=a' ]
--- response_headers eval
[ "X-Rule: gold", "X-Rule: free" ]
