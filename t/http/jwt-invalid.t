# ratelimit_jwt_invalid: a request with a bearer token that no key verifies gets
# 401, or is counted by the client's address; it is never without a limit.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::JWT;

my $SECRET = 'secret-of-exactly-32-bytes------';

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

$gateway->write('secret', t::JWT::json(t::JWT::oct($SECRET)));

my %ZONES = (
    lone => 'key=$ratelimit_jwt_sub',
    joined => 'key=$ratelimit_jwt_org__tenant:${RATELIMIT_JWT_sub}/$arg_x',
    source => 'key=$ratelimit_api_key',
    mapped => 'key=$mapped',
    other => 'key=$http_x_other',
    constant => 'key=$scheme',
    banned => 'key=$ratelimit_jwt_sub',
    source_banned => 'key=$ratelimit_api_key',
    guessed => 'key=$remote_addr',
);

$gateway->configure(http => t::Gateway::limited_http(
    zone => { map { $_ => "$ZONES{$_} rate=2r/h" } keys %ZONES },
    http => <<"CONF",
    map \$ratelimit_jwt_sub \$mapped { "" ""; default "m-\$ratelimit_jwt_sub"; }
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Client;
    ratelimit_jwt_key secret;
    ratelimit_api_key header:X-Key jwt:sub;
    ratelimit_deny zone=lone 198.51.100.0/24;
    ratelimit_penalty flood zone=banned key=\$ratelimit_jwt_sub
                      after=2r/1m time=5m;
    ratelimit_penalty source zone=source_banned key=\$ratelimit_api_key
                      after=2r/1m time=5m;
    ratelimit_penalty guesses zone=guessed after=2r/1m time=5m on=401;
    ratelimit_allow zone=guessed 192.0.2.50;
CONF
    server => 'add_header X-Got "[$ratelimit_jwt_sub]" always;',
    locations => {
        (map { ("/$_" => "ratelimit zone=$_;",
                "/reject/$_" => "ratelimit_jwt_invalid reject;"
                                . " ratelimit zone=$_;") } keys %ZONES),
        '/both' => 'if ($mapped = "m-x") { return 500; }'
                   . 'ratelimit zone=mapped; ratelimit zone=constant;',
        '/bearer' => 'ratelimit zone=source; ratelimit_api_key jwt:sub bearer;',
        '/network' => 'ratelimit zone=lone; ratelimit_client_prefix 24 56;',
        '/no-key' => 'ratelimit_jwt_key insecure; ratelimit_jwt_invalid reject;'
                     . 'ratelimit zone=lone;',
        '/problem' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                      . 'ratelimit_response problem;',
        '/off' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                  . 'ratelimit_response off;',
        '/page' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                   . 'error_page 401 = @page;',
        '@page' => 'ratelimit zone=lone; return 402;',
        '/any' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                  . 'satisfy any; allow all;',
        '/after' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                    . 'ratelimit_phase after_auth;',
        '/try' => 'ratelimit_jwt_invalid reject; ratelimit zone=lone;'
                  . 'ratelimit_dry_run on;',
        '/free' => 'ratelimit_jwt_invalid reject; return 204;',
    }))->start;

sub token { return t::JWT::hs256(t::JWT::content({ alg => 'HS256' }, { @_ }),
                                 $SECRET) }

my $VALID = token(sub => 'alice');
my @INVALID = ("${VALID}AAAA", token(sub => 'alice', exp => 1), 'opaque', 'a.b.c',
               t::JWT::content({ alg => 'none' }, { sub => 'alice' }) . '.');

sub ask {
    my ($path, $token, @headers) = @_;
    return $gateway->get($path, "Authorization: Bearer $token", @headers);
}

# One client's statuses, each with another token.
sub statuses {
    my ($path, $client, @tokens) = @_;
    return join ' ', map { ask($path, $_, "X-Client: $client")->{status} } @tokens;
}

# anonymous: any tokens are one client, by its address
my $n = 0;

for my $zone (qw( lone joined source mapped )) {
    my $x = $zone eq 'joined' ? '?x=' : '';
    is(statuses("/$zone" . ($x && $x . $n++), '192.0.2.1', @INVALID),
       '200 200 429 429 429', "$zone: invalid tokens are one client");
    is(statuses("/$zone" . ($x && $x . $n++), '192.0.2.2', @INVALID),
       '200 200 429 429 429', "$zone: another address is another one");
    is(statuses("/$zone" . ($x && $x . 'v'), '192.0.2.2', ($VALID) x 3),
       '200 200 429', "$zone: and a valid token is another one");
}

for my $zone (qw( banned source_banned )) {
    is(statuses("/$zone", '192.0.2.30', @INVALID), '200 200 429 429 429',
       "$zone: invalid tokens are rejected");
    like(ask("/$zone", 'opaque', 'X-Client: 192.0.2.30')->{body}, qr/PENALIZED/,
         "$zone: and their client is banned");
    is(statuses("/$zone", '192.0.2.31', 'opaque'), '200', "$zone: no other");
    is(statuses("/$zone", '192.0.2.30', $VALID), '200',
       "$zone: nor a valid token");
}

is(statuses('/other', '192.0.2.1', @INVALID), '200 200 429 429 429',
   'a key that is empty for another reason, too');
is(statuses('/other', '192.0.2.1', ($VALID) x 4), '200 200 200 200',
   'but not with a valid token');
is(join(' ', map { $gateway->get('/lone', 'X-Client: 192.0.2.1')->{status} } 1 .. 4),
   '200 200 200 200', 'nor without a token');
is(join(' ', map { ask('/source', 'opaque', 'X-Key: k', 'X-Client: 192.0.2.1')
                   ->{status} } 1 .. 3),
   '200 200 429', 'another source that has a key counts first');
