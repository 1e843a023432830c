# The files of examples/forward: a proxy that asks a gateway for each request.
# Each proxy is run where it is installed.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );
use t::Ports qw( free_port );

# the gateway of docs/check.md, and an API
my $gateway = t::Gateway->limited(
    zone => 'key=$ratelimit_api_key limit=2 window=1h algorithm=fixed_window',
    http => 'ratelimit_deny zone=z key:bad;',
    server => 'set_real_ip_from 127.0.0.1; real_ip_header X-Forwarded-For;',
    locations => { '/' => 'ratelimit zone=z; try_files /none @allowed;',
                   '@allowed' => 'return 200;' });
my $api = t::Gateway->new(http =>
    'server { listen 127.0.0.1:%%PORT%%; location / { return 200 "api\n"; } }');
$api->start;

my ($haproxy) = grep { -x } map { "$_/haproxy" } split(/:/, $ENV{PATH}), '/usr/sbin';
my ($apache) = grep { -x } map { "$_/apache2" } split(/:/, $ENV{PATH}), '/usr/sbin';

# A file of the examples, with the ports and the folder of this test.
sub example {
    my ($name, $port, $to) = @_;
    my $text = do { local (@ARGV, $/) = "examples/forward/$name"; <> };
    $text =~ s/:8000\b/:$port/g;
    $text =~ s/:9000\b/:$api->{port}/g;
    $text =~ s/:8080\b/:$gateway->{port}/g;
    # a busy machine is slow to answer
    $text =~ s/timeout = 200\b/timeout = 9000/;
    $text =~ s/timeout=0\.2\b/timeout=9/;
    $text =~ s{(?<=load )haproxy\.lua}{$gateway->{dir}/haproxy.lua}g;
    $text =~ s{/usr/local/bin/}{$gateway->{dir}/}g;
    $gateway->write($name, $to ? $to->($text) : $text);
    return "$gateway->{dir}/$name";
}

# What a proxy does, which the command starts and that listens on the port.
sub proxy_ok {
    my ($name, $port, @command) = @_;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        open STDOUT, '>', "$gateway->{dir}/$name.out";
        open STDERR, '>&', \*STDOUT;
        exec @command or POSIX::_exit(1);
    }
    my $ask = sub {
        return (t::Gateway::send_all([map { [$port, '/v1/users', "X-API-Key: $_"] } @_]))[0];
    };
    my $log = sub { do { local (@ARGV, $/) = "$gateway->{dir}/$name.out"; <> } };
    ok(wait_for(sub { ($ask->('probe') // {})->{status} }), "$name answers")
        or diag($log->());
    my @answers = map { $ask->('alice') } 1 .. 3;
    is(tally(@answers), '2 x 200, 1 x 429', "$name: the limit") or diag($log->());
    is($answers[0]{body}, "api\n", "$name: the API answers");
    like(header($answers[2], 'Retry-After') // '', qr/^\d{1,4}$/, "$name: Retry-After");
    is($ask->('bob')->{status}, 200, "$name: another key");
    isnt($ask->('bad')->{status}, 200, "$name: the deny list");
    $gateway->kill;
    is($ask->('alice')->{status}, 200, "$name: the gateway is away");
    kill TERM => $pid;
    waitpid $pid, 0;
    $gateway->start;
}

SKIP: {
    skip 'no haproxy', 1 if !$haproxy;
    my $port = free_port();
    example('haproxy.lua', $port);
    my $file = example('haproxy.cfg', $port);
    proxy_ok('haproxy', $port, $haproxy, '-db', '-f', $file);
}

SKIP: {
    skip 'no apache2', 1 if !$apache;
    my $port = free_port();
    my $dir = $gateway->{dir};
    chmod 0755, example('apache-limit', $port);
    my $modules = $ENV{APACHE_MODULES} // '/usr/lib/apache2/modules';
    my $file = example('apache.conf', $port, sub {
        return join("\n", "ServerRoot $dir", "ServerName localhost",
                    "PidFile $dir/apache.pid", "Listen 127.0.0.1:$port",
                    'ErrorLog /dev/stderr', ($> == 0 ? ('User nobody', 'Group nogroup') : ()),
                    (map { "LoadModule $_->[0]_module $modules/mod_$_->[0].so" }
                     map { [$_] } qw( mpm_event authz_core headers rewrite proxy proxy_http )),
                    $_[0], 'ProxyPass / http://127.0.0.1:' . $api->{port} . '/', '');
    });
    proxy_ok('apache', $port, $apache, '-X', '-f', $file);
}

$_->stop for $gateway, $api;
