# What each connection to Redis begins with: options of TCP by which the kernel
# notices that the peer is gone, and a name that CLIENT LIST shows.

use t::RateLimit 'no_plan';
use t::Gateway;
use t::FakeRedis;

use Socket qw( IPPROTO_TCP SOL_SOCKET SO_KEEPALIVE );

# Linux: of pidfd_open(2) and pidfd_getfd(2), on every machine, and of tcp(7)
use constant { PIDFD_OPEN => 434, PIDFD_GETFD => 438,
               TCP_KEEPIDLE => 4, TCP_KEEPINTVL => 5, TCP_USER_TIMEOUT => 18 };

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

sub gateway {
    my ($server, %more) = @_;
    return t::Gateway->limited(%more, redis => "server $server",
                               zone => 'rate=10r/h sync=strict');
}

sub told { return t::Gateway::told($_[0]->get('/?k=' . $_[1])) }

# Another process's socket; undef where the kernel does not let us.
sub borrow {
    my ($pid, $fd) = @_;
    my $process = syscall PIDFD_OPEN, $pid, 0;
    my $got = $process < 0 ? -1 : syscall PIDFD_GETFD, $process, $fd, 0;
    return if $got < 0;
    open my $socket, '+<&=', $got or die "descriptor $got: $!";
    return $socket;
}

sub option {
    my ($socket, $level, $name) = @_;
    return unpack 'i', getsockopt($socket, $level, $name) // die "option: $!";
}

my $port = redis_start();
my $gateway = gateway("127.0.0.1:$port");

is(told($gateway, 'a'), '200 PASSED 9', 'connected');

my ($worker) = $gateway->workers;
my ($fd) = t::Gateway::connections($worker, $port);

SKIP: {
    my $socket = borrow($worker, $fd) or skip "pidfd_getfd: $!", 4;
    is(option($socket, SOL_SOCKET, SO_KEEPALIVE), 1, 'SO_KEEPALIVE');
    is(option($socket, IPPROTO_TCP, TCP_KEEPIDLE), 15, 'TCP_KEEPIDLE');
    is(option($socket, IPPROTO_TCP, TCP_KEEPINTVL), 5, 'TCP_KEEPINTVL');
    is(option($socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 30000,
       'TCP_USER_TIMEOUT');
}

like(redis_cli($port, qw( client list )),
     qr/ name=ratelimit:r:\S+:$worker /, 'its name');
unlike($gateway->log, qr/\[error\]/, 'nothing in the log');
$gateway->stop;

# a Redis that refuses the name is as good; nothing is said of it
redis_cli($port, qw( acl setuser default -client|setname ));
$gateway = gateway("127.0.0.1:$port");
is(told($gateway, 'b'), '200 PASSED 9', 'no right to a name: checks go on');
unlike(redis_cli($port, qw( client list )), qr/name=ratelimit/,
       'no right to a name: none');
unlike($gateway->log, qr/\[error\]/, 'no right to a name: nothing in the log');
$gateway->stop;

# a server that knows no such command, or wants a password first
for my $error ('ERR unknown subcommand', 'NOAUTH Authentication required.') {
    my $fake = t::FakeRedis->new(
        sub { $_[0] eq 'CLIENT' ? "-$error\r\n" : $GOOD }, names => 1);
    $gateway = gateway("127.0.0.1:$fake->{port}");
    is(told($gateway, 'a'), '200 PASSED 9', "$error: checks go on");
    is($fake->seen->{connections}, 1, "$error: over one connection");
    is(join(' ', map { $_->[2] } ($fake->heard)[0 .. 2]),
       'CLIENT SCRIPT EVALSHA', "$error: the name comes first");
    $gateway->stop;
    $fake->stop;
}

# a socket of this machine has no options of TCP
my $path = t::Gateway::dir('unix') . '/redis';
my $unix = redis_start(args => ['--unixsocket', $path]);

$gateway = gateway("unix:$path");
is(told($gateway, 'a'), '200 PASSED 9', 'a socket of this machine');
like(redis_cli($unix, qw( client list )), qr/ name=ratelimit:r:/, 'its name');
$gateway->stop;
