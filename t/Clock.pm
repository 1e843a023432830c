# The time of a test: nginx and Redis, started by a file that uses this, go by
# a clock that the file advances instead of sleeping.
#
#     use t::RateLimit 'no_plan';
#     use t::Clock qw( advance );
#
#     advance(60);              a minute later
#     t::Clock::pass(60);       the same in steps, for timers that set another
#     t::Clock::wait_for(sub { ... });
#                               in such steps, until it returns true
#     t::Clock::hurry()         t::Gateway::wait_for() does so, too
#
#     t::Clock::now()           what nginx and Redis take for the time
#     t::Clock::stop()          it stands still, but for advance()
#     t::Clock::go()
#     t::Clock::align($s, $t)   on to the next multiple of $s seconds, and $t
#                               behind that
#
# It begins with an hour: the windows of an hour or less end where the file lets
# them end. The Redis server and cluster of the run are not under it: redis_port()
# and cluster_ports() are then the file's own. A timer of a process that waits
# fires some milliseconds after the advance: wait for what it does.

package t::Clock;

use strict;
use warnings;

use Exporter qw( import );
use POSIX qw( ceil );
use Time::HiRes qw( clock_gettime sleep CLOCK_MONOTONIC CLOCK_REALTIME );

use t::Gateway ();
use t::RateLimit ();

our @EXPORT_OK = qw( advance );

my $file = t::RateLimit::folder() . '/clock';

# nanoseconds; the clock stands where $real is not 0
my ($offset, $real, $monotonic) = (0, 0, 0);

$ENV{RATELIMIT_CLOCK} = $file;
$ENV{LD_PRELOAD} = t::RateLimit::clock_library();
delete @ENV{qw( RATELIMIT_REDIS_PORT RATELIMIT_CLUSTER_PORTS )};

write_file();
align(3600);

# Processes have the file mapped: it is written in place. What says that the
# clock stands comes last.
sub write_file {
    open my $out, -e $file ? '+<' : '>', $file or die "$file: $!";
    binmode $out;
    for ([0, $offset], [16, $monotonic], [8, $real]) {
        my ($at, $ns) = @$_;
        sysseek $out, $at, 0;
        syswrite $out, pack 'q', $ns;
    }
    close $out or die "$file: $!";
}

sub ns { return int($_[0] * 1e6 + 0.5) * 1000 }

# From the file: a fork, such as a fake Redis, has the same time.
sub now {
    open my $in, '<:raw', $file or die "$file: $!";
    sysread $in, my $bytes, 16;
    my ($added, $stands) = unpack 'q2', $bytes;
    return ($stands || ns(clock_gettime(CLOCK_REALTIME)) + $added) / 1e9;
}

sub advance {
    my $ns = ns(shift);
    if ($real) {
        $real += $ns;
        $monotonic += $ns;
    } else {
        $offset += $ns;
    }
    write_file();
}

# Between two steps, who waits for a timer has a moment to act.
sub pass {
    for (my $left = shift; $left > 0; $left -= 0.1) {
        advance($left < 0.1 ? $left : 0.1);
        sleep 0.02;
    }
}

# False when the test's patience ends, which is real time.
sub wait_for {
    my $what = shift;
    local $t::Gateway::BETWEEN = sub { advance(0.1) };
    return t::Gateway::wait_for($what);
}

# From now on each t::Gateway::wait_for() is such a one.
sub hurry { $t::Gateway::BETWEEN = sub { advance(0.1) } }

sub align {
    my ($seconds, $behind) = @_;
    advance(ceil(now() / $seconds) * $seconds + ($behind // 0) - now());
}

# At a whole millisecond, which is what nginx counts in.
sub stop {
    return if $real;
    $monotonic = ns(clock_gettime(CLOCK_MONOTONIC)) + $offset;
    $real = ns(clock_gettime(CLOCK_REALTIME)) + $offset;
    $_ += -$_ % 1_000_000 for $real, $monotonic;
    write_file();
}

sub go {
    return if !$real;
    $offset = $real - ns(clock_gettime(CLOCK_REALTIME));
    $real = 0;
    write_file();
}

1;
