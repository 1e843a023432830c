# JWK Sets as the file of ratelimit_jwt_key: which keys verify which tokens, by
# "kid" and by algorithm, which are ignored, and what nginx -t says of a file.

use Digest::SHA qw( sha256 );
use MIME::Base64 qw( encode_base64url decode_base64url );
use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::JWT;

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

my %key = map { $_->[0] => t::JWT::key($dir, @$_) }
          [ rsa => 'RSA:2048' ], [ rsa2 => 'RSA:2048' ], [ short => 'RSA:1024' ],
          [ ec => 'P-256' ], [ ec2 => 'P-256' ], [ p384 => 'P-384' ],
          [ ed => 'ED25519' ], [ ed2 => 'ED25519' ];

my $SECRET = 'secret-of-64-bytes, '
             . '0123456789012345678901234567890123456789----';
my $PUBLIC = $gateway->read('rsa.pub');

sub jwk { return t::JWT::jwk($key{$_[0]}, @_[1 .. $#_]) }

sub secret { return t::JWT::oct(@_) }

my %SETS = (
    all => [jwk('rsa', kid => 'rsa'), jwk('ec', kid => 'ec'),
            jwk('p384', kid => 'p384'), jwk('ed', kid => 'ed'),
            secret($SECRET, kid => 'oct')],
    old => [jwk('rsa', kid => '2025'), jwk('rsa2', kid => '2026')],
    plain => [jwk('rsa'), jwk('rsa2')],
    same => [jwk('ec2', kid => 'k'), jwk('ec', kid => 'k'), jwk('rsa2', kid => 'k'),
             jwk('rsa', kid => 'k')],
    strict => [jwk('rsa', kid => 'ps', alg => 'PS256'),
               jwk('rsa', kid => 'rs', alg => 'RS512', use => 'sig',
                   key_ops => ['verify']),
               secret($SECRET, kid => 'hs', alg => 'HS512')],
    mixed => [jwk('rsa2', kid => 'enc', use => 'enc'),
              jwk('rsa2', kid => 'wrap', key_ops => ['wrapKey']),
              jwk('rsa2', kid => 'alg', alg => 'ES256'),
              jwk('rsa2', kid => 'oaep', alg => 'RSA-OAEP'),
              jwk('short', kid => 'short'), jwk('ec2', kid => 'crv', crv => 'P-384'),
              jwk('ec2', kid => 'point', x => encode_base64url("\1" x 32)),
              jwk('ec2', kid => 'zero', x => encode_base64url("\0" x 31)),
              jwk('ed2', kid => 'x', x => 'AAAA'), secret('x' x 31, kid => 'small'),
              { kty => 'new', kid => 'new' }, {}, 'text', 1, undef,
              jwk('ec', kid => 'last')],
    lone => 1,
);

$gateway->write("$_.jwks", t::JWT::jwks(@{ $SETS{$_} }))
    for grep { ref $SETS{$_} } keys %SETS;
$gateway->write('lone.jwks', "\n " . t::JWT::json(jwk('ec')) . "\n");

$gateway->configure(http => t::Gateway::limited_http(
    zone => 'key=$ratelimit_jwt_sub rate=1r/h',
    http => 'error_log %%DIR%%/error.log debug;',
    locations => {
        (map { ("/$_" => "ratelimit_jwt_key $_.jwks;"
                         . 'add_header X-Got "[$ratelimit_jwt_sub]";') }
         keys %SETS),
        (map { ("/$_" => "ratelimit_jwt_key $_.pub;"
                         . 'add_header X-Got "[$ratelimit_jwt_sub]";') }
         qw( p384 ed )),
    }))->start;

sub token {
    my ($signer, %header) = @_;
    my $content = t::JWT::content(\%header, { sub => 'alice' });
    return $header{alg} =~ /^HS(\d+)$/ ? t::JWT::hs($1, $content, $signer)
                                       : t::JWT::signed($content, $key{$signer});
}

sub told {
    my ($where, $token) = @_;
    my $from = length $gateway->log;
    my $got = header($gateway->get("/$where", "Authorization: Bearer $token"),
                     'X-Got');
    my ($reason) = substr($gateway->log, $from)
                   =~ /the bearer token is not valid: (.*?), client:/;
    return $got eq '[]' ? $reason : $got;
}

sub is_valid {
    my ($where, @token) = @_;
    is(told($where, token(@token)), '[alice]', "$where: @token[1 .. $#token]");
}

sub is_refused {
    my ($where, $reason, @token) = @_;
    is(told($where, token(@token)), $reason, "$where: @token[1 .. $#token]");
}

my $NO_KID = 'no key has its "kid"';
my $ALGORITHM = 'its algorithm is not that of the key';
my $SIGNATURE = 'its signature is wrong';

# each kind of keys, with and without the name of the key
my @KINDS = ([ rsa => 'RS256' ], [ ec => 'ES256' ], [ p384 => 'ES384' ],
             [ ed => 'EdDSA' ]);

for (@KINDS) {
    my ($name, $alg) = @$_;
    is_valid('all', $name, alg => $alg, kid => $name);
    is_valid('all', $name, alg => $alg);
    is_refused('all', $NO_KID, $name, alg => $alg, kid => 'other');
    is_refused('all', $NO_KID, $name, alg => $alg, kid => '');
    is_refused('all', $NO_KID, $name, alg => $alg, kid => ['rsa']);
    is_refused('all', $ALGORITHM, $name, alg => $alg, kid => 'oct');
}

is_valid('all', $SECRET, alg => 'HS256', kid => 'oct');
is_valid('all', $SECRET, alg => 'HS256');
is_valid('p384', 'p384', alg => 'ES384');
is_valid('ed', 'ed', alg => 'EdDSA');
is_refused('ed', $SIGNATURE, 'ed2', alg => 'EdDSA');
is_valid('lone', 'ec', alg => 'ES256', kid => 'any');
is_refused('all', $SIGNATURE, $_->[0], alg => $_->[1], kid => $_->[2])
    for [ rsa2 => 'RS256', 'rsa' ], [ ec2 => 'ES256', 'ec' ],
        [ ed2 => 'EdDSA', 'ed' ], [ "$SECRET." => 'HS256', 'oct' ];

# a key has one algorithm, by its type or as it says
is_refused('all', $ALGORITHM, 'rsa', alg => $_, kid => 'rsa')
    for qw( RS384 RS512 PS256 );
is_refused('all', $ALGORITHM, $SECRET, alg => $_, kid => 'oct')
    for qw( HS384 HS512 );
is_valid('strict', 'rsa', alg => 'PS256', kid => 'ps');
is_valid('strict', 'rsa', alg => 'RS512', kid => 'rs');
is_valid('strict', $SECRET, alg => 'HS512', kid => 'hs');
is_refused('strict', $ALGORITHM, 'rsa', alg => 'RS256', kid => $_)
    for qw( ps rs hs );
is_refused('strict', $ALGORITHM, 'rsa', alg => 'RS512', kid => 'ps');
is(told('strict', t::JWT::signed(t::JWT::content({ alg => 'PS256', kid => 'ps' },
                                                 { sub => 'alice' }), $key{rsa},
                                 'RS256')), $SIGNATURE, 'the wrong padding');

# none of the public keys is a secret
for my $alg (qw( HS256 none )) {
    for my $secret ($PUBLIC, $PUBLIC =~ s/\n\z//r,
                    decode_base64url(jwk('rsa')->{n}), jwk('rsa')->{n},
                    t::JWT::jwks(@{ $SETS{all} }))
    {
        my $content = t::JWT::content({ alg => $alg, kid => 'rsa' },
                                      { sub => 'alice' });
        is(told('all', t::JWT::hs256($content, $secret)), $ALGORITHM, $alg);
        is(told('old', t::JWT::hs256($content =~ s/^[^.]*/encode_base64url(
                           t::JWT::json({ alg => $alg }))/er, $secret)),
           $ALGORITHM, "$alg, no kid");
    }
}

is(told('all', t::JWT::content({ alg => 'none' }, { sub => 'alice' }) . '.'),
   $ALGORITHM, 'no signature');
is_refused('all', 'it has critical extensions', 'rsa', alg => 'RS256',
           kid => 'rsa', crit => ['exp']);

# rotation: several keys at once
is_valid('old', 'rsa', alg => 'RS256', kid => '2025');
is_valid('old', 'rsa2', alg => 'RS256', kid => '2026');
is_valid('old', 'rsa2', alg => 'RS256');
is_refused('old', $SIGNATURE, 'rsa2', alg => 'RS256', kid => '2025');
is_valid('plain', $_, alg => 'RS256', kid => 'any') for qw( rsa rsa2 );
is_valid('same', $_->[0], alg => $_->[1], kid => 'k')
    for [ ec => 'ES256' ], [ ec2 => 'ES256' ], [ rsa => 'RS256' ],
        [ rsa2 => 'RS256' ];

# what is not known is ignored
is_valid('mixed', 'ec', alg => 'ES256', kid => 'last');
is_refused('mixed', $NO_KID, 'rsa2', alg => 'RS256', kid => $_)
    for qw( enc wrap alg oaep short );
is_refused('mixed', $NO_KID, 'ec2', alg => 'ES256', kid => $_)
    for qw( crv point zero );
is_refused('mixed', $NO_KID, 'x' x 31, alg => 'HS256', kid => 'small');

$gateway->stop;
unlike(join('', grep { !/ \[debug\] / } split /^/, $gateway->log), qr/$SECRET/,
       'no log holds a secret');

# what nginx -t says of a file
sub check {
    my $text = shift;
    $gateway->write('a.jwks', ref $text ? t::JWT::json($text) : $text);
    return $gateway->verdict('server { listen %%PORT%%;'
                             . ' ratelimit_jwt_key a.jwks; }');
}

sub expects {
    return '"ratelimit_jwt_key" has an invalid file "a.jwks", expected '
           . shift;
}

my $NONE = expects('a JWK Set with a key that verifies signatures');
my $JSON = expects('a JWK Set that is valid JSON');

is(check($_), 'accepted', 'a set') for jwk('ec'), { keys => [jwk('rsa')] },
    { keys => [{}, jwk('rsa')], more => 1 },
    { keys => [(jwk('ed')) x 32] };
is(check($_), $NONE, 'no key')
    for {}, { keys => [] }, { keys => [{}] }, { keys => [jwk('short')] },
        jwk('ec', use => 'enc'), { keys => [{ keys => [jwk('ec')] }] },
        jwk('rsa', e => 'AQ'), jwk('rsa', e => 'Ag'), jwk('rsa', e => undef),
        jwk('rsa', n => '*'), jwk('rsa', n => 'A' x 3000), secret('x' x 2000),
        secret('x' x 40, alg => 'HS384');
is(check($_), $JSON, 'no JSON')
    for '{', '{}}', '{"keys":{}}', '{"keys":null}', '{"keys":[],"keys":[]}';
is(check({ keys => [(jwk('ed')) x 33] }),
   expects('a JWK Set of at most 32 keys'), 'too many');
is(check({ keys => [jwk('ec'), jwk('ed', d => 'AAAA')] }),
   expects('public keys, no private key'), 'a private key');
