#!/usr/bin/perl
#
# Measures the variants of nginx.conf in rounds, checks that each request of
# each was answered as it should, prints the table.
#
#   measure.pl <pid of nginx's master> <ports> <rounds> <seconds> <groups>

use strict;
use warnings;

use IO::Socket::INET;

my ($master, $ports, $rounds, $seconds, $only) = @ARGV;
my ($bench) = $0 =~ m{^(.*)/};

my $MANY = 100000;
my $SLOW_US = 900000;    # Redis' timeout is a second

# Groups: what stands in one is compared with its first.
# port: last digits; x: whether it sends headers; redis: ports that it asks;
# path: of the requests, "/" unless given.

my @groups = (
    { title => 'allowing, 1 key', keys => 1, c => 64, variants => [
        { name => 'no limiter', port => '01' },
        { name => 'no limiter again', port => '02' },
        { name => 'limit_req', port => '11' },
        { name => 'local', port => '12' },
        { name => 'local, headers', port => '13', x => 1 },
    ] },
    { title => 'allowing, 100,000 keys', keys => $MANY, c => 64,
      variants => [
        { name => 'no limiter', port => '01' },
        { name => 'limit_req', port => '21' },
        { name => 'local', port => '22' },
        { name => 'local, headers', port => '23', x => 1 },
    ] },
    { title => 'Redis, 100,000 keys, 64 connections', keys => $MANY, c => 64,
      variants => [
        { name => 'no limiter', port => '01' },
        { name => 'Redis strict', port => '41', x => 1, redis => ['90'] },
        { name => 'Redis strict, 3 shards', port => '42', x => 1,
          redis => ['91', '92', '93'] },
        { name => 'Lua EVALSHA', port => '51', x => 1, redis => ['90'] },
    ] },
    { title => 'Redis, 100,000 keys, 4 connections', keys => $MANY, c => 4,
      variants => [
        { name => 'no limiter', port => '01' },
        { name => 'Redis strict', port => '41', x => 1, redis => ['90'] },
        { name => 'Redis strict, 3 shards', port => '42', x => 1,
          redis => ['91', '92', '93'] },
        { name => 'Lua EVALSHA', port => '51', x => 1, redis => ['90'] },
    ] },
    { title => 'rules on one request, 100,000 keys', keys => $MANY, c => 64,
      variants => [
        { name => 'no limiter', port => '01' },
        { name => '1 rule', port => '61', x => 1 },
        { name => '4 rules', port => '62', x => 1 },
        { name => '8 rules', port => '63', x => 1 },
    ] },
    { title => 'rules on one request, Redis', keys => $MANY, c => 64,
      variants => [
        { name => 'no limiter', port => '01' },
        { name => '1 rule, Redis', port => '41', x => 1, redis => ['90'] },
        { name => '4 rules, Redis', port => '64', x => 1, redis => ['90'] },
        { name => '8 rules, Redis', port => '65', x => 1, redis => ['90'] },
    ] },
    { title => 'rules in a zone, of which 2 match', keys => 1, c => 64,
      path => '/v1/r2/7', variants => [
        { name => 'no limiter', port => '01' },
        { name => '2 rules', port => '71' },
        { name => '1,000 rules', port => '72' },
    ] },
    { title => 'a key by route, of templates', keys => 1, c => 64,
      path => '/v1/r2/7', variants => [
        { name => 'no limiter', port => '01' },
        { name => 'none, folded', port => '73' },
        { name => '10 templates', port => '74' },
        { name => '1,000 templates', port => '75' },
    ] },
    { title => 'denying, 1 key', keys => 1, c => 64, variants => [
        { name => 'no limiter', port => '01' },
        { name => 'limit_req', port => '31', deny => 1 },
        { name => 'local', port => '32', deny => 1 },
        { name => 'local, headers', port => '33', deny => 1, x => 1 },
    ] },
    { title => 'denying, 100,000 keys', keys => $MANY, c => 64, variants => [
        { name => 'no limiter', port => '01' },
        { name => 'limit_req', port => '31', deny => 1 },
        { name => 'local', port => '32', deny => 1 },
        { name => 'local, headers', port => '33', deny => 1, x => 1 },
    ] },
);

