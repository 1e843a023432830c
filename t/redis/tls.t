# TLS to Redis, with real servers: who is trusted, who is not, and what the log
# says of it; that no other server is asked; and that a connection with TLS
# carries and loses what one without it does.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally wait_for );
use t::FakeDNS;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::IP;
use POSIX ();
use Socket qw( IPPROTO_TCP TCP_MAXSEG SOL_SOCKET SO_RCVBUF );
use Time::HiRes qw( sleep time );

my $dir = t::Gateway::dir('certificates');

sub openssl {
    my $out = qx(openssl @_ 2>&1);
    $? == 0 or BAIL_OUT("openssl @_: $out");
}

sub ca {
    my $name = shift;
    openssl("req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=$name",
            "-keyout $dir/$name.key -out $dir/$name.pem");
}

# a certificate of the first CA, for what openssl calls subjectAltName
sub certificate {
    my ($name, $for, $days) = @_;
    open my $file, '>', "$dir/$name.ext" or die;
    print $file $for ? "subjectAltName=$for\n" : "basicConstraints=CA:FALSE\n";
    close $file;
    openssl("req -newkey rsa:2048 -nodes -subj /CN=$name",
            "-keyout $dir/$name.key -out $dir/$name.csr");
    openssl("x509 -req -in $dir/$name.csr -CA $dir/ca.pem -CAkey $dir/ca.key",
            "-CAcreateserial -days", $days // 30,
            "-extfile $dir/$name.ext -out $dir/$name.pem");
}

ca($_) for 'ca', 'stranger';
certificate('good', 'DNS:redis.test,IP:127.0.0.1');
certificate('other', 'DNS:other.test,IP:127.0.0.2');
certificate('expired', 'DNS:redis.test,IP:127.0.0.1', 0);
certificate('gateway');

# A server: its plain port, and that for TLS.
sub server {
    my ($certificate, @args) = @_;
    my $tls = t::Gateway::free_port();
    my $port = redis_start(args => [tls_args($certificate, $tls), @args]);
    return ($port, $tls);
}

sub tls_args {
    my ($certificate, $tls) = @_;
    return ('--tls-port', $tls, '--tls-cert-file', "$dir/$certificate.pem",
            '--tls-key-file', "$dir/$certificate.key",
            '--tls-ca-cert-file', "$dir/ca.pem", '--tls-auth-clients', 'no');
}

my ($plain, $good) = server('good');
my (undef, $other) = server('other');
my (undef, $expired) = server('expired');
my (undef, $choosy) = server('good', '--tls-auth-clients', 'yes');
my ($secret_port, $secret) = server('good', '--requirepass', 'hush');

# accepts, and says nothing; the kernel does that
my $silent = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1')
    or die;

my $certificate = "tls_certificate $dir/gateway.pem; "
                  . "tls_certificate_key $dir/gateway.key;";
my $ca = "tls on; tls_ca $dir/ca.pem;";
my $refused = 'the server\'s certificate is not accepted: ';

# name, port, lines of the block, what the log says of the port
my @cases = (
    ['an address', $good, $ca],
    ['a name', $good, "$ca tls_name redis.test;"],
    ['a certificate of ours, not asked for', $good, "$ca $certificate"],
    ['a certificate of ours', $choosy, "$ca $certificate"],
    ['TLS off', $plain, 'tls off;'],
    ['a password', $secret, "$ca password_file %%DIR%%/pw;"],
    ['a name that is not its', $good, "$ca tls_name other.test;",
     $refused . '.*[Hh]ostname mismatch'],
    ['an address that is not its', $other, $ca,
     $refused . '.*IP address mismatch'],
    ['an expired certificate', $expired, $ca,
     $refused . 'certificate has expired'],
    ['an unknown CA', $good, "tls on; tls_ca $dir/stranger.pem;",
     $refused . '.*certificate'],
    ['the CAs of the system', $good, 'tls on;', $refused . '.*certificate'],
    ['no certificate of ours', $choosy, $ca,
     'the server ended TLS: certificate required'],
    ['a server without TLS', $plain, $ca, 'the TLS handshake (failed|timed)'],
    ['silence', $silent->sockport, $ca, 'the TLS handshake timed out'],
    ['a gateway without TLS', $good, '',
     '(closed by the server|recv\(\) failed|a broken)'],
);

