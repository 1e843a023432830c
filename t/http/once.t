# A request counts once, whatever becomes of it inside: subrequests, internal
# redirects, error pages. And it is logged as what was checked.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );

my ($addition) = `$ENV{TEST_NGINX_BINARY} -V 2>&1` =~ /(http_addition_module)/;

my $gateway = t::Gateway->limited(
    zone => 'key=$http_x_key rate=100r/h',
    http => <<'CONF',
    log_format rl '$http_x_key [$ratelimit_status] [$ratelimit_remaining] '
                  '[$ratelimit_route]';
    access_log %%DIR%%/access.log rl;
    ratelimit zone=z;
CONF
    files => {
        'html/dir/index.html' => "index\n",
        'html/added.html' => "added\n",
        'html/page.shtml' => join "\n", map {
            "<!--# include virtual=\"/sub/$_\" -->" } 1 .. 5,
    },
    server => 'root %%DIR%%/html;',
    locations => {
        '/plain' => '',
        '/unlimited' => 'ratelimit off; try_files /none /plain;',
        '/sub/' => '',
        '/auth' => 'auth_request /sub/auth;',
        '/mirror' => 'mirror /sub/mirror1; mirror /sub/mirror2;',
        '/page.shtml' => 'ssi on;',
        '/try' => 'try_files /none /also-none /plain;',
        '/fallback' => 'try_files /none @named;',
        '@named' => '',
        '/dir/' => 'index none index.html;',
        '/rewrite' => 'rewrite ^ /plain last;',
        # static files that are not there
        '/error' => 'root /none; error_page 404 /plain;',
        '/named' => 'root /none; error_page 404 = @named;',
        '/chain' => 'root /none; error_page 404 = @chain;',
        '@chain' => 'rewrite ^ /try last;',
        '/accel' => 'proxy_pass http://127.0.0.1:%%PORT%%/origin;',
        '/recursive' => 'root /none; recursive_error_pages on;'
                        . 'error_page 404 = /recursive2;',
        '/recursive2' => 'root /none; recursive_error_pages on;'
                         . 'error_page 404 = /plain;',
        '= /origin' => 'ratelimit off; add_header X-Accel-Redirect /plain;'
                       . 'return 200;',
        $addition ? ('/added.html' => 'root %%DIR%%/html;'
                                      . 'add_after_body /sub/added;') : (),
    });

for my $path (qw( /plain /auth /mirror /page.shtml /try /fallback /dir/
                  /rewrite /error/x /named/x /chain/x /accel /recursive/x
                  /unlimited ), $addition ? '/added.html' : ())
{
    my $key = $path =~ s/\W//gr;
    my $answer = $gateway->get($path, "X-Key: $key");
    like($answer->{status}, qr/^(?:200|404)$/, "$path is answered");
    is(header($answer, 'X-RateLimit-Remaining'), 99,
       "$path is told that it counted once");
    $answer = $gateway->get('/plain', "X-Key: $key");
    is(header($answer, 'X-RateLimit-Remaining'), 98, "$path counted once");
}

my $log = '';
wait_for(sub {
    ($log = $gateway->read('access.log')) =~ /^unlimited .*98/m;
});

is(header($gateway->get('/error/x', 'X-Key: e'), 'Content-Type'),
   'image/gif', 'the error page was the one of the location');

like($log, qr{^$_->[0] \[PASSED\] \[99\] \[$_->[1]\]$}m,
     "$_->[0] is logged as what was checked")
    for ['try', '/try'], ['errorx', '/error/x'], ['chainx', '/chain/x'],
        ['accel', '/accel'], ['unlimited', '/plain'], ['auth', '/auth'],
        ['pageshtml', '/page.shtml'];

$gateway->stop;
