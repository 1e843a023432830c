# The ports of one test process: blocks that no other process takes. A block
# is held by a socket bound to its first port, which the kernel closes when the
# process ends, however it ends.
#
#     use t::Ports qw( free_port free_ports );
#     my $port = free_port();      a port, given out once
#     my $first = free_ports(6);   the first of six in a row
#
# The bus of a Redis Cluster is 10,000 above its port, so both are free. The
# blocks end where these would reach the ports that Linux gives to clients, and
# begin where no bus of theirs is.

package t::Ports;

use strict;
use warnings;

use Exporter qw( import );
use IO::Socket::INET;

our @EXPORT_OK = qw( free_port free_ports );

use constant { BUS => 10000, FIRST => 12800, PAST => 22700, SIZE => 100 };

my ($owner, @locks, $next, $end) = (0);

sub bound {
    my ($port, @how) = @_;
    return IO::Socket::INET->new(LocalAddr => '127.0.0.1', Proto => 'tcp',
                                 LocalPort => $port, @how);
}

# The search begins at another block in each process, so that ports that were
# just in use are not the next to be taken.
sub block_take {
    my $blocks = (PAST - FIRST) / SIZE;
    for my $i (0 .. $blocks - 1) {
        my $first = FIRST + ($$ + $i) % $blocks * SIZE;
        my $lock = bound($first) or next;
        push @locks, $lock;
        ($next, $end) = ($first + 1, $first + SIZE);
        return;
    }
    die 'all blocks of ports from ' . FIRST . ' to ' . (PAST - 1)
        . " are taken: ss -ltnp says by whom\n";
}

sub is_free {
    my $port = shift;
    return bound($port, Listen => 1, ReuseAddr => 1)
           && bound($port + BUS, Listen => 1, ReuseAddr => 1);
}

sub free_ports {
    my $n = shift;
    # what a fork has of its parent's block is its parent's
    ($owner, $next, $end) = ($$, 0, 0) if $owner != $$;
    while (1) {
        block_take() if $next + $n > $end;
        my $first = $next;
        my ($taken) = grep { !is_free($_) } $first .. $first + $n - 1;
        $next = defined $taken ? $taken + 1 : $first + $n;
        return $first if !defined $taken;
    }
}

sub free_port { return free_ports(1) }

1;
