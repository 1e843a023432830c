# All calls that one turn of the event loop makes leave in one write: a hundred
# streams of one connection are a hundred calls in a few segments.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

my $fake = t::FakeRedis->new(sub { "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n" });

my $gateway = t::Gateway->limited(
    redis => $fake->{port}, timeout => '10s', zone => 'rate=10r/h sync=strict',
    listen => 'http2', server => 'http2_max_concurrent_streams 200;');

wait_for(sub { $fake->seen->{segments} });

# the best of five: the streams themselves may come in more than one read, and
# the kernel joins some of the segments that many writes make
my @segments;

for (1 .. 5) {
    my $before = $fake->seen;
    my $after;
    my $url = "http://127.0.0.1:$gateway->{port}/?k=a";
    like(`h2load -n 100 -c 1 -m 100 $url`, qr/^status codes: 100 2xx/m,
         'all pass');
    wait_for(sub {
        $after = $fake->seen;
        $after->{commands} - $before->{commands} >= 100;
    });
    is($after->{commands} - $before->{commands}, 100, 'one call a request');
    push @segments, $after->{segments} - $before->{segments};
}

my ($least) = sort { $a <=> $b } @segments;
cmp_ok($least, '<=', 4, "in a few segments (@segments)");

$gateway->stop;
