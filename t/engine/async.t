# sync=async: what was spent is debited though no further request comes, once,
# and not from a later window; again only if it did not run. What comes back
# comes back in Redis, too.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::FakeRedis;
use t::Gateway qw( header passed wait_for );

use Time::HiRes qw( sleep );

my $WINDOW = 4;
my $port = redis_start();

my $conf = <<"CONF";
    ratelimit_redis r { server 127.0.0.1:$port; timeout 5s; }
    ratelimit_zone \$arg_k zone=z:1m redis=r;
    ratelimit_rule year zone=z algorithm=fixed_window limit=10 window=366d
                   match=/year sync=async cost=\$arg_cost cost_header=X-Cost;
    ratelimit_rule short zone=z algorithm=fixed_window limit=10
                   window=${WINDOW}s match=/short sync=async;
    ratelimit_rule bucket zone=z rate=10r/d match=/bucket sync=async
                   cost=\$arg_cost cost_header=X-Cost;
    ratelimit_rule sliding zone=z algorithm=sliding_window limit=10
                   window=183d match=/sliding sync=async cost=\$arg_cost
                   cost_header=X-Cost;
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        location / {
            ratelimit zone=z;
            proxy_pass http://127.0.0.1:%%PORT%%/up;
        }
        location /up { add_header X-Cost \$arg_more; return 200; }
    }
CONF
my $gateway = t::Gateway->new(http => $conf)->start;

my $script = <<'LUA';
local sum = 0
for _, v in ipairs(redis.call('HVALS', KEYS[1])) do
    local _, count = struct.unpack('>I7I4', v)
    sum = sum + count
end
return sum
LUA

# What all counters in Redis count.
sub debited {
    my $sum = 0;
    $sum += redis_cli($port, 'EVAL', $script, 1, $_)
        for grep { /:\{\d+\}$/ } split /\n/, redis_cli($port, '--scan');
    return $sum;
}

sub becomes {
    my ($tokens, $name) = @_;
    wait_for(sub {
        return 1 if debited() == $tokens;
        advance(0.05);
        return 0;
    });
    is(debited(), $tokens, $name);
}

# Calls for a counter that Redis has had.
sub calls {
    my ($stats) = redis_cli($port, 'INFO', 'commandstats')
                  =~ /^cmdstat_hget:calls=(\d+)/m;
    return $stats // 0;
}

# On, and timers have fired: if they have not, the test only sees less.
sub later { advance(shift); sleep 0.1; return }

t::Clock::align($WINDOW, $WINDOW - 3.9);
t::Clock::stop();

# a share of what is left is spent shortly before a sweep, which so finds
# nothing to debit
$gateway->get('/year?k=a&cost=1');
becomes(1, 'the first one at once');
later(0.05);
$gateway->get('/year?k=a&cost=1') for 1 .. 3;
becomes(4, 'a share of what is left');
later(0.1);
$gateway->get('/year?k=a&cost=1');
becomes(5, 'one behind a sweep');

# nobody sweeps when the response is there
later(0.3);
$gateway->get('/year?k=a&cost=0&more=2');
becomes(7, 'what a response costs');

# a window ends before the sweep
redis_cli($port, 'FLUSHALL');
t::Clock::align($WINDOW, $WINDOW - 1);
$gateway->get('/short?k=a');
becomes(1, 'one of a window');
t::Clock::align($WINDOW, $WINDOW - 0.05);
sleep 0.3;
$gateway->get('/short?k=a') for 1 .. 2;

# a call that is under way would come to Redis in the next window
sleep 0.3;
later(0.1);
is(passed(map { $gateway->get('/short?k=a') } 1 .. 12), 10,
   'the next window has all');

# tokens that come back while their debit is under way; each answer of Redis
# says what is left
my @RULES = qw( bucket year sliding );

sub left {
    my ($path) = @_;
    return header($gateway->get("/$path&cost=0"), 'X-RateLimit-Remaining');
}

