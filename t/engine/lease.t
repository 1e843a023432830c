# Leases: what a fleet admits is exact, and few requests ask Redis for it.

use t::RateLimit 'no_plan';
use t::Gateway qw( header passed tally wait_for );

use Time::HiRes qw( sleep time );

my $port = redis_start();

# The same counters, by their names; only how they are followed differs.
sub gateway {
    my ($sync, %self) = @_;
    my $window = 'algorithm=fixed_window limit=1000 window=calendar:day';
    return t::Gateway->limited(workers => 2, %self, redis => $port,
        rules => ["bucket rate=1000r/d match=/bucket sync=$sync",
                  "window $window match=/window sync=$sync",
                  'sliding algorithm=sliding_window limit=1000 window=1d'
                  . " match=/sliding sync=$sync",
                  'leaky algorithm=leaky_bucket rate=1000r/d burst=999 nodelay'
                  . " match=/leaky sync=$sync",
                  "cost $window cost=\$arg_c match=/cost sync=$sync",
                  "both $window match=/both/** sync=$sync",
                  'few algorithm=fixed_window limit=10 window=calendar:day'
                  . " match=/both/few sync=$sync"]);
}

my @fleet = map { gateway('lease') } 1 .. 2;
my $strict = gateway('strict');

# calls of the script that Redis has seen
sub calls {
    return redis_cli($port, 'INFO', 'commandstats')
           =~ /cmdstat_evalsha:calls=(\d+)/ ? $1 : 0;
}

# those that $what causes, heartbeats apart: at most three a second
sub costs {
    my $what = shift;
    my ($before, $begin) = (calls(), time);
    my @answers = $what->();
    my $beats = 3 * (1 + int(time - $begin));
    return (calls() - $before - $beats, @answers);
}

# What Redis says is left: what a request that asks it is told, and this one.
sub left {
    my $path = shift;
    return header($strict->get($path), 'X-RateLimit-Remaining') + 1;
}

# so many at once to each gateway of the fleet, some times
sub load {
    my ($n, $times, $path) = @_;
    my @answers;
    for (1 .. $times) {
        push @answers, t::Gateway::send_all(
            [map { [$fleet[$_ % 2], $path] } 1 .. 2 * $n]);
        sleep 0.02;
    }
    return @answers;
}

# no connection is new: each of two workers has one, a second after its start
wait_for(sub {
    return 6 == (() = redis_cli($port, qw( client list )) =~ /name=ratelimit/g);
});
wait_for(sub { $_->get('/bucket?k=0')->{status} == 200 }) for @fleet, $strict;

# a burst on a counter that nobody knows
my ($calls, @answers) = costs(sub {
    return $fleet[0]->burst(900, '/window?k=cold');
});

# of the last ones a busy machine may find some on their way back
is(tally(@answers), '900 x 200', 'a burst passes');
cmp_ok($calls, '<=', 60, 'and costs a handful of calls');

my @rest = sort { $a <=> $b }
           map { header($_, 'X-RateLimit-Remaining') } @answers;
cmp_ok($rest[0], '>=', 0, 'no rest is below nothing');
cmp_ok($rest[-1], '<=', 999, 'nor above the limit');

# what is denied is remembered: the first time for 100 ms, then to the end
sleep 0.2;
$_->burst(60, '/window?k=cold') for @fleet, @fleet;
sleep 0.3;
$_->burst(20, '/window?k=cold') for @fleet, @fleet;

($calls, @answers) = costs(sub { return load(100, 5, '/window?k=cold') });

is(tally(@answers), '1000 x 429', 'then all are rejected');
cmp_ok($calls, '<=', 8, 'which costs no call');
is(header($answers[-1], 'X-Source'), 'memory', 'since this node knows');
like(header($answers[-1], 'Retry-After'), qr/^[1-9]\d*$/,
     'and says when to come again');

