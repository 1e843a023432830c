# The guard of the endpoint and of the metrics: without a token only this machine
# itself, by a name that is its own; with one, or with a certificate, whom nginx
# lets through; and who may write. And what nginx -t says of a "ratelimit_api"
# that is wrong.

use IO::Socket::INET;
use IO::Socket::UNIX;
use t::RateLimit 'no_plan';
use t::Gateway qw( header output );
use t::Api;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $OTHER = 'another-token-0123';

# of this machine, and not of loopback; no packet is sent
my $address = eval {
    IO::Socket::INET->new(Proto => 'udp', PeerAddr => '192.0.2.1',
                          PeerPort => 9)->sockhost
};
$address = undef if defined $address && $address =~ /^127\./;

# what X-From says becomes the client's address
my $WRITE = 'ratelimit_api zone=one write token_file=tokens;';
my $READ = 'ratelimit_api zone=one;';

my $gateway = t::Gateway->new(name => 'guarded', http => <<"CONF");
    ratelimit_zone \$http_x_k zone=one:1m rate=1r/h;
    set_real_ip_from 0.0.0.0/0;
    set_real_ip_from unix:;
    real_ip_header X-From;
    server {
        listen 127.0.0.1:%%PORT%% default_server;
        @{[ $address ? "listen $address:%%PORT%%;" : '' ]}
        listen unix:%%DIR%%/socket;
        listen unix:%%DIR%%/proxy proxy_protocol;
        server_name Gateway.Example *.below.example .both.example
                    first.* ~^re[a-z]+\\.example\$;
        ratelimit zone=one;
        location = /metrics { ratelimit_metrics; }
        location = /metrics-token { ratelimit_metrics token_file=tokens; }
        location / { empty_gif; }
        location /read/ { $READ location /read/inside/ { empty_gif; } }
        location ^~ /prefix { $READ }
        location /sub { auth_request /read/status; empty_gif; }
        location /limited/ { $READ ratelimit zone=one; }
        location /all/ { $READ allow all; }
        location /denied/ { $READ deny all; }
        location /any/ { $READ satisfy any; allow 10.0.0.1; }
        location /token/ { $WRITE }
        location /token-denied/ { $WRITE deny 10.0.0.1; }
        location /token-read/ { ratelimit_api zone=one token_file=tokens; }
        location /except/ { $WRITE limit_except GET { deny all; } }
    }
CONF

$gateway->write('tokens', "# who\n\n  $OTHER\r\n$TOKEN\n#$TOKEN-no\n");
$gateway->start;

my $WITH = "Authorization: Bearer $TOKEN";

