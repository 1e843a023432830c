#!/usr/bin/perl
#
# Changes the rules on one gateway, each time after a pause, and looks when each
# worker of another enforces them; a load on both goes on meanwhile.
#
#   rules.pl <title> <port> <other port> <changes> <pause> <load>
#
# A change is another limit, which is what X-RateLimit-Limit shows. Prints
# milliseconds from the beginning of a PUT to the first answer of the slower
# worker that has this limit, or a later one's; and of the load's requests how
# many there were, and how many were not answered with 200.

use strict;
use warnings;

use IO::Socket::INET;
use Socket qw( IPPROTO_TCP TCP_NODELAY );
use Time::HiRes qw( sleep time );

@ARGV == 6 or die "usage: rules.pl <title> <port> <port> <changes> <pause> "
                  . "<load>\n";

my ($title, $port, $other, $changes, $pause, $load) = @ARGV;
my $FIRST = 100_000;    # the limit of version 0

my (@beside, $own);
$own = $$;

END {
    local $?;
    kill TERM => @beside if $own == $$;
}

$| = 1;
$SIG{PIPE} = 'IGNORE';

sub connection {
    my $port = shift;

    for (1 .. 100) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $port);
        if ($socket) {
            setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
            return $socket;
        }

        sleep 0.1;
    }

    die "rules.pl: no connection to port $port: $!\n";
}

# One request on a connection that stays: (status, {header}, body).
sub ask {
    my ($socket, $line, $headers, $body) = @_;

    $body //= '';
    $headers //= '';
    syswrite $socket, "$line HTTP/1.1\r\nHost: localhost\r\n$headers"
                      . (length $body ? 'Content-Length: ' . length($body)
                                        . "\r\n" : '')
                      . "\r\n$body";

    my $in = '';

    until ($in =~ /\r\n\r\n/) {
        more($socket, \$in) or return 0;
    }

    my ($head, $rest) = split /\r\n\r\n/, $in, 2;
    my ($status) = $head =~ m{^HTTP/1\.1 (\d+)};
    my %header = map { lc $1 => $2 if /^([^:]+): (.*)$/ }
                 (split /\r\n/, $head)[1 .. ($head =~ tr/\n//)];
    my $length = $header{'content-length'} // 0;

    while (length $rest < $length) {
        more($socket, \$rest) or return 0;
    }

    return ($status, \%header, $rest);
}

# False when the connection has ended; a signal ends no request.
sub more {
    my ($socket, $in) = @_;

    for (;;) {
        my $n = sysread $socket, $$in, 65536, length $$in;
        return $n if defined $n || !$!{EINTR};
    }
}

# The load: so many requests a second, to both; prints how many, how many wrong.
sub load {
    my $out = shift;

    my @sockets = map { connection($_) } ($port, $other) x 4;
    my ($n, $wrong, $begin, $done) = (0, 0, time, 0);

    local $SIG{TERM} = sub { $done = 1 };

    until ($done) {
        my $ahead = $begin + $n / (2 * $load) - time;

        sleep $ahead if $ahead > 0;

        my $i = $n++ % @sockets;
        my ($status) = ask($sockets[$i], 'GET /?k=load' . $n % 97);

        next if $status == 200;

        $wrong++;
        $sockets[$i] = connection($i % 2 ? $other : $port);
    }

    print $out "$n $wrong\n";
}

# The writer: one change after the other; prints when each began.
sub writer {
    my $out = shift;

    $out->autoflush;

    my $socket = connection($port);
    my $next = time;

    for my $i (1 .. $changes) {
        my $ahead = $next - time;
        sleep $ahead if $ahead > 0;
        $next = time + $pause;

        my $begin = time;
        my ($status, $header, $body) = change($socket, $i);

        die "rules.pl: change $i was answered with $status: $body\n"
            if $status !~ /^20/;

        printf $out "%d %.6f %.6f\n", $i, $begin, time;
    }
}

sub change {
    my ($socket, $i) = @_;

    my $limit = $FIRST + $i;
    my $body = '{"rules":[{"id":"bench","key":"$arg_k",'
               . '"algorithm":"fixed_window","sync":"lease",'
               . "\"params\":{\"limit\":$limit,\"window\":\"calendar:day\"}}]}";

    return ask($socket, 'PUT /rl/document',
               "Authorization: Bearer a-token-of-the-bench\r\n"
               . "Content-Type: application/json\r\nIf-Match: *\r\n",
               $body);
}

sub beside {
    my $what = shift;

    my $pid = open my $in, '-|';
    defined $pid or die "fork: $!";

    if ($pid) {
        push @beside, $pid;
        return ($pid, $in);
    }

    $what->(\*STDOUT);
    exit 0;
}

# A connection to each of the other gateway's workers.
my %workers;

for (1 .. 200) {
    my $socket = connection($other);
    my ($status, $header) = ask($socket, 'GET /?k=watch');
    $workers{$header->{'x-pid'}} //= $socket if $status;
    last if keys %workers == 2;
}

keys %workers == 2 or die "rules.pl: two workers were expected\n";

my ($load_pid, $load_out) = beside(\&load);
my ($writer_pid, $writer_out) = beside(\&writer);

# when each worker had each change

my (%seen, %at);
my $end = time + 60 + $changes * ($pause + 0.1);
$seen{$_} = 0 for keys %workers;

while (grep { $_ < $changes } values %seen) {
    die "rules.pl: the other gateway stays at "
        . join(', ', values %seen) . "\n" if time > $end;

    for my $pid (keys %workers) {
        my ($status, $header) = ask($workers{$pid}, 'GET /?k=watch');
        my $now = time;
        my $limit = $header->{'x-ratelimit-limit'} // $FIRST;

        # what is not there yet has no limit

        while ($seen{$pid} < $limit - $FIRST) {
            $at{++$seen{$pid}}{$pid} = $now;
        }
    }

    sleep 0.001;
}

my %began;
while (<$writer_out>) {
    my ($i, $begin) = split;
    $began{$i} = $begin;
}

close $writer_out or die "rules.pl: the writer failed\n";
kill TERM => $load_pid;

my ($n, $wrong) = split ' ', <$load_out> // '0 0';
my @ms = sort { $a <=> $b }
         map { 1000 * ((sort { $b <=> $a } values %{ $at{$_} })[0]
                       - $began{$_}) }
         1 .. $changes;

printf "%-24s%9d%9.0f%9.0f%9.0f%10d%8d\n", $title, scalar @ms,
       $ms[@ms / 2], $ms[@ms * 0.99], $ms[-1], $n, $wrong;