for my $rule (@RULES) {
    my $path = "$rule?k=back";
    kill STOP => redis_pid($port);
    $gateway->get("/$path&cost=8&more=3");
    kill CONT => redis_pid($port);
    ok(wait_for(sub { advance(0.05); calls() > 0 && left($path) == 7 }),
       "$rule: what comes back during a debit");
    later(0.3);
    redis_cli($port, 'CONFIG', 'RESETSTAT');
    # another gateway learns from Redis what is left
    my $other = t::Gateway->new(http => $conf)->start;
    $other->get("/$path&cost=1");
    ok(wait_for(sub {
           advance(0.05);
           header($other->get("/$path&cost=0"), 'X-RateLimit-Remaining') == 6;
       }), "$rule: has come back in Redis");
    $other->stop;
}

# all tokens come back: the gateway's own counter has heard of some alone
for my $rule (@RULES) {
    my @requests;
    # a response tells that it costs nothing, and Redis has heard of the cost
    for my $cost (1, 9) {
        my $request = t::Gateway::connect_to($gateway);
        redis_cli($port, 'CONFIG', 'RESETSTAT');
        print $request "POST /$rule?k=all&cost=$cost&more=0 HTTP/1.1\r\n"
                       . "Host: t\r\nConnection: close\r\n"
                       . "Content-Length: 1\r\n\r\n";
        ok(wait_for(sub { later(0.2); calls() > 0 }), "$rule: $cost spent");
        push @requests, $request;
    }
    redis_cli($port, 'CONFIG', 'RESETSTAT');
    print $_ 'x' for @requests;
    ok(wait_for(sub { later(0.2); calls() > 0 }), "$rule: both come back");
    ok(wait_for(sub {
           advance(1.1);
           $gateway->get("/$rule?k=all&cost=10")->{status} == 200;
       }), "$rule: what has come back can be spent");
    later(0.2) for 1 .. 2;
}

# a debit that Redis has not run is told again; one that may have run is not
my @GOOD = ("*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n") x 9;

for (['that did not run: LOADING', "-LOADING x\r\n", 2],
     ['that did not run: BUSY', "-BUSY x\r\n", 2],
     ['that may have run: OOM', "-OOM x\r\n", 1],
     ['that may have run: closed', undef, 1])
{
    my ($name, $first, $calls) = @$_;
    my @answers = ($first, @GOOD);
    my $fake = t::FakeRedis->new(sub {
        return $_[0] eq 'EVALSHA' ? shift @answers : "+OK\r\n";
    });
    my $alone = t::Gateway->new(http => $conf =~ s/:$port;/:$fake->{port};/r);
    $alone->start->get('/year?k=a&cost=1');
    ok(wait_for(sub { $fake->seen->{commands} == $calls || later(0.2) }),
       "a debit $name");
    later(0.2) for 1 .. 5;
    is($fake->seen->{commands}, $calls, "a debit $name: it is told "
       . ($calls > 1 ? 'again, once' : 'once'));
    $alone->stop;
}

# gateways that have spent a limit together, and more than it: each tells Redis
# once, and nobody calls for no request
my @fleet = ($gateway, map { t::Gateway->new(http => $conf)->start } 1 .. 2);

for my $rule (@RULES) {
    my $requests = 0;
    redis_cli($port, 'CONFIG', 'RESETSTAT');
    for (1 .. 5) {
        $_->get("/$rule?k=spent&cost=3") for @fleet;
        $requests += @fleet;
        later(0.1) for 1 .. 3;
    }
    my $calls = calls();
    cmp_ok($calls, '<=', $requests, "$rule: a call for each request at most");
    is($_->get("/$rule?k=spent&cost=3")->{status}, 429, "$rule: it is spent")
        for @fleet;
    later(0.2) for 1 .. 3;
    $calls = calls();
    later(0.2) for 1 .. 10;
    is(calls() - $calls, 0, "$rule: no call without a request");
}

$_->stop for @fleet[1, 2];
t::Clock::go();
$gateway->stop;
