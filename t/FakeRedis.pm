# A server that speaks Redis' protocol as a test wants it: right, wrong or not
# at all. What it is sent it takes apart and counts.
#
#     use t::FakeRedis;
#     my $fake = t::FakeRedis->new(sub { my @command = @_; return $bytes });
#
# The function runs in the server's process and answers each command, of the
# connection number $t::FakeRedis::CONNECTION; undef closes the connection, ''
# says nothing, a reference to an array of these does one after the other, with
# pauses. SCRIPT LOAD, CLIENT SETNAME and CLUSTER MYID get their answer here, and
# so does the gateways' heartbeat, that one node lives: all but SCRIPT LOAD are
# no commands that are counted or heard. Where the function has left a command of the connection without an
# answer the heartbeat gets none either, since answers are in order.
#
# Options: port; addr, 127.0.0.1 unless given; id, of its node, of 40 bytes, or
# the error of CLUSTER MYID; load => 1 has the function answer SCRIPT LOAD too;
# names => 1 CLIENT SETNAME, which is heard then; beats => 1 the heartbeat,
# is_beat(command), which is counted and heard then; greeting =>
# a function, what it gives is sent at each connection's begin; narrow => small
# segments and a small buffer, so that little data is a lot.
#
#     $fake->{port}
#     $fake->seen    {commands => EVALSHAs, segments => TCP segments with data,
#                     connections => accepted}
#     $fake->heard   the commands in their order: [time, connection's number,
#                    first word, the client's port]
#     $fake->stop

package t::FakeRedis;

use strict;
use warnings;

use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Socket qw( IPPROTO_TCP TCP_NODELAY TCP_MAXSEG SOL_SOCKET SO_RCVBUF
               MSG_NOSIGNAL );
use Time::HiRes ();

use t::Ports ();

# tcpi_data_segs_in of struct tcp_info
use constant { TCP_INFO => 11, DATA_SEGS_IN => 152 };

# the name of the set of nodes, and what a node alone is answered
my $NODES = ':' . unpack 'H*', 'rl-nodes';
my $ALONE = "*4\r\n:1\r\n:1073741823\r\n:0\r\n:0\r\n";

my %running;

our $CONNECTION;

sub new {
    my ($class, $answer, %options) = @_;
    my $listen = IO::Socket::INET->new(
        Listen => 64, ReuseAddr => 1, LocalAddr => $options{addr} || '127.0.0.1',
        LocalPort => $options{port} || t::Ports::free_port())
        or die "listen: $!";
    if ($options{narrow}) {
        setsockopt $listen, IPPROTO_TCP, TCP_MAXSEG, 536;
        setsockopt $listen, SOL_SOCKET, SO_RCVBUF, 4096;
    }
    my $self = bless { port => $listen->sockport, file => File::Temp->new,
                       words => File::Temp->new }, $class;
    $self->{pid} = fork // die "fork: $!";
    if ($self->{pid} == 0) {
        $SIG{TERM} = 'DEFAULT';
        eval { serve($self, $listen, $answer, %options) };
        warn $@ if $@;
        POSIX::_exit(0);
    }
    $running{$self->{pid}} = 1;
    return $self;
}

sub stop {
    my $self = shift;
    return if !delete $running{$self->{pid}};
    kill KILL => $self->{pid};
    waitpid $self->{pid}, 0;
}

END {
    local $?;
    for (keys %running) {
        kill KILL => $_;
        waitpid $_, 0;
    }
}

sub seen {
    my $self = shift;
    open my $file, '<', "$self->{file}" or die;
    my %seen;
    @seen{qw( commands segments connections )} = split ' ', <$file> // '0 0 0';
    return \%seen;
}

sub heard {
    my $self = shift;
    open my $file, '<', "$self->{words}" or die;
    return map { [split] } <$file>;
}

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }

# The test's time, where it has one of its own.
sub now { return $INC{'t/Clock.pm'} ? t::Clock::now() : Time::HiRes::time() }

