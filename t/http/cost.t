# What a request costs: a number, or what a variable says; nothing, too much
# and nonsense. The same in shared memory and in Redis.

use t::RateLimit 'no_plan';
use t::Gateway qw( header told );

my $redis = redis_port();
my $prefix = key_prefix();

my @RULES = ('three zone=Z rate=10r/h cost=3', 'two zone=Z rate=20r/h cost=$arg_c',
             'free zone=Z rate=1r/h cost=0', 'much zone=Z rate=10r/h cost=11',
             'full zone=Z rate=10r/h capacity=4 cost=$arg_c');

# at debug every line is written, else one of a kind in a second
my $gateway = t::Gateway->limited(redis => $redis,
    http => 'error_log %%DIR%%/error.log debug;',
    zone => { local => 'cost=$arg_c rate=10r/h',
              redis => 'cost=$arg_c rate=10r/h redis=r', captured => '' },
    rules => ['cost zone=captured rate=9r/h cost=$captured',
              'rate zone=captured rate=$captured',
              map { my $zone = $_; map { s/Z/$zone/r } @RULES }
              qw( local redis )],
    server => 'add_header X-Retry [$ratelimit_retry_after] always;',
    locations => {
        '~ (?s)^/captured/(?<captured>.+)' => 'ratelimit zone=captured;',
        map {
            my $zone = $_;
            "/$zone/both" => "ratelimit zone=$zone rule=$zone;"
                             . "ratelimit zone=$zone rule=two;",
            map { ("/$zone/$_" => "ratelimit zone=$zone rule=$_;") }
            $zone, qw( three two free much full )
        } qw( local redis ),
    });

my $log = 0;

# What the error log has said of costs since it was asked last.
sub said {
    my $text = substr $gateway->log, $log;
    $log += length $text;
    return join "\n", map { /\[error\] \S+ \*\d+ (.*?), client:/ ? $1 : () }
                      split /\n/, $text;
}

# A row of answers.
sub row {
    my ($path, $costs, $expected, $name) = @_;
    my @told = map { told($gateway->get(
                         $path . (defined $_ ? "&c=$_" : ''))) } @$costs;
    is(join("\n", @told), join("\n", @$expected), $name);
}

for my $zone (qw( local redis )) {
    my $own = "/$zone/$zone";
    row("/$zone/three?k=a", [(undef) x 4],
        [(map { "200 PASSED $_" } 7, 4, 1), '429 REJECTED 1'],
        "$zone: a number");
    row("$own?k=a", [4, 1, 5, 1],
        ['200 PASSED 6', '200 PASSED 5', '200 PASSED 0', '429 REJECTED 0'],
        "$zone: a variable");
    my $answer = $gateway->get("/$zone/three?k=a");
    my $wait = header($answer, 'Retry-After');
    ok($wait > 600 && $wait <= 720, "$zone: until the cost can be paid: $wait");
    row("$own?k=b", [undef, '', undef],
        [map { "200 PASSED $_" } 9, 8, 7], "$zone: empty costs 1");
    # looking
    row("$own?k=c", [0, 10, 0, 0, 1],
        ['200 PASSED 10', ('200 PASSED 0') x 3, '429 REJECTED 0'],
        "$zone: 0 looks");
    row("/$zone/free?k=c", [(undef) x 3], [('200 PASSED 1') x 3],
        "$zone: 0 as a number");
    # what no retry heals
    row("$own?k=d", [3, 11, 1073741824, '9' x 30, 7],
        ['200 PASSED 7', ('429 REJECTED 7') x 3, '200 PASSED 0'],
        "$zone: above the capacity");
    row("/$zone/full?k=d", [5, 4], ['429 REJECTED 4', '200 PASSED 0'],
        "$zone: the capacity is what counts, not the rate");
    for ("$own?k=e&c=11", "/$zone/much?k=e") {
        $answer = $gateway->get($_);
        is(join(' ', told($answer),
                exists $answer->{headers}{'retry-after'} ? 'retry' : 'never',
                header($answer, 'X-Retry')),
           '429 REJECTED 10 never [-1]', "$zone: no Retry-After: $_");
    }
    is(said(), '', "$zone: the log says nothing of these");
    # nonsense
    for my $cost ('x', '-5', '1.5', '+1', '1e3', '%201') {
        my $key = $cost =~ s/\W/_/gr;
        row("$own?k=f$key", [$cost], ['200 PASSED 9'],
            "$zone: \"$cost\" costs 1");
        is(said(), "ratelimit rule \"$zone\" of zone \"$zone\" has a cost of "
                   . "\"$cost\", expected a number of 0 or more; it costs 1",
           "$zone: and the log says so");
    }
    # several rules, all or nothing, and once in the log
    row("/$zone/both?k=g", [4, 7, 6],
        ['200 PASSED 6', '429 REJECTED 6', '200 PASSED 0'],
        "$zone: of two rules the one that is denied");
    $gateway->settled($redis);
    row("/$zone/two?k=g", [1], ['200 PASSED 9'],
        "$zone: the other is not charged for what was denied");
}

# a client writes no line of its own into the log, and no long one
$gateway->get('/captured/x%0A%22y' . 'z' x 100 . '?k=a');

my $quoted = 'x\n\"y' . 'z' x 60 . '...';
is(said(), 'ratelimit rule "cost" of zone "captured" has a cost of '
           . "\"$quoted\", expected a number of 0 or more; it costs 1\n"
           . 'ratelimit rule "rate" of zone "captured" has a limit of '
           . "\"$quoted\", expected a number of requests from 0 to "
           . '1073741824; it is not applied',
   'odd bytes in the log');

$gateway->stop;
