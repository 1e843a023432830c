# The counters of a rule start anew when its algorithm changes: for all pairs of
# algorithms, in shared memory and in Redis. What the old algorithm has counted
# is still there when the rule goes back to it.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );

use IO::Socket::INET;

# a server that answers nobody: what is sent there is in flight
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 256)
    or die "listen: $!";
my $redis = redis_port();
my $prefix = key_prefix();

my %limits = (
    token_bucket => 'rate=3r/h',
    leaky_bucket => 'rate=3r/h burst=2 nodelay',
    fixed_window => 'limit=3 window=366d',
    sliding_window => 'limit=3 window=366d',
    sliding_log => 'limit=3 window=1d',
    concurrency => 'limit=3',
);
my %zones = (local => '', lease => 'redis=r', strict => 'redis=r');
my @pairs = map { my $from = $_; map { [$from, $_] }
                  grep { $_ ne $from } sort keys %limits } sort keys %limits;

# each pair has a rule of its own in each zone
sub configuration {
    my $which = shift;
    my $conf = "ratelimit_redis r { server 127.0.0.1:$redis; prefix $prefix;"
               . ' timeout 5s; }';
    my $locations = '';
    for my $zone (sort keys %zones) {
        my $sync = $zone eq 'strict' ? 'sync=strict' : '';
        $conf .= "ratelimit_zone \$arg_k zone=$zone:1m $zones{$zone};\n";
        for (@pairs) {
            my ($algorithm, $rule) = ($_->[$which], "$_->[0]-$_->[1]");
            $conf .= "ratelimit_rule $rule zone=$zone algorithm=$algorithm"
                     . " $limits{$algorithm} $sync;\n";
            $locations .= <<"LOCATION";
            location /$zone/$rule { ratelimit zone=$zone rule=$rule; empty_gif; }
            location /hold/$zone/$rule {
                ratelimit zone=$zone rule=$rule;
                proxy_pass http://127.0.0.1:@{[$silent->sockport]};
            }
LOCATION
        }
    }
    return <<"CONF";
    $conf
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        $locations
    }
CONF
}

my $gateway = t::Gateway->new(http => configuration(0))->start;

# Old workers stay as long as their requests, but take no new ones.
sub changed {
    my $which = shift;
    my @old = $gateway->workers;
    $gateway->configure(http => configuration($which));
    $gateway->signal('HUP');
    ok(wait_for(sub {
        for my $pid (@old) {
            open my $in, '<', "/proc/$pid/cmdline" or next;
            return 0 if (<$in> // 'shutting down') !~ /shutting down/;
        }
        return 1;
    }), 'the new configuration serves');
}

sub told { return join ' ', t::Gateway::told($gateway->get("$_[0]?k=a")) }

my @held;

for my $zone (sort keys %zones) {
    for (@pairs) {
        my ($from, $to) = @$_;
        for (1 .. 3) {
            if ($from ne 'concurrency') {
                $gateway->get("/$zone/$from-$to?k=a");
                next;
            }
            my $held = $gateway->connect_to;
            print $held "GET /hold/$zone/$from-$to?k=a HTTP/1.1\r\n"
                        . "Host: a\r\n\r\n";
            $held->flush;
            push @held, $held;
        }
        ok(wait_for(sub {
            told("/$zone/$from-$to") eq '429 REJECTED 0'
        }), "$zone, $from: it is spent");
    }
}

changed(1);

for my $zone (sort keys %zones) {
    is(told("/$zone/$_->[0]-$_->[1]"), '200 PASSED 2',
       "$zone, $_->[0] to $_->[1]: as if nobody had used it") for @pairs;
}

changed(0);

for my $zone (sort keys %zones) {
    is(told("/$zone/$_->[0]-$_->[1]"), '429 REJECTED 0',
       "$zone, $_->[1] back to $_->[0]: it is still spent") for @pairs;
}

close $_ for @held;
$gateway->stop;
