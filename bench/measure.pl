#!/usr/bin/perl
#
# Measures the variants of nginx.conf in rounds, checks that each request of
# each was answered as it should, prints the table.
#
#   measure.pl <pid of nginx's master> <its workers> <ports> <rounds> <seconds>
#              <groups> <worker's processor> <load's> <latency>
#
# <groups>: a regex for their titles; of those that it means only the ones for so
# many workers are measured. <latency>: the program.

use strict;
use warnings;

use IO::Socket::INET;
use IPC::Open2;
use Time::HiRes qw(sleep time);

my ($master, $workers, $ports, $rounds, $seconds, $only, $worker_cpu,
    $load_cpu, $latency) = @ARGV;
my ($bench) = $0 =~ m{^(.*)/};

my $MANY = 100000;
my $MILLION = 1000000;
my $SLOW_US = 900000;    # Redis' timeout is a second
my $PER_SECOND = 5000;   # requests, where their latency is measured
my $WARM_S = 0.3;        # a load's, until leases are as large as they get
my $SETTLE_S = 0.6;      # until unspent leases are back in Redis
my $START_S = 30;        # for wrk to begin, on the busiest machine

# Variants. port: last digits; x: whether it sends headers; redis: ports that it
# asks, with each request, or with "few" now and then; deny: the keys are spent
# beforehand; bare: not nginx but Redis, and what it is sent.

sub none { return { name => 'no limiter', port => '01' } }

# 1, 2, 8: zones for one key, for 100,000, for 1,000,000

sub limit_req { return { name => 'limit_req', port => "$_[0]1" } }
sub local_ { return { name => 'local', port => "$_[0]2" } }

sub local_headers {
    return { name => 'local, headers', port => "$_[0]3", x => 1 };
}

my %redis = (
    strict => { port => '41' },
    'strict, 3 shards' => { port => '42', redis => ['91', '92', '93'] },
    leased => { port => '43', few => 1 },
    'leased, 3 shards' => { port => '44', redis => ['91', '92', '93'],
                            few => 1 },
    'leased, denying' => { port => '45', few => 1, deny => 1 },
    async => { port => '46', few => 1 },
    'Lua EVALSHA' => { port => '51' },
    'Lua flush' => { port => '52', few => 1 },
    '1 rule, Redis' => { port => '41' },
    '4 rules, Redis' => { port => '64' },
    '8 rules, Redis' => { port => '65' },
);

sub redis {
    return map { { name => $_, x => 1, redis => ['90'], %{ $redis{$_} } } } @_;
}

sub denying {
    return map { { %$_, deny => 1 } } limit_req(3), local_(3),
                                      local_headers(3);
}

# async and Lua flush promise as little as each other

my @peers = ('Lua EVALSHA', 'async', 'Lua flush');

# Groups: what stands in one is compared with its first.
# keys: how many; c: connections; path: of the requests, "/" unless given;
# latency: measured by the program of that name.

