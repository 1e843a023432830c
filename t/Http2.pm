# A client of HTTP/2 that can do what others cannot: end one stream of a
# connection and leave the others. It knows as many frames as that needs, and
# does not decode the headers that it gets.
#
#     my $client = t::Http2->new($port);   # or the path of a socket
#     $client->get(1, '/path');        # streams 1, 3, 5...
#     $client->reset(1);
#     $client->ended(3) or ...;        # whether a stream has been answered
#     $client->goaway                  # the last stream that GOAWAY lets live,
#                                      # when the server has closed; or undef

package t::Http2;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use Time::HiRes qw( time );

use constant { HEADERS => 1, RST_STREAM => 3, SETTINGS => 4, GOAWAY => 7 };
use constant { END_STREAM => 1, ACK => 1, END_HEADERS => 4 };

sub new {
    my ($class, $port) = @_;
    my $socket = $port =~ m{/}
        ? IO::Socket::UNIX->new(Peer => $port)
        : IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
    die "$port: $!" if !$socket;
    my $self = bless { socket => $socket, in => '', ended => {} }, $class;
    $self->write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0));
    return $self;
}

sub frame {
    my ($type, $flags, $stream, $payload) = @_;
    $payload //= '';
    return substr(pack('N', length $payload), 1)
           . pack('CCN', $type, $flags, $stream) . $payload;
}

sub write {
    my ($self, $bytes) = @_;
    syswrite $self->{socket}, $bytes;
}

# GET, http, from the static table; path and authority as they are
sub get {
    my ($self, $stream, $path) = @_;
    $self->write(frame(HEADERS, END_STREAM | END_HEADERS, $stream,
                       "\x82\x86" . "\x04" . chr(length $path) . $path
                       . "\x01" . chr(4) . 'test'));
}

sub reset {
    my ($self, $stream) = @_;
    # CANCEL
    $self->write(frame(RST_STREAM, 0, $stream, pack 'N', 8));
}

# Reads for so many seconds, or until the stream has ended.
sub ended {
    my ($self, $stream, $seconds) = @_;
    my $end = time + ($seconds // $t::Gateway::PATIENCE);
    my $select = IO::Select->new($self->{socket});
    while (!$self->{ended}{$stream}) {
        my $left = $end - time;
        return 0 if $left <= 0 || !$select->can_read($left);
        return 0 if !sysread $self->{socket}, $self->{in}, 65536,
                             length $self->{in};
        $self->frames;
    }
    return 1;
}

# Reads to the end of the connection.
sub goaway {
    my $self = shift;
    $self->ended('end');
    return $self->{goaway};
}

sub frames {
    my $self = shift;
    while (length $self->{in} >= 9) {
        my ($high, $low, $type, $flags, $stream) = unpack 'CnCCN', $self->{in};
        my $length = 9 + ($high << 16 | $low);
        last if length $self->{in} < $length;
        $self->{goaway} = unpack 'N', substr $self->{in}, 9, 4
            if $type == GOAWAY;
        substr $self->{in}, 0, $length, '';
        $self->write(frame(SETTINGS, ACK, 0))
            if $type == SETTINGS && !($flags & ACK);
        # of HEADERS and of DATA
        $self->{ended}{$stream} = 1
            if $type == RST_STREAM || $type <= HEADERS && $flags & END_STREAM;
    }
}

sub close {
    my $self = shift;
    close $self->{socket};
}

1;
