# A rule for a share of the keys: as many as it says, the same ones on every
# gateway and after every restart.

use t::RateLimit 'no_plan';
use t::Gateway qw( told );

use constant KEYS => 10_000;

my $redis = redis_port();
my $gone = 'server 127.0.0.1:' . t::Gateway::free_port() . '; timeout 200ms';

sub conf {
    my $share = shift;
    return (redis => { r => $redis, gone => $gone },
        zone => { 'z:4m' => '', fleet => 'redis=r percent=50 rate=9r/h',
                  lost => 'redis=gone percent=50 rate=9r/h' },
        rules => ["ten rate=9r/h percent=$share", 'half rate=9r/h percent=50',
                  'other rate=9r/h percent=50', 'all rate=9r/h percent=100',
                  'tenant zone=fleet key=$arg_t rate=5r/h'],
        http => 'keepalive_requests 100000;',
        locations => { '/fleet' => 'ratelimit zone=fleet;',
                       '/lost' => 'ratelimit zone=lost;',
                       map { ("/$_" => "ratelimit zone=z rule=$_;") }
                       qw( ten half other all ) });
}

# For each key a digit: whether the rule of that path applies to it.
sub share {
    my ($gateway, $path) = @_;
    my $socket = $gateway->connect_to;
    my $share = '';
    local $SIG{ALRM} = sub { die "no answer from $path\n" };
    alarm 60;
    for my $first (map { $_ * 100 } 0 .. KEYS / 100 - 1) {
        print $socket map { "GET $path?k=key-$_ HTTP/1.1\r\nHost: a\r\n\r\n" }
                      $first .. $first + 99;
        for (my $n = 0; $n < 100; ) {
            my $line = <$socket> // die "$path: the connection ended";
            next if $line !~ /X-Status: (\w+)/;
            $share .= $1 eq 'PASSED' ? 1 : $1 eq 'BYPASSED' ? 0 : '?';
            $n++;
        }
    }
    alarm 0;
    return $share;
}

sub within {
    my ($share, $low, $high, $name) = @_;
    my $n = $share =~ tr/1//;
    ok($n >= $low && $n <= $high && $share !~ /\?/,
       "$name: $n of " . KEYS . ", from $low to $high");
}

sub both { return $_[0] & $_[1] }

my $gateway = t::Gateway->limited(conf(10));

my $ten = share($gateway, '/ten');
my $half = share($gateway, '/half');
my $other = share($gateway, '/other');

within($ten, 900, 1100, '10 percent');
within($half, 4800, 5200, '50 percent');
within($other, 4800, 5200, '50 percent of another rule');
within(both($half, $other), 2300, 2700, 'the two are independent');
within(both($ten, $half), 400, 600, 'and so are those of 10 and 50 percent');
within(share($gateway, '/all'), KEYS, KEYS, '100 percent');

# one key alone can be out of the share, the other in it
my ($in, $out) = map { "key-$_" } index($half, 1), index($half, 0);

is($gateway->get("/half?k=$in")->{status}, 200, 'a key of the share');
is($gateway->told("/half?k=$out"), '200 BYPASSED ', 'a key that is not');
is($gateway->told('/half'), '200 BYPASSED ', 'no key');

# a restart makes another table under another random key
$gateway->stop;
$gateway->start;

ok(share($gateway, '/ten') eq $ten, 'after a restart the same keys');

my $second = t::Gateway->limited(conf(20));

ok(share($second, '/half') eq $half, 'on another gateway the same keys');

my $twenty = share($second, '/ten');

within($twenty, 1800, 2200, 'a larger share');
ok(both($twenty, $ten) eq $ten, 'it contains the smaller one');

$second->stop;

# Redis is asked for the rules that apply, and for nothing where none does
my @fleet = map { "key-$_" } 0 .. 39;
my @told = map { $gateway->told("/fleet?k=$_&t=x$_") } @fleet;

is(join(',', sort { $a cmp $b } keys %{{ map { $_ => 1 } @told }}),
   '200 PASSED 4', 'a rule of all keys beside one of half of them');

@told = map { $gateway->told("/fleet?k=$_") } @fleet;
my $passed = grep { $_ eq '200 PASSED 7' } @told;
my $bypassed = grep { $_ eq '200 BYPASSED ' } @told;

is($passed + $bypassed, 40, 'each key is counted or bypassed');
ok($passed > 5 && $bypassed > 5, "some of each: $passed and $bypassed");

@told = map { $gateway->told("/lost?k=$_") } @fleet;
my $degraded = grep { $_ eq '200 DEGRADED -1' } @told;
$bypassed = grep { $_ eq '200 BYPASSED ' } @told;

is($degraded + $bypassed, 40, 'without Redis each is degraded or bypassed');
ok($degraded > 5 && $bypassed > 5, "some of each: $degraded and $bypassed");

$gateway->stop;
