# Counters of one request that are followed in different ways: all pay or none
# does. And a limit that one gateway has used up holds on all.

use t::RateLimit 'no_plan';
use t::Gateway qw( passed wait_for );
use t::FakeRedis;

use Time::HiRes qw( sleep time );

my $port = redis_start();
my $prefix = key_prefix();

sub gateway {
    my ($sync, %self) = @_;
    my $window = 'algorithm=fixed_window window=calendar:month';
    return t::Gateway->limited(
        workers => 2, %self, redis => $port,
        zone => { z => 'redis=r', here => "$window limit=200" },
        rules => ["leased $window limit=1000 match=/all/** sync=$sync",
                  "bucket rate=1000r/d match=/all/** sync=$sync",
                  "strict $window limit=300 key=\$arg_s match=/all/** sync=strict",
                  "split $window limit=200 key=\$arg_p match=/all/** sync=strict"
                  . ' shards=4',
                  "hit $window limit=500 match=/hit sync=$sync"],
        locations => { '/' => 'ratelimit zone=z;',
                       '/all/here' => 'ratelimit zone=z; ratelimit zone=here;' });
}

my $gateway = gateway('lease');
my $other = gateway('lease');

# Each rule in turn is the one that denies: what the others granted is there
# for the next, and in the end the tightest of all is spent exactly.
my $passed = 0;
$passed += passed($gateway->burst(50, '/all/here?k=a&s=a&p=a1')) for 1 .. 8;
is($passed, 200, 'a local rule denies');

$passed = 0;
$passed += passed($gateway->burst(50, '/all/x?k=a&s=a&p=a2')) for 1 .. 8;
is($passed, 100, 'a strict rule denies: 300 less those that passed before');

$passed = 0;
$passed += passed($gateway->burst(50, '/all/x?k=a&s=b&p=b')) for 1 .. 8;
is($passed, 200, 'a split rule denies');

# what a lease holds comes back when it is swept: so many in the end, no more
my $n = 0;
my $tries = sub {
    $n++;
    $passed += passed($gateway->burst(50, "/all/x?k=a&s=c$n&p=c$n"));
    return $passed >= 500;
};

$passed = 0;
wait_for($tries);
$tries->();
is($passed, 500, 'leased rules deny: 1000 less all of those');

$gateway->stop;

# a limit that is hit on one is so on all, at once
my $fleet = [$other, gateway('lease')];

my ($hit, $first, $last);

for (1 .. 100) {
    my $began = time;
    my @answers = t::Gateway::send_all(
        [map { [$fleet->[$_ % 2], '/hit?k=a'] } 1 .. 40]);
    my $n = passed(@answers);
    $hit += $n;
    $first //= time if $n < 40;
    $last = $began if $n;
    last if $first && $began > $first + 0.6;
}

is($hit, 500, 'exactly the limit passes');
ok(defined $first && $last <= $first + 0.5,
   'no gateway admits one 500 ms after another has denied');

$_->stop for @$fleet;

# What goes back to a window is said to be as old as the window: so it is never
# given to the next one, however late it comes.
my $given = t::Gateway::dir("given") . "/given";

my $fake = t::FakeRedis->new(sub {
    my (undef, undef, undef, undef, $kind, undef, $cost, $want) = @_;
    if ($cost < 0) {
        open my $file, '>>', $given or die "$given: $!";
        print $file "$kind $cost $want\n";
        close $file;
    }
    # the script's answers: a window that grants, one of the rule that denies
    return "*4\r\n:0\r\n:0\r\n:3600000\r\n:3600000\r\n" if $_[8] == 7;
    # of an hour a half has passed
    return "*4\r\n:$cost\r\n:50\r\n:1800000\r\n:0\r\n";
});

$gateway = t::Gateway->limited(
    redis => $fake->{port}, timeout => '7s',
    rules => ['grants algorithm=fixed_window limit=100 window=1h',
              'denies algorithm=fixed_window limit=7 window=1h key=$arg_d'
              . ' sync=strict']);

wait_for(sub { $fake->seen->{connections} });

my @gave;

wait_for(sub {
    our $n++;
    is(passed($gateway->burst(4, "/?k=k$n&d=d$n")), 0, 'all are denied')
        if $n == 1;
    $gateway->burst(4, "/?k=k$n&d=d$n") if $n > 1;
    open my $file, '<', $given or return;
    @gave = map { [split] } <$file>;
    return @gave >= 8;
});

cmp_ok(scalar(@gave), '>=', 8, 'what was granted goes back');
is(scalar(grep { $_->[2] < 1_349_000 } @gave), 0,
   'as old as the window, but for an eighth');

$gateway->stop;
$fake->stop;
