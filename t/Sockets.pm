# The TCP connections on this machine: who has not read yet, and which file
# descriptors of a process they are.

package t::Sockets;

use strict;
use warnings;

use Exporter qw( import );

our @EXPORT_OK = qw( connections tcp unread );

# The TCP connections on this machine, each end of its own: {port, peer, unread,
# inode, open}: the ports of this end and of the other, the bytes not read here,
# and whether neither end has closed it.
sub tcp {
    my @ends;
    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";
    <$file>;
    while (defined(my $line = <$file>)) {
        # listens; or nobody's any more, of which a run leaves thousands
        next if $line =~ /^\s*\d+: \S+ \S+ (?:0A|06) /;
        my @field = split ' ', $line;
        my ($state, $queues, $inode) = @field[3, 4, 9];
        push @ends, {
            (map { $_->[0] => hex $field[$_->[1]] =~ s/.*://r }
                 ['port', 1], ['peer', 2]),
            unread => hex $queues =~ s/.*://r, inode => $inode,
            open => $state eq '01' };
    }
    return @ends;
}

# How many bytes the server on a port has not read.
sub unread {
    my ($port, $n) = (shift, 0);
    $n += $_->{unread} for grep { $_->{port} == $port } tcp();
    return $n;
}

# The file descriptors of a process that are connections to a port, or from one
# port to another.
sub connections {
    my ($pid, $port, $from) = @_;
    my %inode = map { $_->{inode} => 1 }
                grep { $_->{peer} == $port && (!$from || $_->{port} == $from) }
                tcp();
    return map { m{/(\d+)$} }
           grep { (readlink($_) // '') =~ /^socket:\[(\d+)\]$/ && $inode{$1} }
           glob "/proc/$pid/fd/*";
}

1;
