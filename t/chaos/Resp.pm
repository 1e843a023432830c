# A connection to one Redis node over its UNIX socket, which no fault of the
# network touches. Nothing here waits for longer than it was told.

package t::chaos::Resp;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use Socket qw( MSG_NOSIGNAL );
use Time::HiRes qw( time );

# undef where nobody listens.
sub new {
    my ($class, $path) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => $path) or return;
    $socket->blocking(0);
    return bless { socket => $socket, in => '' }, $class;
}

# False when the connection is gone.
sub tell {
    my ($self, @args) = @_;
    my $text = '*' . @args . "\r\n"
               . join '', map { '$' . length($_) . "\r\n$_\r\n" } @args;
    return (send($self->{socket}, $text, MSG_NOSIGNAL) // 0) == length $text;
}

# The next reply, as (1, reply); (0) when there is none in so many seconds, ()
# when the connection is gone. An error is its text behind "-", an array a
# reference.
sub next {
    my ($self, $seconds) = @_;
    my $end = time + $seconds;
    for (;;) {
        my $at = 0;
        my @got = parse(\$self->{in}, \$at);
        if (@got) {
            substr $self->{in}, 0, $at, '';
            return (1, $got[0]);
        }
        my $left = $end - time;
        my $ready = IO::Select->new($self->{socket})
                              ->can_read($left > 0 ? $left : 0);
        return 0 if !$ready;
        sysread $self->{socket}, $self->{in}, 65536, length $self->{in}
            or return;
    }
}

# One value at $$at, or nothing while it is not whole.
sub parse {
    my ($text, $at) = @_;
    pos($$text) = $$at;
    $$text =~ /\G([-+:\$*])([^\r\n]*)\r\n/g or return;
    my ($type, $value) = ($1, $2);
    my $after = pos $$text;
    if ($type eq '$' && $value >= 0) {
        return if length $$text < $after + $value + 2;
        $$at = $after + $value + 2;
        return substr $$text, $after, $value;
    }
    if ($type eq '*') {
        my @list;
        for (1 .. $value) {
            my @one = parse($text, \$after) or return;
            push @list, @one;
        }
        $$at = $after;
        return \@list;
    }
    $$at = $after;
    return $type eq '-' ? "-$value" : $type eq '$' ? undef : $value;
}

1;
