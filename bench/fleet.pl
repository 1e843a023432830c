#!/usr/bin/perl
#
# Measures for fleet.sh, in rounds; prints "<name> <median>" as in bench/figures.
# CPU is the time that threads ran (/proc/<pid>/task/*/schedstat).
#
#   fleet.pl <rounds> <latency> <cpu of the load> <ports> <part> <pid>...
#
#   calls <redis>, on port 30: CPU of a call, by connections and how many calls
#       each has in flight; and of calls that come one by one
#   threads <n> <redis>..., on ports 3<n>: with io-threads <n>
#   memory <redis>, on port 30: of a connection
#   fleet <nginx> x 4 <redis> x 7: CPU and calls of a request, by gateways and
#       Redis nodes

use strict;
use warnings;

use IO::Socket::INET;
use Time::HiRes qw( sleep time );

my ($rounds, $latency, $cpu, $ports, $part, @pids) = @ARGV;
my ($bench) = $0 =~ m{^(.*)/};

my $BUCKETS = 65536;
my $CALLS = 40000;

my @CONNS = (1, 16, 96, 400, 1600);
my @DEPTHS = (1, 4, 64);

# of the calls one by one: they keep half a core busy, as is planned
my $LOAD_MOST = 0.5;

my $SECONDS = 3;
my $RATE = $ENV{RATE} // 12000;   # requests a second, all gateways together
my $KEYS = $RATE / 60;

my %found;

$ENV{AWAKE} = 0;
alarm 900;


