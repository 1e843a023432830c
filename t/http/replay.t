# "ratelimit_once": a replay of a request that was paid costs nothing, a few
# times; nothing else is a replay.

use JSON::PP ();
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally told );

t::Clock::stop();

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $KEY = 'Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324';
my $up = t::Gateway::free_port();

my %limits = (
    bucket => 'rate=10r/h',
    leaky => 'algorithm=leaky_bucket rate=10r/h burst=9 nodelay',
    fixed => 'algorithm=fixed_window limit=10 window=1h',
    sliding => 'algorithm=sliding_window limit=10 window=1h',
    log => 'algorithm=sliding_log limit=10 window=1h',
);

my $gateway = t::Gateway->limited(
    workers => 2,
    zone => {
        z => 'rate=10r/h', one => 'rate=1r/h', two => 'rate=2r/h retry=growth',
        cost => 'rate=100r/h cost=$http_x_cost',
        header => 'rate=100r/h cost=10 cost_header=X-Cost',
        end => 'rate=1000r/h cost=10 cost_end=$upstream_http_x_end',
        login => 'rate=10r/h count_status=401',
        slots => 'algorithm=concurrency limit=1',
        queue => 'algorithm=leaky_bucket rate=1r/s burst=9',
        dry => 'rate=1r/h dry_run',
        bad => 'rate=1r/h', all => 'key=all rate=2r/h',
        map { $_ => $limits{$_} } keys %limits,
    },
    files => { tokens => "ops:$TOKEN\n" },
    http => <<"CONF",
    ratelimit_penalty ban zone=bad after=1r/1m time=1h;
    ratelimit_explain token_file=tokens;
    ratelimit_once \$http_idempotency_key 1h;
    server {
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$http_x_says;
                     add_header X-End \$http_x_says;
                     return 200; }
        location /401 { return 401; }
    }
CONF
    locations => {
        '/' => 'ratelimit zone=z;',
        (map { ("/$_" => "ratelimit zone=$_;") }
         qw( one two cost dry slots queue bad all ), keys %limits),
        '/off' => 'ratelimit zone=z; ratelimit_once off;',
        '/other' => 'ratelimit zone=z; ratelimit_once $arg_once 10s;',
        '/tried' => 'ratelimit zone=one; ratelimit_dry_run on;',
        '/both' => 'ratelimit zone=z; ratelimit zone=slots; '
                   . "proxy_pass http://127.0.0.1:$up/;",
        '/held' => 'ratelimit zone=slots; ratelimit zone=queue;',
        (map { ("/$_" => "ratelimit zone=$_; proxy_pass http://127.0.0.1:$up/;") }
         qw( header end )),
        '/login' => 'ratelimit zone=login; proxy_pass http://127.0.0.1:'
                    . "$up/\$http_x_to;",
        '/inner' => 'rewrite ^ /bucket last;',
    });

sub row {
    my ($request, $expected, $name) = @_;
    is($gateway->told(ref $request ? @$request : $request), $expected, $name);
}

