# What the client is told: headers on every answer of a limited location, the
# 429, its body, and what error_page, satisfy and an upstream make of them.

use JSON::PP ();
use POSIX qw( ceil );

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway;

my $origin = 'proxy_pass http://127.0.0.1:%%PORT%%/origin';
my $one = 'ratelimit zone=one;';
my $nine = 'ratelimit zone=nine;';

my $gateway = t::Gateway->limited(
    redis => { gone => 'server 127.0.0.1:1; timeout 100ms' },
    zone => { one => 'rate=1r/h', two => 'rate=2r/h', nine => 'rate=9r/h',
              dry => 'rate=9r/h', lost => 'redis=gone', kinds => '',
              cost => 'rate=2r/h cost=3',
              uri => 'key=$request_uri rate=1r/h' },
    rules => ['try zone=dry rate=1r/h dry_run',
              'try zone=lost rate=5r/h dry_run',
              'slots zone=kinds algorithm=concurrency limit=5'],
    files => { 'dir/a' => "a\n" },
    locations => {
        '/ok' => $nine, '/gone' => "$nine root /nonexistent;",
        '/deny' => "$nine deny all;", '/dir' => "$nine root %%DIR%%;",
        '/first' => $one,
        '/error' => "$nine root /nonexistent; error_page 404 /error-page;",
        '= /error-page' => "internal; $nine return 404 \"page\\n\";",
        '/via' => "$nine $origin/200;", '/500' => "$nine $origin/500;",
        '/502' => "$nine proxy_pass http://127.0.0.1:1;",
        '/free-via' => "$origin/200;",
        '/files' => 'ratelimit zone=two; root %%DIR%%;'
                    . 'rewrite ^/files/(.*) /$1 break;',
        '/off' => "$one ratelimit_headers off;",
        '/body' => "$one default_type text/plain;",
        (map { ("/status/$_" => "$one ratelimit_status $_;"
                . ($_ < 500 ? 'satisfy any; allow all;' : '')) }
         503, 403, 401),
        '/any' => "$one satisfy any; deny all; auth_basic a;"
                  . 'auth_basic_user_file /dev/null;',
        '/all' => "$one satisfy all; deny all;",
        '/large' => $one, '/free' => 'return 200 "free\n";',
        '/page' => "$one error_page 429 /slow;",
        '/answer' => "$one error_page 429 =200 /slow;",
        '/named' => "$one error_page 429 \@slow;",
        '/away' => "$one error_page 429 https://example.org/;",
        '= /slow' => $one . 'return 200 "slow\n";',
        '@slow' => $one . 'return 418 "named\n";',
        '/to-origin' => "$one error_page 429 = /proxied;",
        '= /proxied' => "internal; $one $origin/200;",
        '/redirect' => 'root /nonexistent; try_files /none /limited;',
        '/404' => 'root /nonexistent; error_page 404 =200 /limited;',
        '/limited' => 'ratelimit zone=uri;',
        '/both' => 'ratelimit zone=dry; ratelimit zone=lost;',
        '/dry' => "ratelimit zone=dry rule=try; $origin/200;",
        '/cost' => 'ratelimit zone=cost;', '/slots' => 'ratelimit zone=kinds;',
        '/like' => "$one ratelimit_headers x keep; $origin/like;",
        '/plan' => "$one add_header X-RateLimit-Plan free; $origin/like;",
        '/many' => "$one ratelimit_headers x draft3 ietf; add_header X-Last 1;"
                   . "$origin/many;",
        '/origin/200' => <<'CONF',
            add_header X-RateLimit-Limit 77;
            add_header x-ratelimit-remaining 76;
            add_header X-RATELIMIT-RESET 75;
            add_header X-RateLimit-Policy theirs;
            add_header X-RateLimit-Status theirs;
            add_header Retry-After 74;
            add_header X-Other kept;
            return 200 "origin\n";
CONF
        '/origin/like' => <<'CONF',
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
CONF
        '/origin/many' => (join '', map { "add_header N $_;" } 1 .. 12)
                          . 'return 200 "many\n";',
        '/origin/500' => 'return 500 "broken\n";' });

t::Clock::stop();

# Of each request: status, limit, remaining, Retry-After.
sub limits_are {
    my ($name, $expected, @requests) = @_;
    is($gateway->shown('Limit Remaining Retry-After', @requests), $expected,
       $name);
}

# The body of each answer is like that.
sub bodies_are {
    my ($name, @rows) = @_;
    while (my ($request, $like) = splice @rows, 0, 2) {
        like($gateway->get($request)->{body}, $like, "$name: $request");
    }
}

sub raw { return $gateway->raw("GET $_[0] HTTP/1.0\r\n\r\n") }

my $rejected = qr/RATE_LIMIT_EXCEEDED.*\n$/;

limits_are('on 200, 404, 403 and a redirect',
           '200/9/8/- 404/9/7/- 403/9/6/- 301/9/5/-',
           map { "/$_?k=a" } qw( ok gone deny dir ));

# Reset is the time when all is back
my $all = "X-RateLimit-Limit: 1\r\nX-RateLimit-Remaining: 0\r\n"
          . 'X-RateLimit-Reset: ' . (ceil(t::Clock::now() + 3600)) . "\r\n";
like(raw('/first?k=a'), qr/\r\n$all/, 'names, order and form');
like(raw('/first?k=a'), qr/\r\n${all}Retry-After: 3600\r\n/, 'of a rejection');

limits_are('an error page carries them, once', '404/9/8/- 404/9/7/-',
           ('/error?k=b') x 2);
bodies_are('an error page', '/error?k=b' => qr/^page\n$/);

# an upstream
my $like = 'X-RateLimit-Limbo R-RateLimit-Limit X-RateLimit-Limits '
           . 'RateLimit-Limit xx-RateLimit-Limi Retry-After';
