# Connecting again: into a network that swallows everything, over the pauses
# between attempts, at once where a healthy connection was closed, and not by a
# worker that is about to exit.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

use IO::Socket::INET;
use Time::HiRes qw( sleep time );

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

my $gateway;

sub gateway {
    my ($port, $more, $timeout) = @_;
    $more //= '';
    $gateway = t::Gateway->limited(redis => $port, timeout => $timeout,
        zone => "rate=10r/h $more",
        locations => { '/' => 'ratelimit zone=z;',
                       '/slow' => 'limit_rate 1; return 200 ' . 'x' x 100 . ';' });
}

sub told { return t::Gateway::told($gateway->get('/?k=a')) }

sub comes {
    my ($what, $name) = @_;
    ok(wait_for(sub { told() eq $what }), $name) or diag($gateway->log);
}

# nobody accepts, and the queue is full: the kernel drops what comes
{
    my $port = t::Gateway::free_port();
    my $listen = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1',
                                       LocalPort => $port, ReuseAddr => 1)
        or die "listen: $!";
    my @full = map {
        IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port,
                              Blocking => 0)
    } 1 .. 8;
    sleep 0.2;
    gateway($port, '', '200ms');
    my $answer = $gateway->get('/?k=a');
    is(t::Gateway::told($answer), '200 DEGRADED -1', 'swallowed: degraded');
    ok(wait_for(sub {
        2 <= (() = $gateway->log =~ /connect\(\) timed out/g)
    }), 'swallowed: it goes on trying');
    close $_ for $listen, @full;
    my $fake = t::FakeRedis->new(sub { $GOOD }, port => $port);
    comes('200 PASSED 9', 'swallowed: then not');
    is($fake->seen->{connections}, 1, 'swallowed: over one connection');
    $gateway->stop;
    $fake->stop;
}

# a server that stays away for long, and ends the connection many times
{
    my $port = t::Gateway::free_port();
    my $fake = t::FakeRedis->new(sub { $GOOD }, port => $port);
    gateway($port);
    comes('200 PASSED 9', 'away: before');
    for (1 .. 3) {
        $fake->stop;
        comes('200 DEGRADED -1', 'away');
        sleep 2.5;
        $fake = t::FakeRedis->new(sub { $GOOD }, port => $port);
        comes('200 PASSED 9', 'back');
        is($fake->seen->{connections}, 1, 'over one connection');
    }
    $gateway->stop;
    $fake->stop;
}

# a healthy connection that is closed costs the request that waits for a reply,
# and no other: the next one waits for the new connection
{
    my $checks = 0;
    my $fake = t::FakeRedis->new(sub { ++$checks % 3 ? $GOOD : undef });
    gateway($fake->{port}, 'sync=strict');
    # each time: answered, answered over a connection that is good, closed
    for (1 .. 8) {
        is(told(), '200 PASSED 9', 'closed: the next request is answered');
        sleep 0.1;
        is(told(), '200 PASSED 9', 'closed: and the one behind it');
        is(told(), '200 DEGRADED -1', 'closed: one request is lost');
    }
    $gateway->stop;
    $fake->stop;
}

# what was not written is not lost either: the worker finds the requests and the
# end of its connection at the same time
{
    my $port = redis_start();
    gateway($port, 'sync=strict');
    comes('200 PASSED 9', 'killed: before');
    for my $left (reverse 3 .. 8) {
        my ($worker) = $gateway->workers;
        sleep 0.1;
        kill STOP => $worker;
        redis_cli($port, qw( client kill type normal ));
        my $child = t::Gateway::beside(sub {
            sleep 0.3;
            kill CONT => $worker;
        });
        is(told(), "200 PASSED $left", 'killed: what was not written goes on');
        waitpid $child, 0;
    }
    $gateway->stop;
    redis_stop($port);
}

# a worker that still serves a slow client after a reload has no use for Redis
{
    my $port = t::Gateway::free_port();
    my $fake = t::FakeRedis->new(sub { $GOOD }, port => $port);
    gateway($port);
    comes('200 PASSED 9', 'a reload: before');
    my $slow = $gateway->connect_to;
    print $slow "GET /slow HTTP/1.0\r\n\r\n";
    sysread $slow, my $head, 1;
    my ($old) = $gateway->workers;
    $gateway->signal('HUP');
    ok(wait_for(sub { $gateway->workers == 2 }), 'a reload: two workers');
    ok(wait_for(sub {
        $gateway->log =~ /\Q $old#\E.*gracefully shutting down/
    }), 'a reload: the old one drains');
    $fake->stop;
    $fake = t::FakeRedis->new(sub { $GOOD }, port => $port);
    comes('200 PASSED 9', 'a reload: the new one connects again');
    sleep 1.5;
    is($fake->seen->{connections}, 1, 'a reload: the old one does not');
    is(scalar(grep { $_ == $old } $gateway->workers), 1,
       'a reload: it is still there');
    # the fake has a copy of it
    shutdown $slow, 2;
    ok(wait_for(sub { $gateway->workers == 1 }),
       'a reload: nothing else holds it');
    $gateway->stop;
    $fake->stop;
}
