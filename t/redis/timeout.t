# The default of "timeout" is 50ms: of requests that come at the same time, one
# with the default gives up behind one with 45ms and ahead of one with 55ms. The
# order counts, not the time: nginx ends its timers in their order, however late.

use t::RateLimit 'no_plan';
use t::Gateway;
use t::FakeRedis;

use IO::Socket::INET;

my $TRIES = 20;

# Paths in the order in which their requests ended; they begin in the order of
# @_, so nothing is proved by that.
sub order {
    my ($port, @paths) = @_;
    my %timeout = ('/a' => 'timeout 45ms;', '/b' => '', '/c' => 'timeout 55ms;');
    my $blocks = join '', map { my $name = substr $_, 1; <<"CONF" } sort keys %timeout;
    ratelimit_redis $name { server 127.0.0.1:$port; $timeout{$_} }
    ratelimit_zone \$arg_k zone=$name:64k rate=10r/h redis=$name sync=strict;
CONF
    my $gateway = t::Gateway->new(http => <<"CONF")->start;
    $blocks
    log_format path "\$uri \$sent_http_x_status";
    access_log %%DIR%%/access.log path;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location /a { ratelimit zone=a; empty_gif; }
        location /b { ratelimit zone=b; empty_gif; }
        location /c { ratelimit zone=c; empty_gif; }
    }
CONF
    my @sockets = map {
        IO::Socket::INET->new(PeerAddr => "127.0.0.1:$gateway->{port}") or die $!;
    } @paths;
    # the worker has accepted all of them before the first request comes
    select undef, undef, undef, 0.1;
    for my $i (0 .. $#paths) {
        syswrite $sockets[$i], "GET $paths[$i]?k=x HTTP/1.0\r\n\r\n";
    }
    for my $socket (@sockets) {
        1 while sysread $socket, my $rest, 4096;
    }
    my $order = join ', ', split /\n/, $gateway->read('access.log');
    $gateway->stop;
    return $order;
}

# connects, and says nothing
my $silent = t::FakeRedis->new(sub { '' });
my $order = '';

# requests that were not read together prove nothing
for (1 .. $TRIES) {
    $order = order($silent->{port}, '/c', '/b', '/a');
    last if $order eq '/a DEGRADED, /b DEGRADED, /c DEGRADED';
}

is($order, '/a DEGRADED, /b DEGRADED, /c DEGRADED',
   'the default is between 45ms and 55ms');
$silent->stop;
