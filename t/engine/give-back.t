# Tokens that go back to Redis late: the window that they were taken from may be
# over when the call runs, and the next one must not be credited.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( passed wait_for );
use t::Sockets qw( unread );

use IO::Select;
use IO::Socket::INET;

my $WINDOW = 4;

my $port = redis_start();
my $prefix = key_prefix();

# Passes bytes on between the gateway and Redis; a SIGSTOP is a stall.
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 16)
             or die "listen: $!";
my $slow = $listen->sockport;

my $proxy = t::Gateway::beside(sub {
    my $select = IO::Select->new($listen);
    my %other;
    while (my @ready = $select->can_read) {
        for my $socket (@ready) {
            if ($socket == $listen) {
                my $from = $listen->accept or next;
                my $to = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                               PeerPort => $port) or next;
                @other{$from, $to} = ($to, $from);
                $select->add($from, $to);
                next;
            }
            my $to = $other{$socket} or next;
            if (sysread $socket, my $bytes, 65536) {
                syswrite $to, $bytes;
                next;
            }
            delete @other{$socket, $to};
            $select->remove($socket, $to);
            $_->close for $socket, $to;
        }
    }
});

END { kill CONT => $proxy; kill KILL => $proxy }

sub gateway {
    my ($redis, $sync) = @_;
    return t::Gateway->limited(
        redis => $redis, timeout => '300ms',
        rules => ['sliding algorithm=sliding_window limit=1000'
                  . " window=${WINDOW}s match=/sliding sync=$sync",
                  'fixed algorithm=fixed_window limit=1000'
                  . " window=${WINDOW}s match=/fixed sync=$sync"]);
}

my $gateway = gateway($slow, 'lease');
my $strict = gateway($port, 'strict');

# The counters in Redis, each with a name of its own.
sub counters {
    return grep { /^\Q$prefix\E:\{\d+\}$/ }
           split /\n/, redis_cli($port, '--scan', '--pattern', "$prefix:*");
}

# What stands in Redis of one: its count, and that of the window before.
sub counts {
    return split /\n/, redis_cli($port, 'EVAL',
        "local v = redis.call('HVALS', KEYS[1])[1] "
        . "local _, count, _, before = struct.unpack(#v == 17 "
        . "and '>I7I4I2I4' or '>I7I4I2', v) "
        . "return {count, #v == 17 and before or 0}", 1, shift);
}

# The gateway has tokens in hand shortly before a window's end, and gives them
# back while what it sends does not arrive. Then others use the next window.
# Returns how many it had in hand, by how many too few the next window counts,
# and how many more than were spent the one before does.
sub stall {
    my ($path) = @_;
    redis_cli($port, 'FLUSHALL');
    t::Clock::align($WINDOW, $WINDOW - 1.1);
    my $passed = 0;
    for (1 .. 6) {
        $passed += passed($gateway->burst(20, "$path?k=a"));
        advance(0.05);
    }
    kill STOP => $proxy;
    my ($counter) = counters();
    my $hand = (counts($counter))[0] - $passed;
    # given back by now, and on its way for long
    t::Clock::pass(0.8 + 0.8);
    wait_for(sub { unread($slow) });
    my $others = passed($strict->burst(50, "$path?k=a"));
    kill CONT => $proxy;
    # answered behind what was on its way
    $gateway->get("$path?k=b");
    my ($count, $before) = counts($counter);
    return ($hand, $others - $count, $before - $passed);
}

$_->get('/sliding?k=0') for $gateway, $strict;
t::Clock::stop();

for my $path (qw( /sliding /fixed )) {
    my ($hand, $missing, $more) = stall($path);
    cmp_ok($hand, '>', 0, "$path: tokens go back late");
    is($missing, 0, "$path: the next window is not credited");
    cmp_ok($more, '>=', 0, "$path: nor the one before with too many")
        if $path eq '/sliding';
}

t::Clock::go();
$_->stop for $gateway, $strict;
