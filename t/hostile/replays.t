# Clients that send replays to get more than their limit: four times as many
# requests that are the same, and none besides. Marks take no counter's place.

use IO::Socket::INET;
use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( passed tally );

t::Clock::stop();

my $KEY = 'Idempotency-Key: k';
my $up = t::Gateway::free_port();

# an API that does not answer
my $silent = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1',
                                   Timeout => $t::Gateway::PATIENCE);

my $gateway = t::Gateway->limited(
    workers => 4,
    zone => { z => 'rate=10r/h', cost => 'rate=1000r/h cost=$http_x_cost',
              header => 'rate=1000r/h cost=100 cost_header=X-Cost',
              login => 'rate=10r/h count_status=401',
              'small:128k' => 'rate=100r/h' },
    rules => ['flood zone=small rate=1000000r/h'],
    http => <<"CONF",
    ratelimit_once \$http_idempotency_key 1d;
    server {
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$http_x_says; return 200; }
        location /401 { return 401; }
    }
CONF
    locations => {
        '/' => 'ratelimit zone=z;',
        '/cost' => 'ratelimit zone=cost;',
        '/header' => "ratelimit zone=header; proxy_pass http://127.0.0.1:$up/;",
        '/login' => 'ratelimit zone=login; '
                    . "proxy_pass http://127.0.0.1:$up/\$http_x_to;",
        '/left' => 'ratelimit zone=login; '
                   . 'proxy_pass http://127.0.0.1:$http_x_port/401;',
        '/small' => 'ratelimit zone=small rule=small;',
        '/flood' => 'ratelimit zone=small rule=flood;',
    });

# one after the other, at once, and in all orders
is(tally(map { $gateway->get('/?k=a', $KEY) } 1 .. 100), '40 x 200, 60 x 429',
   'one after the other');
is(passed($gateway->burst(100, '/?k=a', $KEY)), 0, 'then none');

my $passed = passed($gateway->burst(200, '/?k=b', $KEY));

cmp_ok($passed, '<=', 40, "at once: $passed of 40");
is(passed($gateway->burst(10, '/?k=b')), 0, 'and no token is left')
    if $passed == 40;

is(tally(map { $gateway->get("/?k=c&n=$_", $KEY) } 1 .. 100),
   '10 x 200, 90 x 429', 'a key that was paid frees no other request');
is(tally(map { $gateway->get('/?k=d', "$KEY$_") } 1 .. 100),
   '10 x 200, 90 x 429', 'nor do invented keys');
is(passed(map { $gateway->get('/?k=e', "$KEY", "Host: h$_") } 1 .. 100), 10,
   'nor hosts');

# a price that the client makes
$passed = 0;

for (1 .. 50) {
    $gateway->get("/cost?k=a&n=$_", $KEY, 'X-Cost: 1');
    $passed += passed($gateway->get("/cost?k=a&n=$_", $KEY, 'X-Cost: 300'));
}

is($passed, 3, 'a cheap request frees no dear one');

$passed = 0;

for (1 .. 50) {
    $gateway->get("/header?k=a&n=$_", $KEY, 'X-Says: 0');
    $passed += passed($gateway->get("/header?k=a&n=$_", $KEY, 'X-Says: 300'));
}

is($passed, 4, 'also if the response tells it');

my $failed = 0;

for (1 .. 50) {
    $gateway->get("/login?k=a&n=$_", $KEY, 'X-To: 200');
    $failed += $gateway->get("/login?k=a&n=$_", $KEY, 'X-To: 401')->{status}
               == 401;
}

is($failed, 10, 'a success frees no failure');

for (1 .. 10) {
    my @request = ("/left?k=b&n=$_", $KEY);
    my $left = t::Gateway::begin($gateway, 1, @request,
                                 'X-Port: ' . $silent->sockport);
    my $asked = $silent->accept;
    undef $left;
    1 while sysread $asked, my $read, 4096;
    $gateway->get(@request, "X-Port: $up");
}

is($gateway->get('/left?k=b', "X-Port: $up")->{status}, 429,
   'nor does a client that leaves before it is known');

# a full table
sub left {
    my ($k) = @_;
    return $gateway->told("/small?k=$k") =~ /PASSED (\d+)/ ? $1 : 'none';
}

left("client$_") for 1 .. 100;

for my $n (1 .. 40) {
    t::Gateway::send_all([map { [$gateway, '/flood?k=f', "$KEY-$n-$_"] }
                          1 .. 250]);
}

is(join(' ', grep { $_ != 98 } map { left("client$_") } 1 .. 100), '',
   'marks evict no client');

$gateway->stop;
