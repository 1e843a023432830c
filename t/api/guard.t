# Who may use the endpoint: loopback, unless the location says otherwise; who
# has a token; who may write; and no page of another site in a browser. And what
# nginx -t says of a "ratelimit_api" that is wrong.

use IO::Socket::UNIX;
use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::Api;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $OTHER = 'another-token-0123';

# requests come from 127.0.0.1 with the address that X-From says

my $WRITE = 'ratelimit_api zone=one write;';
my $READ = 'ratelimit_api zone=one;';
my $LOOPBACK = 'allow 127.0.0.1; deny all;';

my $gateway = t::Gateway->limited(
    zone => { one => 'key=$http_x_k rate=1r/h' },
    files => { users => "ann:{PLAIN}secret\n",
               tokens => "# who\n\n  $OTHER\r\n$TOKEN\n#$TOKEN-no\n" },
    http => 'set_real_ip_from 127.0.0.1; set_real_ip_from unix:;'
            . "real_ip_header X-From;\n" . <<"CONF",
    server {
        listen 127.0.0.1:%%PORT%% default_server;
        listen unix:%%DIR%%/socket;
        ratelimit zone=one;
        location /plain/ { $WRITE }
        location ^~ /prefix { $WRITE }
        location /read/ { $READ }
        location /sub { auth_request /plain/status; empty_gif; }
        location /limited/ { $READ ratelimit zone=one; }
        location /allowed/ { $WRITE allow 10.0.0.1; $LOOPBACK }
        location /named/ { $WRITE $LOOPBACK }
        location /all/ { $READ allow all; }
        location /some/ { $READ deny 10.0.0.9; }
        location /any/ { $WRITE satisfy any; }
        location /any-some/ { $READ satisfy any; allow 10.0.0.1; }
        location /any-else/ { $READ satisfy any; allow 10.0.0.1; deny all;
                              auth_basic "x"; auth_basic_user_file users; }
        location /token/ { ratelimit_api zone=one write token_file=tokens; }
        location /token-all/ { ratelimit_api zone=one token_file=tokens;
                               allow all; }
        location /except/ { $WRITE
                            limit_except GET { deny 127.0.0.1; allow all; } }
        location /except2/ { $WRITE $LOOPBACK
                             limit_except GET { deny 10.0.0.1; allow all; } }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        server_name inherits;
        allow 10.0.0.1;
        deny all;
        location /rl/ {
            $READ
            location /rl/inside/ { return 200 "inside\\n"; }
        }
    }
CONF
    server => 'server_name Gateway.Example *.below.example .both.example'
              . ' first.* ~^re[a-z]+\.example$;',
    locations => {
        '/named/' => "$WRITE $LOOPBACK",
        '/named-token/' => "ratelimit_api zone=one write token_file=tokens;"
                           . $LOOPBACK,
    });