sub status {
    my ($path, @headers) = @_;
    return t::Api->new($gateway, '')->send(
        ($path =~ s/^([A-Z]+) // ? $1 : 'GET'), $path, undef,
        (grep { /^Authorization:/ } @headers) ? () : 'Authorization: none',
        @headers)->{status};
}

# The status for a request of a UNIX socket, or of an address.
sub from {
    my ($peer, $path, @headers) = @_;
    my $socket = $peer =~ m{^/}
        ? IO::Socket::UNIX->new(Peer => $gateway->{dir} . $peer)
        : IO::Socket::INET->new(PeerAddr => $peer, LocalAddr => $peer,
                                PeerPort => $gateway->{port});
    my $proxy = $peer eq '/proxy' ? shift(@headers) . "\r\n" : '';
    print $socket $proxy . join("\r\n", "GET $path HTTP/1.0", 'Host: localhost',
                                @headers, '', '');
    return (<$socket> // '') =~ m{^HTTP/1\.1 (\d+)} ? $1 : 0;
}

# this machine itself
for my $path ('/read/status', '/metrics') {
    is(status($path), 200, "$path: from loopback");
    is(status($path, 'X-From: ::1'), 200, "$path: a client of loopback");
    is(from('/socket', $path), 200, "$path: from a UNIX socket");
    is(status($path, "X-From: $_"), 403, "$path: not for a client at $_")
        for qw( 10.0.0.1 128.0.0.1 0.0.0.0 2001:db8::1 fe80::1 );
    is(status($path, "$_: 127.0.0.1"), 403, "$path: not with $_")
        for qw( X-Forwarded-For x-real-ip Forwarded Via x-forwarded-proto
                X-Forwarded-Host X-Forwarded );
    is(status($path, "$_: 127.0.0.1"), 200, "$path: with $_")
        for qw( Viadukt X-Forwarder Forwarded-X );
    is(from('/proxy', $path, $_), 403, "$path: not behind a proxy: $_")
        for 'PROXY TCP4 127.0.0.1 127.0.0.1 1 2', 'PROXY UNKNOWN';
    is(status($path, "Host: $_"), 200, "$path: Host: $_")
        for 'LOCALHOST:8080', '127.0.0.1', '[::1]:80', 'gateway.example',
            'GATEWAY.example:8080', 'a.below.example', 'a.b.below.example',
            'A.Below.EXAMPLE:80', 'both.example', 'BOTH.example:80',
            'a.both.example', 'A.b.Both.Example';
    is(status($path, "Host: $_"), 403, "$path: not: Host: $_")
        for 'regular.example', 'below.example', '.below.example',
            'evilbelow.example', 'a.below.example.evil.example',
            'first.evil.example', 'first.', '.both.example', 'oth.example',
            'a.both.example.evil.example', 'evilboth.example', 'evil.example', 'evil.example:80',
            'gateway.example.evil.example', 'xgateway.example', 'a';
    is(status("GET http://evil.example$path", 'Host: localhost'), 403,
       "$path: nor a name in the request line");
    is(status("GET http://localhost$path", 'Host: evil.example'), 403,
       "$path: nor one beside it");
}

SKIP: {
    skip 'there is no other address', 3 if !$address;
    is(from($address, '/read/status'), 403, 'another address');
    is(from($address, '/read/status', 'X-From: 127.0.0.1'), 403,
       'another address whose client says that it is at loopback');
    is(from($address, '/token/status', $WITH), 200, 'with a token');
}

t::Api::problem_ok(t::Api->new($gateway, '/read')->get('/document',
    'X-From: 10.0.0.1'), '403 forbidden', 'a problem');
is(status('OPTIONS /read/document', 'X-From: 10.0.0.1'), 403, 'nor OPTIONS');
is(status('/read/none', 'X-From: 10.0.0.1'), 403, 'which paths there are is '
   . 'not told');
is(status('/read/inside/', 'X-From: 10.0.0.1'), 200,
   'a location inside is another one');

# rules of nginx open nothing, and close more
is(status('/all/status', 'X-From: 10.0.0.2'), 403, 'allow all');
is(status('/any/status', 'X-From: 10.0.0.1'), 403, 'satisfy any');
is(status('/denied/status'), 403, 'deny all');
is(status('/token-denied/status', $WITH, 'X-From: 10.0.0.2'), 200,
   'a token: whom nginx lets through');
is(status('/token-denied/status', $WITH, 'X-From: 10.0.0.1'), 403,
   'a token: and nobody else');
is(status('/except/status', $WITH), 200, 'limit_except: GET');
is(status('PUT /except/document', $WITH), 403, 'limit_except: PUT');

# tokens
my @with = map { "Authorization: $_" } "Bearer $TOKEN", "bearer  $OTHER";
my @without = map { "Authorization: $_" } "Bearer $TOKEN-no", "Bearer #$TOKEN-no",
    "Bearer ", "Basic $TOKEN", substr("Bearer $TOKEN", 0, -1), "Bearer $OTHER\t",
    "Bearer # who", $TOKEN;

for my $path ('/token/status', '/metrics-token') {
    is(status($path, $_), 200, "$path: $_") for @with;
    is(status($path, $_), 401, "$path: not: $_") for @without;
    is(status($path, $WITH, 'X-From: 10.0.0.1', 'Via: x', 'Host: other.example'),
       200, "$path: from anywhere, by any name");
    is(header($gateway->get($path), 'WWW-Authenticate'),
       'Bearer realm="ratelimit"', "$path: what it wants");
}

t::Api::problem_ok(t::Api->new($gateway, '/token')->get('/status',
    'Authorization: none'), '401 unauthorized', 'no token');
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
is(status('POST /read/document/validate', 'Content-Type: text/plain'), 415,
   'validate is a read');

# what else is refused
is(status('/sub'), 403, 'not for a request within a request');
is(status('HEAD /read/document/validate'), 405, 'no HEAD where there is no GET');

# limits: those of the server do not count it, its own do
is(status('/read/status', 'X-K: x'), 200, 'not counted') for 1 .. 2;
is(join(' ', map { status('/limited/status', 'X-K: x') } 1, 2), '200 429',
   'its own limits count it');

# paths
is(status("/prefix/$_->[0]"), $_->[1], "/prefix/$_->[0]")
    for ['status', 200], ['', 200], ['status/', 404], ['statusx', 404],
        ['rules/', 404], ['rules/validate/x', 404], ['versions/1/x', 404],
        ['tier_of/', 404], ['versions/x', 404];
is(status('/prefixstatus'), 404, 'the name is a whole one');
is(status('/prefix'), 200, 'nothing behind it');
like(t::Api->new($gateway, '/prefix')->get('')->{body},
     qr{"rules/\{\}":"GET, HEAD, PUT, PATCH, DELETE".*"status":"GET, HEAD"},
     'an index');

# methods: not allowed
for (['POST /prefix/document', 'GET, HEAD, PUT, OPTIONS'],
     ['PUT /prefix/versions/1/restore', 'POST, OPTIONS'],
     ['WHAT /prefix/allow', 'GET, HEAD, PUT, POST, DELETE, OPTIONS'],
     ['HEAD /prefix/document/validate', 'POST, OPTIONS'])
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
    my $answer = t::Api->new($gateway, '/prefix')->send($_, '/document');
    is(join(' | ', map { header($answer, $_) }
                   qw( Cache-Control X-Content-Type-Options Content-Type
                       Content-Length ETag )),
       'no-store | nosniff | application/json | 25 | "0"', "$_: headers");
    is(length $answer->{body}, $_ eq 'GET' ? 25 : 0, "$_: body");
}

$gateway->stop('QUIT', 'access forbidden by rule');

# certificates: who has a verified one may be here and write
{
    my $dir = t::Gateway::dir('certificates');
    for (qw( server ann eve )) {
        my $files = "-out $dir/$_.pem -keyout $dir/$_.key";
        qx(openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=$_ $files 2>&1);
    }
    my $ssl = "ssl_certificate $dir/server.pem;"
              . "ssl_certificate_key $dir/server.key;"
              . "ssl_client_certificate $dir/ann.pem;";
    my $gateway = t::Gateway->limited(
        zone => { one => 'rate=1r/h' }, listen => 'ssl',
        server => "$ssl ssl_verify_client optional; server_name a;",
        locations => { '/rl/' => 'ratelimit_api zone=one write;' });
    my $url = "https://127.0.0.1:$gateway->{port}";
    my $do = sub {
        my ($path, @more) = @_;
        return output('curl', '-sk', '-m', 20, '-o', "$dir/body", '-w',
                      '%{http_code}', @more, "$url$path");
    };
    my @put = ('-X', 'PUT', '-H', 'If-Match: *', '-d', '{"rules":[]}',
               '-H', 'Content-Type: application/json');
    my @ann = ('--cert', "$dir/ann.pem", '--key', "$dir/ann.key");
    my @eve = ('--cert', "$dir/eve.pem", '--key', "$dir/eve.key");
    is($do->('/rl/status'), 200, 'no certificate: this machine reads');
    is($do->('/rl/status', '-H', 'Host: x'), 403, 'no certificate: the guard');
    is($do->('/rl/document', @put), 403, 'no certificate: no change');
    is($do->('/rl/document', @put, @eve), 400, 'one that nginx does not verify');
    is($do->('/rl/status', @ann, '-H', 'Via: x', '-H', 'Host: x'), 200,
       'a verified one: from anywhere, by any name');
    is($do->('/metrics', @ann, '-H', 'Via: x'), 200, 'and the metrics');
    is($do->('/rl/document', @put, @ann), 201, 'a verified one: a change');
    $gateway->log_has(qr/was made: "PUT \/document" by "CN=ann" from /,
                      'its subject is the author');
    $gateway->stop('QUIT', 'client SSL certificate verify error');
    # one that the default server of the port has verified, by its own CA: curl
    # names an address, so the connection names no server
    my $two = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_zone \$arg_k zone=one:1m rate=1r/h;
    ssl_certificate $dir/server.pem;
    ssl_certificate_key $dir/server.key;
    server {
        listen 127.0.0.1:%%PORT%% ssl http2 default_server;
        ssl_client_certificate $dir/eve.pem;
        ssl_verify_client on;
        location / { empty_gif; }
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl http2;
        server_name own.example;
        ssl_client_certificate $dir/ann.pem;
        ssl_verify_client on;
        location /rl/ { ratelimit_api zone=one write; }
        location /metrics { ratelimit_metrics; }
    }
CONF
    $url = "https://127.0.0.1:$two->{port}";
    is($do->('/', @eve), 200, 'a certificate of the default server');
    is($do->($_, @eve, '-H', 'Host: own.example', '-H', 'Via: x'), 403,
       "$_: no right at another server") for '/rl/status', '/metrics';
    is($do->('/rl/document', @put, @eve, '-H', 'Host: own.example'), 403,
       'nor to change');
    $url = "https://own.example:$two->{port}";
    my @at = ('--resolve', "own.example:$two->{port}:127.0.0.1");
    is($do->('/rl/document', @put, @ann, @at), 201,
       'one that the server itself has verified');
    is($do->('/rl/status', @ann, @at, '-H', 'Via: x', '--http1.1'), 200,
       'also over HTTP/1.1');
    is($do->('/rl/status', @eve, @at), 400, 'and no other');
    $two->stop('QUIT', 'client SSL certificate verify error');
    like($gateway->verdict("server { $ssl $_->[0] location / "
             . '{ ratelimit_api zone=later write; } }'
             . 'ratelimit_zone $arg_k zone=later:64k rate=1r/s;'), $_->[1],
         "nginx -t: $_->[0]")
        for ['ssl_verify_client on;', qr/^accepted$/],
            ['ssl_verify_client off;', qr/^"ratelimit_api" has "write"/];
}

# refusals are logged, once a second, without what may hold a key
{
    my $gateway = t::Gateway->limited(zone => { z => 'rate=1r/h' }, api => 1);
    my @no = ('Authorization: Bearer no', 'X-Secret: sk_secret');
    $gateway->get('/rl/tier-of/sk_secret?rule=sk_secret', @no);
    like($gateway->log, qr{\[warn\] [^\n]*: ratelimit location "/rl/": a request from 127\.0\.0\.1 was refused: expected "Authorization: Bearer" with a token of this location$}m,
         'a refusal is logged');
    ok(t::Gateway::wait_for(sub {
           $gateway->burst(10, '/rl/status', @no);
           return $gateway->log =~ /was refused: .* similar lines suppressed\)/;
       }), 'not each of them');
    unlike($gateway->log, qr/sk_secret/, 'and nothing that may hold a key');
    $gateway->stop;
}

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
refused('location / { ratelimit_api zone=later write; }',
        qr/^"ratelimit_api" has "write" without "token_file=", expected it, or "ssl_verify_client" in the server/,
        'who writes has a token or a certificate');
refused('location / { ratelimit_metrics token_file=/no/such; }',
        qr{open\(\) "/no/such" failed in "ratelimit_metrics"},
        'metrics: no such file');
refused('location / { ratelimit_metrics token=x; }',
        qr/^"ratelimit_metrics" has an invalid parameter "token=x", expected "token_file=<file>"/,
        'metrics: another parameter');
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
     ['a' x 65 . ":$TOKEN\n", 1, 'a long name'],
     ["ann:$TOKEN read\n", 1, 'a right that there is not'],
     ["ann:secret check\n", 1, 'short before a right'])
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
