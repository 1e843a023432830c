#!/usr/bin/perl
#
# How large a fleet has to be: computes the tables of docs/scaling.md from
# bench/figures. The page has the formulas.
#
#   bench/scaling.pl [<figure>=<value>...]
#
# bench/scaling.pl checks=200000 clients=50000 is for a fleet of yours.

use strict;
use warnings;

use File::Basename qw( dirname );
use POSIX qw( ceil );

my $FIGURES = dirname($0) . '/figures';

# Ranks that are summed one by one; those behind them in blocks that grow by a
# hundredth.
my $RANKS_ALONE = 1000;

my (%figure, %source, @calls);


sub slurp {
    my $name = shift;

    open my $file, '<', $name or die "scaling: $name: $!\n";
    local $/;

    return <$file>;
}


sub read_figures {
    for (grep { /^[^#\s]/ } split /\n/, slurp($FIGURES)) {
        /^(\S+)\s+([\d.]+)(?:\s+(\S.*))?$/ or die "scaling: \"$_\"?\n";
        ($figure{$1}, $source{$1}) = ($2, $3);
    }

    for (@_) {
        /^([\w@]+)=(\d+(?:\.\d+)?)$/ && defined $figure{$1} && $2 > 0
            or die "scaling: \"$_\": expected a name of $FIGURES, =,"
                   . " and a number above 0\n";
        $figure{$1} = $2;
    }

    $figure{load_most} <= 1 or die "scaling: load_most is above 1\n";

    @calls = sort { $a->[0] <=> $b->[0] }
             map { /^calls\@(\d+)$/ ? [$1, $figure{$_}] : () } keys %figure;
}


# Calls a second for a counter that a node is asked for so often a second: along
# the curve, on a scale of logarithms. Below it each check is a call, and above
# it they grow no more.
sub calls {
    my $rate = shift;

    return $rate if $rate <= $calls[0][0];
    return $calls[-1][0] * $calls[-1][1] if $rate >= $calls[-1][0];

    my $i = 1;
    $i++ while $calls[$i][0] < $rate;

    my ($x0, $y0, $x1, $y1) = map { log } map { @{ $calls[$_] } } $i - 1, $i;
    my $y = $y0 + ($y1 - $y0) * (log($rate) - $x0) / ($x1 - $x0);

    return $rate * exp $y;
}


# The traffic by Zipf's law with s = 1: [clients, share of all of each], the
# first one first.
sub traffic {
    my $clients = shift;

    my (@blocks, $sum);
    my $first = 1;

    while ($first <= $clients) {
        my $last = $first <= $RANKS_ALONE ? $first : int($first * 1.01);
        $last = $clients if $last > $clients;

        # 1/first + ... + 1/last
        my $weight = $first == $last ? 1 / $first
                                     : log(($last + 0.5) / ($first - 0.5));

        push @blocks, [$last - $first + 1, $weight];
        $sum += $weight;
        $first = $last + 1;
    }

    return map { [$_->[0], $_->[1] / $_->[0] / $sum] } @blocks;
}


# Calls a second with leases. places: on how many gateways a client's requests
# arrive.
sub lease_calls {
    my ($clients, $places) = @_;

    my $calls = 0;

    for (traffic($clients)) {
        my ($n, $share) = @$_;
        $calls += $n * $places
                  * calls($figure{checks} * $share / $places);
    }

    return $calls;
}


sub gateways {
    my $added_us = shift;

    return ceil($figure{checks} * ($figure{request_us} + $added_us) / 1e6
                / $figure{load_most} / $figure{gateway_cores});
}


# 1234567 with commas; below 100 with as many places as say something.
sub number {
    my $n = shift;

    return sprintf '%.3f', $n if $n < 0.1;
    return sprintf '%.2f', $n if $n < 10 && $n != int $n;

    $n = sprintf '%.0f', $n;
    1 while $n =~ s/^(\d+)(\d{3})/$1,$2/;

    return $n;
}


# A fleet as a column: sync, calls a second, how often the busiest client is
# asked for, gateways, and what a check costs a worker in us.
sub fleet {
    my ($sync, $calls, $busiest, $gateways, $added_us) = @_;

    my $primaries = ceil($calls * $figure{redis_us} / 1e6
                         / $figure{load_most});
    my $most = 1e6 / $figure{redis_us} * $figure{load_most};
    my $counters = $figure{clients} * $figure{counter_bytes}
                   * $figure{spare} / 1e6;
    my $leases = $figure{checks} / $gateways;

    $leases = $figure{clients} if $leases > $figure{clients};

    return (
        number($calls), number($calls / $figure{checks}), $primaries,
        number($busiest) . ($busiest > $most ? ', too many' : ''),
        number($counters), number($counters / $primaries),
        number($calls * ($figure{call_in} + $figure{call_out}) * 8 / 1e6),
        number($calls * $figure{call_replica} * 8 / 1e6),
        $gateways, number($figure{checks} * $added_us / 1e6),
        $sync eq 'strict' ? '0.064' : number($leases * $figure{lease_bytes}
                                             / 1e6),
        number($gateways * $figure{gateway_cores}),
        number($gateways * $figure{gateway_cores} * $figure{conn_kb} / 1000),
    );
}


# places: on how many gateways a client's requests arrive; 0: on all
sub lease_fleet {
    my ($busiest, $places) = @_;

    my $us = $figure{lease_us};
    my ($gateways, $at, $calls);

    # what the calls cost the workers may need one gateway more
    for (1 .. 3) {
        $gateways = gateways($us);
        $at = $places || $gateways;
        $calls = lease_calls($figure{clients}, $at);
        $us = $figure{lease_us}
              + $figure{strict_us} * $calls / $figure{checks};
    }

    return [fleet('lease', $calls, $at * calls($busiest / $at), $gateways,
                  $us)];
}


sub columns {
    my $busiest = $figure{checks} * (traffic($figure{clients}))[0][1];
    my $us = $figure{strict_us};

    return [fleet('strict', $figure{checks}, $busiest, gateways($us), $us)],
           lease_fleet($busiest, 0), lease_fleet($busiest, 1);
}


my @ROWS = ('calls to Redis a second', 'calls a check', 'primaries',
            'calls a second of the busiest client',
            'memory of counters, MB', 'in each primary, MB',
            'to and from Redis, Mbit/s', 'to replicas, Mbit/s',
            'gateways', 'cores of these that limiting takes',
            'zone in each, MB', 'connections to each primary',
            'their memory in each primary, MB');

sub print_fleet {
    my @columns = columns();

    print "| | strict | lease | lease, a client on one gateway |\n",
          "|---|---|---|---|\n";

    for my $i (0 .. $#ROWS) {
        print '| ', join(' | ', $ROWS[$i], map { $_->[$i] } @columns), " |\n";
    }
}


# Calls a check, for more and less clients, on all gateways and on one.
sub print_calls {
    my $gateways = gateways($figure{lease_us});

    print "\n| clients | busiest client, requests/s | calls a check, on all"
          . " $gateways gateways | on one each |\n|---|---|---|---|\n";

    for my $clients (100, 1000, 10000, 100000, 1000000, 10000000) {
        my $busiest = $figure{checks} * (traffic($clients))[0][1];

        print '| ', join(' | ', number($clients), number($busiest),
            map { sprintf '%.3f', lease_calls($clients, $_) / $figure{checks} }
                $gateways, 1), " |\n";
    }
}


sub print_curve {
    print "\n| requests a second of a counter on a gateway | calls a check |"
          . " calls a second |\n|---|---|---|\n";

    for (@calls) {
        printf "| %s | %.4f | %.1f |\n", number($_->[0]), $_->[1],
               $_->[0] * $_->[1];
    }
}


# Figures by connections and depth, as "call@<conns>x<depth>".
sub print_cost {
    my %is = map { /^call\@(\d+)x(\d+)$/ ? ($_ => [$1, $2]) : () } keys %figure;
    my ($conns, $depths) = map {
        my $i = $_;
        my %all = map { $_->[$i] => 1 } values %is;
        [sort { $a <=> $b } keys %all];
    } 0, 1;

    print "\n| connections | ", join(' | ', map { "$_ in flight on each" }
                                          @$depths), " |\n",
          '|---' x (1 + @$depths), "|\n";

    for my $n (@$conns) {
        print '| ', join(' | ', number($n), map {
            sprintf '%.1f', $figure{"call\@${n}x$_"}
        } @$depths), " |\n";
    }
}


sub print_threads {
    print "\n| `io-threads` | calls a second | main thread, us a call |"
          . " all threads, us a call |\n|---|---|---|---|\n";

    for (sort map { /^threads_all\@(\d+)$/ } keys %figure) {
        printf "| %d | %s | %.1f | %.1f |\n", $_,
               number($figure{"threads_rate\@$_"}),
               $figure{"threads_main\@$_"}, $figure{"threads_all\@$_"};
    }
}


# [what, name in figures, gateways, Redis nodes, share of rate@fleet]
my @RUNS = (
    ['no limit', 'none', 1, 0, 1],
    ['strict', 'strict', 1, 1, 1],
    (map { ['strict', "strict$_", $_, 1, $_ / 4] } 1, 2, 4),
    (map { ['strict', "nodes$_", 2, $_, $_ / 3] } 1, 2, 3),
    (map { ['lease', "lease$_", $_, 1, 1] } 1, 2, 4),
    (map { ['lease, a client on one gateway', "key$_", $_, 1, 1] } 2, 4),
);

sub print_runs {
    print "\n| | gateways | Redis nodes | requests/s | local checks, % |"
          . " gateways, us a request | Redis, us a request |\n",
          '|---' x 7, "|\n";

    for (@RUNS) {
        my ($what, $name, $gateways, $nodes, $share) = @$_;

        printf "| %s | %d | %s | %s | %s | %.1f | %s |\n", $what, $gateways,
               $nodes || '', number($figure{'rate@fleet'} * $share),
               $nodes ? sprintf('%.0f', 100 * (1 - $figure{"asked\@$name"})) : '',
               $figure{"gateway_us\@$name"},
               $nodes ? sprintf('%.1f', $figure{"redis_us\@$name"}) : '';
    }
}


sub print_figures {
    print "\n| figure | value | what it is |\n|---|---|---|\n";

    for (map { /^([a-z_]+)\s/ ? $1 : () } split /\n/, slurp($FIGURES)) {
        print "| `$_` | $figure{$_} | $source{$_} |\n";
    }
}


read_figures(@ARGV);

print_fleet();
print_calls();
print_curve();
print_cost();
print_threads();
print_runs();
print_figures();
