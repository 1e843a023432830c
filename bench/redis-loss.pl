# What redis-loss.sh and redis-size.sh send to Redis, with the module's own
# script.
#
#   load <port> <calls a second> <seconds>   charges counters until Redis is gone
#                           or the time is over; prints how many calls were
#                           answered as counted, and how many with an error
#   count <port>            prints what these counters have counted
#   fill <port> <algorithm> <counters> <buckets> <requests>
#                           so many requests for each counter
#   sha <port> [<file>]     loads the script, or that of a file, prints its name
#   cut <port> <to port>    passes connections on; from SIGUSR1 on it reads from
#                           both sides and passes nothing: a cut network
#
# Each ends by itself, five minutes after it began at the latest.

use strict;
use warnings;

use File::Basename qw( dirname );
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw( sleep time );

my $COUNTERS = 1000;
my $CAPACITY = 2 ** 30;
my $WINDOW_US = 31622400000000;
my $PENDING = 64;

$SIG{PIPE} = 'IGNORE';
alarm 300;


sub connect_to {
    my $port = shift;

    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port)
        // die "port $port: $!\n";
}


sub command {
    return join '', '*' . @_ . "\r\n",
                map { '$' . length($_) . "\r\n$_\r\n" } @_;
}


# A script, with the files that it includes.
sub text {
    my $path = shift;

    open my $file, '<', $path or die "$path: $!\n";
    my $text = do { local $/; <$file> };
    my $folder = dirname($path);

    return $text =~ s{^ *-- include (\S+)}{text("$folder/$1")}gemr;
}


sub script {
    my ($socket, $path) = @_;

    print $socket command('SCRIPT', 'LOAD',
                          text($path // dirname($0) . '/../lua/check.lua'));
    <$socket>;

    my $sha = <$socket> // die "SCRIPT LOAD has no answer\n";

    return substr $sha, 0, 40;
}


# The call for the n-th counter: a fixed window; want -1 only looks.
sub call {
    my ($sha, $n, $want) = @_;

    return command('EVALSHA', $sha, 1, "rl:{$n}", 'f', 'counters', 1, $want,
                   $CAPACITY, $WINDOW_US, 0);
}


sub load {
    my ($port, $rate, $seconds) = @_;

    my $socket = connect_to($port);
    my $sha = script($socket);
    my ($begin, $in) = (time, '');
    my ($sent, $counted, $refused) = (0, 0, 0);

    while (time - $begin < $seconds) {
        my $due = int((time - $begin) * $rate);
        my $most = $counted + $refused + $PENDING;
        my $out = '';

        $out .= call($sha, $sent++ % $COUNTERS, 1)
            while $sent < $due && $sent < $most;

        if ($out eq '' && $sent == $counted + $refused) {
            sleep 0.0005;
            next;
        }

        print $socket $out;
        $socket->flush;
        sysread $socket, $in, 65536, length $in or last;

        $counted += $in =~ s/\*4\r\n:1\r\n(?::-?\d+\r\n){3}//g;
        $refused += $in =~ s/-[^\r]*\r\n//g;
    }

    # what is still to come was counted too
    while ($sent > $counted + $refused
           && sysread $socket, $in, 65536, length $in)
    {
        $counted += $in =~ s/\*4\r\n:1\r\n(?::-?\d+\r\n){3}//g;
        $refused += $in =~ s/-[^\r]*\r\n//g;
    }

    print "$counted $refused\n";
}


sub count {
    my $socket = connect_to(shift);

    my $sha = script($socket);
    my $counted = 0;

    for my $n (0 .. $COUNTERS - 1) {
        print $socket call($sha, $n, -1);

        my $line = <$socket> // die "no answer\n";
        die $line if $line !~ /^\*4/;

        my ($remaining) = (map { <$socket> =~ /(-?\d+)/ } 1 .. 4)[1];
        $counted += $CAPACITY - $remaining;
    }

    print "$counted\n";
}


sub cut {
    my ($port, $to) = @_;

    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1',
        LocalPort => $port, Listen => 5, ReuseAddr => 1)
        // die "port $port: $!\n";
    my $select = IO::Select->new($listen);
    my ($is_cut, %other) = (0);

    local $SIG{USR1} = sub { $is_cut = 1 };

    while (1) {
        for my $socket ($select->can_read) {
            if ($socket == $listen) {
                my $from = $listen->accept or next;
                my $peer = eval { connect_to($to) } or next;

                @other{$from, $peer} = ($peer, $from);
                $select->add($from, $peer);

            } elsif (!sysread $socket, my $data, 65536) {
                $select->remove($socket, $other{$socket});
                close $_ for $other{$socket}, $socket;

            } elsif (!$is_cut) {
                print { $other{$socket} } $data;
                $other{$socket}->flush;
            }
        }
    }
}


# One call for each request: kind, a, b of lua/check.lua.
my %KINDS = (
    token_bucket => ['t', 3600000000, 1],
    fixed_window => ['f', 31622400000000, 0],
    sliding_window => ['s', 3600000000, 0],
    sliding_log => ['l', 3600000000, 0],
    concurrency => ['c', 30000000, 0],
);

sub fill {
    my ($port, $algorithm, $counters, $buckets, $requests) = @_;

    my $socket = connect_to($port);
    my $sha = script($socket);
    my ($kind, $a, $b) = @{ $KINDS{$algorithm} // die "$algorithm?\n" };
    my $name = 0;

    for my $n (0 .. $counters - 1) {
        my @keys = sprintf 'rl:{%d}', $n % $buckets;

        push @keys, sprintf '%s:%016x', $keys[0], $n if $kind =~ /[lc]/;

        print $socket map {
            command('EVALSHA', $sha, scalar @keys, @keys, $kind,
                    pack('Q>', $n), 1, 1, 10000, $a, $b,
                    $kind =~ /[lc]/ ? pack('Q>', ++$name) : ())
        } 1 .. $requests;
        $socket->flush;

        for (1 .. 5 * $requests) {
            my $line = <$socket> // die "no answer\n";
            die $line if $line =~ /^-/;
        }
    }
}


my %do = (fill => \&fill, load => \&load, count => \&count, cut => \&cut,
          sha => sub { print script(connect_to($_[0]), $_[1]), "\n" });
my $action = shift // '';

($do{$action} // die "load, count, fill, sha or cut?\n")->(@ARGV);
