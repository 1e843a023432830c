# Each algorithm, from its parameters to its answers: what it admits, when it
# does so again, what the client is told. The same in shared memory and in Redis.

use IO::Socket::INET;
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally told wait_for );

my $redis = redis_port();

# an upstream that never answers
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 64)
    or die "listen: $!";

my %RULES = (
    token => 'rate=3r/h',
    token_window => 'algorithm=token_bucket limit=3 window=1h',
    token_variable => 'limit=$arg_n window=1h',
    leaky => 'algorithm=leaky_bucket rate=1r/h burst=2 nodelay',
    leaky_none => 'algorithm=leaky_bucket rate=3r/h',
    fixed => 'algorithm=fixed_window limit=3 window=366d',
    fixed_rate => 'algorithm=fixed_window rate=3r/366d',
    fixed_month => 'algorithm=fixed_window limit=3 window=calendar:month',
    fixed_variable => 'algorithm=fixed_window rate=$arg_r',
    sliding => 'algorithm=sliding_window limit=3 window=1h',
    log => 'algorithm=sliding_log limit=3 window=1h',
    log_variable => 'algorithm=sliding_log limit=$arg_n window=1h',
    slots => 'algorithm=concurrency limit=3',
    slots_variable => 'algorithm=concurrency limit=$arg_n',
);

sub conf {
    my %rules = @_;
    my @all = map { my $zone = $_; map { [$zone, $_] } keys %rules }
              qw( local redis );
    my $held = 'proxy_pass http://127.0.0.1:' . $silent->sockport . ';';
    return t::Gateway::limited_http(
        redis => $redis, zone => { local => '', redis => 'redis=r' },
        rules => [map { "$_->[1] zone=$_->[0] $rules{$_->[1]}" } @all],
        locations => { map {
            my ($zone, $rule) = @$_;
            ("/$zone/$rule" => "ratelimit zone=$zone rule=$rule;"
                               . ($rule =~ /slots/ ? $held : ''))
        } @all });
}

my $gateway = t::Gateway->new(http => conf(%RULES))->start;

sub row {
    my ($n, @request) = @_;
    return join ', ', map { told($gateway->get(@request)) } 1 .. $n;
}

# n requests at once, of which so many are rejected; then the upstream's time is
# up for the others.
sub in_flight {
    my ($n, $path, $rejected) = @_;
    my $begun = $gateway->begin($n, $path);
    wait_for(sub { t::Gateway::answered($begun) >= $rejected });
    advance(60);
    return tally(t::Gateway::finish($begun));
}

for my $zone (qw( local redis )) {
    for my $rule (qw( token token_window leaky fixed fixed_rate fixed_month
                      sliding log ))
    {
        is(row(5, "/$zone/$rule?k=a"),
           '200 PASSED 2, 200 PASSED 1, 200 PASSED 0, 429 REJECTED 0, '
           . '429 REJECTED 0', "$zone: $rule: $RULES{$rule}");
        is(row(1, "/$zone/$rule?k=b"), '200 PASSED 2', "$zone: $rule: a key");
        my $answer = $gateway->get("/$zone/$rule?k=a");
        is(header($answer, 'X-RateLimit-Limit'), 3,
           "$zone: $rule: the limit told");
        # the file goes on at the begin of an hour: of the windows' too
        my $wait = header($answer, 'Retry-After');
        cmp_ok($wait, '>', 0, "$zone: $rule: a wait");
        # no wait that Redis names is longer than 49 days
        next if $wait == 4294968;
        advance($wait - 5);
        is(row(1, "/$zone/$rule?k=a"), '429 REJECTED 0',
           "$zone: $rule: before Retry-After");
        advance(5);
        like(row(1, "/$zone/$rule?k=a"), qr/^200 PASSED [012]$/,
             "$zone: $rule: after Retry-After, $wait s");
        t::Clock::align(3600);
    }
    is(row(3, "/$zone/leaky_none?k=a"),
       '200 PASSED 0, 429 REJECTED 0, 429 REJECTED 0',
       "$zone: a leaky_bucket without burst");
    # what a variable says
    is(row(3, "/$zone/$_?k=a&n=2&r=2r/366d"),
       '200 PASSED 1, 200 PASSED 0, 429 REJECTED 0', "$zone: $_: $RULES{$_}")
        for qw( token_variable fixed_variable log_variable );
    is(row(1, "/$zone/log_variable?k=b&n=10001"), '200 BYPASSED ',
       "$zone: a limit above what a log keeps is not applied");
    like($gateway->log,
         qr/ratelimit rule "log_variable" of zone "$zone" has a limit of "10001", expected a limit of at most 10000 requests for sliding_log; it is not applied/,
         "$zone: and the log says so");
    # slots: as many at once, and again when these have ended
    for (1 .. 2) {
        is(in_flight(5, "/$zone/slots?k=a", 2), '2 x 429, 3 x 504',
           "$zone: requests in flight, time $_");
    }
    is(in_flight(3, "/$zone/slots_variable?k=a&n=1", 2), '2 x 429, 1 x 504',
       "$zone: slots of a variable");
}

# another algorithm under the same name: it never reads what is not its own
row(3, "/$_?k=c") for map { ("$_/token", "$_/leaky", "$_/token_window") }
                      qw( local redis );

$gateway->configure(http => conf(
    token => 'algorithm=leaky_bucket rate=1r/h burst=2 nodelay',
    leaky => 'rate=3r/h', token_window => 'limit=5 window=1h'));
$gateway->reload;

for my $zone (qw( local redis )) {
    is(row(1, "/$zone/$_?k=c"), '200 PASSED 2', "$zone: $_ is another now")
        for qw( token leaky );
    is(row(1, "/$zone/token_window?k=c"), '429 REJECTED 0',
       "$zone: another limit leaves it spent");
}

$gateway->stop;
