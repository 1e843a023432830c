# What a request costs: a number, or what a variable says; nothing, too much
# and nonsense. The same in shared memory and in Redis.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    # at debug every line is written, else one of a kind in a second
    error_log %%DIR%%/error.log debug;
    ratelimit_redis r {
        server 127.0.0.1:$redis; prefix $prefix; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=local:1m cost=\$arg_c rate=10r/h;
    ratelimit_rule three zone=local rate=10r/h cost=3;
    ratelimit_rule two zone=local rate=20r/h cost=\$arg_c;
    ratelimit_rule free zone=local rate=1r/h cost=0;
    ratelimit_rule much zone=local rate=10r/h cost=11;
    ratelimit_rule full zone=local rate=10r/h capacity=4 cost=\$arg_c;
    ratelimit_zone \$arg_k zone=captured:1m;
    ratelimit_rule cost zone=captured rate=9r/h cost=\$captured;
    ratelimit_rule rate zone=captured rate=\$captured;
    ratelimit_zone \$arg_k zone=redis:1m cost=\$arg_c rate=10r/h redis=r;
    ratelimit_rule three zone=redis rate=10r/h cost=3;
    ratelimit_rule two zone=redis rate=20r/h cost=\$arg_c;
    ratelimit_rule free zone=redis rate=1r/h cost=0;
    ratelimit_rule much zone=redis rate=10r/h cost=11;
    ratelimit_rule full zone=redis rate=10r/h capacity=4 cost=\$arg_c;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        add_header X-Retry [\$ratelimit_retry_after] always;
        @{[map { my $zone = $_; map { <<"LOCATION" }
        location /$zone/$_ {
            ratelimit zone=$zone rule=$_; empty_gif;
        }
LOCATION
                 $zone, qw( three two free much full ) } qw( local redis )]}
        location /local/both {
            ratelimit zone=local rule=local; ratelimit zone=local rule=two;
            empty_gif;
        }
        location ~ (?s)^/captured/(?<captured>.+) {
            ratelimit zone=captured; empty_gif;
        }
        location /redis/both {
            ratelimit zone=redis rule=redis; ratelimit zone=redis rule=two;
            empty_gif;
        }
    }
CONF

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

    my @told = map { t::Gateway::told($gateway->get(
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
    my $wait = t::Gateway::header($answer, 'Retry-After');
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

        is(join(' ', t::Gateway::told($answer),
                exists $answer->{headers}{'retry-after'} ? 'retry' : 'never',
                t::Gateway::header($answer, 'X-Retry')),
           '429 REJECTED 10 never [-1]', "$zone: no Retry-After: $_");
    }

    is(said(), '', "$zone: the log says nothing of these");

    # nonsense

    for my $cost ('x', '-5', '1.5', '+1', '1e3', '%201') {
        row("$own?k=f$cost", [$cost], ['200 PASSED 9'],
            "$zone: \"$cost\" costs 1");
        is(said(), "ratelimit rule \"$zone\" of zone \"$zone\" has a cost of "
                   . "\"$cost\", expected a number of 0 or more; it costs 1",
           "$zone: and the log says so");
    }

    # several rules, all or nothing, and once in the log

    row("/$zone/both?k=g", [4, 7, 6],
        ['200 PASSED 6', '429 REJECTED 6', '200 PASSED 0'],
        "$zone: of two rules the one that is denied");
    select undef, undef, undef, 0.1;
    row("/$zone/two?k=g", [1], ['200 PASSED 9'],
        "$zone: the other is not charged for what was denied");

}

# a client writes no line of its own into the log, and no long one

$gateway->get('/captured/x%0A%22y' . 'z' x 100 . '?k=a');

my $quoted = 'x\n\"y' . 'z' x 60 . '...';
is(said(), 'ratelimit rule "cost" of zone "captured" has a cost of '
           . "\"$quoted\", expected a number of 0 or more; it costs 1\n"
           . 'ratelimit rule "rate" of zone "captured" has a limit of '
           . "\"$quoted\", expected a number of requests from 1 to "
           . '1073741824; it is not applied',
   'odd bytes in the log');

$gateway->stop;