my $salt = 0;            # of the keys to spend: never used before
my $worker = child($master);
my $wrk = 0;

$SIG{TERM} = sub {
    kill 'TERM', $wrk if $wrk;
    exit 1;
};

sub child {
    my ($parent) = @_;

    for my $file (glob '/proc/[0-9]*/stat') {
        open my $f, '<', $file or next;
        my $stat = <$f> // next;

        return $1 if $stat =~ /^(\d+) \(.*\) \S (\d+) /s && $2 == $parent;
    }

    die "measure.pl: nginx has no worker\n";
}

# Nanoseconds that the worker ran, and that it waited for its core.
sub cpu {
    open my $f, '<', "/proc/$worker/schedstat"
        or die "measure.pl: the worker is gone: $!\n";

    return (split ' ', <$f>)[0, 1];
}

sub get {
    my ($port) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => "$ports$port")
        or die "measure.pl: no connection to port $ports$port: $!\n";

    print $socket "GET / HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
                  . "X-API-Key: probe\r\n\r\n";
    local $/;

    return scalar <$socket>;
}

sub served {
    get('00') =~ /^ \d+ \d+ (\d+) $/m
        or die "measure.pl: no figures from nginx\n";

    return $1;
}

sub evals {
    my ($v) = @_;
    my $sum = 0;

    for my $port (@{ $v->{redis} || [] }) {
        my $info = qx(redis-cli -p $ports$port info commandstats);

        $sum += $1 - $2 if $info =~ /^cmdstat_evalsha:calls=(\d+),.*
                                     failed_calls=(\d+)/mx;
    }

    return $sum;
}

# One request of each variant: the right status and the right headers.
sub probe {
    my ($v) = @_;

    my $head;

    for my $try (1 .. 50) {
        $head = get($v->{port});
        last unless $head =~ /^X-RateLimit-Policy: degraded/mi;
        select undef, undef, undef, 0.1;    # Redis is being connected to
    }

    if ($v->{deny}) {
        $head = get($v->{port});
    }

    my $status = $v->{deny} ? 429 : 200;
    my $names = join ' ', sort map { lc } $head =~ /^(X-RateLimit-\w+):/mgi;
    my $expected = $v->{x}
        ? 'x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset' : '';

    $head =~ m{^HTTP/1\.1 $status } && $names eq $expected
        or die "measure.pl: \"$v->{name}\" on port $v->{port} answered\n$head";
}

# Spends all keys, so that in the minute from now each is denied.
sub spend {
    my ($v, $keys) = @_;

    $salt++;
    my $counts = qx($^X $bench/requests.pl $ports$v->{port} $keys $keys \\
                    $salt 1 100);

    $counts eq "200 $keys\n"
        or die "measure.pl: \"$v->{name}\" answered new keys with $counts\n";
}

sub load {
    my ($port, $c, @keys) = @_;

    $wrk = open my $pipe, '-|', 'wrk', '-t', 1, '-c', $c, '-d', $seconds,
                '-s', "$bench/keys.lua", "http://127.0.0.1:$ports$port/", '--',
                @keys
        or die "measure.pl: wrk does not start: $!\n";

    local $/;
    my $text = <$pipe>;

    close $pipe;
    $wrk = 0;

    return $text;
}

