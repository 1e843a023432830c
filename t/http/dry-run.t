# Dry runs: counted, shown and logged, never enforced; nobody else pays for
# them, nor they for others.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );

my $redis = redis_port();
my $prefix = key_prefix();

my @RULES = ('try zone=Z rate=2r/h dry_run', 'wide zone=Z rate=9r/h dry_run',
             'real zone=Z rate=5r/h', 'tight zone=Z rate=1r/h',
             'leak zone=Z algorithm=leaky_bucket rate=1r/m burst=1 dry_run');

sub rules { return join ' ', map { "ratelimit zone=$_->[0] rule=$_->[1];" } @_ }

# at debug every line is written, else one of a kind in a second
my $gateway = t::Gateway->limited(redis => $redis,
    http => 'error_log %%DIR%%/error.log debug;',
    zone => { local => '', redis => 'redis=r' },
    rules => [map { my $zone = $_; map { s/Z/$zone/r } @RULES }
              qw( local redis )],
    server => 'add_header X-Left $ratelimit_remaining always;',
    locations => {
        '/local-redis' => rules(['local', 'tight'], ['redis', 'wide']),
        '/redis-local' => rules(['redis', 'tight'], ['local', 'wide']),
        '/try-redis' => rules(['local', 'try'], ['redis', 'real']),
        map {
            my $zone = $_;
            "/$zone/dry" => rules([$zone, 'real']) . "ratelimit_dry_run on;
                location /$zone/dry/below { empty_gif; }
                location /$zone/dry/not { ratelimit_dry_run off; empty_gif; }",
            (map { ("/$zone/$_" => rules([$zone, $_])) }
             qw( try wide leak real )),
            map { ("/$zone/$_" => rules(map { [$zone, $_] } split /-/)) }
            qw( try-real tight-wide wide-tight )
        } qw( local redis ),
    });

# status, the deciding counter with its tokens left, and what a client is told
sub told {
    my $answer = $gateway->get(@_);
    return join ' ', $answer->{status},
        (map { header($answer, $_) } qw( X-Status X-Rule X-Left )),
        '/', map { header($answer, "X-RateLimit-$_") }
             qw( Limit Remaining );
}

sub row {
    my ($path, $expected, $name) = @_;
    my @told = map { told($path) } @$expected;
    s/ $// for @told;
    is(join("\n", @told), join("\n", @$expected), $name);
}

for my $zone (qw( local redis )) {
    # alone
    row("/$zone/try?k=a",
        ['200 PASSED try 1 / ', '200 PASSED try 0 / ',
         ('200 REJECTED_DRY_RUN try 0 / ') x 2],
        "$zone: a rule that is tried never rejects");
    like($gateway->log,
         qr/\[info\] .* request not rejected, dry run, by ratelimit rule "try" of zone "$zone"/,
         "$zone: the log says what it would have done");
    row("/$zone/leak?k=a",
        ['200 PASSED leak 1 / ', '200 DELAYED_DRY_RUN leak 0 / ',
         '200 REJECTED_DRY_RUN leak 0 / '],
        "$zone: nor does it delay");
    # beside one that is enforced: its denials are not charged for
    row("/$zone/try-real?k=b",
        ['200 PASSED try 1 / 5 4', '200 PASSED try 0 / 5 3',
         (map { "200 REJECTED_DRY_RUN try 0 / 5 $_" } 2, 1, 0),
         '429 REJECTED real 0 / 5 0'],
        "$zone: the enforced one is charged, and shown");
    # nor is it charged for the others' denials
    for my $path ("/$zone/tight-wide?k=c", "/$zone/wide-tight?k=d") {
        my ($key) = $path =~ /k=(.)/;
        row($path, ['200 PASSED tight 0 / 1 0',
                    ('429 REJECTED tight 0 / 1 0') x 3],
            "$zone: rejected by another: $path");
        $gateway->settled($redis);  # Redis gives back behind the answer
        row("/$zone/wide?k=$key", ['200 PASSED wide 7 / '],
            "$zone: charged for what passed: $path");
    }
    # a location
    row("/$zone/dry?k=e",
        [(map { "200 PASSED real $_ / " } 4, 3), ],
        "$zone: a location that tries");
    row("/$zone/dry/below?k=e", ['200 PASSED real 2 / '],
        "$zone: one below it");
    row("/$zone/dry/not?k=e", ['200 PASSED real 1 / 5 1'],
        "$zone: one below it that does not try");
    row("/$zone/dry?k=e",
        ['200 PASSED real 0 / ', '200 REJECTED_DRY_RUN real 0 / '],
        "$zone: the location that tries never rejects");
    row("/$zone/real?k=e", ['429 REJECTED real 0 / 5 0'],
        "$zone: it has counted");
}

# one of this node, one of the fleet
for (['/local-redis', 'redis'], ['/redis-local', 'local']) {
    my ($path, $zone) = @$_;
    row("$path?k=f", ['200 PASSED tight 0 / 1 0',
                      ('429 REJECTED tight 0 / 1 0') x 2],
        "$path: rejected");
    $gateway->settled($redis);
    row("/$zone/wide?k=f", ['200 PASSED wide 7 / '],
        "$path: the tried one was charged for what passed");
}

row('/try-redis?k=g',
    ['200 PASSED try 1 / 5 4', '200 PASSED try 0 / 5 3',
     '200 REJECTED_DRY_RUN try 0 / 5 2'],
    'what the node would have rejected, the fleet still counts');

$gateway->stop;
