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

my $gateway = t::Gateway->new(http => <<"CONF");
    ratelimit_redis r { server 127.0.0.1:$redis; timeout 1s; }
    ratelimit_zone \$arg_k zone=here:128k algorithm=concurrency limit=2;
    ratelimit_zone \$arg_k zone=fleet:1m algorithm=concurrency limit=2 redis=r
                   fail_mode=local;
    ratelimit_rule other zone=here match=~/other\$ key=\$arg_o rate=10r/h;
    ratelimit_rule other zone=fleet match=~/other\$ key=\$arg_o rate=10r/h;
    server {
        listen 127.0.0.1:%%PORT%% backlog=4096;
        proxy_read_timeout 30d;
        location /free { empty_gif; }
        location /here { ratelimit zone=here; empty_gif; }
        location /fleet { ratelimit zone=fleet; empty_gif; }
        location /here/held {
            ratelimit zone=here;
            proxy_pass http://unix:%%DIR%%/api.sock;
        }
        location /fleet/held {
            ratelimit zone=fleet;
            proxy_pass http://unix:%%DIR%%/api.sock;
        }
    }
CONF

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
