# Gateways without Redis share a limit: what one has spent the others know soon,
# whichever of them is killed, restarted, reloaded or cut off.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Clock qw( advance );
use t::Gateway qw( connect_to header passed tally told wait_for );
use t::Ports qw( free_port );

my $SECRET = "a secret of all gateways, 1234567890\n";
my @ports = map { free_port() } 1 .. 3;

# what never answers
my $silent = free_port();
my $listening = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100,
                                      LocalPort => $silent, ReuseAddr => 1)
    or die $!;

# A gateway that listens on the n-th port; two workers.
sub fleet {
    my ($n, %more) = @_;
    my $rate = $n ? 200 : 20;
    my $secret = delete $more{secret} // $SECRET;
    my $lines = delete $more{lines} // '';
    my $peers = join ' ', map { "peer 127.0.0.1:$_;" } @ports;
    return scalar t::Gateway->limited(
        workers => 2, files => { secret => $secret },
        zone => { z => 'rate=20r/d peers=fleet',
                  w => 'algorithm=fixed_window limit=20 window=1h peers=fleet',
                  s => 'algorithm=sliding_window limit=20 window=1h '
                       . 'peers=fleet',
                  l => 'algorithm=sliding_log limit=20 window=1h peers=fleet',
                  d => "rate=${rate}r/d peers=fleet",
                  c => 'algorithm=concurrency limit=3 peers=fleet' },
        locations => { map({ ("/$_" => "ratelimit zone=$_;",
                              "/look/$_" => "ratelimit zone=$_ look;") }
                           qw( z w s l d )),
                       '/c' => 'ratelimit zone=c;',
                       '/held' => 'ratelimit zone=c; '
                                  . "proxy_pass http://127.0.0.1:$silent;" },
        http => "ratelimit_peers fleet { listen 127.0.0.1:$ports[$n]; $peers "
                . "secret_file %%DIR%%/secret; $lines }\n",
        %more);
}

sub metric {
    my ($gateway, $name) = @_;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_$name\{peers="fleet"\} (\d+)$/m ? $1 : 'none';
}

sub connected {
    my ($n, @gateways) = @_;
    return wait_for(sub {
        !grep { metric($_, 'peers_connected') ne $n } @gateways;
    });
}

# Until gateways know that so much of a key is left; a look spends nothing.
sub left {
    my ($left, $zone, $key, $name, @gateways) = @_;
    my @got;
    ok(wait_for(sub {
        @got = map { header($_->get("/look/$zone?k=$key"),
                            'X-RateLimit-Remaining') } @gateways;
        return !grep { $_ ne $left } @got;
    }), $name) or diag("@got, not $left");
}

my @gateways = map { fleet($_) } 0 .. 2;

ok(connected(2, @gateways), 'each is connected to the two others')
    or diag(map { $_->log } @gateways);
is(metric($gateways[0], 'gateways'), 3, 'and knows how many there are');

# Exact is what no connection was lost for: on a machine so busy that a gateway is
# not heard for 3 s, the clock goes slower. It begins when each has told its state.
t::Clock::pass(2);
t::Clock::stop();
$t::Gateway::BETWEEN = sub { advance(0.02) };

# each algorithm
for my $zone (qw( z w s l )) {
    is(tally($gateways[0]->burst(8, "/$zone?k=a")), '8 x 200', "$zone: spent");
    left(12, $zone, 'a', "$zone: the others know it", @gateways);
    is(tally($gateways[1]->burst(12, "/$zone?k=a")), '12 x 200',
       "$zone: the rest, at another one");
    left(0, $zone, 'a', "$zone: nothing is left", @gateways);
    is(tally(map { $_->get("/$zone?k=a") } @gateways), '3 x 429',
       "$zone: for any gateway");
    left(20, $zone, 'b', "$zone: others have all", @gateways);
}

# two limits of one zone: each gateway counts by its own
is($_->get('/d?k=a')->{status}, 200, 'spent by its own limit') for @gateways[0, 1];
left(18, 'd', 'a', 'known by its own limit', $gateways[0]);
is(tally($gateways[1]->burst(9, '/d?k=a')), '9 x 200', 'spent by a larger one');
left(9, 'd', 'a', 'counts as many tokens of the smaller one', $gateways[0]);
left(189, 'd', 'a', 'and of the larger one', $gateways[1]);
$t::Gateway::BETWEEN = sub { };
t::Clock::go();

# a burst at all of them at once is paid back: an hour has no more
my @answers = map { $_->burst(20, '/z?k=burst') } @gateways;
ok(passed(@answers) >= 20, 'a burst passes once at least');
ok(wait_for(sub {
    !grep { $_->get('/z?k=burst')->{status} != 429 } @gateways;
}), 'then no gateway admits any more');

