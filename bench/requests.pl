#!/usr/bin/perl
#
# Sends an exact number of requests, which wrk cannot, and counts the answers.
#
#   requests.pl <port> <requests>
#               [<keys> [<salt> [<connections> [<depth> [<path>]]]]]
#
# The keys of keys.lua, in order; <depth> requests at a time on each connection.
# Prints "<status> <count>" for each status.

use strict;
use warnings;

use IO::Socket::INET;

@ARGV >= 2 or die "usage: requests.pl <port> <requests> ...\n";

my ($port, $requests, $keys, $salt, $connections, $depth, $path) = @ARGV;

$keys //= 1;
$salt //= 0;
$connections //= 1;
$depth //= 1;
$path //= '/';

my (%count, @sockets, $next);

sub request {
    my $i = $next++ % $keys + 1;

    return sprintf "GET $path HTTP/1.1\r\nHost: bench\r\n"
                   . "X-API-Key: sk_live_%04d%020d\r\n\r\n", $salt, $i;
}

# Reads one whole answer, counts its status.
sub answer {
    my ($c) = @_;

    my $head;

    until ($head) {
        if ($c->{in} =~ m{\G(HTTP/1\.1 \d{3} .*?\r\n\r\n)}gcs) {
            $head = $1;

        } else {
            more($c);
        }
    }

    my ($length) = $head =~ /^Content-Length: (\d+)\r$/m
        or die "requests.pl: an answer without Content-Length:\n$head";

    my $end = pos($c->{in}) + $length;

    while (length $c->{in} < $end) {
        more($c);
    }

    pos($c->{in}) = $end;
    $count{substr $head, 9, 3}++;
}

sub more {
    my ($c) = @_;

    my $pos = pos($c->{in}) // 0;

    if ($pos > 0) {
        $c->{in} = substr $c->{in}, $pos;
    }

    my $n = sysread $c->{socket}, $c->{in}, 65536, length $c->{in};

    $n or die "requests.pl: the connection to port $port ended\n";
    pos($c->{in}) = 0;
}

for (1 .. $connections) {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $port)
        or die "requests.pl: no connection to port $port: $!\n";

    push @sockets, { socket => $socket, in => '' };
}

$next = 0;

while ($next < $requests) {
    my @asked;

    for my $c (@sockets) {
        my $n = $requests - $next;
        $n = $depth if $n > $depth;

        my $text = join '', map { request() } 1 .. $n;
        my $written = syswrite $c->{socket}, $text;

        defined $written && $written == length $text
            or die "requests.pl: a write to port $port failed\n";

        push @asked, [$c, $n];
    }

    for my $asked (@asked) {
        my ($c, $n) = @$asked;
        answer($c) for 1 .. $n;
    }
}

print "$_ $count{$_}\n" for sort keys %count;
