# The page of "ratelimit_status_page" as a client gets it: who gets it, by which
# guards, and with which policy. t/page has what it does in a browser.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $HTML = 'Accept: text/html,application/xhtml+xml;q=0.9';
my $PAGE = 'ratelimit_status_page;';

# requests come from 127.0.0.1 with the address that X-From says
my $gateway = t::Gateway->limited(
    zone => { one => 'key=$http_x_k rate=1r/h' },
    locations => {},
    files => { tokens => "ann:$TOKEN\n" },
    http => 'set_real_ip_from 127.0.0.1; real_ip_header X-From;',
    server => join '', map { "location $_->[0] { ratelimit_api zone=one$_->[1] }" }
        ['/rl/', "; $PAGE"], ['/bare', "; $PAGE"], ['/none/', ';'],
        ['/token/', " token_file=%%DIR%%/tokens; $PAGE"],
        ['/except/', "; $PAGE limit_except GET { deny all; }"],
        ['/if/', "; $PAGE if (\$arg_x) { set \$x 1; }"]);

sub get { return $gateway->get(@_) }
sub status { return get(@_)->{status} }

my $page = get('/rl/', $HTML);

is("$page->{status} " . header($page, 'Content-Type'),
   '200 text/html; charset=utf-8', 'the page');
is(header($page, 'Cache-Control') . ' ' . header($page, 'Referrer-Policy') . ' '
   . header($page, 'X-Content-Type-Options'), 'no-store no-referrer nosniff',
   'its headers');
is(header($page, 'Content-Security-Policy'),
   "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
   . "connect-src 'self'; base-uri 'none'; form-action 'none'; "
   . "frame-ancestors 'none'; require-trusted-types-for 'script'; "
   . "trusted-types 'none'", 'its policy');
is(join(' ', $page->{body} =~ /(?:src|href)="(?!data:|#)(.*?)"/g),
   'page.css page.js', 'it loads its own files');
unlike($page->{body}, qr/<script(?! src="page\.js" defer><)|<style| style=| on\w+=/,
       'and has no script and no style in it');

for (['page.css', 'text/css'], ['page.js', 'text/javascript']) {
    my $file = get("/rl/$_->[0]");
    is("$file->{status} " . header($file, 'Content-Type') . ' '
       . header($file, 'X-Content-Type-Options'),
       "200 $_->[1]; charset=utf-8 nosniff", $_->[0]);
}

# the files are those of page/
my $script = get('/rl/page.js')->{body};

for my $name (glob 'page/*') {
    open my $file, '<', $name or die "$name: $!";
    my $text = do { local $/; <$file> };
    ok(index(join("\n", $page->{body}, $script, get('/rl/page.css')->{body}),
             $text) >= 0, "$name is there, as it is written");
    unlike($text, qr/[^\n\x20-\x7e]/, "$name: ASCII");
    unlike($text, qr/^.{81}/m, "$name: lines of 80 columns")
        if $name =~ /\.js$/;
}

unlike($script, qr/(?:inner|outer)HTML|insertAdjacent|document\.write|\beval\b/,
       'the script makes no markup');
is(join(' ', $script =~ m{(https?://[^"]*)}g), 'http://www.w3.org/2000/svg',
   'and knows no other place');

my $bytes = 0;
$bytes += -s for glob 'page/*';
cmp_ok($bytes, '<', 110_000, 'they are small');

# who gets it
like(get('/rl/', @$_)->{body}, qr/^\{/, 'a program gets the paths')
    for ['Accept: application/json'], [];
is(status('/rl/', 'Accept: TEXT/HTML'), 200, 'in any case');
is(status('/rl/x', $HTML), 404, 'another path');
is(get('HEAD /rl/', $HTML)->{body}, '', 'HEAD');
is(status('POST /rl/', $HTML), 405, 'POST');
like(get('/none/', $HTML)->{body}, qr/^\{/, 'a location without it');
is(status('/none/page.js'), 404, 'and its script');
is(status('/except/', $HTML) . status('/if/', $HTML), '200200',
   'with limit_except and if');
is(status('POST /except/', $HTML), 403, 'limit_except');

for (['/rl', 301, qr{/rl/$}], ['/bare', 301, qr{^/bare/$}],
     ['/bare/', 200, qr/^$/], ['/barefoot', 404, qr/^$/])
{
    my $answer = get($_->[0], $HTML);
    is($answer->{status}, $_->[1], $_->[0]);
    like(header($answer, 'Location'), $_->[2], "$_->[0]: leads there");
}

# the guards
for my $from ('X-From: 10.0.0.1', 'Host: evil.example') {
    my $told = get('/rl/', $HTML, $from);
    is("$told->{status} " . header($told, 'WWW-Authenticate'), '403 ', $from);
    is($told->{body}, $page->{body}, "$from: the page says who may");
    is(header($told, 'Content-Security-Policy'),
       header($page, 'Content-Security-Policy'), "$from: with its policy");
    is(join(' ', map { status($_, $HTML, $from) } '/rl/page.js', '/rl/page.css'),
       '200 200', "$from: what the page needs to say it");
    for ('/rl/', '/rl/status', '/rl/document', '/rl/x', '/none/') {
        my $answer = get($_, $from, /none|rl.$/ ? () : $HTML);
        is("$answer->{status} " . header($answer, 'Content-Type'),
           '403 application/problem+json', "$from: $_");
    }
}

my $asks = get('/token/', $HTML);

is("$asks->{status} " . header($asks, 'WWW-Authenticate'),
   '401 Bearer realm="ratelimit"', 'no token');
is($asks->{body}, $page->{body}, 'the page asks for it');
is(status('/token/'), 401, 'no token, no page');
is(status('/token/', $HTML, "Authorization: Bearer $TOKEN"), 200, 'a token');
is(status('/token/page.js') . status('/token/page.css'), '200200',
   'what the page needs to ask');
is(status('/token/status') . status('/token/x'), '401401',
   'but nothing of the gateway');

$gateway->stop('QUIT', 'access forbidden by rule');

# the configuration
for (['ratelimit_status_page;', qr/^"ratelimit_status_page" is in a location without "ratelimit_api", expected both,/],
     ['ratelimit_api zone=z; ratelimit_status_page; ratelimit_status_page;',
      qr/^"ratelimit_status_page" directive is duplicate/],
     ['ratelimit_api zone=z; ratelimit_status_page on;',
      qr/^invalid number of arguments in "ratelimit_status_page"/],
     ['ratelimit_status_page; ratelimit_api zone=z;', qr/^accepted$/],
     ['ratelimit_api zone=z; ratelimit_status_page; location /x/y { }',
      qr/^accepted$/])
{
    like($gateway->verdict("server { location /x/ { $_->[0] } }"
                           . 'ratelimit_zone $arg_k zone=z:64k rate=1r/s;'),
         $_->[1], $_->[0]);
}
