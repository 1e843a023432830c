# Peers beside Redis: while it is away, gateways that tell each other enforce one
# limit together. One that is alone without it has a share.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Gateway qw( connect_to passed tally wait_for );
use t::Ports qw( free_port );

my @ports = map { free_port() } 1 .. 3;
my $redis = redis_start();

# what never answers
my $silent = free_port();
my $listening = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 100,
                                      LocalPort => $silent, ReuseAddr => 1)
    or die $!;

# A gateway that listens on the n-th port; two workers.
sub http {
    my ($n, $port, $peers) = @_;
    my $lines = join ' ', map { "peer 127.0.0.1:$_;" } @ports;
    my $both = "redis=r $peers fail_mode=local";
    return t::Gateway::limited_http(
        redis => $port, timeout => '5s',
        zone => { z => "rate=20r/d $both",
                  w => "algorithm=fixed_window limit=20 window=1h $both",
                  m => "algorithm=fixed_window limit=20 window=calendar:month $both",
                  s => "algorithm=sliding_window limit=20 window=1h $both",
                  l => "algorithm=sliding_log limit=20 window=1h $both",
                  y => "rate=20r/d sync=strict $both",
                  c => "algorithm=concurrency limit=4 $both" },
        locations => { map({ ("/$_" => "ratelimit zone=$_;") }
                           qw( z w m s l y )),
                       '/c' => 'ratelimit zone=c;',
                       '/held' => 'ratelimit zone=c; '
                                  . "proxy_pass http://127.0.0.1:$silent;" },
        http => "ratelimit_peers fleet { listen 127.0.0.1:$ports[$n]; $lines "
                . "secret_file %%DIR%%/secret; }\n");
}

