# A request that costs nothing passes, shows what its gateway knows, and makes
# no call to Redis: by each algorithm and sync=, under each fail mode, and
# whether Redis is there or not.

use List::Util ();
use t::RateLimit 'no_plan';
use t::Gateway qw( told wait_for );

my $port = redis_start();

my @modes = qw( open local closed );
my @rules = (
    ['lease', 'rate=10r/h'],
    ['strict', 'rate=10r/h sync=strict'],
    ['async', 'rate=10r/h sync=async'],
    ['shards', 'rate=10r/h sync=strict shards=2 cost=0'],
    ['fixed', 'limit=10 window=1d algorithm=fixed_window'],
    ['fixed-strict', 'limit=10 window=1d algorithm=fixed_window sync=strict'],
    ['sliding', 'limit=10 window=1d algorithm=sliding_window'],
    ['log', 'limit=10 window=1h algorithm=sliding_log'],
    ['leaky', 'rate=10r/h burst=9 nodelay algorithm=leaky_bucket'],
);

my @rules_of;

for my $mode (@modes) {
    for (@rules) {
        my ($name, $limit) = @$_;
        next if $mode eq 'local' && $name eq 'shards'
                || $mode ne 'open' && $name eq 'async';
        $limit .= " fail_mode=$mode" if $name ne 'async';
        $limit .= ' cost=$arg_c' if $name ne 'shards';
        push @rules_of, "$name-$mode $limit";
    }
}

my @paths = map { '/' . (split)[0] } @rules_of;
my $gateway = t::Gateway->limited(redis => $port, timeout => '300ms',
    rules => \@rules_of,
    locations => { map { ($_ => "ratelimit zone=z rule=@{[substr $_, 1]};") }
                   @paths });

sub told_of {
    my ($path, $cost) = @_;
    return $gateway->told("$path?k=$path&c=$cost");
}

# that requests have made: what became of them does not matter
sub calls {
    return List::Util::sum($gateway->get('/metrics')->{body}
                           =~ /^ratelimit_redis_calls_total\S* (\d+)$/mg);
}

# a counter that nobody has used here
my $before = calls();

is(told_of($_, 0), '200 PASSED 10', "$_: nothing is known") for @paths;
is(calls() - $before, 0, 'and nobody was asked');

# what Redis has said
for my $path (grep { !/shards/ } @paths) {
    is(told_of($path, 4), '200 PASSED 6', "$path: four are taken");
    # async debits behind
    wait_for(sub { told_of($path, 0) =~ /PASSED 6/ }) if $path =~ /async/;
    $before = calls();
    is(told_of($path, 0), '200 PASSED 6', "$path: it is known how many are left");
    is(calls() - $before, 0, "$path: without a call") unless $path =~ /async/;
    $gateway->get("$path?k=$path&c=6");
    is(told_of($path, 0), '200 PASSED 0', "$path: what costs nothing passes");
}

# no Redis
redis_stop($port);
$gateway->get('/strict-open?k=other') for 1 .. 5;

$before = calls();

for my $path (@paths) {
    like(told_of($path, 0), qr/^200 PASSED \d+$/, "$path: without Redis");
    is(join(' ', told($gateway->get("$path?k=new&c=0"))),
       '200 PASSED 10', "$path: and of another client");
}

is(calls() - $before, 0, 'and nobody was asked');

$gateway->stop;