is(statuses('/bearer', '192.0.2.20', @INVALID), '200 200 429 429 429',
   'a token that is not valid is no key, behind "jwt:"');
is(statuses('/bearer', '192.0.2.20', map { token(jti => $_ >> 1) } 2 .. 6),
   '200 200 200 200 200', 'one without the claim is a key');
is(statuses('/bearer', '192.0.2.20', token(jti => 1)), '429', 'with a limit');
is(statuses('/constant', '192.0.2.1', @INVALID), '200 200 429 429 429',
   'a key that is not of the token');
is(statuses('/constant', '192.0.2.2', 'opaque'), '429', 'stays as it is');
is(statuses('/both', '192.0.2.7', 'opaque'), '429',
   'a map that a rewrite has read');
is(join(' ', map { statuses('/network', "192.0.3.$_", 'opaque') } 1 .. 3),
   '200 200 429', 'the address as $ratelimit_client has it');
is(header(ask('/lone', 'opaque', 'X-Client: 192.0.2.9'), 'X-Got'), '[]',
   'for logs and headers the claim is empty');

# reject: 401, which may be an event of a penalty
is(statuses('/reject/guessed', '192.0.2.40', @INVALID), '401 401 401 429 429',
   'who guesses tokens is banned');
like(ask('/reject/guessed', $VALID, 'X-Client: 192.0.2.40')->{body}, qr/PENALIZED/,
     'with a valid one, too');
is(statuses('/reject/guessed', '192.0.2.41', 'opaque'), '401', 'others are not');
is(statuses('/reject/guessed', '192.0.2.50', @INVALID), '401 401 401 401 401',
   'nor who is on the allow list');

# reject: 401, and nothing is counted
for my $zone (qw( lone joined source mapped other )) {
    my $from = length $gateway->log;
    is(statuses("/reject/$zone", '192.0.2.3', @INVALID), '401 401 401 401 401',
       "$zone: invalid tokens are refused");
    is(scalar(() = substr($gateway->log, $from)
              =~ /request denied for its bearer token by ratelimit zone "$zone": /g),
       5, "$zone: each has its line");
}

is(statuses('/reject/lone', '192.0.2.3', (token(sub => 'bob')) x 3),
   '200 200 429', 'a valid token passes');
is($gateway->get('/reject/lone')->{status}, 200, 'a request without one, too');
is($gateway->get('/reject/lone', 'Authorization: Basic YTpi')->{status}, 200,
   'or with another scheme');
is(ask('/reject/source', 'opaque', 'X-Key: r')->{status}, 401,
   'another key does not help');
is(ask('/no-key', 'opaque')->{status}, 401, 'a token that cannot be read');
is(ask('/free', 'opaque')->{status}, 204, 'a location without limits');

my $answer = ask('/reject/lone', 'opaque');

is(header($answer, 'WWW-Authenticate'), 'Bearer error="invalid_token"',
   'what to do about it');
is(header($answer, 'X-Status'), 'DENIED', '$ratelimit_status');
is(header($answer, 'Retry-After'), '', 'no Retry-After');
is(header($answer, 'Content-Type'), 'application/json', 'the body is JSON');
is($answer->{body} // $answer->{content},
   '{"error":{"code":"INVALID_TOKEN","message":"This bearer token is not valid"}}'
   . "\n", 'which says why');

$answer = ask('/problem', 'opaque');
is($answer->{body} // $answer->{content},
   '{"type":"about:blank","title":"Unauthorized","status":401,'
   . '"detail":"This bearer token is not valid"}' . "\n", 'a problem');

is(ask('/off', 'opaque')->{status}, 401, "nginx's page");
$answer = ask('/page', 'opaque');
is($answer->{status}, 402, 'an error page');
is(header($answer, 'WWW-Authenticate'), 'Bearer error="invalid_token"',
   'has the header');
is(ask('/any', 'opaque')->{status}, 401, 'under "satisfy any"');
is(ask('/after', 'opaque')->{status}, 401, 'after authentication');

$answer = ask('/reject/lone', 'opaque', 'Content-Type: application/grpc',
              'TE: trailers');
is($answer->{status}, 200, 'gRPC');
is(header($answer, 'grpc-status'), 16, 'is unauthenticated');

# a network on the deny list costs no signature
for my $path ('/reject/lone', '/lone') {
    $answer = ask($path, 'opaque', 'X-Client: 198.51.100.7');
    is($answer->{status}, 403, "$path: a network that is denied");
    like($answer->{body}, qr/CLIENT_DENIED/, "$path: and not for its token");
    is(ask($path, $VALID, 'X-Client: 198.51.100.7')->{status}, 403,
       "$path: nor with a valid token");
}

$answer = ask('/try', 'opaque', 'X-Client: 198.51.100.7');
is(header($answer, 'X-Status'), 'DENIED_DRY_RUN', 'in a dry run it would be');
$gateway->log_has(qr/would be denied by the list|by the list of ratelimit zone "lone"/,
                  'by the list');

$answer = ask('/try', 'opaque', 'X-Client: 192.0.2.5');
is($answer->{status}, 200, 'a dry run');
is(header($answer, 'X-Status'), 'DENIED_DRY_RUN', 'says what it would be');

$gateway->stop;

# the directive
is($gateway->verdict('ratelimit_jwt_invalid rejct;'),
   '"ratelimit_jwt_invalid" has an invalid "rejct", did you mean "reject"?',
   'a wrong value');
is($gateway->verdict("server { listen %%PORT%%; ratelimit_jwt_invalid $_; }"),
   'accepted', $_) for qw( reject anonymous );
