# sync=strict, also with shards=: what Redis has rejected is rejected here until
# the moment that it has named, also while Redis is away. It is asked once more.
# A reset, another limit and tokens that come back here end it.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header passed wait_for );
use t::Api;

my ($port, $far) = (redis_start(), redis_start());
my %LIMITS = (
    bucket => 'rate=2r/h',
    leaky => 'rate=2r/h algorithm=leaky_bucket burst=1 nodelay',
    fixed => 'limit=2 window=1d algorithm=fixed_window',
    sliding => 'limit=2 window=1d algorithm=sliding_window',
    log => 'limit=2 window=1h algorithm=sliding_log',
    local => 'rate=2r/h fail_mode=local',
    split => 'rate=2r/h shards=2',
    fixed_split => 'limit=2 window=1d algorithm=fixed_window shards=2',
    sliding_split => 'limit=2 window=1d algorithm=sliding_window shards=2',
);
my %OTHERS = (
    cost => 'rate=10r/h cost=$arg_cost',
    variable => 'limit=$arg_n window=1d algorithm=fixed_window',
    tried => 'rate=2r/h dry_run key=$arg_d',
    beside => 'rate=50r/h match=/tried key=$arg_d',
    one => 'rate=2r/h key=$arg_a match=/both',
    two => 'rate=2r/h match=/both',
    told => 'rate=2r/h cost=2 cost_header=X-Cost',
    permits => 'algorithm=concurrency limit=1',
    later => 'rate=1r/30d',
    failed => 'rate=3r/h count_status=401',
    oldest => 'limit=2 window=1m algorithm=sliding_log cost=$arg_cost',
    given => 'rate=1r/h match=/given/**',
);