my ($redis, $locations) = ('', '');

for my $i (0 .. $#cases) {
    my ($name, $port, $lines) = @{ $cases[$i] };
    $redis .= "ratelimit_redis r$i { server 127.0.0.1:$port; $lines prefix p$i;"
              . " timeout 2s; }\n"
              . "ratelimit_zone \$arg_k zone=z$i:64k rate=10r/h redis=r$i;\n";
    $locations .= "location /$i { ratelimit zone=z$i; empty_gif; }\n";
}

my $gateway = t::Gateway->new(http => <<"CONF");
    $redis
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        $locations
    }
CONF

$gateway->write('pw', "hush\n");
$gateway->start;

sub told { return t::Gateway::told($gateway->get(@_)) }

sub comes_back {
    my ($name, $path) = @_;
    ok(wait_for(sub { told($path) =~ /^200 PASSED/ }), $name);
}

for my $i (0 .. $#cases) {
    my ($name, $port, $lines, $log) = @{ $cases[$i] };
    if (!$log) {
        is(told("/$i?k=a"), '200 PASSED 9', "$name: asked");
        next;
    }
    is(told("/$i?k=a"), '200 DEGRADED -1', "$name: not asked");
    ok(wait_for(sub {
        $gateway->log =~ /"r$i": no connection to 127\.0\.0\.1:$port: $log/
    }), "$name: $log");
}

my %kept = map { $_ => redis_cli($plain, 'keys', "p$_:*}") } 0 .. $#cases;

for my $i (grep { $cases[$_][1] == $good || $cases[$_][1] == $plain }
           0 .. $#cases)
{
    my $bad = defined $cases[$i][3];
    is($kept{$i} ne '', !$bad, "$cases[$i][0]: what Redis holds");
}

my $bad = join '|', grep { defined $cases[$_][3] } 0 .. $#cases;

unlike($gateway->log,
       qr/hush|SSL_do_handshake|"r(?:$bad)": connected to/,
       'no secret, none of nginx\' own lines, and nobody is said to be there');

# the server starts again: so does the connection
redis_stop($plain);
is(told('/0?k=b'), '200 DEGRADED -1', 'stopped');
redis_start(port => $plain, args => [tls_args('good', $good)]);
comes_back('started again', '/0?k=b');
comes_back('with a name too', '/1?k=b');

# a reload makes new connections, and leaves none behind
my @clients = sort map { /name=\S*|id=(\d+)/ } redis_cli($plain, 'client',
                                                         'list');
$gateway->reload;
is(told('/0?k=c'), '200 PASSED 9', 'a reload');
comes_back('the other connection too', '/1?k=c');

ok(wait_for(sub {
    my @now = redis_cli($plain, 'client', 'list') =~ /^id=/mg;
    # with TLS: three cases and no more, and this question's own
    return @now <= 6;
}), 'a reload leaves no connection behind');

$gateway->stop;

# the CA of a certificate that is not yet one; what nginx -t finds
for (['tls on;', 'tls_ca gone.pem;', qr/gone\.pem.* failed/],
     ['tls on;', 'tls_certificate gone.pem; tls_certificate_key gone.pem;',
      qr/cannot load certificate .*gone\.pem/],
     ['tls on;', "tls_certificate $dir/good.pem; "
                 . "tls_certificate_key $dir/other.key;",
      qr/SSL_CTX_use_PrivateKey.*failed/])
{
    my ($on, $lines, $expected) = @$_;
    my $bad = t::Gateway->new(
        http => "ratelimit_redis r { server 127.0.0.1:1; $on $lines }");
    my ($accepted, $text) = $bad->check;
    ok(!$accepted, "nginx -t refuses $lines");
    like($text, $expected, "nginx -t says why: $lines");
}

# a host's own name
{
    my $dns = t::FakeDNS->new('redis.test' => '127.0.0.1',
                              'wrong.test' => '127.0.0.1');
    $gateway = t::Gateway->new(http => <<"CONF")->start;
    resolver 127.0.0.1:$dns->{port} ipv6=off;
    ratelimit_redis r { server redis.test:$good; timeout 5s; $ca }
    ratelimit_redis w { server wrong.test:$good; timeout 5s; $ca }
    ratelimit_zone \$arg_k zone=z:64k rate=10r/h redis=r;
    ratelimit_zone \$arg_k zone=w:64k rate=10r/h redis=w;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location /0 { ratelimit zone=z; empty_gif; }
        location /1 { ratelimit zone=w; empty_gif; }
    }
CONF
    is(told('/0?k=e'), '200 PASSED 9', 'the host is a name');
    is(told('/1?k=e'), '200 DEGRADED -1', 'the certificate is for another');
    like($gateway->log,
         qr/"w": no connection to wrong\.test:$good: $refused.*ostname mism/,
         'says the log');
    $gateway->stop;
    $dns->stop;
}