sub median {
    my @sorted = sort { $a <=> $b } @_;

    return ($sorted[$#_ / 2] + $sorted[@_ / 2]) / 2;
}


sub found {
    my ($name, $value) = @_;

    push @{ $found{$name} }, $value;
}


# For how long threads ran, in us: all of these processes, or the first of each.
sub cpu_us {
    my ($threads, @of) = @_;

    my $ns = 0;

    for my $pid (@of) {
        for my $file ($threads eq 'all' ? glob "/proc/$pid/task/*/schedstat"
                                        : "/proc/$pid/task/$pid/schedstat") {
            open my $f, '<', $file or die "fleet: process $pid is gone\n";
            $ns += (split ' ', <$f>)[0];
        }
    }

    return $ns / 1000;
}


sub children {
    my $parent = shift;

    return map {
        open my $f, '<', $_ or next;
        (<$f> // '') =~ /^(\d+) \(.*\) \S $parent /s ? $1 : ();
    } glob '/proc/[0-9]*/stat';
}


sub sha {
    my $sha = qx($^X $bench/redis-loss.pl sha $ports$_[0]);

    return $sha =~ /^(\w{40})$/ ? $1 : die "fleet: no script\n";
}


# A check of a token bucket. key, field: of fixed length.
sub check {
    my ($sha, $key, $field) = @_;

    return 'EVALSHA', $sha, 1, "rl:{$key}", 't', $field, 1, 1, 10000, 600000, 1;
}


sub info {
    my ($port, $section, $name) = @_;

    return qx(redis-cli -p $ports$port info $section) =~ /^$name(\d+)/m
        ? $1 : 0;
}


# So many calls from redis-benchmark: how long they took, and the CPU of the
# main thread and of all.
sub benchmark {
    my ($port, $pid, $conns, $depth, $calls, @command) = @_;

    my @before = (time, cpu_us('main', $pid), cpu_us('all', $pid));

    system("redis-benchmark -p $ports$port -c $conns -P $depth -n $calls"
           . " -r $BUCKETS -q @command > /dev/null 2>&1") == 0
        or die "fleet: redis-benchmark failed\n";

    my @after = (time, cpu_us('main', $pid), cpu_us('all', $pid));

    return map { $after[$_] - $before[$_] } 0 .. 2;
}


# The same of each call. The difference of two runs does not count what it takes
# to connect.
sub closed {
    my ($port, $pid, $conns, $depth, @command) = @_;

    my $few = $conns * $depth;
    my $many = $CALLS > $few ? $CALLS : $few;
    my @few = benchmark($port, $pid, $conns, $depth, $few, @command);
    my @all = benchmark($port, $pid, $conns, $depth, $few + $many, @command);

    return map { ($all[$_] - $few[$_]) / $many } 0 .. 2;
}


# In each round all cells, in the next the other way.
sub rounds {
    my ($do, @cells) = @_;

    for my $round (1 .. $rounds) {
        print STDERR "fleet: $part, round $round of $rounds\n";
        $do->(@$_) for $round % 2 ? @cells : reverse @cells;
    }
}


# Requests at random moments, each list of them to its port. [port, requests a
# second, requests of the same length]. Returns how many were answered. On a busy
# machine fewer are sent than should be.
sub paced {
    my @lists = @_;

    my ($answered, @loads) = (0);

    for (@lists) {
        my ($port, $rate, @requests) = @$_;
        my $file = "$latency.$port";

        open my $in, '>', $file or die "fleet: $file: $!\n";
        print $in @requests;
        close $in;

        open my $load, '-|', "exec $latency $cpu $cpu $ports$port $rate"
                             . " $SECONDS " . @requests . " < $file"
            or die "fleet: $latency: $!\n";
        push @loads, $load;
    }

    for my $load (@loads) {
        local $/;
        my $text = <$load>;

        $text =~ /^result (\d+) \d+ 0 0 / or die "fleet: failed: $text\n";
        $answered += $1;
        close $load;
    }

    return $answered;
}


sub calls {
    my $pid = shift;

    my $sha = sha(30);
    my @check = check($sha, '__rand_int__', 'benchfld');

    rounds(sub {
        my ($conns, $depth, $name, @command) = @_;
        found($name, (closed(30, $pid, $conns, $depth, @command))[1]);
    }, (map { my $conns = $_; map { [$conns, $_, "call\@${conns}x$_",
                                     map { "'$_'" } @check] } @DEPTHS } @CONNS),
       [1, 64, 'incr_us', 'incr', 'counter:__rand_int__']);

    my $rate = int $LOAD_MOST * 1e6 / median(@{ $found{'call@96x1'} });
    my @requests = map {
        my @words = check($sha, sprintf('%05d', rand $BUCKETS),
                          pack 'NN', rand 2 ** 32, rand 2 ** 32);
        '*' . @words . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" }
                                             @words;
    } 1 .. $BUCKETS;

    rounds(sub {
        my $before = cpu_us('main', $pid);
        my $answered = paced([30, $rate, @requests]);
        found('redis_us', (cpu_us('main', $pid) - $before) / $answered);
    }, []);
}


sub threads {
    my %pids = @_;

    rounds(sub {
        my $n = shift;
        my @check = map { "'$_'" } check(sha("3$n"), '__rand_int__', 'benchfld');
        my ($s, $main_us, $all_us) = closed("3$n", $pids{$n}, 400, 1, @check);

        found("threads_rate\@$n", 1 / $s);
        found("threads_main\@$n", $main_us);
        found("threads_all\@$n", $all_us);
    }, map { [$_] } sort keys %pids);
}


# Memory of connections that make a call a second. Redis shrinks some of their
# buffers within these seconds. Chance plays no part: once is enough.
sub memory {
    my $n = 1600;
    my $call = join(' ', check(sha(30), 1, 'benchfld')) . "\r\n";
    my $before = info(30, 'memory', 'used_memory:');
    my @sockets = map {
        IO::Socket::INET->new(PeerAddr => "127.0.0.1:${ports}30")
            or die "fleet: no connection: $!\n";
    } 1 .. $n;

    for (1 .. 10) {
        for my $socket (@sockets) {
            print $socket $call;
            <$socket> for 1 .. 5;
        }

        sleep 1;
    }

    found('conn_kb', (info(30, 'memory', 'used_memory:') - $before) / $n
                     / 1000);
}


# Which of n gateways has a key, where balancers keep it on one.
sub home {
    my ($key, $n) = @_;

    return ($key * 2654435761 >> 16) % $n;
}


# So many draws of these keys by Zipf's law, as requests.
sub draws {
    my ($n, @keys) = @_;

    my ($total, @sums) = (0);
    push @sums, $total += 1 / $_ for @keys;

    return map {
        my ($x, $low, $high) = (rand $total, 0, $#keys);

        while ($low < $high) {
            my $middle = int(($low + $high) / 2);
            ($low, $high) = $sums[$middle] > $x ? ($low, $middle)
                                                : ($middle + 1, $high);
        }

        sprintf "GET / HTTP/1.1\r\nHost: bench\r\n"
                . "X-API-Key: sk_live_%024d\r\n\r\n", $keys[$low];
    } 1 .. $n;
}


# The load of n gateways: [port, requests a second, requests] for each.
sub load_of {
    my ($n, $port, $rate_all, $by_key) = @_;

    my ($all, @lists) = (0);
    $all += 1 / $_ for 1 .. $KEYS;

    for my $i (0 .. $n - 1) {
        my @keys = grep { !$by_key || home($_, $n) == $i } 1 .. $KEYS;
        my $weight = 0;
        $weight += 1 / $_ for @keys;

        my $rate = $rate_all * ($by_key ? $weight / $all : 1 / $n);

        push @lists, [$i + 1 . $port, $rate,
                      draws(int $rate * ($SECONDS + 1), @keys)];
    }

    return @lists;
}


sub fleet {
    my @gateways = map { children($_) } @_[0 .. 3];
    my %redis = (90 => $_[4], 91 => $_[5], 92 => $_[6], 93 => $_[7],
                 94 => $_[8], 95 => $_[9], 96 => $_[10]);

    # name, gateways, port's last digit, requests a second, Redis' ports, by key
    my @cells = (
        ['none', 1, 0, $RATE],
        ['strict', 1, 1, $RATE, [90]],
        (map { ["strict$_", $_, 1, $RATE / 4 * $_, [90]] } 1, 2, 4),
        (map { ["lease$_", $_, 2, $RATE, [90]] } 1, 2, 4),
        (map { ["key$_", $_, 2, $RATE, [90], 1] } 2, 4),
        ['nodes1', 2, 3, $RATE / 3, [91]],
        ['nodes2', 2, 4, $RATE / 3 * 2, [92, 93]],
        ['nodes3', 2, 5, $RATE, [94, 95, 96]],
    );

    rounds(sub {
        my ($name, $n, $port, $rate, $redis, $by_key) = @_;

        my @lists = load_of($n, $port, $rate, $by_key);
        my @workers = @gateways[0 .. $n - 1];
        my @nodes = map { $redis{$_} } @{ $redis // [] };
        my $asked = -asked($redis);
        my ($gateway_us, $redis_us) = map { -cpu_us('main', @$_) }
                                          \@workers, \@nodes;
        my $answered = paced(@lists);

        $gateway_us += cpu_us('main', @workers);
        $redis_us += cpu_us('main', @nodes);
        $asked += asked($redis);

        found("gateway_us\@$name", $gateway_us / $answered);
        found("redis_us\@$name", $redis_us / $answered);
        found("asked\@$name", $asked / $answered);
        sleep 0.5;             # until leases are back
    }, @cells);

    my ($none, $strict, $lease) = map { median(@{ $found{"gateway_us\@$_"} }) }
                                      qw( none strict lease1 );
    my $asked = median(@{ $found{'asked@lease1'} });

    found('strict_us', $strict - $none);
    $lease -= $none + ($strict - $none) * $asked;
    found('lease_us', $lease > 0 ? $lease : 0);
    found('rate@fleet', $RATE);
}


sub asked {
    my $sum = 0;
    $sum += info($_, 'commandstats', 'cmdstat_evalsha:calls=') for @{ $_[0] };

    return $sum;
}


my %do = (calls => \&calls, threads => \&threads, memory => \&memory,
          fleet => \&fleet);

$do{$part}->(@pids);
printf "%-19s %9.2f\n", $_, median(@{ $found{$_} }) for sort keys %found;
