# Leases of a counter whose limit depends on the request: what is in hand under
# one limit goes back under that one, and pays nothing of another.

use t::RateLimit 'no_plan';
use t::Gateway qw( passed );

use Time::HiRes qw( time );

my $port = redis_start();

my $gateway = t::Gateway->limited(
    workers => 2, redis => $port,
    rules => ['bucket rate=$arg_r match=/bucket',
              'window algorithm=fixed_window limit=$arg_r window=calendar:month'
              . ' match=/window']);

# so many, while the other limit is worth a lease
sub mixed {
    my ($path, $large, $small) = @_;
    my %passed = (large => 0, small => 0);
    for my $i (0 .. 59) {
        $passed{small} += passed($gateway->burst(1, "$path&r=$small"))
            if $i % 3 == 0;
        $passed{large} += passed($gateway->burst(20, "$path&r=$large"));
    }
    return \%passed;
}

# Of buckets each limit sees the share that is used: of 10,000 a day one is a
# thousandth of what one of 10 is. What comes back meanwhile is known.
my $begin = time;
my $got = mixed('/bucket?k=a', '10000r/d', '10r/d');
my $used = $got->{large} + 1000 * $got->{small};

cmp_ok($used, '<=', 10000 + (time - $begin) * 10000 / 86400 + 1,
       "bucket: $got->{large} and $got->{small} are no more than it has");
cmp_ok($got->{small}, '>=', 8, 'bucket: the small limit has its share');
cmp_ok($got->{large}, '>=', 990, 'bucket: and the large one the rest');

# A window counts requests, by either limit: the small one pays one at first,
# then the large one has used more than that.
$got = mixed('/window?k=a', 600, 60);

is($got->{small}, 1, 'window: the small limit sees what the large one has used');
is($got->{large}, 599, 'window: together no more, nor less');

$gateway->stop;
