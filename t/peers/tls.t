# With TLS both sides show a certificate of the CA, for the name of the peer.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Gateway qw( told wait_for );
use t::Ports qw( free_port );

my $dir = t::Gateway::dir('certificates');
my @ports = map { free_port() } 1 .. 2;

sub openssl {
    my $out = qx(openssl @_ 2>&1);
    $? == 0 or BAIL_OUT("openssl @_: $out");
}

# A CA, and a certificate of it for an address.
sub certificate {
    my ($ca, $name, $address) = @_;
    -e "$dir/$ca.pem"
        or openssl('req -x509 -newkey rsa:2048 -nodes -days 30', "-subj /CN=$ca",
                   "-keyout $dir/$ca.key -out $dir/$ca.pem");
    openssl("req -newkey rsa:2048 -nodes -subj /CN=$name",
            "-keyout $dir/$name.key -out $dir/$name.csr");
    open my $file, '>', "$dir/$name.ext" or die $!;
    print $file "subjectAltName=IP:$address\n";
    close $file;
    openssl("x509 -req -days 30 -in $dir/$name.csr -CA $dir/$ca.pem",
            "-CAkey $dir/$ca.key -CAcreateserial -extfile $dir/$name.ext",
            "-out $dir/$name.pem");
}

sub fleet {
    my ($n, $name) = @_;
    my $peers = join ' ', map { "peer 127.0.0.1:$_;" } @ports;
    return scalar t::Gateway->limited(
        files => { secret => "a secret of all gateways, 1234567890\n" },
        zone => 'rate=60r/h peers=fleet',
        http => "ratelimit_peers fleet { listen 127.0.0.1:$ports[$n]; $peers "
                . "secret_file %%DIR%%/secret; tls on; tls_ca $dir/ca.pem; "
                . "tls_certificate $dir/$name.pem; "
                . "tls_certificate_key $dir/$name.key; }\n");
}

sub connected {
    my ($gateway) = @_;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_peers_connected\{peers="fleet"\} (\d+)$/m ? $1 : 'none';
}

certificate('ca', 'good', '127.0.0.1');
certificate('others', 'strange', '127.0.0.1');

my $one = fleet(0, 'good');
my $two = fleet(1, 'good');
ok(wait_for(sub { connected($one) eq 1 && connected($two) eq 1 }), 'connected')
    or diag($one->log, $two->log);
is($one->get('/?k=a')->{status}, 200, 'one spends') for 1 .. 30;
ok(wait_for(sub { told($two, '/?k=a') =~ / (\d+)$/ && $1 < 30 }), 'two knows');
$two->stop;

$two = fleet(1, 'strange');
$one->log_has(qr/peers "fleet", "[^"]+": (?:self-signed|unable|certificate|the TLS)/,
              'a certificate of another CA');
is(connected($one), 0, 'is not accepted');
is(connected($two), 0, 'nor accepts it');
$_->stop for $one, $two;
