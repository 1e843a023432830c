# Where the six nodes are, and what lies between them and the gateways: a
# network namespace of their own behind t/chaos/wire.c, where this machine
# allows it (root, /dev/net/tun, unshare); else loopback, without faults of the
# network.
#
# isolate() is for a BEGIN block before all other modules: it starts the
# program again in a network namespace of its own, so that nothing here is seen
# outside, and nothing is left of it when the program has ended.

package t::chaos::Net;

use strict;
use warnings;

use IO::Handle;

my $REFUSED = 'RATELIMIT_CHAOS_NO_NET';      # why there is no namespace
my $INSIDE = 'RATELIMIT_CHAOS_INSIDE';

sub isolate {
    return if $ENV{$INSIDE} || $ENV{$REFUSED};
    my $why = $> != 0 ? 'not root'
            : !-e '/dev/net/tun' ? 'no /dev/net/tun'
            : system('unshare -n ip link set lo up 2> /dev/null')
              ? 'no network namespaces (unshare -n, ip)'
            : undef;
    if (defined $why) {
        $ENV{$REFUSED} = $why;
        return;
    }
    $ENV{$INSIDE} = 1;
    exec 'unshare', '-n', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh',
         $^X, '-I.', $0, @ARGV;
}

# Why there is no network to cut, or undef.
sub missing { return $ENV{$REFUSED} }

sub new {
    my ($class, $wire) = @_;
    my $self = bless { addresses => [map { "127.0.0.1$_" } 1 .. 6],
                       inside => [] }, $class;
    $self->lay($wire) unless missing();
    return $self;
}

sub lay {
    my ($self, $wire) = @_;
    pipe my $in, my $commands or die "pipe: $!";
    pipe my $said, my $out or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>&', $out;
        close $commands;
        exec $wire or POSIX::_exit(127);
    }
    close $out;
    <$said> // die "$wire did not start";
    $commands->autoflush(1);
    @$self{qw( pid commands )} = ($pid, $commands);
    $self->{inside} = ['nsenter', '-t', $pid, '-n'];
    $self->{addresses} = [map { "10.77.0.1$_" } 1 .. 6];
    my @ip = (@{ $self->{inside} }, 'ip');
    run('ip', qw( addr add 10.77.0.1/24 dev rlgate ));
    run('ip', qw( link set rlgate up ));
    run(@ip, qw( link set lo up ));
    run(@ip, qw( addr add ), "$_/24", qw( dev rlnodes ))
        for @{ $self->{addresses} };
    run(@ip, qw( link set rlnodes up ));
}

sub run { system(@_) == 0 or die "@_ failed" }

# pass, drop, refuse, slow <ms> <percent>, faulty <packets>: see wire.c.
sub does {
    my ($self, $what) = @_;
    print { $self->{commands} } "$what\n" or die "wire: $!";
}

sub end {
    my $self = shift;
    close $self->{commands} or return if $self->{pid};
    waitpid delete $self->{pid}, 0 if $self->{pid};
}

1;
