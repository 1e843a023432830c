# ratelimit_jwt_key: which files nginx -t takes, what it says of the others, and
# of a "jwt:" source without a key.

use MIME::Base64 qw( encode_base64 );
use t::RateLimit 'no_plan';
use t::Gateway;
use t::JWT;

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

t::JWT::key($dir, 'rsa', 'RSA:2048');
t::JWT::key($dir, 'rsa1024', 'RSA:1024');
t::JWT::key($dir, 'ec', 'P-256');
t::JWT::key($dir, 'p384', 'P-384');
t::JWT::key($dir, 'k1', 'secp256k1');
t::JWT::openssl('genpkey', '-algorithm', 'ED25519', '-out', "$dir/ed.pem");
t::JWT::openssl('pkey', '-in', "$dir/ed.pem", '-pubout', '-out', "$dir/ed.pub");
t::JWT::openssl('genpkey', '-algorithm', 'RSA-PSS', '-out', "$dir/pss.pem");
t::JWT::openssl('pkey', '-in', "$dir/pss.pem", '-pubout', '-out',
                "$dir/pss.pub");
t::JWT::openssl('rsa', '-in', "$dir/rsa.pem", '-RSAPublicKey_out', '-out',
                "$dir/pkcs1.pub");
t::JWT::openssl('rsa', '-in', "$dir/rsa.pem", '-traditional', '-out',
                "$dir/pkcs1.pem");
t::JWT::openssl('ec', '-in', "$dir/ec.pem", '-out', "$dir/sec1.pem");
t::JWT::openssl('pkcs8', '-in', "$dir/rsa.pem", '-topk8', '-passout', 'pass:x',
                '-out', "$dir/encrypted.pem");

for my $type (qw( pub pem )) {
    my ($lines) = $gateway->read("rsa.$type") =~ /-----\n(.*?)-----END/s;
    $gateway->write("lines.$type", $lines);
    t::JWT::openssl('pkey', '-in', "$dir/rsa.$type",
                    $type eq 'pub' ? ('-pubin', '-pubout') : (),
                    '-outform', 'DER', '-out', "$dir/der.$type");
}

sub check {
    return $gateway->verdict(<<"CONF");
        ratelimit_zone \$ratelimit_api_key zone=z:1m rate=1r/s;
        server { server_name a.example; listen %%PORT%%; $_[0] }
CONF
}

sub takes {
    my ($name, $content) = @_;
    $gateway->write($name, $content) if defined $content;
    is(check("ratelimit_jwt_key $name;"), 'accepted', $name);
}

sub refuses {
    my ($expected, $name, $content) = @_;
    $gateway->write($name, $content) if defined $content;
    is(check("ratelimit_jwt_key $name;"),
       "\"ratelimit_jwt_key\" has an invalid file \"$name\", "
       . "expected $expected", $name);
}

# public keys
takes($_) for qw( rsa.pub pkcs1.pub ec.pub p384.pub ed.pub );
takes('crlf.pub', $gateway->read('rsa.pub') =~ s/\n/\r\n/gr);
takes('text-before.pub', "Our key:\n" . $gateway->read('rsa.pub'));
takes('two.pub', $gateway->read('ec.pub') . $gateway->read('rsa.pub'));

my $KEY = 'a JWK Set, a JWK (of type "oct" for a secret) or a public key in PEM';
my $NO_PRIVATE = 'a public key, no private key';

refuses($NO_PRIVATE, $_)
    for qw( rsa.pem ec.pem pkcs1.pem sec1.pem ed.pem encrypted.pem );
refuses($NO_PRIVATE, 'both', $gateway->read('rsa.pub')
                             . $gateway->read('rsa.pem'));
refuses('an RSA key of 2048 bits or more', 'rsa1024.pub');
refuses('an RSA key, an EC key on the curve P-256 or P-384, or an Ed25519 key', $_)
    for qw( k1.pub pss.pub );
refuses($KEY, 'half.pub', substr $gateway->read('rsa.pub'), 0, 200);
refuses($KEY, 'begin', '-----BEGIN PUBLIC KEY-----');
refuses($KEY, 'broken.pub', $gateway->read('rsa.pub') =~ s/\n(.)/\n!$1/r);
refuses($KEY, 'not-der.pub', "-----BEGIN PUBLIC KEY-----\n"
        . encode_base64('x' x 48) . "-----END PUBLIC KEY-----\n");
refuses($KEY, 'encrypted.pub', "-----BEGIN PUBLIC KEY-----\n"
        . "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC," . 'A' x 32 . "\n\n"
        . encode_base64('x' x 48) . "-----END PUBLIC KEY-----\n");
refuses($KEY, 'request', $gateway->read('rsa.pub') =~ s/PUBLIC KEY/X/gr);

# secrets are JWKs: no other file becomes one by accident
my $jwk = t::JWT::json(t::JWT::jwk("$dir/rsa"));

