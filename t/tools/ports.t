# The ports of test processes: each has blocks of its own, none twice, below
# those that the kernel gives to clients, with the bus of a Redis Cluster.

use t::RateLimit 'no_plan';
use t::Ports qw( free_port free_ports );

# Another process and the ports that it was given, which it holds until it ends.
sub other {
    my $n = shift;
    my $pid = open my $out, '-|', $^X, '-I.', '-Mt::Ports', '-e', <<"PERL";
        \$| = 1;
        print join(' ', map { t::Ports::free_port() } 1 .. $n), "\\n";
        sleep 60;
PERL
    return { pid => $pid, out => $out, ports => [split ' ', <$out>] };
}

my @others = map { other(150) } 1 .. 4;
my @ports = ((map { free_port() } 1 .. 250), map { @{ $_->{ports} } } @others);
my %ports = map { $_ => 1 } @ports;

is(scalar keys %ports, 850, 'no port is given out twice');

open my $file, '<', '/proc/sys/net/ipv4/ip_local_port_range' or die;
my ($clients) = split ' ', <$file>;

SKIP: {
    skip "clients' ports begin at $clients here", 1 if $clients < 32768;
    is(scalar(grep { $_ + 10000 >= $clients } @ports), 0,
       'below those of clients, with their bus');
}

is(scalar(grep { $ports{$_ + 10000} } @ports), 0, 'none is a bus of another');

my $held = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                 LocalPort => free_port()) or die;
my $next = $held->sockport + 1;
my $taken = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1,
                                  LocalPort => $next + 10000) or die;

isnt(free_port(), $next, 'not one whose bus another program has');

my $child = open my $out, '-|';
if (!$child) {
    print free_port();
    close STDOUT;
    POSIX::_exit(0);
}
my $forked = <$out>;
close $out;

ok(!$ports{$forked} && $forked != free_port(), 'a fork has its own');

# a block is held until its process ends, however it ends
sub block_is_held {
    my $port = shift;
    return !IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'tcp',
                                  LocalPort => $port - $port % 100);
}

my @held = map { $_->{ports}[0] } @others;

is(scalar(grep { block_is_held($_) } @held), 4, 'their blocks are held');

for (@others) {
    kill KILL => $_->{pid};
    close $_->{out};
}

is(scalar(grep { block_is_held($_) } @held), 0, 'and given back');