sub replay { return [$_[0], $KEY, @_[1 .. $#_]] }

# a mark has three free replays
for my $name (sort keys %limits) {
    row(replay("/$name?k=a"), '200 PASSED 9', "$name: a request costs");
    row(replay("/$name?k=a"), '200 PASSED 9', "$name: a replay does not") for 1 .. 3;
    row(replay("/$name?k=a"), '200 PASSED 8', "$name: the fourth does");
    row(replay("/$name?k=a"), '200 PASSED 8', "$name: and frees others") for 1 .. 3;
    row("/$name?k=a", '200 PASSED 7', "$name: without a key each costs");
    row("/$name?k=a", '200 PASSED 6', "$name: again");
    row(["/$name?k=a", 'Idempotency-Key: '], '200 PASSED 5', "$name: an empty one");
    row(["/$name?k=a", 'Idempotency-Key: '], '200 PASSED 4', "$name: is none");
}

# what else is another request
row(replay('/?k=b'), '200 PASSED 9', 'a request');
row(['/?k=b', "$KEY-"], '200 PASSED 8', 'another key');
row(replay('/?k=b&x'), '200 PASSED 7', 'another query');
row(replay('/x?k=b'), '200 PASSED 6', 'another path');
row(replay('/%78?k=b'), '200 PASSED 5', 'the same path, written in another way');
row(replay('HEAD /?k=b'), '200 PASSED 4', 'another method');
row(replay('/?k=b', 'Host: other'), '200 PASSED 3', 'another host');
row(replay('/?k=b2'), '200 PASSED 9', 'another client');
row(replay('/off?k=b2'), '200 PASSED 8', 'a location without it');
row(replay('/off?k=b2'), '200 PASSED 7', 'counts each');
row('/other?k=b2&once=1', '200 PASSED 6', 'one with another key');
row('/other?k=b2&once=1', '200 PASSED 6', 'is replayed');
row(replay('/other?k=b2'), '200 PASSED 5', 'by that alone');
row(replay('/inner?k=c'), '200 PASSED 9', 'an internal redirect');
row(replay('/inner?k=c'), '200 PASSED 9', 'to a limit');
row(replay('/bucket?k=c'), '200 PASSED 8', 'is not the request for its target');
row(replay('/?k=b', 'Host: localhost'), '200 PASSED 3', 'all of that was one');

my $long = 'Idempotency-Key: ' . 'x' x 3000;

row(['/?k=long', "$long$_->[0]"], "200 PASSED $_->[1]", 'a long key')
    for ['a', 9], ['a', 9], ['b', 8], ['b', 8];

# no tokens are left
row(replay('/one?k=a'), '200 PASSED 0', 'the last token');
row(replay('/one?k=a'), '200 PASSED 0', 'a replay passes');
row('/one?k=a', '429 REJECTED 0', 'others do not');
row(['/one?k=a', "$KEY-2"], '429 REJECTED 0', 'nor another key');
advance(3600);
row(['/one?k=a', "$KEY-2"], '200 PASSED 0', 'which had no mark');
row(['/one?k=a', "$KEY-2"], '200 PASSED 0', 'and has one now');

# its time
row('/other?k=d&once=1', '200 PASSED 9', 'a mark');
advance(9);
row('/other?k=d&once=1', '200 PASSED 9', 'lives');
advance(2);
row('/other?k=d&once=1', '200 PASSED 8', 'for its time');

# whoever came back too early may replay
row(replay('/two?k=a'), '200 PASSED 1', 'paid');
row('/two?k=a', '200 PASSED 0', 'and another');
row('/two?k=a', '429 REJECTED 0', 'too many');
row(replay('/two?k=a'), '200 PASSED 0', 'a replay need not wait');
is(header($gateway->get('/two?k=a'), 'Retry-After'), 1800,
   'and grows no wait');

# another rule rejects
row(replay('/both?k=a'), '200 PASSED 0', 'two rules');

t::Clock::go();

my $slow = t::Gateway::begin($gateway, 1, '/held?k=a');
my $more = t::Gateway::begin($gateway, 1, '/held?k=a2');

is(tally(t::Gateway::finish($_)), '1 x 200', 'the queue is empty')
    for $slow, $more;

t::Clock::stop();
$slow = t::Gateway::begin($gateway, 2, '/held?k=a');
t::Gateway::wait_for(sub { t::Gateway::answered($slow) });
is($gateway->get('/both?k=a')->{status}, 429, 'a request holds the permit');
is(tally(map { $gateway->get('/both?k=a', $KEY) } 1 .. 10), '10 x 429',
   'a replay runs, so it needs one');
advance(2);
t::Gateway::finish($slow);
row(replay('/both?k=a', 'X-N: 1'), '200 PASSED 0', 'a replay') for 1 .. 3;
row('/?k=a', '200 PASSED 8', 'those that were rejected used up none');
row(replay('/both?k=a'), '200 PASSED 0', 'the fourth');
row('/?k=a', '200 PASSED 6', 'costs');

# prices
row(replay('/cost?k=a', 'X-Cost: 5'), '200 PASSED 95', 'five were paid');
row(replay('/cost?k=a', 'X-Cost: 5'), '200 PASSED 95', 'five are free');
row(replay('/cost?k=a', 'X-Cost: 30'), '200 PASSED 70', 'what is more costs');
row(replay('/cost?k=a', 'X-Cost: 2'), '200 PASSED 70', 'less does not');
row(replay('/cost?k=b', 'X-Cost: 0'), '200 PASSED 100', 'nothing was paid');
row(replay('/cost?k=b', 'X-Cost: 30'), '200 PASSED 70', 'nothing is free');

row(replay('/header?k=a', 'X-Says: 50'), '200 PASSED 50', 'fifty by a header');
row(replay('/header?k=a', 'X-Says: 50'), '200 PASSED 50', 'fifty are free');
row(replay('/header?k=a', 'X-Says: 60'), '200 PASSED 40', 'ten more cost');
row(replay('/header?k=a', 'X-Says: 1'), '200 PASSED 40', 'less does not');
row(replay('/header?k=b', 'X-Says: 0'), '200 PASSED 100', 'all came back');
row(replay('/header?k=b', 'X-Says: 50'), '200 PASSED 50', 'nothing was paid');

# a charge of the end is not in the response's headers
sub left {
    my ($path) = @_;
    my $left = '';
    t::Gateway::wait_for(sub {
        my $told = explained($path);
        my $done = $told->{remaining} eq $left;
        $left = $told->{remaining};
        return $done;
    });
    return $left;
}

sub explained {
    my ($path, @headers) = @_;
    my $answer = $gateway->get($path, "X-RateLimit-Explain: $TOKEN", @headers);
    return JSON::PP::decode_json($answer->{body})->{zones}[0]{rules}[0];
}

for (['a', 100, 900, 'all of it was paid'], ['a', 100, 900, 'and is free'],
     ['a', 150, 850, 'what is more costs'], ['b', 0, 1000, 'nothing was paid'],
     ['b', 100, 900, 'nothing is free'])
{
    my ($k, $says, $left, $name) = @$_;
    $gateway->get("/end?k=$k", $KEY, "X-Says: $says");
    is(left("/end?k=$k"), $left, "cost_end=: $name");
}

row(replay('/login?k=a', 'X-To: 200'), '200 PASSED 10', 'no failure');
row(replay('/login?k=a', 'X-To: 401'), '401 PASSED 9', 'makes no failure free');
row(replay('/login?k=a', 'X-To: 401'), '401 PASSED 9', 'one that was counted does')
    for 1 .. 3;
row(replay('/login?k=a', 'X-To: 401'), '401 PASSED 8', 'three times');

# dry runs, penalties, one counter for all
sub dry { return $gateway->get('/dry?k=a', @_)->{headers}{'x-status'}[0] }

is(join(' ', map { dry($KEY) } 1 .. 4), join(' ', ('PASSED') x 4),
   'a dry run knows replays');
is(join(' ', map { dry("$KEY-2") } 1 .. 3),
   join(' ', ('REJECTED_DRY_RUN') x 3), 'and marks nothing that it would reject');

row(replay('/bad?k=a'), '200 PASSED 0', 'paid');
$gateway->get('/bad?k=a') for 1 .. 2;
row(replay('/bad?k=a'), '429 PENALIZED ', 'a penalty is for replays, too');

row(replay('/all?k=a'), '200 PASSED 1', 'one counter for all');
row(replay('/all?k=a'), '200 PASSED 1', 'a replay');

# explain
my $rule = explained('/?k=e', $KEY);

is("$rule->{cost} $rule->{replay}", '1 0', 'explain: it would cost');
row(replay('/?k=e'), '200 PASSED 9', 'it does: nothing was marked');
$rule = explained('/?k=e', $KEY) for 1 .. 5;
is("$rule->{cost} $rule->{replay} $rule->{passes}", '0 1 1',
   'explain: it is a replay');
row(replay('/?k=e'), '200 PASSED 9', 'none was used up') for 1 .. 3;
$rule = explained('/?k=e', $KEY);
is("$rule->{cost} $rule->{replay}", '1 0', 'explain: they are used up');
is(exists explained('/?k=e')->{replay}, '', 'explain: no key');

# marks survive
row(replay('/?k=f'), '200 PASSED 9', 'paid');
$gateway->reload;
row(replay('/?k=f'), '200 PASSED 9', 'a reload keeps marks');
$gateway->kill_workers;
row(replay('/?k=f'), '200 PASSED 9', 'and so do workers that are killed');

# the metric counts what was paid
my ($cost) = $gateway->get('/metrics')->{body}
             =~ /^ratelimit_cost_total\{zone="leaky"\S* (\d+)$/m;

is($cost, 6, 'the metric has what was paid');

$gateway->stop('QUIT', qr/exited on signal 9/);
