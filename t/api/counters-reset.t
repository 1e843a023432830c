# What a reset of a counter makes every worker of every gateway forget: denials
# that a lease remembers, what sync=async owes, what parts of a split counter
# have said, what stands in for Redis; and nothing else: after it all gateways
# together allow the whole limit once more, to the request.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header passed wait_for );
use t::Api;

my $LIMIT = 20;

my $prefix = key_prefix();

my %RULES = (
    bucket => "rate=${LIMIT}r/d",
    fixed => "algorithm=fixed_window limit=$LIMIT window=calendar:month",
    sliding => "algorithm=sliding_window limit=$LIMIT window=1d",
    log => "algorithm=sliding_log limit=$LIMIT window=1d",
    leaky => 'algorithm=leaky_bucket rate=1r/d burst=' . ($LIMIT - 1)
             . ' nodelay',
);

my %SYNCS = (lease => '', strict => 'sync=strict', async => 'sync=async',
             local => 'fail_mode=local', both => 'sync=strict fail_mode=local',
             shards => 'sync=strict shards=7');

# What can be: of one log no node knows anything.
sub rules {
    my @rules;
    for my $name (sort keys %RULES) {
        for my $sync (sort keys %SYNCS) {
            next if $sync eq 'shards' && $name =~ /^(?:log|leaky)$/;
            next if $sync =~ /^(?:lease|async)$/ && $name eq 'log';
            push @rules, ["${name}_$sync", "$RULES{$name} $SYNCS{$sync}"];
        }
    }
    return @rules;
}

my @rules = rules();
my @fleet;

sub gateways {
    my (%more) = @_;
    my @lines = map { "$_->[0] match=/$_->[0] $_->[1]" } @rules;
    if (!$more{redis}) {
        s/ (?:sync|fail_mode|shards)=\w+//g for @lines;
    }
    return t::Gateway->limited(workers => 2, api => 1, rules => \@lines, %more,
                               zone => { 'z:4m' => 'key=$ratelimit_api_key '
                                         . ($more{redis} ? 'redis=r' : '') });
}

# How many of n each passed, of all workers.
sub spend {
    my ($n, $rule, $key, @gateways) = @_;
    return passed(map { $_->burst($n, "/$rule", "X-API-Key: $key") } @gateways);
}

sub reset_ok {
    my ($gateway, $rule, $key) = @_;
    my $answer = t::Api->new($gateway)->delete("/counters?rule=$rule&key=$key");
    is($answer->{status}, 200, "$rule: reset") or diag($answer->{body});
}

# Until so much is left in Redis, which async tells it behind; or what is owed
# less.
sub left_ok {
    my ($left, $owed, $rule, $key, $name) = @_;
    my $now;
    wait_for(sub {
        $now = t::Api->new($fleet[0])->get("/counters?rule=$rule&key=$key")
               ->{json}{remaining};
        return $now <= $left;
    });
    cmp_ok($now, '<=', $left, "$rule: $name");
    cmp_ok($now, '>=', $left - $owed, "$rule: $name, and no more");
}

# The rest of a limit under async, one gateway's: its last request but these
# tells Redis of what it has spent, and the reply tells it what is left.
sub async_rest {
    my ($rule, $key, $total, $owed) = @_;
    left_ok($LIMIT - $total, $owed, $rule, $key, 'Redis counts what came');
    pause(0.2);
    $total += spend(1, $rule, $key, $fleet[0]);
    left_ok($LIMIT - $total, $owed, $rule, $key, 'and one more');
    pause(0.2);
    return $total + spend(2 * $LIMIT, $rule, $key, $fleet[0]);
}

# How many passed until it was spent.
sub spent_ok {
    my ($rule, $key, @gateways) = @_;
    my $total = 0;
    ok(wait_for(sub {
        my $n = spend(12, $rule, $key, @gateways);
        $total += $n;
        return $n == 0;
    }), "$rule: spent, as each worker knows");
    return $total;
}

# So many seconds later, when each worker has taken a turn.
sub pause {
    advance(shift);
    $_->burst(8, '/metrics') for @fleet;
}

# Each gateway denies by itself: a window is asked for once more, 100 ms later.
sub denied_ok {
    my ($rule, $key, @gateways) = @_;
    my $total = spent_ok(@_);
    return $total if $rule !~ /^fixed/;
    pause(0.3);
    return $total + spent_ok(@_);
}

# A reset of another counter that the gateway has denied: when it is heard, so
# are those before it, and nothing was asked of their counters.
sub heard {
    my ($gateway, $by) = @_;
    my $key = 'heard' . int rand 1e9;
    spend($LIMIT + 1, 'fixed_lease', $key, $gateway);
    denied_ok('fixed_lease', $key, $gateway);
    reset_ok($by, 'fixed_lease', $key);
    ok(wait_for(sub {
        spend(1, 'fixed_lease', $key, $gateway);
    }), 'heard');
}

my $redis = redis_start();
@fleet = gateways(redis => $redis, gateways => 2);