# exact over the fleet, whatever the algorithm
for my $path (qw( /bucket /window /sliding /leaky )) {
    my $key = "$path?k=exact";
    my $loads = 12;
    ($calls, @answers) = costs(sub {
        my @answers = load(60, $loads, $key);
        # what nobody spent in time is on its way back
        wait_for(sub {
            return 1 if passed(@answers) >= 1000;
            push @answers, load(60, 1, $key);
            $loads++;
            return 0;
        });
        return @answers;
    });
    # a bucket's next token comes after 86 seconds
    is(passed(@answers), 1000, "$path: exactly the limit between two gateways");
    # for each burst four workers ask, once more where that was too little, and
    # ahead; and what was not spent goes back
    cmp_ok($calls, '<=', $loads * 4 * 4, "$path: with few calls");
}

# what is not spent goes back, though nobody asks for that counter any more
for my $path (qw( /bucket /window /sliding /leaky )) {
    my $key = "$path?k=back";
    @answers = load(20, 10, $key);
    is(passed(@answers), 400, "$path: 400 pass");
    my ($looks, $left) = (0, 0);
    wait_for(sub {
        $left = left($key) + ($looks);
        $looks++;
        return $left == 600;
    }, 5);
    is($left, 600, "$path: and what was not spent is in Redis again");
}

# a request that is too many for one rule costs the other nothing
@answers = load(20, 5, '/both/few?k=a');
is(passed(@answers), 10, 'a second rule admits fewer');

my ($looks, $left) = (0, 0);

wait_for(sub {
    $left = left('/both/more?k=a') + $looks++;
    return $left == 990;
}, 5);

is($left, 990, 'which costs the first one nothing');
is($_->get('/both/few?k=a')->{status}, 429, 'and is so on every node')
    for @fleet, $strict;

# costs
@answers = map { $fleet[$_ % 2]->get('/cost?k=c&c=' . (1 + $_ % 7)) } 1 .. 400;
my $sum = 0;
$sum += 1 + $_ % 7 for grep { $answers[$_ - 1]{status} == 200 } 1 .. 400;
cmp_ok($sum, '<=', 1000, 'costs: no more than the limit');
cmp_ok($sum, '>=', 994, 'costs: nor less than fits');

# the rest never rises within a fixed window, on each gateway
@answers = load(20, 20, '/window?k=told');

for my $i (0, 1) {
    my ($last, $rises) = (1000, 0);
    for my $n (grep { $_ % 2 == $i } 0 .. $#answers) {
        # those of one burst come in any order: compare bursts
        my $burst = int $n / 40;
        my $rest = header($answers[$n], 'X-RateLimit-Remaining');
        $rises++ if $burst > 0 && $rest > $last;
        $last = $rest if $n % 40 >= 38 && $rest < $last;
    }
    is($rises, 0, 'the rest does not rise from one burst to the next');
}

# nor is a client told more than there can be, whatever order answers came in
my $many = 0;

for my $key (1 .. 10) {
    for my $spent (map { 40 * $_ } 0 .. 3) {
        $many += grep {
            my $rest = header($_, 'X-RateLimit-Remaining');
            $_->{status} != 200 || $rest >= 1000 - $spent;
        } $fleet[0]->burst(40, "/bucket?k=rest$key");
    }
}

is($many, 0, 'what is left of a bucket counts all that was spent');

# a worker that quits gives back what it holds
@answers = load(30, 10, '/window?k=quit');
is(passed(@answers), 600, '600 pass');
$_->reload for @fleet;

my $n = 0;
ok(wait_for(sub { left('/window?k=quit') + $n++ == 400 }, 10),
   'a reload gives back what was held');

@answers = load(30, 5, '/bucket?k=stop');
my $stopped = passed(@answers);
$_->stop for @fleet;

$n = 0;
ok(wait_for(sub {
    left('/bucket?k=stop') + $n++ == 1000 - $stopped
}, 5), 'and so does the end');
