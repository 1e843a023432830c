# "ratelimit_once" where counters are in Redis: a replay makes no call and is
# told what is left, however a counter is kept; each gateway has marks of its
# own, and none of a request that Redis did not count.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( told wait_for );

my $KEY = 'Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324';
my $port = redis_start();

my %limits = (
    lease => 'rate=10r/h',
    strict => 'rate=10r/h sync=strict',
    local => 'rate=10r/h sync=strict fail_mode=local',
    async => 'rate=10r/h sync=async',
    shards => 'rate=10r/h sync=strict shards=2',
    fixed => 'limit=10 window=1d algorithm=fixed_window sync=strict',
    log => 'limit=10 window=1h algorithm=sliding_log',
    leaky => 'rate=10r/h burst=9 nodelay algorithm=leaky_bucket',
    open => 'rate=10r/h sync=strict emergency=5r/h',
);

my @fleet = t::Gateway->limited(
    gateways => 2, redis => $port, timeout => '300ms',
    rules => [(map { "$_ $limits{$_}" } sort keys %limits),
              'header rate=100r/h cost=60 cost_header=X-Cost sync=strict',
              'slots algorithm=concurrency limit=10'],
    http => 'ratelimit_once $http_idempotency_key 1h;',
    locations => {
        (map { ("/$_" => "ratelimit zone=z rule=$_;") } keys %limits),
        '/both' => 'ratelimit zone=z rule=strict; ratelimit zone=z rule=lease;',
        '/slots' => 'ratelimit zone=z rule=slots;',
        '/header' => 'ratelimit zone=z rule=header; '
                     . 'proxy_pass http://127.0.0.1:%%PORT%%/nothing;',
        '/nothing' => 'add_header X-Cost 0; return 200;',
    });

my ($one, $two) = @fleet;

for my $name (sort keys %limits) {
    my $path = "/$name?k=a";
    is($one->told($path, $KEY), '200 PASSED 9', "$name: a request costs");
    is(join(' ', told($one->get($path, $KEY), 'X-Source')),
       '200 PASSED 9 lease', "$name: a replay does not, and asks nobody")
        for 1 .. 3;
    is($one->told($path, $KEY), '200 PASSED 8', "$name: the fourth costs");
}

# a gateway that rejects lets a replay pass
for my $name (qw( lease strict shards async )) {
    my $path = "/$name?k=b";
    is($one->get($path, $KEY)->{status}, 200, "$name: paid");
    wait_for(sub { $one->get($path)->{status} == 429 });
    is($one->get($path, "$KEY-2")->{status}, 429, "$name: spent");
    is($one->get($path, $KEY)->{status}, 200, "$name: a replay passes") for 1 .. 3;
    is($one->get($path, $KEY)->{status}, 429, "$name: three times");
}

# what one rule takes comes back if another rejects, and so does the replay
is($one->told('/both?k=c', $KEY), '200 PASSED 9', 'two rules');
wait_for(sub { $one->get('/lease?k=c')->{status} == 429 });
is($one->get('/both?k=c', "$KEY-2")->{status}, 429, 'one is spent');
is($one->told('/both?k=c', $KEY), '200 PASSED 0', 'a replay passes') for 1 .. 3;
is($one->get('/both?k=c', $KEY)->{status}, 429, 'and pays afterwards');
is($two->told('/strict?k=c'), '200 PASSED 8', 'the other rule has counted once');

# a replay runs, so it takes a permit
is($one->told('/slots?k=d', $KEY), '200 PASSED 9', 'a permit');
is($one->told('/slots?k=d', $KEY), '200 PASSED 9', 'is taken by a replay, too');

# each gateway has its own
is($one->told('/strict?k=e', $KEY), '200 PASSED 9', 'at one gateway');
is($two->told('/strict?k=e', $KEY), '200 PASSED 8', 'at the other it costs');
is($two->told('/strict?k=e', $KEY), '200 PASSED 8', 'and is marked');

# tokens that come back are not lost ones
for (1 .. 3) {
    is($one->told('/header?k=a', "$KEY-$_"), '200 PASSED 100', 'sixty are taken, and come back');
    t::Clock::advance(1);
}

like($one->get('/metrics')->{body}, qr/^ratelimit_state_lost_total\S* 0$/m,
     'and come back: Redis has lost none');

# without Redis
is($one->told('/strict?k=f', $KEY), '200 PASSED 9', 'paid');
redis_stop($port);

is($one->told('/strict?k=f', $KEY), '200 PASSED 9', 'a replay without Redis');
is($one->get('/open?k=g', $KEY)->{status}, 200, 'not counted there') for 1 .. 5;
is($one->get('/open?k=g', $KEY)->{status}, 429, 'so no mark frees it');
is($one->get('/strict?k=h', $KEY)->{headers}{'x-status'}[0], 'DEGRADED',
   'degraded') for 1 .. 2;

$_->stop for @fleet;
