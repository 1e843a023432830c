# Claims of bearer tokens: which tokens are valid with which key file, and what
# a claim may be. Each refusal is told from the others by its reason.

use Digest::SHA qw( sha256_hex );
use MIME::Base64 qw( encode_base64 encode_base64url decode_base64url );
use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::JWT;

my $SECRET = 'secret-of-exactly-32-bytes------';
my $API = 'https://api.example.com';

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

my $rsa = t::JWT::key($dir, 'rsa', 'RSA:2048');
my $other_rsa = t::JWT::key($dir, 'other-rsa', 'RSA:2048');
my $ec = t::JWT::key($dir, 'ec', 'P-256');
my $other_ec = t::JWT::key($dir, 'other-ec', 'P-256');

$gateway->write('secret', t::JWT::json(t::JWT::oct($SECRET)));
$gateway->write('two', $gateway->read('rsa.pub') . $gateway->read('ec.pub'));

my @LOCATIONS = (
    [ hs => 'secret' ],         [ two => 'two' ],
    [ rs => 'rsa.pub' ],        [ es => 'ec.pub' ],
    [ aud => "secret audience=$API" ],
    [ iss => "secret issuer=$API leeway=0" ],
    [ late => 'secret leeway=2m' ],
    [ insecure => 'insecure' ],
);

my $tls = t::Gateway::free_port();

# at debug every line is written, else one of a kind in a second
$gateway->configure(http => t::Gateway::limited_http(
    zone => { key => 'key=$ratelimit_api_key rate=1r/h' },
    rules => ['twice zone=key rate=1r/h key=x$ratelimit_api_key'],
    http => <<"CONF",
    error_log %%DIR%%/error.log debug;
    log_format key '\$ratelimit_api_key';
    access_log $dir/access.log key;
    large_client_header_buffers 4 16k;
    server {
        listen 127.0.0.1:$tls ssl;
        ssl_certificate rsa.crt;
        ssl_certificate_key rsa.pem;
        location / { empty_gif; }
    }
CONF
    server => 'ratelimit_api_key jwt:sub header:X-Key;'
              . 'add_header X-Got "[$ratelimit_api_key]" always;',
    locations => {
        (map { ("/$_->[0]" => "ratelimit_jwt_key $_->[1];") } @LOCATIONS),
        '/names' => 'ratelimit_api_key "jwt:https://example.com/tenant" jwt:id'
                    . ' jwt:sub; ratelimit_jwt_key secret;',
        '/limited' => 'ratelimit_jwt_key secret; ratelimit zone=key;',
        '/tls' => <<"CONF",
            ratelimit_jwt_key rsa.pub;
            proxy_set_header X-Key \$ratelimit_api_key;
            proxy_ssl_session_reuse off;
            proxy_pass https://127.0.0.1:$tls;
CONF
    }))->start;

sub ask {
    my ($path, $token, @headers) = @_;
    return $gateway->get($path, "Authorization: Bearer $token", @headers);
}

sub is_valid {
    my ($where, $token, $key, $name) = @_;
    is(header(ask("/$where", $token), 'X-Got'), "[jwt:$key]", "$where: $name");
}

sub reasons {
    my $from = shift;
    return substr($gateway->log, $from)
           =~ /the bearer token is not valid: (.*?), client:/g;
}

# The next source is tried, and the log has the reason.
sub is_refused {
    my ($where, $token, $reason, $name) = @_;
    my $from = length $gateway->log;
    is(header(ask("/$where", $token, 'X-Key: next'), 'X-Got'),
       '[next]', "$where: $name");
    is((reasons($from))[0], $reason, "$where: $name: the reason");
}

sub content {
    my ($alg, %body) = @_;
    return t::JWT::content({ alg => $alg, typ => 'JWT' },
                           { sub => 'alice', %body });
}

sub hs256 { return t::JWT::hs256(content('HS256', @_), $SECRET) }

