# Keys and tokens that a test makes as it runs, by the openssl command.

package t::JWT;

use strict;
use warnings;

use Digest::SHA qw( hmac_sha256 hmac_sha384 hmac_sha512 );
use JSON::PP ();
use MIME::Base64 qw( decode_base64url encode_base64url );

my $JSON = JSON::PP->new->canonical->utf8;

sub openssl {
    my @command = ('openssl', @_);
    open my $null, '>', '/dev/null' or die "/dev/null: $!";
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDERR, '>&', $null;
        open STDOUT, '>&', $null;
        exec @command or die "openssl: $!";
    }
    waitpid $pid, 0;
    $? == 0 or die "@command failed";
}

# <dir>/<name>.pem, .pub and a certificate, .crt. kind: "RSA:2048", "ED25519"
# or the name of a curve.
sub key {
    my ($dir, $name, $kind) = @_;
    my $file = "$dir/$name";
    openssl('genpkey', '-out', "$file.pem",
            $kind =~ /^RSA:(\d+)$/
            ? ('-algorithm', 'RSA', '-pkeyopt', "rsa_keygen_bits:$1")
            : $kind eq 'ED25519' ? ('-algorithm', $kind)
            : ('-algorithm', 'EC', '-pkeyopt', "ec_paramgen_curve:$kind"));
    openssl('pkey', '-in', "$file.pem", '-pubout', '-out', "$file.pub");
    openssl('req', '-x509', '-key', "$file.pem", '-subj', '/CN=localhost',
            '-days', 1, '-out', "$file.crt");
    return $file;
}

sub json { return ref $_[0] ? $JSON->encode($_[0]) : $_[0] }

# What is signed. Header and body are data, or JSON text that may be broken.
sub content {
    my ($header, $body) = @_;
    return join '.', map { encode_base64url(json($_)) } $header, $body;
}

sub hs256 { return hs(256, @_) }

sub hs {
    my ($bits, $content, $secret) = @_;
    my $hmac = { 256 => \&hmac_sha256, 384 => \&hmac_sha384,
                 512 => \&hmac_sha512 }->{$bits};
    return "$content." . encode_base64url($hmac->($content, $secret));
}

# By the private key and the header's "alg", unless that is given.
sub signed {
    my ($content, $file, $alg) = @_;
    $alg //= $JSON->decode(decode_base64url($content =~ s/\..*//r))->{alg};
    my $signature = signature($content, $file, $alg);
    # what the key is decides, whatever the name of the algorithm: ECDSA's are
    # ASN.1, Ed25519's are 64 bytes of any kind, RSA's are longer
    if (unpack('C', $signature) == 0x30 && length $signature < 112
        && length $signature != 64)
    {
        $signature = raw($signature, length $signature > 80 ? 48 : 32);
    }
    return "$content." . encode_base64url($signature);
}

sub signature {
    my ($content, $file, $alg) = @_;
    my ($form, $bits) = ($alg // 'RS256') =~ /^(\w\w)(\d{3})?/;
    $bits //= 256;
    open my $out, '>', "$file.content" or die "$file.content: $!";
    print $out $content;
    close $out;
    openssl($form eq 'Ed' ? ('pkeyutl', '-sign', '-rawin', '-inkey',
                             "$file.pem", '-in', "$file.content", '-out',
                             "$file.signature")
            : ('dgst', "-sha$bits", '-sign', "$file.pem",
               $form eq 'PS' ? ('-sigopt', 'rsa_padding_mode:pss', '-sigopt',
                                'rsa_pss_saltlen:digest') : (),
               '-out', "$file.signature", "$file.content"));
    open my $in, '<:raw', "$file.signature" or die "$file.signature: $!";
    local $/;
    return scalar <$in>;
}

# ASN.1's SEQUENCE of two INTEGERs as two times so many bytes.
sub raw {
    my ($signature, $bytes) = @_;
    my ($r, $s) = unpack 'x2 (x C/a)2', $signature;
    return join '', map { substr "\0" x $bytes . $_, -$bytes } $r, $s;
}

# The public key of key() as a JWK, with what is given besides.
sub jwk {
    my ($file, %more) = @_;
    my $der = qx(openssl pkey -in $file.pem -pubout -outform DER);
    my %point = (91 => ['P-256', 32], 120 => ['P-384', 48]);
    if (my $curve = $point{length $der}) {
        my ($crv, $n) = @$curve;
        return { kty => 'EC', crv => $crv,
                 x => encode_base64url(substr $der, -2 * $n, $n),
                 y => encode_base64url(substr $der, -$n), %more };
    }
    if (length $der == 44) {
        return { kty => 'OKP', crv => 'Ed25519',
                 x => encode_base64url(substr $der, -32), %more };
    }
    my ($n) = qx(openssl rsa -in $file.pem -modulus -noout) =~ /=(\w+)/;
    return { kty => 'RSA', n => encode_base64url(pack 'H*', $n), e => 'AQAB',
             %more };
}

# A secret as a JWK, with what is given besides.
sub oct {
    my ($secret, %more) = @_;
    return { kty => 'oct', k => encode_base64url($secret), %more };
}

sub jwks { return json({ keys => \@_ }) }

1;
