# Tokens that go back to Redis late: the window that they were taken from may be
# over when the call runs, and the next one must not be credited.

use t::RateLimit 'no_plan';
use t::Gateway qw( passed );

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw( sleep time );

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


# What stands in Redis of a client's only counter: when it is fresh, its count,
# and that of the window before.
sub state {
    my %names = map { $_ => 1 }
                split /\n/, redis_cli($port, '--scan', '--pattern', "$prefix:*");

    return map { [split /\n/, redis_cli($port, 'EVAL',
        "local v = redis.call('HVALS', KEYS[1])[1] "
        . "local fresh, count, _, before = struct.unpack(#v == 17 "
        . "and '>I7I4I2I4' or '>I7I4I2', v) "
        . "return {tostring(fresh), count, #v == 17 and before or 0}", 1, $_)]
    } grep { /^\Q$prefix\E:\{\d+\}$/ } sort keys %names;
}


# The gateway has tokens in hand shortly before a window's end, and gives them
# back while what it sends does not arrive. Then others use the next window.
# Returns by how many too few the next window counts, and how many more than were
# spent the one before does; or nothing, if the machine was too slow.
sub stall {
    my ($path) = @_;

    phase($WINDOW - 1.4);
    redis_cli($port, 'FLUSHALL');
    phase($WINDOW - 1.1);

    my $passed = 0;
    $passed += passed($gateway->burst(20, $path)) for 1 .. 6;
    kill STOP => $proxy;

    my ($state) = state();
    my $hand = ($state->[1] // 0) - $passed;

    return if $hand <= 0 || fmod(time) > $WINDOW - 0.5 || fmod(time) < 1;

    # given back by now, and on its way for long

    phase(0.8);
    my $others = passed($strict->burst(50, $path));
    kill CONT => $proxy;

    sleep 0.3;

    ($state) = state();

    return if fmod(time) > $WINDOW - 0.3;
    return ($others - $state->[1], $state->[2] - $passed);
}

# until so far in a window
sub phase { sleep fmod($_[0] - fmod(time) + $WINDOW) }

sub fmod { return $_[0] - $WINDOW * int($_[0] / $WINDOW) }


$_->get('/sliding?k=0') for $gateway, $strict;

for my $path (qw( /sliding /fixed )) {
    my @got;

    for (1 .. 8) {
        last if @got = stall("$path?k=a");
        kill CONT => $proxy;
        sleep 1;
    }

    ok(@got, "$path: tokens go back late");
    is($got[0], 0, "$path: the next window is not credited");
    cmp_ok($got[1], '>=', 0, "$path: nor the one before with too many")
        if $path eq '/sliding';
}

$_->stop for $gateway, $strict;