my @groups = (
    { title => 'allowing, 1 key', keys => 1, c => 64, variants => [
        none(), { %{ none() }, name => 'no limiter again', port => '02' },
        limit_req(1), local_(1), local_headers(1),
        redis('leased', 'strict', @peers),
    ] },
    { title => 'allowing, 100,000 keys', keys => $MANY, c => 64, variants => [
        none(), limit_req(2), local_(2), local_headers(2),
        redis('leased', 'leased, 3 shards', 'strict', 'strict, 3 shards',
              @peers),
    ] },
    { title => 'allowing, 1,000,000 keys', keys => $MILLION, c => 64,
      variants => [
        none(), limit_req(8), local_headers(8),
        redis('leased', 'strict', @peers),
    ] },
    (map { {
        title => "allowing, 100,000 keys, $_->[1]", keys => $MANY,
        c => $_->[0], variants => [
            none(), redis('leased', 'strict', 'strict, 3 shards', @peers),
    ] } } [1, '1 connection'], [4, '4 connections'], [16, '16 connections']),
    { title => 'latency, 1 key', keys => 1, latency => 1, variants => [
        none(), { %{ none() }, name => 'no limiter again', port => '02' },
        limit_req(1), local_headers(1), redis('leased', 'strict', @peers),
        { name => 'PING, bare', port => '90',
          bare => "*1\r\n\$4\r\nPING\r\n" },
        { name => 'EVALSHA, bare', port => '90', bare => \&strict_call },
    ] },
    { title => 'rules on one request, 100,000 keys', keys => $MANY, c => 64,
      variants => [
        none(),
        { name => '1 rule', port => '61', x => 1 },
        { name => '4 rules', port => '62', x => 1 },
        { name => '8 rules', port => '63', x => 1 },
    ] },
    { title => 'rules on one request, Redis', keys => $MANY, c => 64,
      variants => [
        none(), redis('1 rule, Redis', '4 rules, Redis', '8 rules, Redis'),
    ] },
    { title => 'rules in a zone, of which 2 match', keys => 1, c => 64,
      path => '/v1/r2/7', variants => [
        none(),
        { name => '2 rules', port => '71' },
        { name => '1,000 rules', port => '72' },
    ] },
    { title => 'a key by route, of templates', keys => 1, c => 64,
      path => '/v1/r2/7', variants => [
        none(),
        { name => 'none, folded', port => '73' },
        { name => '10 templates', port => '74' },
        { name => '1,000 templates', port => '75' },
    ] },
    { title => 'denying, 1 key', keys => 1, c => 64, variants => [
        none(), denying(), redis('leased, denying'),
    ] },
    { title => 'denying, 100,000 keys', keys => $MANY, c => 64, variants => [
        none(), denying(), redis('leased, denying'),
    ] },
    { title => '2 workers, 1 key', workers => 2, keys => 1, c => 64,
      variants => [
        none(), { %{ none() }, name => 'no limiter again', port => '02' },
        limit_req(1), local_headers(1), redis('leased', 'strict', @peers),
    ] },
    { title => '2 workers, 100,000 keys', workers => 2, keys => $MANY, c => 64,
      variants => [
        none(), limit_req(2), local_headers(2),
        redis('leased', 'strict', @peers),
    ] },
    { title => '2 workers, 1,000,000 keys', workers => 2, keys => $MILLION,
      c => 64, variants => [
        none(), limit_req(8), local_headers(8),
        redis('leased', 'strict', @peers),
    ] },
);

# What should come out: of what one variant adds, that divided by what another
# does, at most; of requests a second, at least.

my @cpu_goals = (
    ['local, headers', 'limit_req', 1],
    ['leased', 'Lua EVALSHA', 0.05],
    ['leased', 'Lua flush', 0.05],
    ['strict', 'Lua EVALSHA', 0.1],
    ['strict, 3 shards', 'Lua EVALSHA', 0.1],
    ['async', 'Lua flush', 1],
    ['1,000 rules', '2 rules', 1],
    ['1,000 templates', '10 templates', 1],
);

my @rate_goals = (
    ['leased', 'no limiter', 0.97],
    ['local, headers', 'limit_req', 1],
    ['leased', 'limit_req', 1],
    ['strict', 'Lua EVALSHA', 1],
    ['async', 'Lua flush', 1],
);

my $salt = 0;            # of the keys to spend: never used before
my @pids = children($master);
my $load = 0;
my $done = 0;            # runs
my $probes = 0;          # requests that nginx' own figures took

$| = 1;
$SIG{TERM} = sub {
    kill 'TERM', $load if $load;
    exit 1;
};

sub children {
    my ($parent) = @_;
    my @found;

    for my $file (glob '/proc/[0-9]*/stat') {
        open my $f, '<', $file or next;
        my $stat = <$f> // next;

        push @found, $1 if $stat =~ /^(\d+) \(.*\) \S (\d+) /s
                           && $2 == $parent;
    }

    @found == $workers or die "measure.pl: nginx has not $workers workers\n";

    return @found;
}

