# Parts of a split counter that have no answer: the others decide, and the fail
# mode where none does.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header wait_for );
use t::FakeRedis;

my $GRANTED = "*4\r\n:1\r\n:4\r\n:360000\r\n:0\r\n";
my $DENIED = "*4\r\n:0\r\n:0\r\n:3600000\r\n:3600000\r\n";
my $FULL = "-OOM command not allowed when used memory > 'maxmemory'\r\n";
my $MORE = "*4\r\n:5\r\n:0\r\n:360000\r\n:0\r\n";

# a server that answers the key it is asked for first so, and any other so
sub server {
    my ($first, $other) = @_;
    my $key;
    return t::FakeRedis->new(sub {
        my $asked = $_[3];
        $key //= $asked;
        return $asked eq $key ? $first : $other;
    });
}

sub gateway {
    my ($fake, %self) = @_;
    my $mode = $self{mode} // 'open';
    my $zone = $self{zone} // '1m';
    my $window = 'algorithm=fixed_window window=1h';
    return t::Gateway->limited(
        redis => $fake->{port}, timeout => $self{timeout} // '10s',
        zone => { "z:$zone" => 'redis=r' },
        rules => ["r $window limit=10 sync=strict shards=2 fail_mode=$mode match=/",
                  "fill $window limit=1 match=/fill"]);
}

# what so many requests are told, and how many calls that made
sub told {
    my ($n, $first, $other, %self) = @_;
    my $fake = server($first, $other);
    my $gateway = gateway($fake, %self);
    wait_for(sub { $fake->seen->{connections} });
    my @told = map { header($_, 'X-Status') }
               map { $gateway->get('/?k=a') } 1 .. $n;
    my $calls = grep { $_->[2] eq 'EVALSHA' } $fake->heard;
    $gateway->stop;
    $gateway->log_ok;
    $fake->stop;
    return ("@told", $calls);
}

my ($told, $calls) = told(8, $FULL, $GRANTED);
is($told, join(' ', ('PASSED') x 8), 'a part without an answer: the other pays');
cmp_ok($calls, '>', 8, 'which was asked behind it');

($told) = told(4, $FULL, $DENIED);
is($told, join(' ', ('REJECTED') x 4), 'the other denies: nobody is let pass');

($told) = told(4, $FULL, $DENIED, mode => 'closed');
is($told, join(' ', ('REJECTED') x 4), 'nor told that Redis is away');

($told, $calls) = told(1, $FULL, $FULL);
is($told, 'DEGRADED', 'none has an answer: the fail mode');
is($calls, 2, 'when all were asked');

($told) = told(2, $FULL, $FULL, mode => 'closed');
is($told, 'UNAVAILABLE UNAVAILABLE', 'closed, too');

($told, $calls) = told(4, $DENIED, $DENIED);
is($told, join(' ', ('REJECTED') x 4), 'all deny');
is($calls, 2, 'and are asked once');

($told) = told(2, $MORE, $MORE);
is($told, 'DEGRADED DEGRADED', 'more than the cost is no answer');

($told, $calls) = told(1, '', '', timeout => '300ms');
is($told, 'DEGRADED', 'no answer in time');
is($calls, 1, 'and there is none for another part');

# a full lease table: a request that is rejected asks no part again, though one
# has no answer; after a second that one is asked once more, and for good when
# it has answered
my $first;
my $answers = t::RateLimit::folder() . '/answers';
my $fake = t::FakeRedis->new(sub {
    my ($key, $capacity) = @_[3, 8];
    return $DENIED if $capacity == 1;
    $first //= $key;
    return $key ne $first ? $DENIED : -e $answers ? $GRANTED : $FULL;
});
my $gateway = gateway($fake, zone => '64k');

t::Clock::stop();

for my $from (map { 100 * $_ } 0 .. 14) {
    t::Gateway::send_all([map { [$gateway, "/fill?k=$_"] } $from .. $from + 99]);
}

my $asked = $fake->seen->{commands};

is(join(' ', map { header($_, 'X-Status') }
             $gateway->get('/?k=a'), $gateway->burst(100, '/?k=a')),
   join(' ', ('REJECTED') x 101), 'no place for a lease: rejected');

my $more = $fake->seen->{commands} - $asked;

t::Clock::go();

cmp_ok($more, '<', 50, 'no place for a lease: the other part is not asked');
ok(wait_for(sub {
    $gateway->get('/?k=a');
    return $fake->seen->{commands} - $asked > $more + 1;
}, 10), 'no place for a lease: the part without an answer is asked again');

t::Clock::stop();

open my $file, '>', $answers;

# at last past 2^12 ticks of 2^17 us, of which 12 bits are kept
my @later = map {
    t::Clock::advance($_);
    header($gateway->get('/?k=a'), 'X-Status');
} 2, 532, (0.3) x 20;

t::Clock::go();

is("@later", join(' ', ('PASSED') x 22), 'no place for a lease: it answers');

$gateway->stop;
$gateway->log_ok;
$fake->stop;
