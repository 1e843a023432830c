# sync=async over a wide network: a counter tells Redis what it spent at the end
# of the interval, and sooner where little is left. While Redis is away, a
# gateway of regions= has a share of what it knew to be left, and the whole
# again when Redis is back, less all that was spent.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header passed wait_for );

use Time::HiRes qw( sleep );

my $LIMIT = 'algorithm=fixed_window limit=90 window=1h cost=$arg_cost';

my $port = redis_start();
my %parts = (
    redis => "server 127.0.0.1:$port; timeout 500ms; interval 2s",
    rules => ['slow algorithm=fixed_window limit=100 window=1h sync=async'
              . ' match=/slow',
              'short algorithm=fixed_window limit=1000 window=4s sync=async'
              . ' match=/short',
              "whole $LIMIT match=/whole sync=async",
              "share $LIMIT match=/share sync=async regions=3",
              'bucket rate=90r/h cost=$arg_cost match=/bucket sync=async'
              . ' regions=3']);
my $gateway = t::Gateway->limited(%parts);

my $script = <<'LUA';
local sum = 0
for _, v in ipairs(redis.call('HVALS', KEYS[1])) do
    local _, count = struct.unpack('>I7I4', v)
    sum = sum + count
end
return sum
LUA

# What all windows in Redis count.
sub debited {
    my $sum = 0;
    $sum += redis_cli($port, 'EVAL', $script, 1, $_)
        for grep { /:\{\d+\}$/ } split /\n/, redis_cli($port, '--scan');
    return $sum;
}

# The clock stands, so it is there without a further timer.
sub becomes {
    my ($tokens, $name) = @_;
    wait_for(sub { debited() == $tokens });
    is(debited(), $tokens, $name);
}

# On, and timers have fired: if they have not, the test only sees less.
sub later {
    for (1 .. shift() * 10) { advance(0.1); sleep 0.05 }
    return;
}

t::Clock::align(3600, 60);
t::Clock::stop();

$gateway->get('/slow?k=a');
becomes(1, 'the first request at once');
$gateway->get('/slow?k=a') for 1 .. 5;
later(1.5);
is(debited(), 1, 'the others not before the interval is over');
later(0.5);
becomes(6, 'and then all of them');
$gateway->get('/slow?k=a') for 1 .. 80;
ok(wait_for(sub { debited() >= 50 }), 'sooner where little is left');
later(2);
becomes(86, 'the rest with the interval');

# a window has to hear of it before it ends
redis_cli($port, 'FLUSHALL');
t::Clock::align(4);
$gateway->get('/short?k=a');
becomes(1, 'the first of a short window');
$gateway->get('/short?k=a') for 1 .. 5;
later(1);
becomes(6, 'a short window does not wait for the interval');

# what a client has left on this gateway; it costs nothing
sub left {
    my $answer = $gateway->get("/$_[0]&cost=0");
    return header($answer, 'X-RateLimit-Remaining');
}

sub passes {
    my ($path, $n) = @_;
    return scalar passed($gateway->burst($n, "/$path&cost=1"));
}

# Redis is away: a third of what is left, when a call has failed
redis_cli($port, 'FLUSHALL');
t::Clock::align(3600, 60);
passes("$_?k=a", 2) for qw( whole share bucket );
kill STOP => redis_pid($port);
passes("$_?k=a", 1) for qw( whole share bucket );

for my $rule (qw( share bucket )) {
    ok(wait_for(sub { advance(0.1); left("$rule?k=a") == 29 }),
       "$rule: a third of the 87 that are left");
    is(passes("$rule?k=a", 120), 29, "$rule: so many pass");
    is(passes("$rule?k=a", 9), 0, "$rule: and no more");
}

is(passes('whole?k=a', 120), 87, 'without regions= all that is left');

# Redis is there again: what is left is what nobody has spent; a call that was
# under way may have been lost
kill CONT => redis_pid($port);

for my $rule (qw( share bucket )) {
    my $more = 0;
    wait_for(sub { advance(0.1); ($more += passes("$rule?k=a", 20)) >= 58 });
    cmp_ok($more, '>=', 58, "$rule: the rest of the whole limit");
    cmp_ok($more, '<=', 62, "$rule: and not what was spent meanwhile");
}

# again away: the share stands in shared memory
kill STOP => redis_pid($port);
passes('share?k=b', 1);
ok(wait_for(sub { advance(0.1); left('share?k=b') == 29 }),
   'a third of the limit for a client that nobody has seen');
is(passes('share?k=b', 120), 29, 'so many pass');

# old workers wait for calls, by the clock; what they owed is told, so a second
# later nothing says any more that a call has failed
t::Clock::go();
$gateway->reload;
cmp_ok(passes('share?k=b', 90), '<=', 2, 'and no more after a reload');

$gateway->configure(http => t::Gateway::limited_http(%parts,
    rules => [map { s/ regions=3//r } @{ $parts{rules} }]));
$gateway->reload;
is(passes('share?k=c', 120), 90, 'a reload without regions=: the whole limit');

kill CONT => redis_pid($port);
$gateway->stop;
