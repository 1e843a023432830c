# A client that changes its tier keeps its counter: what it has used stays used,
# by each algorithm, in shared memory and in Redis.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );

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

my @zones = (['local', ''], ['lease', ''], ['strict', 'sync=strict']);
my @counters = map { my $zone = $_->[0]; map { [$zone, $_] } sort keys %limits }
               @zones;

my $gateway = t::Gateway->limited(
    redis => $redis,
    zone => { local => '', lease => 'redis=r', strict => 'redis=r' },
    rules => [map { my ($zone, $sync) = @$_;
                    map { "$_ zone=$zone algorithm=$_ $limits{$_} $sync" }
                    keys %limits } @zones],
    http => 'ratelimit_tier $arg_t;',
    locations => { map {
        my ($zone, $algorithm) = @$_;
        my $rule = "ratelimit zone=$zone rule=$algorithm;";
        ("/$zone/$algorithm" => $rule, "/hold/$zone/$algorithm" =>
             "$rule proxy_pass http://127.0.0.1:" . $silent->sockport . ';')
    } @counters });

my @held;

# one request that stays in flight
sub hold {
    my $path = shift;
    my $held = $gateway->connect_to;
    print $held "GET /hold$path HTTP/1.1\r\nHost: a\r\n\r\n";
    $held->flush;
    push @held, $held;
}

# so many of the limit, by requests that stay if the algorithm counts these
sub spend {
    my ($path, $n, $left) = @_;
    if ($path !~ /concurrency/) {
        $gateway->told($path) for 1 .. $n;
        return;
    }
    hold($path) for 1 .. $n;
    ok(wait_for(sub { $gateway->told($path) =~ /^200 PASSED $left$/ }),
       "$path: $n are in flight");
}

for (@counters) {
    my ($zone, $algorithm) = @$_;
    my $path = "/$zone/$algorithm";
    spend("$path?k=up", 2, 1);
    is($gateway->told("$path?k=up&t=pro"), "200 PASSED $raised{$algorithm}",
       "$path: a higher tier");
    spend("$path?k=spent", 4, 0) if $algorithm ne 'concurrency';
    is($gateway->told("$path?k=spent&t=pro"), $algorithm =~ /bucket/
           ? '429 REJECTED 0' : '200 PASSED 5',
       "$path: a spent counter") if $algorithm ne 'concurrency';
    next if $algorithm =~ /bucket/;
    spend("$path?k=down&t=pro", 6, 3);
    is($gateway->told("$path?k=down"), '429 REJECTED 0', "$path: a lower tier");
    is($gateway->told("$path?k=down&t=pro"), '200 PASSED 3',
       "$path: and the higher one again");
}

close $_ for @held;
$gateway->stop;