sub rules {
    my (%limits) = @_;
    return map { "$_ match=/" . ($limits{$_} =~ s/\bmatch=(\S+)// ? substr $1, 1 : $_)
                 . " $limits{$_} sync=strict" } sort keys %limits;
}

# the responses that fail are written here
my $listener = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1')
               // die "listen: $!";
my $logins = $listener->sockport;

my $gateway = t::Gateway->limited(
    redis => { r => $port, far => $far }, timeout => '200ms', api => 1,
    zone => { z => 'redis=r',
              far => 'key=$arg_a redis=far rate=1r/h sync=strict' },
    rules => [rules(%LIMITS, %OTHERS)],
    locations => {
        '/' => 'ratelimit zone=z;',
        '/failed' => "ratelimit zone=z; proxy_pass http://127.0.0.1:$logins;",
        '/given/' => 'ratelimit zone=z rule=given; ratelimit zone=far;',
        '/given/one' => 'ratelimit zone=z rule=given;',
        '/far' => 'ratelimit zone=far;',
        '/permits' => 'ratelimit zone=z; proxy_pass http://127.0.0.1:%%PORT%%/up;',
        '/up' => 'return 200;' });
my $api = t::Api->new($gateway);

# Calls that Redis has had for counters.
sub calls {
    my ($calls, $stats) = (0, redis_cli($port, 'INFO', 'commandstats'));
    $calls += $1 while $stats =~ /^cmdstat_(?:hget|hmget|zcard):calls=(\d+)/mg;
    return $calls;
}

t::Clock::stop();

# another request at the moment of Retry-After passes
for my $rule (sort keys %LIMITS) {
    my @answers = map { $gateway->get("/$rule?k=a") } 1 .. 3;
    is(passed(@answers), 2, "$rule: the limit");
    # it asks once more
    advance(0.2);
    $gateway->get("/$rule?k=a");
    my $calls = calls();
    @answers = map { $gateway->get("/$rule?k=a") } 1 .. 5;
    is(passed(@answers), 0, "$rule: it is rejected");
    is(calls() - $calls, 0, "$rule: without a call");
    is(header($answers[0], 'X-Source'), 'memory', "$rule: by what is known");
    is(header($answers[0], 'X-RateLimit-Remaining'), 0, "$rule: nothing is left");
    is($gateway->get("/$rule?k=other")->{status}, 200, "$rule: others pass");
    my $wait = header($answers[0], 'Retry-After');
    advance($wait - 2);
    is($gateway->get("/$rule?k=a")->{status}, 429, "$rule: shortly before");
    advance(2.01);
    is($gateway->get("/$rule?k=a")->{status}, 200, "$rule: Retry-After is over");
}

# a token that another gateway has taken and gives back at once
for my $rule (sort keys %LIMITS) {
    $gateway->get("/$rule?k=back") for 1 .. 3;
    redis_cli($port, 'FLUSHALL');
    is($gateway->get("/$rule?k=back")->{status}, 429, "$rule: rejected at first");
    advance(0.2);
    is($gateway->get("/$rule?k=back")->{status}, 200, "$rule: and asked once more");
}

# an operator resets it, or gives tokens; a lower cost; another limit
for my $rule (sort keys %LIMITS) {
    $gateway->get("/$rule?k=reset") for 1 .. 3;
    is($api->delete("/counters?rule=$rule&key=reset")->{status}, 200,
       "$rule: a reset");
    is($gateway->get("/$rule?k=reset")->{status}, 200, "$rule: ends it");
    $gateway->get("/$rule?k=gift") for 1 .. 3;
    is($api->patch("/counters?rule=$rule&key=gift", { add => 1 })->{status}, 200,
       "$rule: a gift");
    is($gateway->get("/$rule?k=gift")->{status}, 200, "$rule: ends it, too");
}

# what Redis says in the millisecond of a reset is not remembered
advance(1);
$gateway->get('/cost?k=a&cost=7');
is($gateway->get("/cost?k=a&cost=$$_[0]")->{status}, $$_[1], "a cost of $$_[0]")
    for [4, 429], [5, 429], [3, 200];

# one that is granted behind a rejection makes the wait of that one longer
$gateway->get('/cost?k=b&cost=7');
is(header($gateway->get("/cost?k=b&cost=$$_[0]"), 'Retry-After'), $$_[1],
   "a cost of $$_[0] behind the others")
    for [4, 360], [2, ''], [4, 1080];

$gateway->get('/variable?k=a&n=2') for 1 .. 3;
is($gateway->get("/variable?k=a&n=$$_[0]")->{status}, $$_[1], "a limit of $$_[0]")
    for [2, 429], [3, 200], [3, 429], [2, 429];

# the last entry that a log takes says nothing of the oldest one
$gateway->get('/oldest?k=a');
advance(50);
is($gateway->get('/oldest?k=a')->{status}, 200, 'the last entry of a log');
advance(11);
is($gateway->get('/oldest?k=a')->{status}, 200, 'the oldest one is over');
is($gateway->get('/oldest?k=a')->{status}, 429, 'and no other one');

# what responses charge behind the rejection makes the wait longer
my $failing = $gateway->begin(6, '/failed?k=a');
my @failures = map { scalar $listener->accept } 1 .. 6;

sub fail_some {
    my ($n, $answered) = @_;
    for (splice @failures, 0, $n) {
        sysread $_, my $request, 4096;
        print $_ "HTTP/1.1 401 No\r\nConnection: close\r\n\r\n";
        close $_;
    }
    wait_for(sub { t::Gateway::answered($failing) == $answered });
    $gateway->settled($port);
}

fail_some(3, 3);
is(header($gateway->get('/failed?k=a'), 'Retry-After'), 1200, 'three have failed');
fail_some(3, 6);
is(header($gateway->get('/failed?k=a'), 'Retry-After'), 4800,
   'three more have failed behind it');
t::Gateway::finish($failing);

# a dry run passes, and other counters of the client are asked
is(passed(map { $gateway->get('/tried?d=a&k=a') } 1 .. 4), 4, 'a dry run');
is(header($gateway->get('/tried?d=a&k=a'), 'X-RateLimit-Remaining'), 45,
   'the counter beside it goes on');

# tokens that come back because another counter rejects
$gateway->get('/both?a=x&k=b') for 1 .. 2;
$gateway->get('/both?a=y&k=b') for 1 .. 2;
is($gateway->get('/both?a=y&k=c')->{status}, 200, 'none of them was charged');

# a token that comes back because a counter in another Redis rejects, later than
# this one has rejected another request
$gateway->get('/far?a=g');
kill STOP => redis_pid($far);

my $calls = calls();
my $both = $gateway->begin(1, '/given/both?k=g&a=g');

ok(wait_for(sub { t::Gateway::answered($both); calls() > $calls }), 'a token is taken');
is($gateway->statuses(('/given/one?k=g') x 2), '429 429', 'others are rejected');
kill CONT => redis_pid($far);
is(t::Gateway::tally(t::Gateway::finish($both)), '1 x 429', 'so is who took it');
is($gateway->get('/given/one?k=g')->{status}, 200, 'it has come back');

# permits come back at any time
my $held = t::Gateway::connect_to($gateway);

print $held "POST /permits?k=a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n"
            . "Content-Length: 1\r\n\r\n";
ok(wait_for(sub { $gateway->get('/permits?k=a')->{status} == 429 }),
   'the permit is in use');
advance(0.2);
is($gateway->get('/permits?k=a')->{status}, 429, 'still');
print $held 'x';
like(do { local $/; <$held> }, qr/^HTTP\S+ 200 /, 'it is over');
close $held;
ok(wait_for(sub { $gateway->get('/permits?k=a')->{status} == 200 }),
   'the next one has it');

# another limit that came and went
$gateway->get('/split?k=limits') for 1 .. 3;
advance(0.2);
$gateway->get('/split?k=limits');

my $http = $gateway->{http};

for ('rate=600r/m capacity=2 shards=2', 'rate=2r/h shards=2') {
    t::Clock::go();
    $gateway->configure(http => $http =~ s{rate=2r/h shards=2}{$_}r);
    $gateway->reload;
    wait_for(sub { $gateway->get('/split?k=limits')->{status} == 200 })
        for 1 .. 20 * /m/;
    t::Clock::stop();
    advance(1);
}

is(passed(map { $gateway->get('/split?k=limits') } 1 .. 3), 2,
   'a limit that comes back rejects nothing that it did before');

# a worker that dies leaves what Redis has rejected, and not for longer
$gateway->get('/bucket?k=died') for 1 .. 3;
advance(0.2);

my $died = header($gateway->get('/bucket?k=died'), 'Retry-After');

ok($gateway->kill_workers, 'the worker dies');
is($gateway->get('/bucket?k=died')->{status}, 429, 'another one rejects');
ok(t::Clock::wait_for(sub {
       header($gateway->get('/bucket?k=alive' . rand), 'X-Source') eq 'redis';
   }), 'it has found Redis');
advance($died);
is($gateway->get('/bucket?k=died')->{status}, 200, 'until Retry-After');

# tokens of a cost that the response tells come back at any time; no lease names
# a moment that is too far
for my $path ('/told?k=a', '/later?k=a') {
    $gateway->get($path) for 1 .. 2;
    my $calls = calls();
    is($gateway->get($path)->{status}, 429, "$path is rejected");
    is(calls() - $calls, 1, "$path asks");
}

# Redis is away: clients that are over their limits stay so
$gateway->get("/$_?k=away") for map { ($_) x 3 } sort keys %LIMITS;
advance(0.2);
$gateway->get("/$_?k=away") for sort keys %LIMITS;
redis_stop($port);

wait_for(sub {
    header($gateway->get('/bucket?k=new' . rand), 'X-RateLimit-Status') eq 'degraded';
});

for my $rule (sort keys %LIMITS) {
    is($gateway->get("/$rule?k=away")->{status}, 429, "$rule: without Redis");
    is($gateway->get("/$rule?k=new")->{status}, 200, "$rule: a new client");
}

$gateway->stop('QUIT', qr/exited on signal 9/);
t::Clock::go();
