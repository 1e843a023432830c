# A server that speaks Redis' protocol as a test wants it: right, wrong or not
# at all. What it is sent it takes apart and counts.
#
#     use t::FakeRedis;
#     my $fake = t::FakeRedis->new(sub { my @command = @_; return $bytes });
#
# The function runs in the server's process and answers each command; undef
# closes the connection, '' says nothing. SCRIPT LOAD gets its answer here.
#
#     $fake->{port}
#     $fake->seen    {commands => EVALSHAs, segments => TCP segments with data}
#     $fake->stop

package t::FakeRedis;

use strict;
use warnings;

use File::Temp ();
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Socket qw( IPPROTO_TCP TCP_NODELAY MSG_NOSIGNAL );

# tcpi_data_segs_in of struct tcp_info
use constant { TCP_INFO => 11, DATA_SEGS_IN => 152 };

my %running;


sub new {
    my ($class, $answer, %options) = @_;

    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64,
        ReuseAddr => 1, LocalPort => $options{port} || 0)
        or die "listen: $!";

    my $self = bless { port => $listen->sockport,
                       file => File::Temp->new }, $class;

    $self->{pid} = fork // die "fork: $!";

    if ($self->{pid} == 0) {
        $SIG{TERM} = 'DEFAULT';
        eval { serve($self, $listen, $answer) };
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
    my ($commands, $segments) = split ' ', <$file> // '0 0';

    return { commands => $commands, segments => $segments };
}


sub serve {
    my ($self, $listen, $answer) = @_;

    my $select = IO::Select->new($listen);
    my (%buffer, %segments);
    my $commands = 0;

    while (my @ready = $select->can_read) {
        for my $socket (@ready) {
            if ($socket == $listen) {
                my $new = $listen->accept or next;
                setsockopt $new, IPPROTO_TCP, TCP_NODELAY, 1;
                $select->add($new);
                $buffer{$new} = '';
                next;
            }

            my $n = sysread $socket, $buffer{$socket}, 1 << 20,
                            length $buffer{$socket};
            my $close = !$n;

            $segments{$socket} = unpack "x@{[DATA_SEGS_IN]}L",
                getsockopt($socket, IPPROTO_TCP, TCP_INFO) if $n;

            while (my @command = command(\$buffer{$socket})) {
                my $bytes = $command[0] eq 'SCRIPT'
                            ? "\$40\r\n" . 'a' x 40 . "\r\n"
                            : $answer->(@command);

                $commands++ if $command[0] eq 'EVALSHA';
                $close ||= !defined $bytes;
                send $socket, $bytes, MSG_NOSIGNAL
                    if defined $bytes && length $bytes;
            }

            if ($close) {
                $select->remove($socket);
                delete $buffer{$socket};
                close $socket;
            }
        }

        my $segments = 0;
        $segments += $_ for values %segments;

        open my $file, '+<', "$self->{file}" or die;
        syswrite $file, sprintf "%10d %10d\n", $commands, $segments;
    }
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