takes('secret', t::JWT::json(t::JWT::oct('x' x 32)));
refuses('one of at most 65536 bytes', 'long', 'x' x 65537);
refuses($KEY, 'empty', '');
refuses($KEY, 'raw', 'x' x 32);
refuses($KEY, 'base64', encode_base64('x' x 48));
refuses($KEY, 'page', "<html>\n<head><title>404 Not Found</title></head>\n");
refuses($KEY, 'url', "https://login.example.com/.well-known/jwks.json\n");
refuses($KEY, 'curl', "curl: (6) Could not resolve host: login.example.com\n");
refuses($KEY, 'yaml', "keys:\n  - kty: RSA\n    n: " . 'x' x 40 . "\n");
refuses($KEY, $_) for qw( rsa.crt lines.pub lines.pem der.pub der.pem );
refuses($KEY, 'base64.pub', encode_base64($gateway->read('rsa.pub')));
refuses($KEY, 'ssh', 'ssh-rsa ' . 'A' x 300 . ' me');
refuses($KEY, 'array.jwks', "[$jwk]");
refuses($KEY, 'bom.jwks', "\xef\xbb\xbf{\"keys\":[$jwk]}");
refuses($KEY, 'base64.jwks', encode_base64($jwk));

# the file, the parameters
like(check('ratelimit_jwt_key gone;'),
     qr{^open\(\) "\Q$dir\E/gone" failed in "ratelimit_jwt_key"}, 'no file');
like(check("ratelimit_jwt_key $dir;"),
     qr{^read\(\) "\Q$dir\E" failed in "ratelimit_jwt_key"}, 'a folder');
is(check("ratelimit_jwt_key $dir/secret;"), 'accepted', 'a path');
is(check("ratelimit_jwt_key $_;"), 'accepted', $_)
    for 'insecure', 'secret audience=https://a/b?c=d', "secret audience=\xc3\xa9",
        'secret leeway=5m issuer=i audience=a', 'secret leeway=0',
        'secret leeway=1m30s';
is(check("ratelimit_jwt_key $_->[0] '$_->[1]';"),
   "\"ratelimit_jwt_key\" has an invalid parameter \"$_->[1]\", expected "
   . '"audience=<audience>" or "issuer=<issuer>" without quotes, backslashes and '
   . 'control characters, or "leeway=<time>" of at most 5m, each once',
   "$_->[0] $_->[1]")
    for map { [ secret => $_ ] } 'audience=', 'aud=x', 'secret', 'audience=a"b',
                                   'audience=a\\b', "audience=a\x01", 'issuer=',
                                   'issuer=a"b', 'leeway=', 'leeway=301',
                                   'leeway=x', 'leeway=-1', 'leeway=1ms';
is(check("ratelimit_jwt_key secret $_->[0] $_->[1];") =~ /parameter "\Q$_->[1]\E"/,
   1, "twice: $_->[1]")
    for [ 'audience=a', 'audience=b' ], [ 'issuer=a', 'issuer=a' ],
        [ 'leeway=1s', 'leeway=2s' ];
is(check('ratelimit_jwt_key insecure audience=x;'),
   '"ratelimit_jwt_key" has an invalid parameter "audience=x", '
   . 'expected "insecure" alone', 'insecure audience=x');
is(check('ratelimit_jwt_key secret; ratelimit_jwt_key secret;'),
   '"ratelimit_jwt_key" directive is duplicate', 'two keys');

# a source without a key
my $KEY = 'ratelimit_jwt_key secret;';
my $SOURCE = 'ratelimit_api_key header:A jwt:sub;';

sub no_key {
    my $where = shift;
    return "\"ratelimit_api_key\" has \"jwt:sub\" and $where has no key, "
           . 'expected a "ratelimit_jwt_key"';
}

is(check($_->[0]), $_->[1] ? no_key($_->[1]) : 'accepted', $_->[0])
    for [ "location / { $SOURCE }", 'location "/"' ],
        [ "location / { $SOURCE $KEY }" ],
        [ "$KEY location / { $SOURCE }" ],
        [ "$SOURCE location /a { $KEY }" ],
        [ "$SOURCE location /a { $KEY } location /b { ratelimit zone=z; }",
          'location "/b"' ],
        [ "$SOURCE location /a { $KEY ratelimit zone=z; }" ],
        [ "$SOURCE ratelimit zone=z; location /a { $KEY }",
          'server "a.example"' ],
        [ "$SOURCE $KEY ratelimit zone=z; location /a { }" ],
        [ "$SOURCE location /a { $KEY location /a/b { ratelimit zone=z; } }" ],
        [ "location /a { $SOURCE location /a/b { $KEY } }", 'location "/a"' ],
        [ "$SOURCE location /a { ratelimit zone=z; ratelimit_api_key header:A; }" ],
        [ "$SOURCE location /a { ratelimit off; }" ];

$gateway->configure(http => 'server { listen %%PORT%%; location / { }'
                            . "\n\n$SOURCE\nlocation /b { ratelimit zone=z; } }"
                            . "\nratelimit_zone \$uri zone=z:1m rate=1r/s;");

my ($ok, $text) = $gateway->check;
my @lines = split /^/, $gateway->read('nginx.conf');
my ($line) = grep { $lines[$_ - 1] =~ /jwt:sub/ } 1 .. @lines;

like($text, qr/ in \Q$dir\E\/nginx\.conf:$line$/m, 'the line of the source');