# one that was killed begins anew with what the others know
$gateways[2]->kill;
$gateways[2] = fleet(2);
ok(connected(2, @gateways), 'a gateway that was killed is back');
ok(wait_for(sub { $gateways[2]->get('/z?k=burst')->{status} == 429 }),
   'and knows what it did not see') or diag($gateways[2]->log);

# the leader dies, another worker leads
$gateways[0]->kill_workers;
ok(connected(2, @gateways), 'all workers were killed: connected again');
is(tally($gateways[0]->burst(20, '/z?k=killed')), '20 x 200', 'spent there');
ok(wait_for(sub { $gateways[1]->get('/z?k=killed')->{status} == 429 }),
   'and known here');

# a reload
$gateways[1]->reload;
ok(connected(2, @gateways), 'a reload: connected again');
is($gateways[1]->get('/z?k=killed')->{status}, 429, 'the counters are kept');
is(tally($gateways[1]->burst(20, '/z?k=reload')), '20 x 200', 'spent there');
ok(wait_for(sub { $gateways[0]->get('/z?k=reload')->{status} == 429 }),
   'and known here');

# permits in flight are those of the fleet
sub held {
    my @held = map { my $socket = connect_to($gateways[0]);
                     print $socket "GET /held?k=p HTTP/1.0\r\n\r\n";
                     $socket->flush; $socket } 1 .. 3;
    ok(wait_for(sub { $gateways[1]->get('/c?k=p')->{status} == 429 }),
       'permits of one gateway count at another');
    return @held;
}

sub free {
    ok(wait_for(sub { $gateways[1]->get('/c?k=p')->{status} == 200 }), shift);
}

# a worker that does not lead is killed with the requests that it has
sub leads {
    my ($pid) = @_;
    my $address = sprintf '0100007F:%04X', $ports[0];
    open my $file, '<', '/proc/net/tcp' or die $!;
    my ($inode) = map { (split)[9] } grep { / $address \S+ 0A / } <$file>;
    return grep { (readlink($_) // '') eq "socket:[$inode]" } glob "/proc/$pid/fd/*";
}
my ($leader, $other) = sort { leads($b) <=> leads($a) } $gateways[0]->workers;
kill STOP => $leader;
my @lost = map { my $socket = connect_to($gateways[0]);
                 print $socket "GET /held?k=p HTTP/1.0\r\n\r\n";
                 $socket->flush; $socket } 1 .. 3;
my @asked = map { scalar $listening->accept } @lost;
kill CONT => $leader;
ok(wait_for(sub { $gateways[1]->get('/c?k=p')->{status} == 429 }),
   'permits of a worker count at another gateway');
$gateways[0]->kill_workers($other);
free('and come back when this worker is killed');
close $_ for @lost, @asked;

my @held = held();
is(told($gateways[1], '/c?k=q'), '200 PASSED 2', 'those of one key');
close $_ for @held;
free('and come back when its requests end');
@held = held();
$gateways[0]->kill;
free('and come back when their gateway is gone');
ok(wait_for(sub { metric($gateways[1], 'gateways') eq 2 }), 'one less lives');

# one with another secret is not heard
my $stranger = fleet(0, secret => "another secret, 1234567890\n");
$stranger->log_has(qr/ratelimit peers "fleet", "127.0.0.1:\d+": it has another/,
                   'another secret is refused');
is(metric($stranger, 'peers_connected'), 0, 'and gets no connection');
is(metric($gateways[1], 'peers_connected'), 1, 'nor do others lose one');
$stranger->stop;

# bytes that are no handshake, and a connection that says nothing
for my $bytes ("GET / HTTP/1.0\r\nHost: a\r\n\r\n" . 'x' x 100,
               "rlpeer\0\5" . 'x' x 24 . 'y' x 16, "rlpeer\0\5", '')
{
    my $socket = connect_to($ports[1]);
    print $socket $bytes;
    $socket->flush;
    shutdown $socket, 1 if $bytes ne '';
    local $SIG{ALRM} = sub { die "not closed\n" };
    alarm 60;
    my $got = '';
    1 while sysread $socket, $got, 4096, length $got;
    alarm 0;
    ok(length $got <= 32, 'it is closed, and was told no proof');
}
my @many = map { connect_to($ports[1]) } 1 .. 100;
is($gateways[1]->get('/z?k=c')->{status}, 200, 'a hundred strangers');
is(metric($gateways[1], 'peers_connected'), 1, 'take no place of a peer');
close $_ for @many;

$gateways[0] = fleet(0);
ok(connected(2, @gateways), 'and keep none away');

$_->stop for @gateways;