# cluster
{
    my @nodes;
    for (0 .. 2) {
        my $bus = t::Gateway::free_port();
        my ($port, $tls) = server('good', '--cluster-enabled', 'yes',
                                  '--tls-cluster', 'yes',
                                  '--cluster-port', $bus);
        push @nodes, [$port, $tls, $bus];
    }
    for my $i (0 .. 2) {
        redis_cli($nodes[$i][0], 'cluster', 'addslotsrange',
                  (0, 5461, 10923)[$i], (5460, 10922, 16383)[$i]);
        redis_cli($nodes[0][0], 'cluster', 'meet', '127.0.0.1',
                  $nodes[$i][1], $nodes[$i][2]) if $i;
    }
    ok(wait_for(sub {
        3 == grep { redis_try($_->[0], 'cluster', 'info') =~ /state:ok/ } @nodes
    }), 'a cluster');
    $gateway = t::Gateway->limited(
        redis => "cluster 127.0.0.1:$nodes[0][1]; timeout 5s; $ca",
        zone => { 'z:64k' => 'rate=10r/h redis=r' });
    my @told = map { told("/?k=$_") } 1 .. 50;
    is(scalar(grep { $_ ne '200 PASSED 9' } @told), 0,
       'a cluster: every client is counted');
    is(scalar(grep { redis_cli($_->[0], qw( --scan --pattern *} )) ne '' } @nodes), 3,
       'a cluster: on every node');
    $gateway->stop;
    redis_stop($_->[0]) for @nodes;
}

# The socket is full: between the gateway and Redis something reads little, or
# nothing while a file is there.
sub narrow {
    my ($stopped, $to) = @_;
    my $listen = IO::Socket::INET->new(Listen => 64, ReuseAddr => 1,
                                       LocalAddr => '127.0.0.1') or die;
    setsockopt $listen, IPPROTO_TCP, TCP_MAXSEG, 536;
    setsockopt $listen, SOL_SOCKET, SO_RCVBUF, 4096;
    my $test = $$;
    my $pid = fork // die;
    return ($pid, $listen->sockport) if $pid;
    my %peer;
    my $select = IO::Select->new($listen);
    # ends with a test that dies
    while (getppid() == $test) {
        for my $socket ($select->can_read(0.02)) {
            if ($socket == $listen) {
                my $one = $listen->accept or next;
                my $two = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                                PeerPort => $to) or die;
                ($peer{$one}, $peer{$two}) = ([$two, 0], [$one, 1]);
                $select->add($one, $two);
                open my $file, '>>', "$stopped.connections" or die;
                print $file "x";
                next;
            }
            my ($peer, $back) = @{ $peer{$socket} // next };
            next if !$back && -e $stopped;
            if (sysread $socket, my $data, 4096) {
                syswrite $peer, $data;
                next;
            }
            for ($socket, $peer) {
                $select->remove($_);
                delete $peer{$_};
                close $_;
            }
        }
        # not to spin while what is there is not read
        sleep 0.01 if -e $stopped;
    }
    POSIX::_exit(0);
}

