# scrape.pl <port> <pid of nginx> <rules> <workers> <scrapes>: sends requests for
# all rules to all workers, then scrapes over one connection, and prints what
# that took the workers. Each worker must have every rule in its block.

use strict;
use warnings;

use IO::Socket::INET;
use Time::HiRes qw( sleep time );

my ($port, $master, $rules, $workers, $scrapes) = @ARGV;
my $tick = 1000 / (`getconf CLK_TCK` || 100);

sub open_one {
    for (1 .. 100) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
        return $socket if $socket;
        sleep 0.1;
    }
    die "nobody listens on port $port\n";
}

# One answer, its body.
sub ask {
    my ($socket, $path) = @_;

    print $socket "GET $path HTTP/1.1\r\nHost: bench\r\n\r\n";

    my $head = '';
    while (my $line = <$socket>) {
        last if $line eq "\r\n";
        $head .= $line;
    }

    my ($len) = $head =~ /^Content-Length: (\d+)/mi or die "no length: $head\n";
    my $body = '';
    read $socket, $body, $len or die "no body\n" if $len;
    return $body;
}

# CPU time of all workers in milliseconds
sub cpu {
    my $sum = 0;

    for (split ' ', `cat /proc/$master/task/$master/children`) {
        open my $file, '<', "/proc/$_/stat" or next;
        my @stat = split ' ', <$file> =~ s/^.*\) //r;
        $sum += ($stat[11] + $stat[12]) * $tick;
    }
    return $sum;
}

# enough connections to meet each worker; the path decides the rule
for my $n (1 .. 8 * $workers) {
    my $socket = open_one();

    ask($socket, '/r' . (1 + ($n * 7919 + $_ * 13) % $rules) . "?k=$n-" . $_ % 50)
        for 1 .. $rules / 4;
}

my $socket = open_one();
my $body = ask($socket, '/metrics') for 1 .. 3;
$body = ask($socket, '/metrics');

my $idle = cpu();
sleep 2;
$idle = (cpu() - $idle) / 2;

my ($cpu, $time) = (cpu(), time);
ask($socket, '/metrics') for 1 .. $scrapes;
$time = (time - $time) * 1000;
$cpu = cpu() - $cpu - $idle * $time / 1000;

printf "%s rules, %s workers: %d series, %d KB; of one worker %.1f ms CPU, in %.1f ms\n",
       $rules, $workers, scalar(() = $body =~ /^ratelimit/mg), length($body) / 1024,
       $cpu / $scrapes, $time / $scrapes;