# Nanoseconds that the workers ran, and that they waited for a processor.
sub cpu {
    my ($ran, $waited) = (0, 0);

    for my $pid (@pids) {
        open my $f, '<', "/proc/$pid/schedstat"
            or die "measure.pl: a worker is gone: $!\n";

        my @stat = split ' ', <$f>;

        $ran += $stat[0];
        $waited += $stat[1];
    }

    return ($ran, $waited);
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

    return $1 - ++$probes;
}

# Of Redis, but what a script calls.
sub calls {
    my ($v) = @_;
    my $sum = 0;

    for my $port (@{ $v->{redis} || [] }) {
        my $info = qx(redis-cli -p $ports$port info commandstats);

        $sum += $1 - $2 while $info =~ /^cmdstat_(?:evalsha|incrby):
                                        calls=(\d+),.*failed_calls=(\d+)/gmx;
    }

    return $sum;
}

# What the module sends for a strict check, as Redis tells who watches.
sub strict_call {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => "${ports}90")
        or die "measure.pl: no connection to Redis: $!\n";

    print $socket "MONITOR\r\n";
    <$socket>;
    get('41');

    my $line;

    do {
        $line = <$socket>;
    } until $line =~ /"EVALSHA"/i;

    my @words = $line =~ /"((?:[^"\\]|\\.)*)"/g;
    my %escapes = (a => "\a", b => "\b", n => "\n", r => "\r", t => "\t");

    s/\\(?:x([0-9a-f]{2})|(.))/defined $1 ? chr hex $1 : $escapes{$2} || $2/ge
        for @words;

    return '*' . @words . "\r\n"
           . join '', map { '$' . length($_) . "\r\n$_\r\n" } @words;
}

