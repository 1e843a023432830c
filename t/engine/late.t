# A lease whose grant comes behind its requests' deadline: the requests go
# without an answer, and the tokens are not lost. They fill the lease, are spent
# or go back. (t/unit/test_late.c: what a handler is told.)

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told wait_for );

use Time::HiRes qw( sleep );

my $LIMIT = 1000;
my $port = redis_start();

sub gateway {
    my $sync = shift;
    return t::Gateway->limited(redis => $port, timeout => '1s',
        zone => "sync=$sync algorithm=fixed_window limit=$LIMIT"
                . ' window=calendar:month');
}

my $gateway = gateway('lease');
my $strict = gateway('strict');
my %looks;

sub passed {
    return scalar grep { header($_, 'X-Status') eq 'PASSED' } @_;
}

# Calls that ended so.
sub calls {
    my $result = shift;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_redis_calls_total\{redis="r",result="$result"\} (\d+)/m
           ? $1 : -1;
}

# What Redis says is left, but for what it costs to ask.
sub left {
    my $k = shift;
    $looks{$k}++;
    return header($strict->get("/?k=$k"), 'X-RateLimit-Remaining') + $looks{$k};
}

# Until Redis says that so many were spent.
sub adds_up {
    my ($spent, $k, $what) = @_;
    my $left;
    ok(wait_for(sub {
        $left = left($k);
        return 1 if $left == $LIMIT - $spent;
        sleep 0.1;
        return;
    }, 10), "$what: no token is lost")
        or diag("$left left, ", $LIMIT - $spent, ' expected');
}

# a rate that is worth a lease
for my $k (qw( a b )) {
    my @answers = map { $gateway->burst(10, "/?k=$k") } 1 .. 3;
    is(passed(@answers), 30, "$k: passed");
    adds_up(30, $k, "$k: before");
}

for my $k (qw( a b )) {
    my $timeouts = calls('timeout');
    my @answers = map { sleep 0.06; $gateway->burst(10, "/?k=$k") } 1 .. 5;
    my $used = 30 + passed(@answers);
    t::Clock::stop();
    kill STOP => redis_pid($port);
    # some are paid from what is in hand, which is less than so many
    my $begun = $gateway->begin(60, "/?k=$k");
    wait_for(sub {
        t::Gateway::answered($begun) + $gateway->waiting == 60
    });
    advance(1);
    my @late = t::Gateway::finish($begun);
    my $degraded = grep { told($_) eq '200 DEGRADED -1' } @late;
    cmp_ok($degraded, '>', 0, "$k: silence: $degraded without an answer");
    is($degraded + passed(@late), 60, "$k: silence: all go on");
    advance(0.1);
    wait_for(sub { calls('timeout') > $timeouts });
    is(calls('timeout'), $timeouts + 1, "$k: silence: one call was under way");
    $used += passed(@late);
    kill CONT => redis_pid($port);
    # what has come is there to be spent
    if ($k eq 'b') {
        my @more = $gateway->burst(5, "/?k=$k");
        is(passed(@more), 5, "$k: behind it: passed");
        $used += passed(@more);
    }
    t::Clock::go();
    cmp_ok(left($k), '<=', $LIMIT - $used, "$k: no token for nothing");
    adds_up($used, $k, $k);
    is(calls('timeout'), $timeouts + 1, "$k: counted once");
}

$_->stop for $gateway, $strict;