sub serve {
    my ($self, $listen, $answer, %options) = @_;
    my $select = IO::Select->new($listen);
    my (%buffer, %segments, %number, %owes, %ended);
    my ($commands, $connections) = (0, 0);
    open my $words, '>>', "$self->{words}" or die;
    while (my @ready = $select->can_read) {
        for my $socket (@ready) {
            if ($socket == $listen) {
                my $new = $listen->accept or next;
                setsockopt $new, IPPROTO_TCP, TCP_NODELAY, 1;
                $select->add($new);
                $buffer{$new} = '';
                $number{$new} = ++$connections;
                answer($new, $options{greeting}->()) if $options{greeting};
                next;
            }
            my $n = sysread $socket, $buffer{$socket}, 1 << 20,
                            length $buffer{$socket};
            my $close = 0;
            $buffer{$socket} = '' if $ended{$socket};
            $segments{$socket} = unpack "x@{[DATA_SEGS_IN]}L",
                getsockopt($socket, IPPROTO_TCP, TCP_INFO) if $n;
            $CONNECTION = $number{$socket};
            while (my @command = command(\$buffer{$socket})) {
                if ($command[0] eq 'CLIENT' && !$options{names}) {
                    answer($socket, "+OK\r\n") if !$owes{$number{$socket}};
                    next;
                }
                if ($command[0] eq 'CLUSTER' && $command[1] eq 'MYID') {
                    my $id = $options{id} // 'id';
                    answer($socket, $id =~ /^-/ ? "$id\r\n" : bulk($id))
                        if !$owes{$number{$socket}};
                    next;
                }
                if (is_beat(@command) && !$options{beats}) {
                    answer($socket, $ALONE) if !$owes{$number{$socket}};
                    next;
                }
                syswrite $words, sprintf "%.3f %d %s %d\n",
                    now(), $number{$socket}, $command[0],
                    $socket->peerport // 0;
                my $bytes = $command[0] eq 'SCRIPT' && !$options{load}
                            ? "\$40\r\n" . 'a' x 40 . "\r\n"
                            : $answer->(@command);
                $commands++ if $command[0] eq 'EVALSHA';
                $close ||= !answer($socket, $bytes);
                $owes{$number{$socket}} ||= defined $bytes && !whole($bytes);
            }
            # a socket that is closed with bytes unread is reset: this one ends,
            # and is read until the gateway closes it
            if (!$n) {
                $select->remove($socket);
                delete @$_{$socket} for \%buffer, \%ended;
                close $socket;
            } elsif ($close) {
                shutdown $socket, 1;
                $ended{$socket} = 1;
            }
        }
        my $segments = 0;
        $segments += $_ for values %segments;
        open my $file, '+<', "$self->{file}" or die;
        syswrite $file, sprintf "%10d %10d %10d\n", $commands, $segments,
                                $connections;
    }
}

# Whether a reply can be all of one: what follows half of it were its other half.
sub whole {
    my $bytes = shift;
    $bytes = join '', grep { defined } @$bytes if ref $bytes;
    return 0 if $bytes !~ /\r\n\z/;
    return $bytes !~ /^\*(\d+)\r\n/ || ($bytes =~ tr/\n//) > $1;
}

# Whether a command is the heartbeat of a gateway: its set is KEYS[2].
sub is_beat { return @_ > 4 && $_[0] eq 'EVALSHA' && $_[4] =~ /$NODES\z/ }

# Sends what the function says; false when it says to close.
sub answer {
    my ($socket, $bytes) = @_;
    for my $part (ref $bytes ? @$bytes : $bytes) {
        return 0 if !defined $part;
        Time::HiRes::sleep(0.005) if ref $bytes;
        send $socket, $part, MSG_NOSIGNAL if length $part;
    }
    return 1;
}

# Takes one whole command from the front of a buffer.
sub command {
    my $buffer = shift;
    return if $$buffer !~ /^\*(\d+)\r\n/;
    my ($n, $at, @words) = ($1, $+[0]);
    for (1 .. $n) {
        pos($$buffer) = $at;
        return if $$buffer !~ /\G\$(\d+)\r\n/g;
        my ($length, $begin) = ($1, pos $$buffer);
        return if length $$buffer < $begin + $length + 2;
        push @words, substr $$buffer, $begin, $length;
        $at = $begin + $length + 2;
    }
    substr $$buffer, 0, $at, '';
    return @words;
}

1;