# One request of each variant: the right status and the right headers.
sub probe {
    my ($v) = @_;

    return if $v->{bare};

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

# The same once nothing of the last run is under way.
sub settled {
    my ($served, $before) = (served(), -1);

    while ($served != $before) {
        sleep 0.02;
        ($served, $before) = (served(), $served);
    }

    return $served;
}

# What nginx has done so far.
sub figures {
    my ($ran, $waited) = cpu();

    return { served => served(), at => time, ran => $ran, waited => $waited };
}

# Runs wrk; returns what it says, and nginx' figures of two moments: when it is
# warm, and <seconds> later.
sub wrk {
    my ($group, $v, $salt, $seed) = @_;

    my $served = served();
    my $begun = time;

    $load = open my $pipe, '-|', 'wrk', '-t', 1, '-c', $group->{c},
                 '-d', $START_S + $seconds + 10, '-s', "$bench/keys.lua",
                 "http://127.0.0.1:$ports$v->{port}/", '--', $group->{keys},
                 $salt, $group->{path} // '/', $seed
        or die "measure.pl: wrk does not start: $!\n";

    until (served() > $served + $group->{c}) {
        time < $begun + $START_S or die "measure.pl: wrk does not begin\n";
        sleep 0.01;
    }

    sleep $WARM_S;
    my $first = figures();

    sleep $seconds;
    my $last = figures();

    kill 'INT', $load;

    local $/;
    my $text = <$pipe>;

    close $pipe;
    $load = 0;

    return $text, $first, $last;
}

# The bare ones stand where the worker is otherwise: it is Redis' client.
sub pace {
    my ($v) = @_;

    my @cpus = $v->{bare} ? ($worker_cpu, $load_cpu) : ($load_cpu, $worker_cpu);
    my $key = sprintf 'sk_live_%04d%020d', 0, 1;
    my $request = $v->{bare} // "GET / HTTP/1.1\r\nHost: bench\r\n"
                                . "X-API-Key: $key\r\n\r\n";

    $load = open2(my $out, my $in, $latency, @cpus, "$ports$v->{port}",
                  $PER_SECOND, $seconds);

    print $in ref $request ? $request->() : $request;
    close $in;

    local $/;
    my $text = <$out>;

    waitpid $load, 0;
    $load = 0;
    $? == 0 or die "measure.pl: latency failed\n";

    return $text;
}

# What is wrong with a run, if anything is.
sub wrong {
    my ($group, $v, $is) = @_;

    my $requests = $is->{requests};
    my $c = $group->{c} // 0;

    return 'some failed' if $is->{broken};
    return 'too few' if $requests < 100 * $seconds;
    return 'not all answered as they should'
        if $is->{errors} != ($v->{deny} ? $requests : 0);

    return if $v->{bare};

    # when wrk stops, a request may be under way on each connection; and a
    # node says once a second that it lives

    return 'nginx counted others'
        if $is->{served} < $requests || $is->{served} > $requests + $c;

    return unless $v->{redis};

    my $most = $requests + $c + 10 * ($is->{us} / 1e6 + 1);

    return 'Redis timed out' if $is->{max} > $SLOW_US;

    if ($v->{few}) {
        $most = $requests / 20 if $group->{keys} == 1;

        return $is->{calls} > $most ? 'Redis was asked too often' : undef;
    }

    return 'Redis counted others'
        if $is->{calls} < $requests || $is->{calls} > $most;

    return;
}

sub run {
    my ($group, $v, $round) = @_;

    spend($v, $group->{keys}) if $v->{deny};

    my $served = settled();
    my $calls = calls($v);

    my ($text, $first, $last) = $group->{latency}
        ? pace($v) : wrk($group, $v, $v->{deny} ? $salt : 0, $round);

    my %is = (served => served() - $served, calls => calls($v) - $calls);

    $text =~ /^result\ (\d+)\ (\d+)\ (\d+)\ (\d+)
              \ ([\d.]+)\ ([\d.]+)\ ([\d.]+)\ ([\d.]+)$/mx
        or die "measure.pl: the load failed:\n$text";

    @is{qw(requests us errors broken p50 p99 p999 max)}
        = ($1, $2, $3, $4, $5, $6, $7, $8);

    my $wrong = wrong($group, $v, \%is);

    die "measure.pl: \"$v->{name}\", $group->{title}: $wrong ("
        . join(', ', map { "$_ $is{$_}" } sort keys %is) . ")\n" if $wrong;

    if ($first) {
        my %more = map { $_ => $last->{$_} - $first->{$_} } keys %$first;

        $is{rate} = $more{served} / $more{at};
        $is{cpu} = $more{ran} / 1000 / $more{served};
        $is{waited} = $more{waited} / 1e7 / $more{at} / $workers;
    }

    $is{calls} /= $is{requests};
    push @{ $v->{$_} }, $is{$_} for keys %is;

    sleep $SETTLE_S if $v->{few};
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

# What a variant has more than the first of its group, round by round.
sub added {
    my ($group, $v, $what) = @_;

    my ($is, $base) = ($v->{$what}, $group->{variants}[0]{$what});

    return map { $is->[$_] - $base->[$_] } 0 .. $#$is;
}

# The same as a ratio; of any other variant.
sub ratios {
    my ($v, $other, $what) = @_;

    my ($is, $base) = ($v->{$what}, $other->{$what});

    return map { $is->[$_] / $base->[$_] } 0 .. $#$is;
}

sub report {
    my ($group) = @_;

    my $first = $group->{variants}[0];

    printf "\n%-38s %8s %7s %8s %8s   %-22s   %-22s %7s\n", $group->{title},
           'req/s', 'of none', 'p50 us', 'p99 us', 'CPU us/request',
           'added to no limiter', 'calls';

    for my $v (@{ $group->{variants} }) {
        my $line = sprintf '  %-36s %8d %7.3f %8d %8d   %-22s   %-22s %7s',
            $v->{name}, median(@{ $v->{rate} }),
            median(ratios($v, $first, 'rate')),
            median(@{ $v->{p50} }), median(@{ $v->{p99} }),
            spread(@{ $v->{cpu} }),
            $v == $first ? '' : spread(added($group, $v, 'cpu')),
            $v->{redis} ? sprintf('%.4f', median(@{ $v->{calls} })) : '';

        print $line =~ s/ +$//r, "\n";
    }
}

sub report_latency {
    my ($group) = @_;

    printf "\n%-38s %8s %8s %8s   %-22s   %s\n", $group->{title}, 'p50 us',
           'p99 us', 'p99.9 us', 'p50 added', 'p99 added';

    for my $v (@{ $group->{variants} }) {
        my $line = sprintf '  %-36s %8.1f %8.1f %8.1f   %-22s   %s',
            $v->{name}, (map { median(@{ $v->{$_} }) } qw(p50 p99 p999)),
            $v == $group->{variants}[0] || $v->{bare}
                ? ('', '')
                : map { spread(added($group, $v, $_)) } qw(p50 p99);

        print $line =~ s/ +$//r, "\n";
    }
}

# A line of the goals, where the group has both.
sub goal {
    my ($group, $name, $other, $function) = @_;

    my %by_name = map { $_->{name} => $_ } @{ $group->{variants} };
    my ($v, $base) = @by_name{$name, $other};

    return unless $v && $base;

    printf "  %-38s %s / %s: %s\n", $group->{title}, $name, $other,
           $function->($v, $base);
}

sub goals {
    my ($group) = @_;

    for (@cpu_goals) {
        my ($name, $other, $most) = @$_;

        goal($group, $name, $other, sub {
            my ($one, $two) = map { median(added($group, $_, 'cpu')) } @_;

            return sprintf '%.2f / %.2f = %s (goal: at most %s)', $one, $two,
                           $two > 0 ? sprintf('%.3f', $one / $two)
                                    : 'undefined', $most;
        });
    }
}

sub rate_goals {
    my ($group) = @_;

    for (@rate_goals) {
        my ($name, $other, $least) = @$_;

        goal($group, $name, $other, sub {
            return sprintf '%s (goal: at least %s)',
                           spread(ratios(@_, 'rate')), $least;
        });
    }
}

sub latency_goals {
    my ($group) = @_;

    my %by_name = map { $_->{name} => $_ } @{ $group->{variants} };
    my ($leased, $strict) = map { median(added($group, $by_name{$_}, 'p99')) }
                                'leased', 'strict';

    printf "\n  p99 added by a leased check: %.1f us (goal: below 10)\n"
           . "  p99 added by a strict check: %.1f us;"
           . " of a bare EVALSHA: %.1f us\n", $leased, $strict,
           median(@{ $by_name{'EVALSHA, bare'}{p99} });
}

# For tools/progress.pl; without it, a line for each round.
sub progress {
    my ($round, $group, $v) = @_;

    my $all = $rounds * map { @{ $_->{variants} } } @groups;

    if ($ENV{RATELIMIT_PROGRESS}) {
        print "progress: $done of $all, $group->{title}, $v->{name}\n";

    } elsif ($done % ($all / $rounds) == 0) {
        print STDERR "bench: workers $workers, round $round of $rounds\n";
    }

    $done++;
}

my @known = grep { $_->{title} =~ /$only/ } @groups;
@known or die "measure.pl: no group's title matches \"$only\"\n";

@groups = grep { ($_->{workers} // 1) == $workers } @known;
@groups or exit 0;

for my $group (@groups) {
    probe($_) for @{ $group->{variants} };
}

for my $round (1 .. $rounds) {
    my @order = map { my $g = $_; map { [$g, $_] } @{ $g->{variants} } }
                    @groups;

    # what drifts within a round drifts the other way in the next

    @order = reverse @order if $round % 2 == 0;

    for (@order) {
        progress($round, @$_);
        run(@$_, $round);
    }
}

my @paced = grep { $_->{latency} } @groups;
my @loaded = grep { !$_->{latency} } @groups;

for my $group (@groups) {
    $group->{latency} ? report_latency($group) : report($group);
}

latency_goals($_) for @paced;
exit 0 unless @loaded;

print "\nadded / added, of the medians\n";
goals($_) for @loaded;

print "\nreq/s / req/s\n";
rate_goals($_) for @loaded;

my @waited = map { @{ $_->{waited} } } map { @{ $_->{variants} } } @loaded;

printf "\na worker waited for its core, %% of the time: %s\n", spread(@waited);
