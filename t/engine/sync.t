# How a rule's counters in Redis are followed: by leases where nothing else is
# said, strictly where only that is exact, and by sync=async without waiting.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally told wait_for );

my $port = redis_start();

# of each rule a path and a zone; to what leases pay nothing comes back
# meanwhile, however slow the machine is
my %rules = (
    token_bucket => 'limit=100000 window=366d',
    leaky_bucket => 'algorithm=leaky_bucket limit=100000 window=366d '
                    . 'burst=10000 nodelay',
    fixed_window => 'algorithm=fixed_window limit=100000 window=366d',
    sliding_window => 'algorithm=sliding_window limit=100000 window=1h',
    variable => 'limit=$arg_limit window=366d',
    cost => 'limit=100000 window=366d cost=3 cost_header=X-Cost',
    lease => 'limit=100000 window=366d sync=lease fail_mode=closed',
    strict => 'rate=100000r/h sync=strict',
    sliding_log => 'algorithm=sliding_log limit=10000 window=1h',
    concurrency => 'algorithm=concurrency limit=10000',
    count_status => 'rate=100000r/h count_status=404',
    async => 'rate=100000r/h sync=async',
    later => 'rate=100000r/h sync=async cost=0 cost_header=X-Cost',
    spent => 'algorithm=fixed_window limit=20 window=366d sync=async',
    shards => 'algorithm=fixed_window limit=20 window=366d sync=strict shards=4',
);

my $gateway = t::Gateway->limited(
    workers => 2, redis => $port, timeout => '2s',
    zone => { map { $_ => "redis=r $rules{$_}" } keys %rules },
    server => 'ratelimit_headers x ietf; ratelimit_fail_mode local;',
    locations => {
        '= /closed' => 'ratelimit_fail_mode closed; ratelimit zone=spent;',
        map { ("= /$_" => "ratelimit zone=$_;") } keys %rules });

# Requests until $enough says so of those so far; these, or none when the test's
# patience ends.
sub until {
    my ($path, $enough) = @_;
    my @answers;
    return wait_for(sub {
        push @answers, $gateway->burst(50, $path);
        return $enough->(@answers);
    }) ? @answers : ();
}

sub header { return t::Gateway::header(@_) // '' }

# what pays is named
for my $rule ('token_bucket', 'leaky_bucket', 'fixed_window', 'sliding_window',
              'variable', 'cost', 'lease')
{
    my $path = "/$rule?k=$rule&limit=100000";
    my @answers = main::until($path, sub {
        return grep { header($_, 'X-Source') eq 'lease' } @_;
    });
    ok(@answers > 0, "$rule: a lease pays");
    is(tally(@answers), @answers . ' x 200', "$rule: all pass");
    my ($answer) = grep { header($_, 'X-Source') eq 'lease' } @answers;
    is(header($answer, 'X-Status'), 'PASSED', "$rule: is said to have passed");
    like(header($answer, 'X-RateLimit-Remaining'), qr/^\d{4,5}$/,
         "$rule: with what is left");
    like(header($answer, 'X-RateLimit-Reset'), qr/^\d{10}$/,
         "$rule: and when all is back");
    like(header($answer, 'RateLimit'), qr/^"$rule";r=\d{4,5};t=\d+;pk=:\S+:$/,
         "$rule: which the list of all rules has too");
    is(header($answer, 'X-RateLimit-Policy'), '', "$rule: it is not degraded");
}

# what only Redis can answer it is asked for each time
for my $rule ('strict', 'sliding_log', 'concurrency', 'count_status') {
    my %sources;
    for (1 .. 6) {
        $sources{header($_, 'X-Source')}++
            for $gateway->burst(50, "/$rule?k=$rule");
    }
    is_deeply(\%sources, { redis => 300 }, "$rule: Redis is asked each time");
}

# async never asks before it answers
for my $rule ('async', 'later') {
    my %sources;
    $sources{header($_, 'X-Source')}++ for $gateway->burst(100, "/$rule?k=a");
    is_deeply(\%sources, { lease => 100 }, "$rule: the node decides");
}

# without Redis
is(told($gateway->get('/spent?k=a')), '200 PASSED 19', 'async: one is spent');

redis_stop($port);

my @answers = map { $gateway->get('/closed?k=a') } 1 .. 25;

is(tally(@answers), '19 x 200, 6 x 429',
   'async: the node goes on by what it knows, whatever the mode');
is(join(' ', map { header($_, 'X-RateLimit-Remaining') } @answers),
   join(' ', reverse(0 .. 18), (0) x 6), 'async: and says what is left');
is(join(' ', map { header($_, 'X-RateLimit-Policy') } @answers), ' ' x 24,
   'async: nothing is degraded');

ok(wait_for(sub {
    return header($gateway->get('/strict?k=b'), 'X-Source') eq 'fallback';
}), 'the others have noticed');
is(tally(map { $gateway->get('/shards?k=a') } 1 .. 25),
   '25 x 200', 'shards: ratelimit_fail_mode local is open for them');

$gateway->stop;
