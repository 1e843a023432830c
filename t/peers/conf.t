# What a "ratelimit_peers" block may say, and each message.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Gateway;

my $gateway = t::Gateway->new(http => '');
$gateway->write('key', "0123456789abcdef\n");
$gateway->write('short', "0123456789abcde\n");

my $ALL = 'listen 127.0.0.1:7946; peer 127.0.0.1; secret_file key;';

sub block { return "ratelimit_peers p { $_[0] }" }

sub zone {
    return 'ratelimit_zone $arg_k zone=z:1m rate=1r/s ' . "$_[0];";
}

sub accepted {
    is($gateway->verdict($_), 'accepted', $_) for @_;
}

sub refused {
    my ($message, @http) = @_;
    is($gateway->verdict($_), $message, $_) for @http;
}

accepted(block($ALL), block($ALL) . zone('peers=p'), zone('peers=p') . block($ALL),
         block($ALL) . 'ratelimit_redis r { server 127.0.0.1; }'
         . zone('redis=r peers=p'),
         block("$ALL peer 127.0.0.2:7000; peer [::1]:7947; peer localhost;"));
refused('"ratelimit_peers" "p" has no address of its own, expected "listen"',
        block('peer 127.0.0.1; secret_file key;'));
refused('"ratelimit_peers" "p" has no other gateway, expected "peer"',
        block('listen 127.0.0.1:7946; secret_file key;'));
refused('"ratelimit_peers" "p" has no secret of 16 bytes or more, expected '
        . '"secret_file"',
        block('listen 127.0.0.1:7946; peer 127.0.0.1;'),
        block('listen 127.0.0.1:7946; peer 127.0.0.1; secret_file short;'));
refused('"listen" has an invalid "unix:/tmp/s", expected an address with a port, '
        . 'as in "10.0.0.5:7946"', block("listen unix:/tmp/s; $ALL"));
refused('"listen" has an invalid "127.0.0.1:7946", expected one "listen"',
        block("listen 127.0.0.2; $ALL"));
refused('"peer" has an invalid "unix:/tmp/s", expected "host:port", in at most '
        . '64 lines', block("$ALL peer unix:/tmp/s;"));
refused('"tls" has an invalid "yes", expected "on" or "off"',
        block("$ALL tls yes;"));
refused('"ratelimit_peers" "p" has "tls on", expected "tls_ca", '
        . '"tls_certificate" and "tls_certificate_key" with it',
        block("$ALL tls on;"), block("$ALL tls on; tls_ca a;"));
refused('"ratelimit_peers" "p" has lines of TLS, expected "tls on" with them',
        block("$ALL tls_ca a;"), block("$ALL tls off; tls_name a;"));
refused('unknown directive "peers" in "ratelimit_peers" "p", did you mean '
        . '"peer"?', block("$ALL peers a;"));
refused('invalid number of arguments in "peer" of "ratelimit_peers" "p", '
        . 'expected one', block("$ALL peer a b;"));
refused('"ratelimit_peers" has an invalid "p", expected one of each name',
        block($ALL) . block($ALL));
refused('"ratelimit_zone" "z" has an unknown "peers=q", expected "p"',
        block($ALL) . zone('peers=q'));
refused('"ratelimit_zone" "buckeroo" has the hash of another zone of "peers=p", '
        . 'expected another name',
        block($ALL) . join ' ', map { "ratelimit_zone \$arg_k zone=$_:1m "
                                      . 'rate=1r/s peers=p;' }
                                qw( plumless buckeroo ));
