# Keys and tokens that a test makes as it runs, by the openssl command.

package t::JWT;

use strict;
use warnings;

use Digest::SHA qw( hmac_sha256 );
use JSON::PP ();
use MIME::Base64 qw( encode_base64url );

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


# <dir>/<name>.pem, .pub and a certificate, .crt. kind: "RSA:2048" or the name
# of a curve.
sub key {
    my ($dir, $name, $kind) = @_;

    my $file = "$dir/$name";

    openssl('genpkey', '-out', "$file.pem",
            $kind =~ /^RSA:(\d+)$/
            ? ('-algorithm', 'RSA', '-pkeyopt', "rsa_keygen_bits:$1")
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


sub hs256 {
    my ($content, $secret) = @_;

    return "$content." . encode_base64url(hmac_sha256($content, $secret));
}


# RS256 or ES256, as the private key is: RSA or a curve of 256 bits.
sub signed {
    my ($content, $file) = @_;

    my $signature = signature($content, $file);

    if (unpack('C', $signature) == 0x30 && length $signature < 80) {
        $signature = raw($signature);
    }

    return "$content." . encode_base64url($signature);
}


sub signature {
    my ($content, $file) = @_;

    open my $out, '>', "$file.content" or die "$file.content: $!";
    print $out $content;
    close $out;

    openssl('dgst', '-sha256', '-sign', "$file.pem", '-out', "$file.signature",
            "$file.content");

    open my $in, '<:raw', "$file.signature" or die "$file.signature: $!";
    local $/;

    return scalar <$in>;
}


# ASN.1's SEQUENCE of two INTEGERs as two times 32 bytes.
sub raw {
    my ($r, $s) = unpack 'x2 (x C/a)2', shift;

    return join '', map { substr "\0" x 32 . $_, -32 } $r, $s;
}


1;
