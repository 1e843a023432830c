# Requests that wait for Redis: what becomes of them when the client leaves,
# when the worker must go, when the answer comes late. Nothing is lost, nothing
# hangs, and the log has no alert.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( tally told wait_for );

use IO::Socket::INET;

my $redis = redis_start();

sub gateway {
    return t::Gateway->limited(workers => 2, redis => $redis,
                               timeout => shift, zone => 'rate=1000r/h');
}

# Sends n requests, and runs the code when all of them wait for Redis; the clock
# stands meanwhile.
sub meanwhile {
    my ($gateway, $n, $code) = @_;
    t::Clock::stop();
    my $begun = $gateway->begin($n, '/?k=' . rand);
    ok(wait_for(sub {
        t::Gateway::answered($begun) == 0 && $gateway->waiting == $n;
    }), "$n requests wait");
    $code->();
    t::Clock::go();
    return t::Gateway::finish($begun);
}

sub silent { kill STOP => redis_pid($redis) }
sub speaks { kill CONT => redis_pid($redis) }

# many wait at once, and are answered when Redis is
my $gateway = gateway('10s');

silent();
my @answers = meanwhile($gateway, 400, \&speaks);
is(tally(@answers), '400 x 200', 'those who waited are answered');
is(scalar(grep { told($_) =~ /PASSED/ } @answers), 400, 'by Redis');

# clients leave while they wait
t::Clock::stop();
silent();

for my $request ("GET /?k=gone HTTP/1.1\r\nHost: a\r\n\r\n",
                 "POST /?k=gone HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
                 ("GET /?k=gone HTTP/1.1\r\nHost: a\r\n\r\n") x 2)
{
    my @clients = map {
        my $client = $gateway->connect_to;
        print $client $request;
        $client->flush;
        $client;
    } 1 .. 50;
    wait_for(sub { $gateway->waiting == 50 });
    close $_ for @clients;
}

# a client sends the next requests behind the first
my $client = $gateway->connect_to;
print $client "GET /?k=p HTTP/1.1\r\nHost: a\r\n\r\n" x 3;
$client->flush;
wait_for(sub { $gateway->waiting == 1 });
speaks();

# the clock stands until all are answered: it jumps then, over a deadline, too
my $text = '';
wait_for(sub {
    sysread $client, $text, 65536, length $text;
    3 == (() = $text =~ /^X-RateLimit-Remaining: .*\r/mg);
});
t::Clock::go();
is_deeply([$text =~ /^X-RateLimit-Remaining: (\d+)/mg], [999, 998, 997],
          'pipelined requests wait one after the other');
close $client;

is(told($gateway->get('/?k=' . rand)), '200 PASSED 999', 'the gateway goes on');

# a reload: the old workers wait for their replies, then leave
silent();
@answers = meanwhile($gateway, 200, sub {
    $gateway->signal('HUP');
    wait_for(sub { $gateway->workers == 4 });
    speaks();
});
is(tally(@answers), '200 x 200', 'a reload: all are answered');
is(scalar(grep { told($_) =~ /PASSED/ } @answers), 200, 'a reload: by Redis');
ok(wait_for(sub { $gateway->workers == 2 }), 'a reload: the old workers leave');

# a quit: the same
silent();
@answers = meanwhile($gateway, 200, sub {
    $gateway->signal('QUIT');
    wait_for(sub { $gateway->log =~ /gracefully shutting down/ });
    speaks();
});
is(tally(@answers), '200 x 200', 'a quit: all are answered');
$gateway->stop;

# a quit, and Redis never answers: the deadline holds
$gateway = gateway('1s');
silent();

@answers = meanwhile($gateway, 200, sub { $gateway->signal('QUIT') });
is(tally(@answers), '200 x 200', 'a quit without Redis: all are answered');
is(scalar(grep { told($_) eq '200 DEGRADED -1' } @answers), 200,
   'a quit without Redis: as degraded');
$gateway->stop;

# an end at once, while the clock stands: nobody is answered, nothing is left
$gateway = gateway('10s');
@answers = meanwhile($gateway, 100, sub { $gateway->stop('TERM') });
is(tally(@answers), '100 x 0', 'nobody was answered');

speaks();

# late replies belong to nobody
$gateway = gateway('50ms');
silent();
@answers = $gateway->burst(100, '/?k=' . rand);
is(scalar(grep { told($_) eq '200 DEGRADED -1' } @answers), 100,
   'late replies: all have gone on');
speaks();
ok(wait_for(sub {
    told($gateway->get('/?k=' . rand)) eq '200 PASSED 999'
}), 'late replies: they are not taken for others');
is(join(' ', map { told($gateway->get('/?k=last')) } 1 .. 3),
   '200 PASSED 999 200 PASSED 998 200 PASSED 997', 'nor later');
$gateway->stop;
