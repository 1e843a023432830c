# A request counts once, whatever becomes of it inside: subrequests, internal
# redirects, error pages. And it is logged as what was checked.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my ($addition) = `$ENV{TEST_NGINX_BINARY} -V 2>&1` =~ /(http_addition_module)/;

my $gateway = t::Gateway->new(http => <<'CONF' . ($addition ? <<'ADD' : '')
    log_format rl '$http_x_key [$ratelimit_status] [$ratelimit_remaining] '
                  '[$ratelimit_route]';
    access_log %%DIR%%/access.log rl;
    ratelimit_zone $http_x_key zone=z:1m rate=100r/h;
    ratelimit zone=z;

    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/html;

        location /plain { empty_gif; }
        location /unlimited { ratelimit off; try_files /none /plain; }
        location /sub/ { empty_gif; }

        location /auth { auth_request /sub/auth; empty_gif; }
        location /mirror { mirror /sub/mirror1; mirror /sub/mirror2;
                           empty_gif; }
        location /page.shtml { ssi on; }
        location /try { try_files /none /also-none /plain; }
        location /fallback { try_files /none @named; }
        location @named { empty_gif; }
        location /dir/ { index none index.html; }
        location /rewrite { rewrite ^ /plain last; }
        location /error { error_page 404 /plain; }
        location /named { error_page 404 = @named; }
        location /chain { error_page 404 = @chain; }
        location @chain { rewrite ^ /try last; }
        location /accel { proxy_pass http://127.0.0.1:%%PORT%%/origin; }
        location /recursive { recursive_error_pages on;
                              error_page 404 = /recursive2; }
        location /recursive2 { recursive_error_pages on;
                               error_page 404 = /plain; }
        location = /origin {
            ratelimit off;
            add_header X-Accel-Redirect /plain;
            return 200;
        }
CONF
        location /added.html { add_after_body /sub/added; }
ADD
    . "    }\n");

mkdir "$gateway->{dir}/html";
mkdir "$gateway->{dir}/html/dir";
$gateway->write('html/dir/index.html', "index\n");
$gateway->write('html/added.html', "added\n");
$gateway->write('html/page.shtml',
                join "\n", map { "<!--# include virtual=\"/sub/$_\" -->" }
                           1 .. 5);
$gateway->start;

for my $path (qw( /plain /auth /mirror /page.shtml /try /fallback /dir/
                  /rewrite /error/x /named/x /chain/x /accel /recursive/x
                  /unlimited ), $addition ? '/added.html' : ())
{
    my $key = $path =~ s/\W//gr;

    my $answer = $gateway->get($path, "X-Key: $key");
    like($answer->{status}, qr/^(?:200|404)$/, "$path is answered");
    is(t::Gateway::header($answer, 'X-RateLimit-Remaining'), 99,
       "$path is told that it counted once");

    $answer = $gateway->get('/plain', "X-Key: $key");
    is(t::Gateway::header($answer, 'X-RateLimit-Remaining'), 98,
       "$path counted once");
}

my $log = '';
t::Gateway::wait_for(sub {
    ($log = $gateway->read('access.log')) =~ /^unlimited .*98/m;
});

is(t::Gateway::header($gateway->get('/error/x', 'X-Key: e'), 'Content-Type'),
   'image/gif', 'the error page was the one of the location');

like($log, qr{^$_->[0] \[PASSED\] \[99\] \[$_->[1]\]$}m,
     "$_->[0] is logged as what was checked")
    for ['try', '/try'], ['errorx', '/error/x'], ['chainx', '/chain/x'],
        ['accel', '/accel'], ['unlimited', '/plain'], ['auth', '/auth'],
        ['pageshtml', '/page.shtml'];

$gateway->stop;