for my $case (['10s', 'nobody waits in vain'], ['300ms', 'given up']) {
    my ($timeout, $name) = @$case;
    my $stopped = "$dir/stopped-$timeout";
    my ($pid, $port) = narrow($stopped, $good);
    my $rules = join '', map {
        "ratelimit_rule r$_ zone=z rate=10r/h key=\$arg_k-$_;\n"
    } 1 .. 16;
    $gateway = t::Gateway->limited(
        redis => "server 127.0.0.1:$port; timeout $timeout; $ca prefix full-$timeout;",
        http => $rules);
    comes_back("full socket, $name: before", '/?k=a');
    open my $file, '>', $stopped or die;
    close $file;
    my $begun = $gateway->begin(300, "/?k=$timeout");
    if ($timeout eq '10s') {
        sleep 0.8;
        unlink $stopped;
    }
    my @answers = t::Gateway::finish($begun);
    unlink $stopped;
    if ($timeout eq '10s') {
        is(tally(@answers), '10 x 200, 290 x 429', "full socket, $name");
    } else {
        is(tally(@answers), '300 x 200', "full socket, $name");
        is(scalar(grep { t::Gateway::told($_) ne '200 DEGRADED -1' } @answers),
           0, "full socket, $name: all of them");
        comes_back("full socket, $name: right again", '/?k=d');
    }
    # a machine that needs longer for the answers than a connection may be silent
    # closes it
    my $more = $timeout eq '10s' ? 0 : 1;
    cmp_ok(-s "$stopped.connections", '<=', 1 + $more, "full socket, $name: one connection");
    cmp_ok(scalar(() = $gateway->log =~ /no connection/g), '<=', $more,
           "full socket, $name: and no other");
    $gateway->stop;
    kill KILL => $pid;
    waitpid $pid, 0;
}

# an address in brackets is that without them, for the certificate too
SKIP: {
    skip 'no IPv6 here', 3
        unless IO::Socket::IP->new(LocalHost => '::1', Listen => 1);
    certificate('six', 'IP:::1');
    my (undef, $port) = server('six', '--bind', '127.0.0.1 ::1');
    $gateway = t::Gateway->limited(
        redis => "server [::1]:$port; $ca timeout 2s;",
        zone => { 'z:64k' => 'rate=10r/h redis=r' });
    is(told('/?k=a'), '200 PASSED 9', 'IPv6: asked');
    $gateway->stop;
}

# a Sentinel, and the master that it names, both by their ports for TLS
my (undef, $master) = server('good');
my $port = t::Gateway::free_port();
my @tls = tls_args('good', $port);
my $lines = '';

while (my ($name, $value) = splice @tls, 0, 2) {
    $lines .= substr($name, 2) . " $value\n";
}

redis_start(sentinel => $lines . <<"CONF");
tls-replication yes
sentinel monitor m 127.0.0.1 $master 1
CONF

$gateway = t::Gateway->limited(
    redis => "sentinel m 127.0.0.1:$port; $ca timeout 2s;",
    zone => { 'z:64k' => 'rate=10r/h redis=r' });

comes_back('a Sentinel', '/?k=a');
unlike($gateway->log, qr/\[error\]/, 'a Sentinel: nothing in the log');
$gateway->stop;

# without "tls_ca" the CAs that the system trusts: OpenSSL lets the environment
# name another file for them, which the master reads
for ([$good, "$dir/ca.pem", '200 PASSED 9'],
     [$good, "$dir/stranger.pem", '200 DEGRADED -1'])
{
    my ($server, $trusted, $told) = @$_;
    local $ENV{SSL_CERT_FILE} = $trusted;
    $gateway = t::Gateway->limited(
        redis => "server 127.0.0.1:$server; tls on; timeout 2s; prefix trust;",
        zone => { 'z:64k' => 'rate=10r/h redis=r' });
    is(told('/?k=a'), $told, 'the CAs of the system, '
       . ($told =~ /PASSED/ ? 'with ours among them' : 'without ours'));
    $gateway->stop;
}