sub status {
    my ($path, @headers) = @_;
    return t::Api->new($gateway, '')->send(
        ($path =~ s/^([A-Z]+) // ? $1 : 'GET'), $path, undef, @headers)
        ->{status};
}

# loopback

is(status('/plain/status'), 200, 'from loopback');
is(status('/plain/status', 'X-From: ::1'), 200, 'from ::1');
is(status('/plain/status', 'X-From: 127.9.9.9'), 200, 'from 127/8');

for (qw( 10.0.0.1 128.0.0.1 0.0.0.0 2001:db8::1 fe80::1 )) {
    is(status('/plain/status', "X-From: $_"), 403, "not from $_");
}

t::Api::problem_ok(t::Api->new($gateway, '/plain')->get('/rules',
    'X-From: 10.0.0.1'), '403 forbidden', 'a problem');
is(status('PUT /plain/rules', 'X-From: 10.0.0.1'), 403, 'writes neither');
is(status('OPTIONS /plain/rules', 'X-From: 10.0.0.1'), 403, 'nor OPTIONS');
is(status('/plain/none', 'X-From: 10.0.0.1'), 403, 'which paths there are is '
   . 'not told');

my $unix = IO::Socket::UNIX->new(Peer => "$gateway->{dir}/socket") or die;
print $unix "GET /plain/status HTTP/1.0\r\nHost: localhost\r\n\r\n";
like(<$unix>, qr/ 200 /, 'from a UNIX socket');

is(status('/read/status', 'Host: evil.example'), 403,
   'a name that resolves to loopback');
is(status('/read/status', "Host: $_"), 200, "Host: $_")
    for 'LOCALHOST:8080', '127.0.0.1', '[::1]:80';

# what else opens it

is(status('/allowed/status', 'X-From: 10.0.0.1'), 200, 'allowed');
is(status('/allowed/status'), 200, 'allowed: loopback as well');
is(status('/allowed/status', 'X-From: 10.0.0.2'), 403, 'not allowed');
is(status('/allowed/status', 'Host: evil.example'), 403,
   'where the location says who, no other name');
is(status('/all/status', 'X-From: 10.0.0.2'), 200, 'allow all');
is(status('/some/status', 'X-From: 10.0.0.2'), 403,
   'a list of some that are denied opens nothing');
is(status('/some/status'), 200, 'but to loopback');
is(status('/any/status', 'X-From: 10.0.0.2'), 403,
   '"satisfy any" with nothing else opens nothing');
is(status('/any-some/status', 'X-From: 10.0.0.2'), 403,
   'nor with some that are allowed');
is(status('/any-else/status', 'X-From: 10.0.0.1'), 200,
   '"satisfy any": by address');
is(status('/any-else/status', 'X-From: 10.0.0.2',
          'Authorization: Basic YW5uOnNlY3JldA=='), 200,
   '"satisfy any": by password');
is(status('/any-else/status', 'X-From: 10.0.0.2'), 401, 'by neither');
is(status('/rl/status', 'Host: inherits', 'X-From: 10.0.0.1'), 200,
   'rules that are inherited');
is(status('/rl/status', 'Host: inherits'), 403, 'also for loopback');
is(t::Api->new($gateway, '')->get('/rl/inside/', 'Host: inherits',
   'X-From: 10.0.0.1')->{body}, "inside\n", 'a location inside is another one');
is(status('/except/status'), 200, 'limit_except: GET');
is(status('PUT /except/rules'), 403, 'limit_except: PUT');
is(status('PUT /except2/rules'), 415, 'limit_except: PUT is the endpoint, too');
is(status('PUT /except2/rules', 'X-From: 10.0.0.1'), 403,
   'limit_except: with its own rules');

# names: a page that its name has led here is known by it, whoever is allowed

is(status('/named/status', "Host: $_"), 200, "Host: $_")
    for 'gateway.example', 'GATEWAY.example:8080', 'a.below.example',
        'a.b.below.example', 'both.example', 'a.both.example';

for my $host ('regular.example', 'below.example', 'first.evil.example',
              'evilboth.example', 'evil.example', 'evil.example:80',
              'gateway.example.evil.example', 'xgateway.example', 'a')
{
    is(status('/named/status', "Host: $host"), 403, "not: Host: $host");
    is(status('PUT /named/allow', "Host: $host",
              "Origin: http://$host", 'Sec-Fetch-Site: same-origin'), 403,
       "nor a write: Host: $host");
}

is(status('GET http://evil.example/named/status', 'Host: localhost'),
   403, 'nor a name in the request line');
is(status('GET http://localhost/named/status', 'Host: evil.example'),
   403, 'nor one beside it');
is(status('/named-token/status', "Authorization: Bearer $TOKEN",
          'Host: regular.example'), 200, 'a page has no token');

# tokens

my @with = map { "Authorization: $_" } "Bearer $TOKEN", "bearer  $OTHER";
my @without = map { "Authorization: $_" } "Bearer $TOKEN-no", "Bearer #$TOKEN-no",
    "Bearer ", "Basic $TOKEN", substr("Bearer $TOKEN", 0, -1), "Bearer $OTHER\t",
    "Bearer # who", $TOKEN;

is(status('/token/status', $_), 200, $_) for @with;
is(status('/token/status', $_), 401, "not: $_") for @without;
is(status('/token/status', $with[0], 'X-From: 10.0.0.1'), 403,
   'a token does not open it to others');
is(status('/token-all/status', $with[0], 'X-From: 10.0.0.1'), 200,
   'a location that is open');

my $none = t::Api->new($gateway, '/token')->get('/status');

t::Api::problem_ok($none, '401 unauthorized', 'no token');
is(header($none, 'WWW-Authenticate'), 'Bearer realm="ratelimit"',
   'what it wants');
is(status('/token/status', $with[0], 'Host: other.example'), 200,
   'who has a token is no page of a browser');
unlike($gateway->log, qr/$TOKEN|$OTHER/, 'no token in the log');

# a reload reads the file again, and nothing else does

my $LATER = 'a-later-token-456';

$gateway->write('tokens', "$TOKEN\n$LATER\n");
is(status('/token/status', "Authorization: Bearer $OTHER"), 200,
   'before a reload: the tokens that were read');
is(status('/token/status', "Authorization: Bearer $LATER"), 401,
   'before a reload: no other');
$gateway->reload;
is(status('/token/status', "Authorization: Bearer $OTHER"), 401,
   'a reload: a token that is gone');
is(status('/token/status', "Authorization: Bearer $_"), 200,
   'a reload: a token that is there') for $TOKEN, $LATER;

# methods: write

for (qw( PUT DELETE PATCH )) {
    t::Api::problem_ok(t::Api->new($gateway, '/read')->send($_, '/rules/x', {}),
                       '403 read-only', "$_ without \"write\"");
}

is(status('POST /read/versions/1/restore'), 403, 'nor the way back');
is(status('DELETE /read/counters?rule=one&key=a'), 403, 'nor a reset');
is(status('POST /read/rules/validate', 'Content-Type: text/plain'), 415,
   'validate is a read');

# pages of other sites

for (['', 428], ['Sec-Fetch-Site: same-origin', 428],
     ['Sec-Fetch-Site: none', 428], ['Sec-Fetch-Site: cross-site', 403],
     ['Sec-Fetch-Site: same-site', 403], ['Origin: http://localhost', 428],
     ['Origin: http://localhost:80', 428], ['Origin: https://localhost', 428],
     ['Origin: http://LOCALHOST', 428], ['Origin: http://localhost:81', 403],
     ['Origin: http://localhost.evil.example', 403],
     ['Origin: http://local', 403], ['Origin: null', 403],
     ['Origin: http://', 403], ['Origin: localhost', 403], ['Origin:', 403])
{
    my ($header, $status) = @$_;

    is(t::Api->new($gateway, '/plain')->put('/rules', {},
        $header ? $header : ())->{status}, $status, "a write: $header");
}

is(t::Api->new($gateway, '/read')->post('/rules/validate', {},
       'Origin: http://evil.example')->{status}, 403, 'validate, cross-site');
is(status('/plain/status', 'Origin: http://evil.example'), 403,
   'a read, cross-site');
is(status('OPTIONS /plain/status', 'Origin: http://evil.example'), 403,
   'nor may a page ask whether it may');
is(status('/token/status', 'Origin: http://evil.example',
          "Authorization: Bearer $LATER"), 403, 'nor with a token');
is(status('/plain/status', 'Sec-Fetch-Site: cross-site'), 200,
   'a link that was followed');
is(status('PUT /prefix/rules', 'Origin: http://localhost:8080',
          'Host: localhost:8080'), 415, 'the port of the host');
is(status('PUT /prefix/rules', 'Origin: http://localhost',
          'Host: localhost:80'), 415, 'the scheme\'s own port');
is(status('/sub'), 403, 'not for a request within a request');
is(status('HEAD /read/rules/validate'), 405, 'no HEAD where there is no GET');

# limits: those of the server do not count it, its own do

is(status('/read/status', 'X-K: x'), 200, 'not counted') for 1 .. 2;
is(join(' ', map { status('/limited/status', 'X-K: x') } 1, 2), '200 429',
   'its own limits count it');

# paths

is(status("/prefix/$_->[0]"), $_->[1], "/prefix/$_->[0]")
    for ['status', 200], ['', 404], ['status/', 404], ['statusx', 404],
        ['rules/', 404], ['rules/validate/x', 404], ['versions/1/x', 404],
        ['tier_of/', 404], ['versions/x', 404];
is(status('/prefixstatus'), 404, 'the name is a whole one');
is(status('/prefix'), 404, 'nothing behind it');

# methods: not allowed

for (['POST /prefix/rules', 'GET, HEAD, PUT, OPTIONS'],
     ['PUT /prefix/versions/1/restore', 'POST, OPTIONS'],
     ['WHAT /prefix/allow', 'GET, HEAD, PUT, POST, DELETE, OPTIONS'],
     ['HEAD /prefix/rules/validate', 'POST, OPTIONS'])
{
    my ($method, $path) = split / /, $_->[0];
    my $answer = t::Api->new($gateway, '')->send($method, $path);

    is("$answer->{status} " . header($answer, 'Allow'), "405 $_->[1]", $_->[0]);
}

my $options = t::Api->new($gateway, '/prefix')->send('OPTIONS', '/rules/x');

is("$options->{status} $options->{body}" . header($options, 'Allow'),
   '204 GET, HEAD, PUT, PATCH, DELETE, OPTIONS', 'OPTIONS');
is(header($options, 'Accept-Patch'),
   'application/merge-patch+json, application/json', 'Accept-Patch');

for (qw( GET HEAD )) {
    my $answer = t::Api->new($gateway, '/prefix')->send($_, '/rules');

    is(join(' | ', map { header($answer, $_) }
                   qw( Cache-Control X-Content-Type-Options Content-Type
                       Content-Length ETag )),
       'no-store | nosniff | application/json | 25 | "0"', "$_: headers");
    is(length $answer->{body}, $_ eq 'GET' ? 25 : 0, "$_: body");
}

$gateway->stop('QUIT', 'access forbidden by rule');

# the configuration

sub refused {
    my ($location, $like, $name) = @_;

    my $said = $gateway->verdict("server { $location }"
        . 'ratelimit_zone $arg_k zone=later:64k rate=1r/s;');

    like($said, $like, $name);
    unlike($said, qr/secret/, "$name: nothing of a file");
}

refused('location / { ratelimit_api zone=later; }', qr/^accepted$/,
        'a zone that is defined later');

refused("location / { ratelimit_api zone=later $_->[0]; }", $_->[1], $_->[0])
    for ['writes', qr/invalid parameter "writes", expected "zone=<name>/],
        ['write write', qr/invalid parameter "write"/],
        ['zone=x', qr/invalid parameter "zone=x"/],
        ['token_file=', qr/invalid parameter "token_file="/],
        ['token_file=/no/such', qr{open\(\) "/no/such" failed in "ratelimit_api"}];
refused('location / { ratelimit_api write; }', qr/"ratelimit_api" has no zone/,
        'no zone');
refused('location / { ratelimit_api zone=nix; }',
        qr/"ratelimit_api" has an unknown "zone=nix", expected /,
        'no such zone');
refused('location = /x { ratelimit_api zone=later; }',
        qr/in a location with "=", expected a prefix/, 'location =');
refused('location ~ /x { ratelimit_api zone=later; }',
        qr/in a location with a regular expression/, 'location ~');
refused('location @x { ratelimit_api zone=later; }',
        qr/in a location with a name/, 'location @');
refused('location / { ratelimit_api zone=later; ratelimit_api zone=later; }',
        qr/is duplicate/, 'twice');
refused('location / { ratelimit_api zone=later; ratelimit_metrics; }',
        qr/is duplicate/, 'with ratelimit_metrics');
refused('location / { ratelimit_metrics; ratelimit_api zone=later; }',
        qr/stands beside "ratelimit_metrics"/, 'behind ratelimit_metrics');

for (["\n# x\nsecret\n", 3, 'short'], ["secret of two words\n", 1, 'a space'],
     ["secret-$TOKEN\nsecret-\xc3\xa9-0123456789\n", 2, 'no ASCII'],
     ["ann:secret\n", 1, 'short behind a name'], [":$TOKEN\n", 1, 'no name'],
     ["a b:$TOKEN\n", 1, 'a name with a space'],
     ["a/b:$TOKEN\n", 1, 'a name with a slash'],
     ['a' x 65 . ":$TOKEN\n", 1, 'a long name'])
{
    my $file = $gateway->write('bad', $_->[0]);

    refused("location / { ratelimit_api zone=later token_file=$file; }",
            qr/invalid token in \Q$file\E:$_->[1], expected "<name>:<token>": a name of .*, a token of 16 bytes/, $_->[2]);
}

for (['', 'expected a token'], ["# secret\n", 'expected a token'],
     ["secret-0123456789\n" x 5000, 'expected at most 65536 bytes'])
{
    my $file = $gateway->write('bad', $_->[0]);

    refused("location / { ratelimit_api zone=later token_file=$file; }",
            qr/invalid file "\Q$file\E", $_->[1]/, $_->[1]);
}