sub run {
    my ($group, $v) = @_;

    my ($keys, $c) = @$group{'keys', 'c'};

    spend($v, $keys) if $v->{deny};

    my $used = $v->{deny} ? $salt : 0;
    my $evals = evals($v);
    my $served = served();
    my ($cpu, $waited) = cpu();

    my $text = load($v->{port}, $c, $keys, $used, $group->{path} // '/');

    $served = served() - $served - 1;
    my ($cpu_end, $waited_end) = cpu();
    $evals = evals($v) - $evals;

    my ($requests, $us, $errors, $broken, $p50, $p99, $max)
        = $text =~ /^result (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)$/m
        or die "measure.pl: wrk failed:\n$text";

    # when wrk stops, a request may be under way on each connection

    my %wrong = (
        'some failed' => $broken,
        'too few' => $requests < 100 * $seconds,
        'not all answered as they should'
            => $errors != ($v->{deny} ? $requests : 0),
        'nginx counted others'
            => $served < $requests || $served > $requests + $c,
    );

    if ($v->{redis}) {
        $wrong{'Redis counted others'}
            = $evals < $requests || $evals > $requests + $c;
        $wrong{'Redis timed out'} = $max > $SLOW_US;
    }

    for my $what (sort keys %wrong) {
        $wrong{$what} and die "measure.pl: \"$v->{name}\", $group->{title}: "
            . "$what (wrk $requests, of them errors $errors, broken $broken; "
            . "nginx $served; Redis $evals; slowest $max us)\n";
    }

    push @{ $v->{rate} }, $requests / $us * 1e6;
    push @{ $v->{p50} }, $p50;
    push @{ $v->{p99} }, $p99;
    push @{ $v->{cpu} }, ($cpu_end - $cpu) / 1000 / $served;
    push @{ $v->{waited} }, ($waited_end - $waited) / 10 / $us;
}

sub median {
    my @sorted = sort { $a <=> $b } @_;
    my $n = @sorted;

    return ($sorted[($n - 1) / 2] + $sorted[$n / 2]) / 2;
}

# "median (min-max)"
sub spread {
    my @sorted = sort { $a <=> $b } @_;

    return sprintf '%6.2f (%.2f to %.2f)', median(@_), @sorted[0, -1];
}

sub report {
    my ($group) = @_;

    my $base = $group->{variants}[0]{cpu};

    printf "\n%-38s %8s %8s %8s   %-22s   %s\n", $group->{title}, 'req/s',
           'p50 us', 'p99 us', 'CPU us/request', 'added to no limiter';

    for my $v (@{ $group->{variants} }) {
        my $cpu = $v->{cpu};
        my @added = map { $cpu->[$_] - $base->[$_] } 0 .. $#$cpu;

        $v->{added} = \@added;

        printf "  %-36s %8d %8d %8d   %-22s   %s\n", $v->{name},
               median(@{ $v->{rate} }), median(@{ $v->{p50} }),
               median(@{ $v->{p99} }), spread(@$cpu),
               $base == $cpu ? '' : spread(@added);
    }
}

# What one variant of a group adds, divided by what another does.
sub ratio {
    my ($group, $name, $peer, $goal) = @_;

    my %added = map { $_->{name} => median(@{ $_->{added} }) }
                    @{ $group->{variants} };

    my ($one, $other) = @added{$name, $peer};

    defined $one && defined $other or return;

    printf "  %-38s %s / %s: %.2f / %.2f = %s (goal: at most %s)\n",
           $group->{title}, $name, $peer, $one, $other,
           $other > 0 ? sprintf('%.3f', $one / $other) : 'undefined', $goal;
}

@groups = grep { $_->{title} =~ /$only/ } @groups;
@groups or die "measure.pl: no group's title matches \"$only\"\n";

for my $group (@groups) {
    probe($_) for @{ $group->{variants} };
}

for my $round (1 .. $rounds) {
    my @order = map { my $g = $_; map { [$g, $_] } @{ $g->{variants} } }
                    @groups;

    # what drifts within a round drifts the other way in the next

    @order = reverse @order if $round % 2 == 0;

    print STDERR "bench: round $round of $rounds\n";
    run(@$_) for @order;
}

report($_) for @groups;

print "\nadded / added, of the medians\n";

for my $group (@groups) {
    ratio($group, 'local, headers', 'limit_req', 1);
    ratio($group, 'Redis strict', 'Lua EVALSHA', 0.125);
    ratio($group, 'Redis strict, 3 shards', 'Lua EVALSHA', 0.125);
    ratio($group, '1,000 rules', '2 rules', 1);
    ratio($group, '1,000 templates', '10 templates', 1);
}

my @waited = map { @{ $_->{waited} } } map { @{ $_->{variants} } } @groups;

printf "\nthe worker waited for its core, %% of the time: %s\n",
       spread(@waited);
