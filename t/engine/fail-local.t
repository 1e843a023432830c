# fail_mode=local: of a fleet of n each gateway admits its share, 2/n of what it
# knows to be left, whatever becomes of the number. How many live a fake Redis
# says; the whole fleet is in t/chaos.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally told wait_for );
use t::FakeRedis;

use Time::HiRes qw( time );

# of one counter: granted, remaining, reset_ms, retry_ms
sub answer { return "*4\r\n" . join '', map { ":$_\r\n" } @_ }

# each heartbeat is answered with the next of these numbers, the last for ever
sub fake {
    my @nodes = @_;
    return t::FakeRedis->new(sub {
        return "+OK\r\n" if $_[0] ne 'EVALSHA';
        return answer(1, 70, 25920000, 0) if !t::FakeRedis::is_beat(@_);
        my $n = @nodes > 1 ? shift @nodes : $nodes[0];
        return answer(1, 1073741824 - $n, 0, 0);
    }, beats => 1);
}

sub gateway {
    return t::Gateway->limited(
        workers => 2, redis => shift, timeout => '300ms',
        http => 'ratelimit_fail_mode local;',
        zone => {
            fixed => 'redis=r sync=strict algorithm=fixed_window limit=100'
                     . ' window=366d',
            bucket => 'redis=r sync=strict rate=100r/d',
            leaky => 'redis=r sync=strict rate=1r/s algorithm=leaky_bucket'
                     . ' burst=9',
            cost => 'redis=r sync=strict rate=100r/d cost=$arg_c',
        },
        server => 'add_header X-Delay $ratelimit_delay always;',
        locations => { map { ("/$_" => "ratelimit zone=$_;") }
                       qw( fixed bucket leaky cost ) });
}

sub knows {
    my ($gateway, $n) = @_;
    ok(wait_for(sub {
        $gateway->get('/metrics')->{body}
            =~ /^ratelimit_gateways\S* $n$/m
    }), "it knows of $n");
}

sub admits {
    my ($gateway, $path, $n, $what) = @_;
    my %seen = map { /(\d+) x (\d+)/ ? ($2 => $1) : () }
               split /, */, tally($gateway->burst(120, $path));
    is($seen{200} // 0, $n, "$what: $n of 120");
    is($seen{200} + ($seen{429} // 0), 120, "$what: the others get 429");
}

# nobody has said how many there are
{
    my $gateway = gateway(t::Gateway::free_port());
    admits($gateway, '/fixed?k=a', 100, 'unknown');
    $gateway->stop;
}

# seven
{
    my $fake = fake(7);
    my $gateway = gateway($fake->{port});
    knows($gateway, 7);
    is(join(' ', told($gateway->get("$_?k=used"))), '200 PASSED 70',
       "$_: Redis counts") for '/fixed', '/bucket';
    $fake->stop;
    admits($gateway, '/fixed?k=used', 20, 'what is left');
    admits($gateway, '/bucket?k=used', 20, 'what is left, of a bucket');
    admits($gateway, '/fixed?k=new', 28, 'a new client');
    admits($gateway, '/bucket?k=new', 28, 'a new client, of a bucket');
    # more than the share passes once, more than the limit never
    is(join(' ', map { $_->{status} } map { $gateway->get("/cost?k=a&c=$_") }
                 101, 100, 1), '429 200 429', 'a cost above the share');
    # the delays are those of a share of the rate: two pass in 7 s
    is(header($gateway->get('/leaky?k=a'), 'X-Delay') || 0, 0,
       'the first is not delayed');
    my @delays = sort { $a <=> $b }
                 map { header($_, 'X-Delay') || 0 }
                 $gateway->burst(2, '/leaky?k=b');
    is($delays[0], 0, 'nor is the first of two');
    ok($delays[1] > 2 && $delays[1] <= 3.5, "the second is: $delays[1] s");
    $gateway->reload;
    admits($gateway, '/fixed?k=other', 28, 'behind a reload');
    $gateway->stop;
}

# few have told a Redis that came back empty, and went again
{
    my $fake = fake(5, 5, 1);
    my $gateway = gateway($fake->{port});
    knows($gateway, 5);
    knows($gateway, 1);
    $fake->stop;
    admits($gateway, '/fixed?k=a', 40, 'the fleet of late');
    $gateway->stop;
}