is($gateway->shown('Limit Remaining X-RateLimit-Policy X-RateLimit-Status '
                   . 'Retry-After X-Other', '/via?k=c'),
   '200/9/8/-/-/74/kept', "an upstream's own are replaced, others are kept");
unlike(raw($_), qr/: 7[567]\r\n/, "none of its own: $_")
    for '/via?k=c', '/like?k=c';
bodies_are('an upstream', '/via?k=c' => qr/^origin\n$/);
limits_are("an upstream's errors, and one that is not there",
           '500/9/8/- 502/9/7/-', '/500?k=d', '/502?k=d');
is($gateway->shown('Limit X-RateLimit-Policy Retry-After', '/free-via'),
   '200/77/theirs/74', "without a limit an upstream's headers are its own");
is($gateway->shown("Limit $like", '/like?k=like'),
   '200/1/kept1/kept2/kept3/kept4/kept5/74',
   "an upstream's own in any case; with \"keep\" others are kept");
is($gateway->shown("Limit $like X-RateLimit-Plan", '/plan?k=plan'),
   '200/1/-/kept2/-/-/kept5/74/free',
   "an upstream's other headers of limits are dropped");
like(raw('/many?k=many'), qr/N:\ 1\r\n.*N:\ 12\r\nX-RateLimit-Limit:\ 1\r\n.*
     RateLimit-Limit:\ 1,\ 1;w=3600\r\n.*
     RateLimit:\ "one";r=0;t=3600;pk=\S+\r\nX-Last:\ 1\r\n/xs,
     'many headers of an upstream, and all of ours behind them');

limits_are('HEAD and 304', '200/2/1/- 304/2/0/- 429/2/0/1800',
           'HEAD /files/dir/a?k=a', ['/files/dir/a?k=a', 'If-None-Match: *'],
           'HEAD /files/dir/a?k=a');
limits_are('off: no headers, and still a limit', '200/-/-/- 429/-/-/-',
           ('/off?k=off') x 2);

# the body of a rejection is JSON and true
is($gateway->shown('Content-Type', ('/body?k=body') x 2),
   '200/image/gif 429/application/json', 'the type of a rejection');
my $body = $gateway->get('/body?k=body')->{body};
my $error = JSON::PP::decode_json($body)->{error};
my $details = $error->{details};
is(join(' ', map({ "$_=$error->{$_}" } grep { $_ !~ /details|message/ }
                 sort keys %$error),
        map { "$_=$details->{$_}" } grep { $_ ne 'reset_at' }
        sort keys %$details),
   'code=RATE_LIMIT_EXCEEDED limit=1 retry_after_seconds=3600 rule=one '
   . 'unit=requests window_seconds=3600', 'what it says');
like($details->{reset_at}, qr/^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/, 'a date');
isnt($error->{message}, undef, 'and a message');

is($gateway->statuses(map { ("/status/$_?k=$_") x 2 } 503, 403, 401),
   '200 503 200 403 200 401',
   'another status, one that "satisfy any" would take for a vote too');
bodies_are('a rejection', map { ("/status/$_?k=$_" => $rejected) }
                          503, 403, 401);
is($gateway->statuses(map { ("/$_?k=$_") x 2 } qw( any all )),
   '401 429 403 429', 'passing the limit grants no access');

# of each: a request line and a body
my $text = join '', map {
    my ($line, $body) = @$_;
    "$line HTTP/1.1\r\nHost: a\r\nContent-Length: " . length($body)
        . "\r\n\r\n$body";
} ['POST /large?k=large', 'b' x 20000],
  ['POST /large?k=large', 'GET /x ' x 3000], ['GET /free', ''];
like($gateway->raw($text, qr/free\n/), qr{^HTTP/1\.1\ 405\ .*HTTP/1\.1\ 429\ .*
     RATE_LIMIT_EXCEEDED.*HTTP/1\.1\ 200\ .*\r\n\r\nfree\n$}xs,
     'a body of a rejected request is read away; the connection goes on');

# error_page of a rejection
limits_are('a page, another status, a named location',
           '200/1/0/- 429/1/0/3600 200/1/0/- 200/1/0/- '
           . '200/1/0/- 429/1/0/3600 200/1/0/- 302/1/0/-',
           map { ("/$_?k=$_") x 2 } qw( page answer named away ));
bodies_are('error_page', '/page?k=page' => qr/^slow\n$/,
           '/answer?k=answer' => qr/^slow\n$/,
           '/named?k=named' => qr/^named\n$/);
is($gateway->shown('Limit Remaining Retry-After X-Other X-RateLimit-Policy',
                   ('/to-origin?k=to') x 2),
   '200/1/0/-/-/- 200/1/0/74/kept/-', 'to an upstream');
bodies_are('to an upstream', '/to-origin?k=to' => qr/^origin\n$/);
limits_are('a rejection after an internal redirect and after an error',
           '200/1/0/- 429/1/0/3600 200/1/0/- 429/1/0/3600',
           map { ("/$_") x 2 } qw( redirect 404 ));
bodies_are('a rejection', '/redirect' => $rejected, '/404' => $rejected);

is($gateway->shown('Limit Remaining X-RateLimit-Policy Retry-After',
                   ('/both?k=a') x 2, '/dry?k=a'),
   '200/9/8/-/- 200/9/7/-/- 200/77/76/theirs/74',
   'dry runs are not shown: none that denies, none without an answer');
limits_are('no Retry-After where no wait helps', '429/2/2/-', '/cost?k=a');
is($gateway->shown('Limit Remaining Reset', '/slots?k=a'), '200/5/4/-',
   'no reset of requests in flight');
$gateway->stop;
