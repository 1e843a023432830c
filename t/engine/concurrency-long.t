# Requests that run for days keep their permits, on a gateway that has no Redis
# and on one that has lost it.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( tally wait_for );

use IO::Socket::INET;
use IO::Socket::UNIX;

my $KEYS = 10;

# new counters, for which the table looks for places
my $OTHERS = 1000;

my $redis = redis_start();

my $held = 'proxy_pass http://unix:%%DIR%%/api.sock;';
my $gateway = t::Gateway->limited(
    start => 0, redis => $redis, timeout => '1s',
    zone => { before => 'rate=1000r/s',
              'here:128k' => 'algorithm=concurrency limit=2',
              fleet => 'algorithm=concurrency limit=2 redis=r fail_mode=local' },
    rules => [map { "other zone=$_ match=~/other\$ key=\$arg_o rate=10r/h" }
              qw( here fleet )],
    server => 'proxy_read_timeout 30d;',
    locations => { '/free' => '',
                   map { ("/$_" => "ratelimit zone=$_;",
                          "/$_/held" => "ratelimit zone=before; ratelimit zone=$_;"
                                         . " $held") }
                       qw( here fleet ) });

$gateway->{api} = IO::Socket::UNIX->new(Listen => 100,
                                        Local => "$gateway->{dir}/api.sock")
    or die "api.sock: $!";
$gateway->start;

# A request that runs until both ends are closed.
sub hold {
    my $client = $gateway->connect_to;
    syswrite $client, "GET $_[0] HTTP/1.0\r\n\r\n";
    return ($client, $gateway->{api}->accept // die "accept: $!");
}

# A worker looks at its timers behind each turn.
sub hours {
    for (1 .. shift) {
        advance(3600);
        $gateway->statuses('/free', '/free');
    }
}

sub others {
    my ($zone, $run) = @_;
    t::Gateway::send_all([map { [$gateway, "/$zone/other?o=$run-$_"] } 1 .. $OTHERS]);
}

sub each_key {
    my $zone = shift;
    return tally(t::Gateway::send_all([map { [$gateway, "/$zone?k=$_"] }
                                       1 .. $KEYS]));
}

my @held;

for my $zone ('here', 'fleet') {
    push @held, map { (hold("/$zone/held?k=$_"), hold("/$zone/held?k=$_")) }
                1 .. $KEYS;
    is(each_key($zone), "$KEYS x 429", "$zone: full");
}

hours(25);
others('here', 'one');
is(each_key('here'), "$KEYS x 429", 'here: a day later');
hours(25);
is(each_key('here'), "$KEYS x 429", 'here: two days later');
others('here', 'two');
is(each_key('here'), "$KEYS x 429", 'here: rejections change nothing');

redis_stop($redis);
others('fleet', 'two');
is(each_key('fleet'), "$KEYS x 429", 'fleet: two days later, without Redis');

close $_ for splice @held;

for my $zone ('here', 'fleet') {
    my $told;
    wait_for(sub { ($told = each_key($zone)) eq "$KEYS x 200" });
    is($told, "$KEYS x 200", "$zone: given back");
}

$gateway->stop;
