# TLS sessions are resumed when a connection to Redis is made again; and first
# connects: with TLS, or after a reload, a connection that nobody needs yet takes
# its time, and one that a request needs is made at once.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

my $dir = t::Gateway::dir('certificates');

sub openssl {
    my $out = qx(openssl @_ 2>&1);
    $? == 0 or BAIL_OUT("openssl @_: $out");
}

openssl('req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=ca',
        "-addext subjectAltName=IP:127.0.0.1 -keyout $dir/key.pem -out $dir/cert.pem");

my $tls = t::Gateway::free_port();
my @args = ('--tls-port', $tls, '--tls-cert-file', "$dir/cert.pem",
            '--tls-key-file', "$dir/key.pem", '--tls-ca-cert-file', "$dir/cert.pem",
            '--tls-auth-clients', 'no');

sub gateway {
    my ($server, $more) = @_;
    return t::Gateway->limited(redis => "server 127.0.0.1:$server; $more",
                               zone => 'rate=10r/h sync=strict');
}

sub told { return t::Gateway::told($_[0]->get('/?k=' . rand)) }

# "<handshakes> <resumed>"
sub handshakes {
    my $text = $_[0]->get('/metrics')->{body};
    return join ' ', map { $text =~ /^ratelimit_redis_tls_${_}_total\{redis="r"\} (\d+)$/m }
                         qw( handshakes resumed );
}

for my $version ('', 'TLSv1.2') {
    my $name = $version || 'TLS of any version';
    my @more = $version ? ('--tls-protocols', $version) : ();
    my $port = redis_start(args => [@args, @more]);
    my $gateway = gateway($tls, "tls on; tls_ca $dir/cert.pem;");
    is(told($gateway), '200 PASSED 9', "$name: connected");
    is(handshakes($gateway), '1 0', "$name: a whole handshake");
    for my $n (1 .. 3) {
        redis_cli($port, qw( client kill type normal ));
        ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
           "$name: connected again");
        is(handshakes($gateway), (1 + $n) . " $n", "$name: resumed");
    }
    # a server that has forgotten all sessions
    redis_stop($port);
    redis_start(port => $port, args => [@args, @more]);
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       "$name: another server");
    is(handshakes($gateway), '5 3', "$name: a whole handshake");
    redis_cli($port, qw( client kill type normal ));
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       "$name: connected again");
    is(handshakes($gateway), '6 4', "$name: its session is resumed");
    $gateway->stop;
    redis_stop($port);
}

# a request does not wait for the jitter of the first connect
{
    my $port = redis_start(args => \@args);
    my $gateway = gateway($tls, "tls on; tls_ca $dir/cert.pem;");
    for my $n (1 .. 5) {
        is(told($gateway), '200 PASSED 9', "first connect $n: asked");
        $gateway->reload;
    }
    unlike($gateway->log, qr/\[error\]/, 'first connects: nothing in the log');
    $gateway->stop;
    redis_stop($port);
}

# nor does the first one after a reload without TLS; and without a request the
# connection is made all the same
{
    my $fake = t::FakeRedis->new(sub { "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n" });
    my $gateway = gateway($fake->{port}, '');
    is(told($gateway), '200 PASSED 9', 'a reload: before');
    $gateway->reload;
    is(told($gateway), '200 PASSED 9', 'a reload: asked');
    my $n = $fake->seen->{connections};
    $gateway->reload;
    ok(wait_for(sub { $fake->seen->{connections} > $n }),
       'a reload: connected without a request');
    $gateway->stop;
    $fake->stop;
}