for (@rules) {
    my $rule = $_->[0];
    # async tells Redis of what it has spent each 100 ms, and a gateway that has
    # spent what others had as well owes it: what it tells between the reset and
    # its hearing of it, the fresh counter pays. So one gateway spends here, and
    # what is owed is known: as a rule the one request of the other.
    my $owed = -$LIMIT;
    if ($rule =~ /_async$/) {
        $owed += spend($LIMIT, $rule, 'k', $fleet[1]);
        left_ok(0, 0, $rule, 'k', 'Redis knows');
        ok(wait_for(sub {
            my $n = spend(1, $rule, 'k', $fleet[0]);
            $owed += $n;
            return $n == 0;
        }), "$rule: the other gateway, too");
        pause(0.2);
    } else {
        spend($LIMIT, $rule, 'k', @fleet) for 1, 2;
    }
    $owed += denied_ok($rule, 'k', @fleet);
    reset_ok($fleet[0], $rule, 'k');
    # at once here, and soon there, whoever the worker is
    my $total = spend(1, $rule, 'k', $fleet[0]);
    is($total, 1, "$rule: this gateway has forgotten");
    ok(wait_for(sub {
        my $n = spend(1, $rule, 'k', $fleet[1]);
        $total += $n;
        return $n;
    }), "$rule: so has the other");
    if ($rule =~ /_async$/) {
        $total = async_rest($rule, 'k', $total, $owed);
        cmp_ok($total, '>=', $LIMIT - $owed, "$rule: the whole limit");
        cmp_ok($total, '<=', $LIMIT, "$rule: and no more");
    } else {
        for (1 .. 4) {
            $total += spend($LIMIT, $rule, 'k', $_) for @fleet;
            pause(0.05);
        }
        # what of a rate has come back by now is less than a request
        is($total, $LIMIT, "$rule: the whole limit, no more");
    }
    spent_ok($rule, 'k', @fleet);
}

# a reset under load: what is in hand was debited before, so in all no more
# passes than there was before and with each reset
{
    my $total = spend($LIMIT, 'fixed_lease', 'load', @fleet);
    for my $n (1 .. 5) {
        reset_ok($fleet[$n % 2], 'fixed_lease', 'load');
        $total += spend(100, 'fixed_lease', 'load', @fleet);
    }
    spent_ok('fixed_lease', 'load', @fleet);
    cmp_ok($total, '<=', 6 * $LIMIT, 'five resets: no more than six limits');
}

# what one worker of a node is told, its workers know that begin later
for my $what ('was reloaded', 'had a worker killed') {
    spend($LIMIT, 'fixed_local', 'r', @fleet);
    denied_ok('fixed_local', 'r', @fleet);
    if ($what =~ /reloaded/) {
        $fleet[1]->reload;
    } else {
        $fleet[1]->kill_workers(($fleet[1]->workers)[0]);
    }
    reset_ok($fleet[0], 'fixed_local', 'r');
    ok(wait_for(sub { spend(1, 'fixed_local', 'r', $fleet[1]) }),
       "a gateway that $what hears");
}

# Redis has lost its count of resets, and has another one when it is asked next
spend($LIMIT, 'fixed_lease', 'lost', @fleet);
spent_ok('fixed_lease', 'lost', @fleet);
reset_ok($fleet[0], 'fixed_lease', 'lost');
heard($fleet[1], $fleet[0]);
redis_cli($redis, 'hset', "$prefix:{rules:z}", 'resets', 0);
heard($fleet[1], $fleet[0]);

# so often the same, that a count is what it was
for my $times (1 .. 2) {
    spend($LIMIT, 'fixed_lease', 'lost', @fleet);
    denied_ok('fixed_lease', 'lost', @fleet);
    my @workers = $fleet[1]->workers;
    kill STOP => @workers;
    redis_cli($redis, 'flushall');
    reset_ok($fleet[0], 'fixed_lease', 'lost');
    kill CONT => @workers;
    ok(wait_for(sub { spend(1, 'fixed_lease', 'lost', $fleet[1]) }),
       "Redis is empty, and the same is reset again: time $times");
}

# Redis is gone: who was denied by it is not, on the node that has not asked
my @local = grep { /_(?:local|both)$/ } map { $_->[0] } @rules;

for my $rule (@local) {
    spend($LIMIT, $rule, $_, @fleet) for 'gone', 'kept';
    spent_ok($rule, $_, @fleet) for 'gone', 'kept';
    reset_ok($fleet[0], $rule, 'gone');
}

heard($fleet[1], $fleet[0]);

for my $rule (@local) {
    spent_ok($rule, 'kept', @fleet);
}

redis_stop($redis);

for my $rule (@local) {
    for my $gateway (@fleet) {
        my $answer = $gateway->get("/$rule", 'X-API-Key: gone');
        is($answer->{status} . ' ' . header($answer, 'X-Status'),
           '200 DEGRADED', "$rule: Redis is gone: it passes");
        is($gateway->get("/$rule", 'X-API-Key: kept')->{status}, 429,
           "$rule: Redis is gone: another one does not");
    }
}

$_->stop('QUIT', qr/signal 9/) for @fleet;

# zones without Redis: both workers
my ($alone) = gateways();

for (grep { $_->[0] =~ /_lease$|^log_strict$/ } @rules) {
    my $rule = $_->[0];
    spend($LIMIT, $rule, 'k', $alone);
    spent_ok($rule, 'k', $alone);
    reset_ok($alone, $rule, 'k');
    is(spend(2 * $LIMIT, $rule, 'k', $alone), $LIMIT,
       "$rule, no Redis: the whole limit");
}

$alone->stop;
