# What logs and headers may say about a check.

use t::Blocks 'no_plan';

add_block_preprocessor(sub {
    my $block = shift;
    $block->set_value('http_config', <<'CONF' . ($block->http_config // ''));
    log_format rl 'rl [$ratelimit_status] [$ratelimit_rule] [$ratelimit_limit]'
                  ' [$ratelimit_remaining] [$ratelimit_reset]'
                  ' [$ratelimit_retry_after] [$ratelimit_source]'
                  ' [$ratelimit_route] [$ratelimit_api_key]';
    log_format key 'key [$ratelimit_zone] [$ratelimit_key] [$ratelimit_algorithm]'
                   ' [$ratelimit_cost] [$ratelimit_check_time]';
    access_log logs/access.log rl;
    ratelimit_zone $arg_k zone=z:1m rate=2r/h;
CONF
});

no_root_location();
run_tests();

__DATA__

=== TEST 1: passed and rejected, in a header and in the log
--- config
    location / {
        ratelimit zone=z;
        add_header X-Vars "[$ratelimit_status] [$ratelimit_rule] [$ratelimit_limit] [$ratelimit_remaining] [$ratelimit_retry_after] [$ratelimit_source]" always;
        empty_gif;
    }
--- request eval
[ ('GET /?k=a') x 3 ]
--- error_code eval
[ 200, 200, 429 ]
--- response_headers_like eval
[ 'X-Vars: \[PASSED\] \[z\] \[2\] \[1\] \[\] \[local\]',
  'X-Vars: \[PASSED\] \[z\] \[2\] \[0\] \[\] \[local\]',
  'X-Vars: \[REJECTED\] \[z\] \[2\] \[0\] \[1[78]\d\d\] \[local\]' ]

=== TEST 2: in the log of a passed request
--- request
GET /users/42/?k=a
--- more_headers
X-API-Key: the-key
--- access_log eval
qr{^rl \[PASSED\] \[z\] \[2\] \[1\] \[\d{10}\] \[-\] \[local\] \[/users/\{id\}\] \[the-key\]$}

=== TEST 3: of a request that nothing counts
--- request
GET /
--- access_log eval
qr{^rl \[BYPASSED\] \[-\] \[-\] \[-\] \[-\] \[-\] \[-\] \[/\] \[-\]$}

=== TEST 4: of a request that no ratelimit sees
--- config
    location / { empty_gif; }
--- request
GET /?k=a
--- access_log eval
qr{^rl \[-\] \[-\] \[-\] \[-\] \[-\] \[-\] \[-\] \[/\] \[-\]$}

=== TEST 5: the rule is the strictest one's
--- http_config
    ratelimit_rule narrow zone=z rate=1r/h match=/narrow;
--- request
GET /narrow?k=a
--- access_log eval
qr{^rl \[PASSED\] \[narrow\] \[1\] \[0\] }

=== TEST 6: no reset of a limit of concurrent requests
--- http_config
    ratelimit_rule slots zone=z algorithm=concurrency limit=1;
--- config
    location / { ratelimit zone=z rule=slots; empty_gif; }
--- request
GET /?k=a
--- access_log eval
qr{^rl \[PASSED\] \[slots\] \[1\] \[0\] \[-\] \[-\] \[local\] }

=== TEST 7: the route folds numbers, UUIDs and long hex segments
--- config
    location / { add_header X-Route $ratelimit_route; empty_gif; }
--- request eval
[ map { "GET $_" } '/', '/a/b', '/v1/users/123/', '/o/00112233445566AA/x',
  '/f/123e4567-e89b-12d3-a456-426614174000', '/v2', '/a;p=1/7;q', '/%37/x',
  '/abc' ]
--- response_headers eval
[ map { "X-Route: $_" } '/', '/a/b', '/v1/users/{id}', '/o/{id}/x', '/f/{id}',
  '/v2', '/a/{id}', '/{id}/x', '/abc' ]

=== TEST 8: through an internal redirect they are those of the check
--- config
    location / {
        ratelimit zone=z;
        root /nonexistent;
        error_page 404 =200 /page/9;
    }
    location /page { empty_gif; }
--- request
GET /checked/1?k=a
--- access_log eval
qr{^rl \[PASSED\] \[z\] \[2\] \[1\] \[\d{10}\] \[-\] \[local\] \[/checked/\{id\}\] }

=== TEST 9: the key by its hash, the algorithm, the cost and the time
--- config
    location / {
        access_log logs/access.log key;
        ratelimit zone=z;
        empty_gif;
    }
--- request
GET /?k=a
--- access_log eval
qr{^key \[z\] \[sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\] \[token_bucket\] \[1\] \[0\.000\]$}

=== TEST 10: a value that looks like a hash is hashed
--- config
    location / {
        access_log logs/access.log key;
        ratelimit zone=z;
        empty_gif;
    }
--- request eval
"GET /?k=sha256:" . 'a' x 64
--- access_log eval
qr{^key \[z\] \[sha256:9f447b1b473d359884f2b8541a1ad0b7d194ed59b79e8eee48047ec4830564fd\] }

=== TEST 11: of a request that nothing counts
--- config
    location / {
        access_log logs/access.log key;
        ratelimit zone=z;
        empty_gif;
    }
--- request
GET /
--- access_log eval
qr{^key \[-\] \[-\] \[-\] \[-\] \[-\]$}
