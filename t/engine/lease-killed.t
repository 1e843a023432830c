# Workers that die, and requests that leave, with leases: what was in hand is
# spent by the others or goes back, and who waits gets an answer.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header passed wait_for );

use IO::Socket::INET;

my $LIMIT = 100000;
my $port = redis_start();

sub gateway {
    my ($sync, %self) = @_;
    return t::Gateway->limited(%self, redis => $port, timeout => '10s',
        zone => "sync=$sync algorithm=fixed_window limit=$LIMIT"
                . ' window=calendar:month');
}

my $gateway = gateway('lease');
my $strict = gateway('strict');
my %looks;

# What Redis has debited, but for what it costs to ask.
sub debited {
    my $k = shift;
    my $left = header($strict->get("/?k=$k"), 'X-RateLimit-Remaining');
    return $LIMIT - $left - ++$looks{$k};
}

# a worker is killed, with tokens in hand; no call is under way then, since a
# grant that nobody has read is lost
t::Clock::stop();

my $spent = 0;

for (1 .. 6) {
    advance(0.01);
    $spent += passed($gateway->burst(100, '/?k=a'));
}

$gateway->settled($port);

my ($worker) = $gateway->workers;
my $held = debited('a') - $spent;

cmp_ok($held, '>', 20, "$held tokens are in hand");
kill KILL => $worker;

wait_for(sub {
    my @now = $gateway->workers;
    return @now == 1 && $now[0] != $worker;
});

# the next worker spends of them, slowly: the others go back to the fleet
my %sources;

my $back = wait_for(sub {
    my $answer = $gateway->get('/?k=a');
    $spent += passed($answer);
    $sources{header($answer, 'X-Source')}++;
    advance(0.4);
    $gateway->settled($port);
    return debited('a') == $spent;
});

t::Clock::go();

ok($back, 'what a killed worker had in hand goes back');
ok($sources{lease}, 'but for what was spent of it');

# requests that leave while they wait; the call that they wait for goes on
$spent = 0;
$spent += passed($gateway->burst(10, '/?k=b')) for 1 .. 3;
ok(wait_for(sub { debited('b') == $spent }), 'nothing in hand');

t::Clock::stop();
kill STOP => redis_pid($port);

my @waiting = map {
    my $socket = $gateway->connect_to;
    print $socket "GET /?k=b HTTP/1.0\r\n\r\n";
    $socket;
} 1 .. 20;

wait_for(sub { $gateway->waiting == 20 });
close $_ for @waiting[0 .. 9];

t::Clock::go();
kill CONT => redis_pid($port);

my $answered = 0;

for (@waiting[10 .. 19]) {
    local $/;
    $answered++ if (readline($_) // '') =~ m{^HTTP/1\.1 200};
}

is($answered, 10, 'who stays is answered');

# those that left were counted or not; no other token is lost
sub debited_later {
    advance(0.4);
    $gateway->settled($port);
    return debited('b') - $spent;
}

my $debited = debited_later();
my $settled = wait_for(sub {
    my $before = $debited;
    $debited = debited_later();
    return $debited == $before && $debited >= 10 && $debited <= 20;
});

ok($settled, "and what nobody spent goes back: $debited of 20 are debited");
is(debited_later(), $debited, 'once');

# a reload while requests wait
my @old = $gateway->workers;

t::Clock::stop();
kill STOP => redis_pid($port);

@waiting = map {
    my $socket = $gateway->connect_to;
    print $socket "GET /?k=c HTTP/1.0\r\n\r\n";
    $socket;
} 1 .. 20;

wait_for(sub { $gateway->waiting == 20 });
$gateway->signal('HUP');

wait_for(sub { $gateway->workers >= 2 });
is(scalar(grep { $_ == $old[0] } $gateway->workers), 1,
   'the old worker waits for those that wait');

t::Clock::go();
kill CONT => redis_pid($port);

$answered = 0;

for (@waiting) {
    local $/;
    $answered++ if (readline($_) // '') =~ m{^HTTP/1\.1 200};
}

is($answered, 20, 'all are answered');
ok(wait_for(sub {
       return !grep { $_ == $old[0] } $gateway->workers;
   }), 'then it ends');
ok(wait_for(sub { debited('c') == 20 }), 'and no token is lost');

$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);
$strict->stop;
