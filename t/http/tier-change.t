# A client that changes its tier keeps its counter: what it has used stays used,
# by each algorithm, in shared memory and in Redis.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

use IO::Socket::INET;

# a server that answers nobody: what is sent there is in flight
my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 256)
    or die "listen: $!";
my $redis = redis_port();
my $prefix = key_prefix();

# a limit of four, of ten for "pro"
my %limits = (
    token_bucket => 'rate=4r/h tiers=pro:10r/h',
    leaky_bucket => 'rate=4r/h burst=3 nodelay tiers=pro:10r/h',
    fixed_window => 'limit=4 window=366d tiers=pro:10',
    sliding_window => 'limit=4 window=366d tiers=pro:10',
    sliding_log => 'limit=4 window=1d tiers=pro:10',
    concurrency => 'limit=4 tiers=pro:10',
);

# Two of four are used, then the tier is "pro": a bucket keeps the share that is
# used, the others the number. A leaky bucket's places stay four, and a share is
# rounded up.
my %raised = (token_bucket => 4, leaky_bucket => 0, fixed_window => 7,
              sliding_window => 7, sliding_log => 7, concurrency => 7);

my %zones = (local => '', lease => 'redis=r', strict => 'redis=r');
my ($rules, $locations) = ('', '');

for my $zone (sort keys %zones) {
    my $sync = $zone eq 'strict' ? 'sync=strict' : '';

    $rules .= "ratelimit_zone \$arg_k zone=$zone:1m $zones{$zone};\n";

    for (sort keys %limits) {
        $rules .= "ratelimit_rule $_ zone=$zone algorithm=$_ $limits{$_}"
                  . " $sync;\n";
        $locations .= <<"LOCATION";
        location /$zone/$_ { ratelimit zone=$zone rule=$_; empty_gif; }
        location /hold/$zone/$_ {
            ratelimit zone=$zone rule=$_;
            proxy_pass http://127.0.0.1:@{[$silent->sockport]};
        }
LOCATION
    }
}

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis r { server 127.0.0.1:$redis; prefix $prefix; timeout 5s; }
    $rules
    ratelimit_tier \$arg_t;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        $locations
    }
CONF

my @held;

# one request that stays in flight
sub hold {
    my $path = shift;

    my $held = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                     PeerPort => $gateway->{port})
        or die "connect: $!";

    print $held "GET /hold$path HTTP/1.1\r\nHost: a\r\n\r\n";
    $held->flush;
    push @held, $held;
}

sub told { return join ' ', t::Gateway::told($gateway->get($_[0])) }

# so many of the limit, by requests that stay if the algorithm counts these
sub spend {
    my ($path, $n, $left) = @_;

    if ($path !~ /concurrency/) {
        told($path) for 1 .. $n;
        return;
    }

    hold($path) for 1 .. $n;
    ok(t::Gateway::wait_for(sub { told($path) =~ /^200 PASSED $left$/ }),
       "$path: $n are in flight");
}

for my $zone (sort keys %zones) {
    for my $algorithm (sort keys %limits) {
        my $path = "/$zone/$algorithm";

        spend("$path?k=up", 2, 1);
        is(told("$path?k=up&t=pro"), "200 PASSED $raised{$algorithm}",
           "$path: a higher tier");

        spend("$path?k=spent", 4, 0) if $algorithm ne 'concurrency';
        is(told("$path?k=spent&t=pro"), $algorithm =~ /bucket/
               ? '429 REJECTED 0' : '200 PASSED 5',
           "$path: a spent counter") if $algorithm ne 'concurrency';

        next if $algorithm =~ /bucket/;

        spend("$path?k=down&t=pro", 6, 3);
        is(told("$path?k=down"), '429 REJECTED 0', "$path: a lower tier");
        is(told("$path?k=down&t=pro"), '200 PASSED 3',
           "$path: and the higher one again");
    }
}

close $_ for @held;
$gateway->stop;