sub gateway {
    my ($n, $port, %more) = @_;
    my $gateway = t::Gateway->new(
        workers => 2, http => http($n, $port, $more{peers} // 'peers=fleet'));
    $gateway->write(secret => "a secret of all gateways, 1234567890\n");
    return $gateway->start;
}

sub metric {
    my ($gateway, $name) = @_;
    return $gateway->get('/metrics')->{body} =~ /^ratelimit_$name (\d+)$/m
           ? $1 : 'none';
}

sub figure {
    my ($name, $what, $n, @gateways) = @_;
    my @got;
    ok(wait_for(sub {
        @got = map { metric($_, $name) } @gateways;
        return !grep { $_ ne $n } @got;
    }), $what) or diag("@got, not $n", map { $_->log } @gateways);
}

# Until gateways know what another one has spent: then they know of a key that
# was used there later. A look says nothing while Redis is away.
my $markers = 0;
sub known {
    my ($from, $name, @gateways) = @_;
    my $marker = '/z?k=marker' . ++$markers;
    $from->burst(20, $marker);
    for my $gateway (@gateways) {
        ok(wait_for(sub { $gateway->get($marker)->{status} == 429 }), $name);
    }
}

sub becomes {
    my ($status, $name, @gateways) = @_;
    ok(wait_for(sub { $_->becomes($status, '/z?k=%s') }), $name) for @gateways;
}

my $CONNECTED = 'peers_connected\{peers="fleet"\}';
my $WITH_REDIS = 'peers_with_redis\{peers="fleet"\}';
my $NAMED = 'gateways\{redis="r"\}';

my @gateways = map { gateway($_, $redis) } 0 .. 2;

figure($CONNECTED, 'each is connected to the two others', 2, @gateways);
figure($NAMED, 'Redis names all', 3, @gateways);
figure($WITH_REDIS, 'and answers all', 2, @gateways);
becomes('PASSED', 'all have Redis', @gateways);

for my $zone (qw( z w m s l y )) {
    is(tally($gateways[0]->burst(8, "/$zone?k=with")), '8 x 200',
       "$zone: spent while Redis answers");
    # one after the other: of two answers at once the older may be noted last
    is(tally(map { $gateways[0]->get("/$zone?k=noted") } 1 .. 8), '8 x 200',
       "$zone: and of another key");
}

# nothing is told: a message without counters has 32 bytes
my %sent = $gateways[0]->get('/metrics')->{body}
           =~ /^ratelimit_peers_sent_(\w+)_total\{peers="fleet"\} (\d+)$/mg;
is($sent{bytes}, $sent{messages} * 32, 'and nobody was told');

redis_stop($redis);
becomes('DEGRADED', 'Redis is away', @gateways);

for my $zone (qw( z w m s l y )) {
    is(tally($gateways[0]->burst(8, "/$zone?k=a")), '8 x 200',
       "$zone: spent without Redis");
    known($gateways[0], "$zone: another one knows it", $gateways[1]);
    is(tally($gateways[1]->burst(13, "/$zone?k=a")), '12 x 200, 1 x 429',
       "$zone: the rest, at another one");
    known($gateways[1], "$zone: all know it", @gateways[0, 2]);
    is(tally(map { $_->get("/$zone?k=a") } @gateways), '3 x 429',
       "$zone: for any gateway");
    is(tally($gateways[2]->burst(21, "/$zone?k=b")), '20 x 200, 1 x 429',
       "$zone: one gateway has the full limit");
    is(tally($gateways[0]->burst(13, "/$zone?k=noted")), '12 x 200, 1 x 429',
       "$zone: and goes on from what Redis said last");
}

# permits
sub hold {
    my ($n, $of) = @_;
    return map { my $socket = connect_to($of);
                 print $socket "GET /held?k=p HTTP/1.0\r\n\r\n";
                 $socket->flush; $socket } 1 .. $n;
}
my @held = hold(4, $gateways[0]);
ok(wait_for(sub { $gateways[1]->get('/c?k=p')->{status} == 429 }),
   'permits of one gateway count at another');
close $_ for @held;
ok(wait_for(sub { $gateways[1]->get('/c?k=p')->{status} == 200 }),
   'and come back when its requests end');

# one that has lost the others, too, has a share again
$gateways[1]->kill;
$gateways[2]->kill;
figure($CONNECTED, 'both others are gone', 0, $gateways[0]);
ok(wait_for(sub {
    tally($gateways[0]->burst(20, '/z?k=' . rand)) eq '13 x 200, 7 x 429';
}), 'two thirds of the limit: Redis named three');
$gateways[$_] = gateway($_, $redis) for 1, 2;
figure($CONNECTED, 'they are back', 2, @gateways);
my @passed = (0, 0);
ok(wait_for(sub {
    my $passed = passed($gateways[$_]->get('/z?k=a'));
    $passed[$_ - 1] += $passed;
    return !$passed;
}) && $passed[$_ - 1] < 20, 'and know what was spent') for 1, 2;

# Redis is back: its count wins
redis_start(port => $redis);
becomes('PASSED', 'Redis is back', @gateways);
is(tally($gateways[2]->burst(20, '/z?k=a')), '20 x 200', 'its count wins');
is(tally($gateways[0]->get('/z?k=a')), '1 x 429', 'for all gateways');

# one gateway alone has no Redis
figure($NAMED, 'Redis names all again', 3, @gateways);
$gateways[2]->kill;
$gateways[2] = gateway(2, free_port());
figure($CONNECTED, 'one without Redis is connected', 2, @gateways);
figure($WITH_REDIS, 'the two others have it', 2, $gateways[2]);
figure($WITH_REDIS, 'and know who has', 1, @gateways[0, 1]);
becomes('DEGRADED', 'it has none', $gateways[2]);
ok(wait_for(sub {
    tally($gateways[2]->burst(20, '/z?k=' . rand)) eq '13 x 200, 7 x 429';
}), 'and gets a share');

# a reload brings peers to a zone, and takes them away
$gateways[1]->kill;
$gateways[1] = gateway(1, $redis, peers => '');
becomes('PASSED', 'a gateway whose zones have no peers', $gateways[1]);
for my $peers ('peers=fleet', '') {
    my $passed = passed($gateways[1]->burst(8, "/z?k=reload$peers"));
    is($passed, 8, 'spent before a reload');
    $gateways[1]->configure(http => http(1, $redis, $peers))->reload;
    ok(wait_for(sub {
        $passed += passed($gateways[1]->get("/z?k=reload$peers"));
        return $passed == 20;
    }), "a reload to \"$peers\": Redis has the rest") or diag($passed);
    is(tally($gateways[0]->get("/z?k=reload$peers")), '1 x 429', 'and no more');
}
figure($CONNECTED, 'connected again', 2, @gateways);

$_->stop for @gateways;
