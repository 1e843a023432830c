# Dry runs: counted, shown and logged, never enforced; nobody else pays for
# them, nor they for others.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $rules = join '', map { <<"RULES" } qw( local redis );
    ratelimit_rule try zone=$_ rate=2r/h dry_run;
    ratelimit_rule wide zone=$_ rate=9r/h dry_run;
    ratelimit_rule real zone=$_ rate=5r/h;
    ratelimit_rule tight zone=$_ rate=1r/h;
    ratelimit_rule leak zone=$_ algorithm=leaky_bucket rate=1r/m burst=1
                   dry_run;
RULES

my $locations = join '', map { my $zone = $_; <<"LOCATIONS" } qw( local redis );
        location /$zone/try { ratelimit zone=$zone rule=try; empty_gif; }
        location /$zone/wide { ratelimit zone=$zone rule=wide; empty_gif; }
        location /$zone/leak { ratelimit zone=$zone rule=leak; empty_gif; }
        location /$zone/real { ratelimit zone=$zone rule=real; empty_gif; }
        location /$zone/dry {
            ratelimit zone=$zone rule=real;
            ratelimit_dry_run on;
            location /$zone/dry/below { empty_gif; }
            location /$zone/dry/not { ratelimit_dry_run off; empty_gif; }
            empty_gif;
        }
        location /$zone/try-real {
            ratelimit zone=$zone rule=try; ratelimit zone=$zone rule=real;
            empty_gif;
        }
        location /$zone/tight-wide {
            ratelimit zone=$zone rule=tight; ratelimit zone=$zone rule=wide;
            empty_gif;
        }
        location /$zone/wide-tight {
            ratelimit zone=$zone rule=wide; ratelimit zone=$zone rule=tight;
            empty_gif;
        }
LOCATIONS

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    # at debug every line is written, else one of a kind in a second
    error_log %%DIR%%/error.log debug;
    ratelimit_redis r {
        server 127.0.0.1:$redis; prefix $prefix; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=local:1m;
    ratelimit_zone \$arg_k zone=redis:1m redis=r;
$rules
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        add_header X-Rule \$ratelimit_rule always;
        add_header X-Left \$ratelimit_remaining always;
$locations
        location /local-redis {
            ratelimit zone=local rule=tight; ratelimit zone=redis rule=wide;
            empty_gif;
        }
        location /redis-local {
            ratelimit zone=redis rule=tight; ratelimit zone=local rule=wide;
            empty_gif;
        }
        location /try-redis {
            ratelimit zone=local rule=try; ratelimit zone=redis rule=real;
            empty_gif;
        }
    }
CONF


# status, the deciding counter with its tokens left, and what a client is told
sub told {
    my $answer = $gateway->get(@_);

    return join ' ', $answer->{status},
        (map { t::Gateway::header($answer, $_) } qw( X-Status X-Rule X-Left )),
        '/', map { t::Gateway::header($answer, "X-RateLimit-$_") }
             qw( Limit Remaining );
}


sub row {
    my ($path, $expected, $name) = @_;

    my @told = map { told($path) } @$expected;

    s/ $// for @told;
    is(join("\n", @told), join("\n", @$expected), $name);
}


# Redis gives back behind the answer
sub pause { select undef, undef, undef, 0.1 }


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
        pause();
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
    pause();
    row("/$zone/wide?k=f", ['200 PASSED wide 7 / '],
        "$path: the tried one was charged for what passed");
}

row('/try-redis?k=g',
    ['200 PASSED try 1 / 5 4', '200 PASSED try 0 / 5 3',
     '200 REJECTED_DRY_RUN try 0 / 5 2'],
    'what the node would have rejected, the fleet still counts');

$gateway->stop;
