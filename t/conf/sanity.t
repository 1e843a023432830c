# The module is loaded, and where nothing is limited, nothing changes.

use t::Blocks 'no_plan';

run_tests();

__DATA__

=== TEST 1: a location without a limit
--- config
    location /free {
        return 200 "free\n";
    }
--- request
GET /free
--- response_body
free
--- response_headers
! X-RateLimit-Limit
! Retry-After
--- error_code: 200

=== TEST 2: the directives are known
--- http_config
    ratelimit_zone $remote_addr zone=sanity:1m rate=1r/s;
--- config
    location /free {
        ratelimit off;
        return 200 "free\n";
    }
--- request
GET /free
--- response_body
free
