# What the client is told: headers on every answer of a limited location, the
# 429, its body, and what error_page, satisfy and an upstream make of them.

use t::Blocks 'no_plan';

use JSON::PP ();

add_block_preprocessor(sub {
    my $block = shift;
    # an upstream
    $block->set_value('config', ($block->config // '') . <<'CONF');
    location /origin/200 {
        add_header X-RateLimit-Limit 77;
        add_header x-ratelimit-remaining 76;
        add_header X-RATELIMIT-RESET 75;
        add_header X-RateLimit-Policy theirs;
        add_header X-RateLimit-Status theirs;
        add_header Retry-After 74;
        add_header X-Other kept;
        return 200 "origin\n";
    }
    location /origin/like {
        add_header X-RATELIMIT-limit 77;
        add_header X-RateLimit-Limbo kept1;
        add_header R-RateLimit-Limit kept2;
        add_header X-RateLimit-Limits kept3;
        add_header RateLimit-Limit kept4;
        add_header xx-RateLimit-Limi kept5;
        add_header rEtRy-aFtEr 74;
        add_header x-Ratelimit-RESET 76;
        add_header x-ratelimit-reset 75;
        return 200 "like\n";
    }
    location /origin/many {
        add_header N 1; add_header N 2; add_header N 3; add_header N 4;
        add_header N 5; add_header N 6; add_header N 7; add_header N 8;
        add_header N 9; add_header N 10; add_header N 11; add_header N 12;
        return 200 "many\n";
    }
    location /origin/500 { return 500 "broken\n"; }
CONF
});

no_root_location();
run_tests();

sub t::RateLimit::json_body {
    my $error = JSON::PP::decode_json($_[0])->{error};
    my $details = $error->{details};
    my $left = $details->{retry_after_seconds};
    return join ' ', $error->{code},
        (map { "$_=$details->{$_}" } qw( rule limit unit window_seconds )),
        $left > 3590 && $left <= 3600 ? 'retry=true' : "retry=$left",
        join(',', sort keys %$error), join(',', sort keys %$details),
        $details->{reset_at} =~ /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/
            ? 'date' : $details->{reset_at};
}

__DATA__

=== TEST 1: on 200, 404, 403 and a redirect
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=9r/h;
    ratelimit zone=z;
--- config
    location /ok { empty_gif; }
    location /gone { root /nonexistent; }
    location /deny { deny all; }
    location /dir { root html; }
--- user_files
>>> dir/a
a
--- request eval
[ map { "GET /$_?k=a" } qw( ok gone deny dir ) ]
--- error_code eval
[ 200, 404, 403, 301 ]
--- response_headers eval
[ map { "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: $_\n!Retry-After" }
      8, 7, 6, 5 ]

=== TEST 2: names, order and form; Reset is the time when all is back
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
--- request eval
[ ('GET /?k=a') x 2 ]
--- error_code eval
[ 200, 429 ]
--- raw_response_headers_like eval
my $h = int((time + 3600) / 100);
my $reset = "(?:$h|" . ($h + 1) . ")\\d\\d";
my $all = "X-RateLimit-Limit: 1\r\nX-RateLimit-Remaining: 0\r\n"
          . "X-RateLimit-Reset: $reset\r\n";
[ $all, $all . "Retry-After: (?:3600|359\\d)\r\n" ]

=== TEST 3: an error page carries them, once
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=9r/h;
--- config
    location / {
        ratelimit zone=z;
        root /nonexistent;
        error_page 404 /page;
    }
    location = /page { internal; ratelimit zone=z; return 404 "page\n"; }
--- request eval
[ ('GET /?k=a') x 2 ]
--- error_code eval
[ 404, 404 ]
--- response_body eval
[ "page\n", "page\n" ]
--- response_headers eval
[ map { "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: $_" } 8, 7 ]

=== TEST 4: an upstream's own are replaced, its other headers kept
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=9r/h;
--- config
    location = /via { ratelimit zone=z;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/200; }
--- request
GET /via?k=a
--- response_body
origin
--- response_headers
X-RateLimit-Limit: 9
X-RateLimit-Remaining: 8
!X-RateLimit-Policy
!X-RateLimit-Status
Retry-After: 74
X-Other: kept
--- raw_response_headers_unlike
: 7[567]\r\n

=== TEST 5: an upstream's errors, and one that is not there
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=9r/h;
--- config
    location = /500 { ratelimit zone=z;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/500; }
    location = /502 { ratelimit zone=z; proxy_pass http://127.0.0.1:1; }
--- request eval
[ 'GET /500?k=a', 'GET /502?k=a' ]
--- error_code eval
[ 500, 502 ]
--- response_headers eval
[ map { "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: $_" } 8, 7 ]

=== TEST 6: without a limit an upstream's headers are its own
--- config
    location = /via {
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/200; }
--- request
GET /via
--- response_headers
X-RateLimit-Limit: 77
X-RateLimit-Policy: theirs
Retry-After: 74

=== TEST 7: HEAD and 304
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=2r/h;
--- config
    location / { ratelimit zone=z; root html; }
--- user_files
>>> a
a
--- request eval
[ 'HEAD /a?k=a', 'GET /a?k=a', 'HEAD /a?k=a' ]
--- more_headers eval
[ '', 'If-None-Match: *', '' ]
--- error_code eval
[ 200, 304, 429 ]
--- response_headers eval
[ map { "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: $_" } 1, 0, 0 ]

=== TEST 8: off: no headers, and still a limit
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; ratelimit_headers off; empty_gif; }
--- request eval
[ ('GET /?k=a') x 2 ]
--- error_code eval
[ 200, 429 ]
--- response_headers eval
[ ("!X-RateLimit-Limit\n!X-RateLimit-Remaining\n!Retry-After") x 2 ]

=== TEST 9: the body of a rejection is JSON and true
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; default_type text/plain; empty_gif; }
--- request eval
[ ('GET /?k=a') x 2 ]
--- error_code eval
[ 200, 429 ]
--- response_headers eval
[ "Content-Type: image/gif", "Content-Type: application/json" ]
--- response_body_filters eval
sub { $_[0] =~ /^GIF/ ? 'gif' : t::RateLimit::json_body($_[0]) }
--- response_body eval
[ 'gif', 'RATE_LIMIT_EXCEEDED rule=z limit=1 unit=requests window_seconds=3600 retry=true '
  . 'code,details,message '
  . 'limit,reset_at,retry_after_seconds,rule,unit,window_seconds '
  . 'date' ]

=== TEST 10: another status, one that "satisfy any" would take for a vote too
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
    ratelimit zone=z;
--- config
    location /503 { ratelimit_status 503; empty_gif; }
    location /403 {
        ratelimit_status 403;
        satisfy any;
        allow all;
        empty_gif;
    }
    location /401 {
        ratelimit_status 401;
        satisfy any;
        allow all;
        empty_gif;
    }
--- request eval
[ map { ("GET /$_?k=$_") x 2 } 503, 403, 401 ]
--- error_code eval
[ 200, 503, 200, 403, 200, 401 ]
--- response_body_like eval
[ map { ('', "RATE_LIMIT_EXCEEDED.*\n\$") } 1 .. 3 ]

=== TEST 11: passing the limit grants no access
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
    ratelimit zone=z;
--- config
    location /any { satisfy any; deny all; auth_basic a;
                    auth_basic_user_file /dev/null; empty_gif; }
    location /all { satisfy all; deny all; empty_gif; }
--- request eval
[ ('GET /any?k=a') x 2, ('GET /all?k=b') x 2 ]
--- error_code eval
[ 401, 429, 403, 429 ]

=== TEST 12: a body of a rejected request is read away; the connection goes on
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / { ratelimit zone=z; empty_gif; }
    location /free { return 200 "free\n"; }
--- pipelined_requests eval
[ "POST /?k=a\n" . 'b' x 20000, "POST /?k=a\n" . 'GET /x ' x 3000, "GET /free" ]
--- error_code eval
[ 405, 429, 200 ]
--- response_body_like eval
[ '', 'RATE_LIMIT_EXCEEDED', '^free' ]

=== TEST 13: error_page of a rejection: a page, another status, a named location
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
    ratelimit zone=z;
--- config
    location /page { error_page 429 /slow; empty_gif; }
    location /ok { error_page 429 =200 /slow; empty_gif; }
    location /named { error_page 429 @slow; empty_gif; }
    location /away { error_page 429 https://example.org/; empty_gif; }
    location = /slow { return 200 "slow\n"; }
    location @slow { return 418 "named\n"; }
--- request eval
[ map { ("GET /$_?k=$_") x 2 } qw( page ok named away ) ]
--- error_code eval
[ 200, 429, 200, 200, 200, 429, 200, 302 ]
--- response_body_like eval
[ '', "^slow\n", '', "^slow\n", '', "^named\n", '', '' ]
--- response_headers_like eval
[ ("X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0") x 8 ]
--- raw_response_headers_like eval
[ map { $_ ? 'Retry-After: (3600|359\d)\r\n' : 'RateLimit' } 0, 1, 0, 0, 0, 1, 0, 0 ]
--- raw_response_headers_unlike eval
[ map { $_ ? 'no such' : 'Retry-After' } 0, 1, 0, 0, 0, 1, 0, 0 ]

=== TEST 14: error_page of a rejection to an upstream
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location / {
        ratelimit zone=z;
        error_page 429 = /proxied;
        empty_gif;
    }
    location = /proxied {
        internal;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/200;
    }
--- request eval
[ ('GET /?k=a') x 2 ]
--- error_code eval
[ 200, 200 ]
--- response_body_like eval
[ '', "^origin\n" ]
--- response_headers_like eval
[ 'X-RateLimit-Limit: 1',
  "X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0\nX-Other: kept" ]
--- response_headers eval
[ '', '!X-RateLimit-Policy' ]
--- raw_response_headers_unlike eval
[ 'Retry-After', 'Retry-After: 3' ]

=== TEST 15: a rejection after an internal redirect and after an error
--- http_config
    ratelimit_zone $request_uri zone=z:1m rate=1r/h;
--- config
    location /try { root /nonexistent; try_files /none /limited; }
    location /error { root /nonexistent; error_page 404 =200 /limited; }
    location /limited { ratelimit zone=z; empty_gif; }
--- request eval
[ map { ("GET /$_") x 2 } 'try', 'error' ]
--- error_code eval
[ 200, 429, 200, 429 ]
--- response_body_like eval
[ map { ('', "RATE_LIMIT_EXCEEDED.*\n\$") } 1 .. 2 ]
--- response_headers eval
[ ("X-RateLimit-Limit: 1\nX-RateLimit-Remaining: 0") x 4 ]

=== TEST 16: dry runs are not shown: none that denies, none without an answer
--- http_config
    ratelimit_redis gone { server 127.0.0.1:1; timeout 100ms; }
    ratelimit_zone $arg_k zone=lost:1m redis=gone;
    ratelimit_zone $arg_k zone=z:1m rate=9r/h;
    ratelimit_rule try zone=z rate=1r/h dry_run;
    ratelimit_rule try zone=lost rate=5r/h dry_run;
--- config
    location /both { ratelimit zone=z; ratelimit zone=lost; empty_gif; }
    location /dry {
        ratelimit zone=z rule=try;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/200;
    }
--- request eval
[ 'GET /both?k=a', 'GET /both?k=a', 'GET /dry?k=a' ]
--- error_code eval
[ 200, 200, 200 ]
--- response_headers eval
[ (map { "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: $_\n"
         . "!X-RateLimit-Policy\n!Retry-After" } 8, 7),
  "X-RateLimit-Limit: 77\nX-RateLimit-Policy: theirs\nRetry-After: 74" ]

=== TEST 17: no Retry-After where no wait helps; no reset of requests in flight
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=2r/h cost=3;
    ratelimit_rule slots zone=z algorithm=concurrency limit=5;
--- config
    location /cost { ratelimit zone=z rule=z; empty_gif; }
    location /slots { ratelimit zone=z rule=slots; empty_gif; }
--- request eval
[ 'GET /cost?k=a', 'GET /slots?k=a' ]
--- error_code eval
[ 429, 200 ]
--- response_headers eval
[ "X-RateLimit-Limit: 2\nX-RateLimit-Remaining: 2\n!Retry-After",
  "X-RateLimit-Limit: 5\nX-RateLimit-Remaining: 4\n!X-RateLimit-Reset" ]

=== TEST 18: an upstream's own in any case; with "keep" others are kept
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location = /like { ratelimit zone=z; ratelimit_headers x keep;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/like; }
--- request
GET /like?k=a
--- response_headers
X-RateLimit-Limit: 1
X-RateLimit-Limbo: kept1
R-RateLimit-Limit: kept2
X-RateLimit-Limits: kept3
RateLimit-Limit: kept4
xx-RateLimit-Limi: kept5
Retry-After: 74
--- raw_response_headers_unlike
: 7[567]\r\n

=== TEST 19: many headers of an upstream, and all of ours behind them
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    location = /many { ratelimit zone=z; ratelimit_headers x draft3 ietf;
        add_header X-Last 1;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/many; }
--- request
GET /many?k=a
--- raw_response_headers_like: N: 1\r\n.*N: 12\r\nX-RateLimit-Limit: 1\r\n.*RateLimit-Limit: 1, 1;w=3600\r\n.*RateLimit: "z";r=0;t=3\d+;pk=\S+\r\nX-Last: 1\r\n

=== TEST 20: an upstream's other headers of limits are dropped
--- http_config
    ratelimit_zone $arg_k zone=z:1m rate=1r/h;
--- config
    add_header X-RateLimit-Plan free;
    location = /like { ratelimit zone=z;
        proxy_pass http://127.0.0.1:$TEST_NGINX_SERVER_PORT/origin/like; }
--- request
GET /like?k=a
--- response_headers
X-RateLimit-Limit: 1
!X-RateLimit-Limbo
R-RateLimit-Limit: kept2
!X-RateLimit-Limits
!RateLimit-Limit
xx-RateLimit-Limi: kept5
X-RateLimit-Plan: free
Retry-After: 74