# HS256 with a header or a body of one's own
sub with_header { return t::JWT::hs256(t::JWT::content(shift, { sub => 'alice' }),
                                       $SECRET) }
sub with_body { return t::JWT::hs256(t::JWT::content({ alg => 'HS256' }, shift),
                                     $SECRET) }

my $NO_JWT = 'it is no JWT';
my $ALGORITHM = 'its algorithm is not that of the key';
my $SIGNATURE = 'its signature is wrong';

my $hs = hs256();
my $rs = t::JWT::signed(content('RS256'), $rsa);
my $es = t::JWT::signed(content('ES256'), $ec);

# each key with its algorithm
is_valid('hs', $hs, 'alice', 'HS256');
is_valid($_, $rs, 'alice', 'RS256') for qw( rs two );
is_valid('es', $es, 'alice', 'ES256');
is_refused('two', $es, $ALGORITHM, 'the first key of a file counts');

is(header($gateway->get('/hs', 'X-Key: next'), 'X-Got'), '[next]', 'no token');
is(header($gateway->get('/hs', "Authorization: bearer \t$hs "),
                      'X-Got'), '[jwt:alice]', 'the scheme in any case, blanks');

# a number with a leading zero: one of 128 signatures has one
my $zero;

for my $n (1 .. 2000) {
    my $token = t::JWT::signed(content('ES256', n => $n), $ec);
    if (decode_base64url($token =~ s/.*\.//r) =~ /\A(?:.{32})?\0/s) {
        $zero = $token;
        last;
    }
}

is_valid('es', $zero, 'alice', 'a leading zero');

# another key, another algorithm, none
is_refused('hs', t::JWT::hs256(content('HS256'), "$SECRET."), $SIGNATURE,
           'another secret');
is_refused($_->[0], $_->[1] =~ s{[^.]+\z}{
               my $bytes = decode_base64url($&);
               encode_base64url($bytes ^ "\0" x (length($bytes) - 1) . "\1")
           }er, $SIGNATURE, 'one bit of the signature')
    for [ hs => $hs ], [ rs => $rs ], [ es => $es ];
is_refused('rs', t::JWT::signed(content('RS256'), $other_rsa), $SIGNATURE,
           'another RSA key');
is_refused('es', t::JWT::signed(content('ES256'), $other_ec), $SIGNATURE,
           'another EC key');

is_refused('hs', $_, $ALGORITHM, 'RS256 or ES256') for $rs, $es;
is_refused('rs', $_, $ALGORITHM, 'HS256 or ES256') for $hs, $es;
is_refused('es', $_, $ALGORITHM, 'HS256 or RS256') for $hs, $rs;

for my $alg (qw( none None NONE nOnE )) {
    for my $where (qw( hs rs es )) {
        is_refused($where, content($alg) . '.', $ALGORITHM, "\"$alg\"");
        is_refused($where, t::JWT::hs256(content($alg), $SECRET), $ALGORITHM,
                   "\"$alg\" with a signature");
    }
}

is_refused('hs', t::JWT::hs256(content($_), $SECRET), $ALGORITHM, "\"$_\"")
    for qw( HS384 HS512 hs256 EdDSA ), '', ' HS256';

is_refused('hs', with_header($_), $ALGORITHM, "header $_")
    for '{}', '{"alg":null}', '{"alg":["HS256"]}', '{"alg":256}', '{"ALG":"HS256"}',
        '{"alg":"HS256","alg":"none"}';

# what everybody knows is no secret: the public key as that of HS256
for my $file ('rsa.pub', 'ec.pub') {
    my $text = $gateway->read($file);
    my $where = { 'rsa.pub' => 'rs', 'ec.pub' => 'es' }->{$file};
    for my $secret ($text, $text =~ s/\n\z//r) {
        is_refused($where, t::JWT::hs256(content('HS256'), $secret),
                   $ALGORITHM, "$file as a secret");
        is_refused($where, t::JWT::hs256(content($where eq 'es' ? 'ES256'
                                                                : 'RS256'),
                                         $secret),
                   $SIGNATURE, "$file as a secret, under its own algorithm");
    }
}

# a signature of the other kind under this algorithm's name
is_refused('rs', t::JWT::signed(content('RS256'), $ec), $SIGNATURE,
           'an EC signature');
is_refused('es', t::JWT::signed(content('ES256'), $rsa), $SIGNATURE,
           'an RSA signature');
is_refused('es', content('ES256') . '.'
                 . encode_base64url(t::JWT::signature(content('ES256'), $ec)),
           $SIGNATURE, 'an EC signature as ASN.1');
is_refused('es', content('ES256') . '.' . encode_base64url("\0" x 64),
           $SIGNATURE, 'zeros');

# the header's other members
is_valid('hs', with_header({ alg => 'HS256', typ => $_ }), 'alice', "typ $_")
    for 'at+jwt', 'jwt', 'secevent+jwt';
is_valid('hs', with_header('{"alg":"HS256","kid":"x","x5t":1}'), 'alice',
         'what a header may have');
is_refused('hs', with_header("{\"alg\":\"HS256\",\"crit\":$_}"),
           'it has critical extensions', "crit $_")
    for '["exp"]', '["b64"],"b64":false', '[]', 'null', '""', '"exp"';

# broken tokens
for my $where (qw( hs rs es )) {
    my $token = { hs => $hs, rs => $rs, es => $es }->{$where};
    my ($header, $body, $signature) = split /\./, $token;
    is_refused($where, $_->[0], $_->[1], "broken: $_->[2]")
        for [ 'x', $NO_JWT, 'no dot' ],
            [ "$header.$body", $NO_JWT, 'one dot' ],
            [ "$token.", $NO_JWT, 'three dots' ],
            [ "$token.x.y", $NO_JWT, 'five parts' ],
            [ '..', $NO_JWT, 'dots' ],
            [ ".$body.$signature", $NO_JWT, 'no header' ],
            [ "$header..$signature", $NO_JWT, 'no body' ],
            [ "$header.$body.", $SIGNATURE, 'no signature' ],
            [ "$token=", $NO_JWT, 'padding' ],
            [ "$token+", $NO_JWT, 'base64, not base64url' ],
            [ "$token x", $NO_JWT, 'a blank' ],
            [ "$token\x80", $NO_JWT, 'no ASCII' ],
            [ "$header%2e$body.$signature", $NO_JWT, 'an escape' ],
            [ "A$header.$body.$signature",
              length($header) % 4 == 0 ? $NO_JWT : 'its header is no JSON object',
              'a byte before' ],
            [ "${header}AAAAA.$body.$signature",
              length($header) % 4 == 0 ? $NO_JWT : 'its header is no JSON object',
              'a header that goes on' ],
            [ "$header.${body}AAAA.$signature", $SIGNATURE,
              'a body that goes on' ],
            [ "$header.$body." . substr($signature, 4), $SIGNATURE,
              'a signature cut at its start' ],
            [ "$header.$body."
              . encode_base64url(substr decode_base64url($signature), 0, -4),
              $SIGNATURE, 'a signature cut at its end' ],
            [ "${token}AAAA", $SIGNATURE, 'a signature that goes on' ],
            [ "$header.$body." . ($signature =~ s{.+(?=.)}{$& =~ tr/A-Za-z/B-ZAb-za/r}er),
              $SIGNATURE, 'a changed signature' ],
            [ "$header." . encode_base64url('{"sub":"bob"}') . ".$signature",
              $SIGNATURE, 'a changed body' ];
}

is_refused('hs', with_header($_), 'its header is no JSON object', "header $_")
    for 'x', '{"alg":"HS256"', '{"alg":"HS256"}}', "{\"alg\":\"\xff\"}",
        '{"alg":"\u0000"}', '"HS256"', '["alg","HS256"]';
is_refused('hs', with_body($_), 'its body is no JSON object', "body $_")
    for 'x', '{"sub":"a"', '{"sub":"a"}}', '{"sub":"a",}', "{\"sub\":\"\xff\"}",
        '{"sub":"a\u0000b"}', '"alice"', '{"sub":"a","n":1e999}',
        '[' x 3000 . ']' x 3000;

# size: 8192 bytes
sub of_size {
    my $size = shift;
    for my $n (reverse 5900 .. 6100) {
        my $token = hs256(x => 'x' x $n);
        return $token if length $token == $size;
    }
    return;
}

my ($most) = grep { $_ } map { of_size($_) } 8192, 8191;
my ($more) = grep { $_ } map { of_size($_) } 8193, 8194;

is_valid('hs', $most, 'alice', length($most) . ' bytes');
is_refused('hs', $more, 'it has more than 8192 bytes', length($more) . ' bytes');
is_refused('rs', 'x' x 12000, 'it has more than 8192 bytes', '12000 bytes');

# when: no leeway
my $now = time;

is_valid('hs', hs256(%$_), 'alice', t::JWT::json($_))
    for { exp => $now + 60 }, { exp => $now + 60.5 }, { nbf => $now },
        { nbf => $now - 60 }, { nbf => $now - 60.5 }, { nbf => 0 },
        { exp => $now + 60, nbf => $now - 1, iat => $now + 1000 },
        { exp => 253402300799 };
is_refused('hs', hs256(%$_), 'it has expired', t::JWT::json($_))
    for { exp => $now }, { exp => $now - 1 }, { exp => $now + 0.5 },
        { exp => 0 }, { exp => $now - 1, nbf => $now + 60 };
is_refused('hs', hs256(%$_), 'it is not valid yet', t::JWT::json($_))
    for { nbf => $now + 60 }, { nbf => $now + 60.5 },
        { exp => $now + 60, nbf => $now + 30 };
is_refused($_->[0], $_->[1], 'it has expired', 'expired')
    for [ rs => t::JWT::signed(content('RS256', exp => $now - 1), $rsa) ],
        [ es => t::JWT::signed(content('ES256', exp => $now - 1), $ec) ];

for my $name (qw( exp nbf )) {
    is_refused('hs', with_body("{\"sub\":\"alice\",\"$name\":$_}"),
               "its \"$name\" is no time", "$name $_")
        for '"1"', '"' . ($now + 60) . '"', 'null', 'true', '[1]', '{}', '-1',
            '""';
}

is_valid('hs', with_body("{\"sub\":\"alice\",\"exp\":$_}"), 'alice', "exp $_")
    for qw( 1e30 1e300 9223372036854775808 1.73e26 ), '173' . '0' x 24;
is_refused('hs', with_body("{\"sub\":\"alice\",\"nbf\":$_}"),
           'it is not valid yet', "nbf $_")
    for qw( 1e30 1e300 9223372036854775808 );
is_refused('hs', with_body("{\"sub\":\"alice\",\"exp\":1,\"n\":1$_}"),
           'it has expired', 'a large number beside exp') for '0' x 19;

# in one and the same second
for (1 .. 10) {
    my $second = time;
    my @got = map { header(ask('/hs', hs256(%$_), 'X-Key: next'),
                                       'X-Got') }
                  { nbf => $second }, { nbf => "$second.0" + 0.5 },
                  { exp => $second + 1 }, { exp => $second + 0.5 };
    push @got, header(ask('/hs',
                   with_body("{\"sub\":\"alice\",\"nbf\":$second.0}")), 'X-Got');
    next if time > $second;
    is("@got", '[jwt:alice] [next] [jwt:alice] [next] [jwt:alice]',
       'within a second');
    last;
}

is_valid('hs', with_body('{"sub":"alice","exp":9223372036854775807}'), 'alice',
         'the last second of all');

# a token has one spelling: the bits that the last characters have too many are
# zero
sub respelled {
    my ($text, $bits) = @_;
    my @alphabet = ('A' .. 'Z', 'a' .. 'z', 0 .. 9, '-', '_');
    my ($at) = grep { $alphabet[$_] eq substr $text, -1 } 0 .. 63;
    return map { substr($text, 0, -1) . $alphabet[$at + $_] }
               1 .. 2 ** (2 * (4 - length($text) % 4)) - 1;
}

for my $case ([ hs => $hs, 3 ], [ es => $es, 15 ], [ rs => $rs, 15 ]) {
    my ($where, $token, $n) = @$case;
    my @others = respelled($token =~ s/.*\.//r);
    is(scalar @others, $n, "$where: spellings of the signature");
    is_refused($where, $token =~ s/[^.]+\z/$_/r, $NO_JWT, $_) for @others;
}

for my $part (0, 1) {
    for my $pad (' ', '  ') {
        my @parts = split /\./,
                    t::JWT::content("{\"alg\":\"HS256\"$pad}",
                                    "{\"sub\":\"alice\"$pad}");
        is_valid('hs', t::JWT::hs256("$parts[0].$parts[1]", $SECRET), 'alice',
                 "part $part with zeros");
        for (length($parts[$part]) % 4 ? respelled($parts[$part]) : ()) {
            my @other = @parts;
            $other[$part] = $_;
            is_refused('hs', t::JWT::hs256("$other[0].$other[1]", $SECRET),
                       $NO_JWT, "part $part: $_");
        }
    }
}

# for whom
is_valid('aud', hs256(aud => $_), 'alice', 'aud ' . (ref $_ ? "[@$_]" : $_))
    for $API, [$API], ['other', $API], [$API, 'other'], ['a"b\\', $API];
is_refused('aud', hs256(aud => $_), 'it is for another audience',
           'aud ' . t::JWT::json($_))
    for 'other', '', [], ['other'], "$API/", substr($API, 1), [[$API]],
        { $API => $API }, [{ x => $API }], ["x\",\"$API"], "\"$API\"", \1;
is_refused('aud', $hs, 'it is for another audience', 'no aud');
is_valid('hs', hs256(aud => 'other'), 'alice', 'aud where no audience is set');

# by whom
is_valid('iss', hs256(iss => $API), 'alice', 'iss');
is_refused('iss', hs256(@$_), 'it is of another issuer', t::JWT::json({ @$_ }))
    for [], [iss => "$API/"], [iss => ''], [iss => [$API]], [iss => undef],
        [aud => $API];
is_valid('hs', hs256(iss => 'any'), 'alice', 'iss where no issuer is set');

# the leeway: two minutes
is_valid('late', hs256(%$_), 'alice', t::JWT::json($_))
    for { exp => $now - 60 }, { nbf => $now + 60 }, { nbf => $now + 60.5 },
        { exp => $now - 60, nbf => $now + 60 };
is_refused('late', hs256(exp => $now - $_), 'it has expired', "exp $_ s ago")
    for 120, 3600;
is_refused('late', hs256(nbf => $now + 3600), 'it is not valid yet', 'nbf');

# what a claim may be
is_valid('hs', with_body("{\"sub\":$_->[0]}"), $_->[1], "claim $_->[0]")
    for [ '"a b"', 'a b' ], [ '"\u00e9"', "\xc3\xa9" ], [ '"\""', '"' ],
        [ '42', '42' ], [ '0', '0' ], [ '-7', '-7' ], [ '"42"', '42' ],
        [ '9007199254740993', '9007199254740993' ],
        [ '9223372036854775807', '9223372036854775807' ],
        [ '"a","sub":"b"', 'b' ],
        [ '9223372036854775808', '9223372036854775808' ],
        [ '18446744073709551615', '18446744073709551615' ],
        [ '18446744073709551616', '18446744073709551616' ],
        [ '-9223372036854775809', '-9223372036854775809' ],
        [ '"x\\\\","\"\\\\\"9":18446744073709551615,"sub":"alice"', 'alice' ],
        [ '"alice","n":[18446744073709551615,{"a":-1},18446744073709551615]',
          'alice' ],
        [ '"9","n":18446744073709551615', '9' ],
        [ '"k18446744073709551615","n":18446744073709551615',
          'k18446744073709551615' ],
        [ '"' . 'k' x 252 . '"', 'k' x 252 ];

is(header(ask('/hs', with_body("{\"sub\":$_->[0]}")), 'X-Got'),
   '[sha256:' . sha256_hex("jwt:$_->[1]") . ']', "claim $_->[0]")
    for [ '"a\tb"', "a\tb" ], [ '"\u007f"', "\x7f" ],
        [ '"' . 'k' x 253 . '"', 'k' x 253 ];

for my $claim ('""', '1.5', '1e3', 'true', 'false', 'null', '[]', '["a"]', '{}',
               '{"a":"b"}')
{
    my $from = length $gateway->log;
    is(header(ask('/hs', with_body("{\"sub\":$claim}"),
                              'X-Key: next'), 'X-Got'), '[next]',
       "claim $claim: no value");
    is(join(' ', reasons($from)), '', "claim $claim: but a valid token");
}

is_valid('names', hs256(%{ $_->[0] }), $_->[1], "the first claim: $_->[1]")
    for [ { 'https://example.com/tenant' => 't', id => 5 }, 't' ],
        [ { 'https://example.com/tenant' => '', id => 5 }, '5' ],
        [ {}, 'alice' ];

# insecure: nothing is verified
is_valid('insecure', $_->[0], 'alice', $_->[1])
    for [ $hs, 'HS256' ], [ $rs, 'RS256' ], [ $es, 'ES256' ],
        [ content('none') . '.', 'none' ], [ content('EdDSA') . '.x-_y', 'EdDSA' ],
        [ "${hs}AAAA", 'a wrong signature' ],
        [ hs256(exp => 1, nbf => 9999999999, aud => 'x'), 'an old token' ];
is_refused('insecure', $_, $NO_JWT, 'no token') for 'x', '..', 'a.b';
is_refused('insecure', 'e30.eA.', 'its body is no JSON object', 'no JSON');

# One verification serves all rules, headers and logs of a request: a reason
# is logged once.
my $from = length $gateway->log;

is(ask('/limited', "${hs}AAAA", 'X-Key: once')->{status}, 200, 'two rules, one key');
is(ask('/limited', "${hs}AAAA", 'X-Key: once')->{status}, 429, 'which counts');
is(join(' ', reasons($from)), join(' ', ($SIGNATURE) x 2),
   'each request has verified its token once');

is(ask('/limited', hs256(n => $_))->{status}, $_ == 1 ? 200 : 429,
   'any token with the claim is one key') for 1 .. 3;

# OpenSSL's errors of a wrong signature are not those of the next connection,
# which nginx would log as an alert
is(ask('/tls', $_)->{status}, 200, 'a TLS upstream')
    for t::JWT::signed(content('RS256'), $other_rsa), $rs, "${rs}AAAA",
        $rs =~ s/\w{20}$/x/r;

# a reload reads the key anew
$gateway->write('secret', t::JWT::json(
    t::JWT::oct('another-secret-of-33-bytes-------')));
$gateway->reload;

is_refused('hs', $hs, $SIGNATURE, 'the old secret after a reload');
is_valid('hs', t::JWT::hs256(content('HS256'),
                             'another-secret-of-33-bytes-------'),
         'alice', 'the new secret after a reload');

$gateway->stop;

# but for lines of debug, in which nginx shows the headers
unlike(join('', grep { !/ \[debug\] / } split /^/, $gateway->log)
       . $gateway->read('access.log'), qr/$hs|$SECRET/,
       'no log holds a token or a secret');
