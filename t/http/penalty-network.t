# Penalties of networks: once too many keys of a network are penalized, the
# network itself is, until the first of them is not.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header wait_for );
use t::Api;

use JSON::PP qw( decode_json );

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $KEY = 'network:2001:db8::/56';
my $REALIP = 'set_real_ip_from 127.0.0.1; real_ip_header X-From;';
my $FAIL = 'proxy_pass http://127.0.0.1:%%PORT%%/404;';

# all gateways have it
my $server = redis_start();
my ($one, $two) = t::Gateway->limited(
    gateways => 2, redis => $server, api => 1,
    zone => 'key=$ratelimit_client rate=1r/h sync=strict fail_mode=local',
    http => "$REALIP ratelimit_penalty p zone=z after=1r/1h time=1h;");

for my $n (1 .. 65) {
    $one->get('/', sprintf 'X-From: 2001:db8::%x:0:0:0:1', $n) for 1 .. 3;
}

ok(wait_for(sub { $_->get('/penalties', 'X-From: 2001:db8::ff:0:0:0:1')->{body}
                      =~ /PENALIZED/ }), 'the network is penalized') for $one;
ok(wait_for(sub { t::Api->new($two)->get("/penalties?key=$KEY")->{body}
                      =~ /"total":1\b/ }), 'another gateway has it');
like($two->get('/', 'X-From: 2001:db8:0:fe::1')->{body}, qr/PENALIZED/,
     'in force');
unlike($two->get('/', 'X-From: 2001:db8:0:1fe::1')->{body}, qr/PENALIZED/,
     'for this network alone');
$_->stop for $one, $two;

my $gateway = t::Gateway->limited(
    api => 1, zone => { z => 'key=$ratelimit_client rate=1000r/s',
              'keys' => 'rate=1000r/s',
              user => 'key=$remote_addr rate=1000r/s' },
    files => { tokens => "ops:$TOKEN\n" },
    http => <<"CONF",
    $REALIP
    ratelimit_penalty p zone=z after=1r/1m time=1m on=404;
    ratelimit_penalty k zone=keys after=1r/1m time=1m on=404;
    ratelimit_penalty u zone=user key=\${remote_addr}:\$arg_k after=1r/1m time=1m
                      on=404;
CONF
    server => 'add_header X-Penalty $ratelimit_penalty always;
               ratelimit_explain token_file=tokens;',
    locations => { '/' => "ratelimit zone=z; $FAIL",
                   '/keys' => "ratelimit zone=keys; $FAIL",
                   '/user' => "ratelimit zone=user; $FAIL",
                   '/404' => 'return 404;' });

my $api = t::Api->new($gateway);

sub from {
    my ($address, $path) = @_;
    return $gateway->get($path // '/', "X-From: $address");
}

sub fails { return map { from(@_)->{status} } 1, 2 }

sub penalties {
    my $answer = decode_json($api->get('/penalties' . ($_[0] // ''))->{body});
    return map { "$_->{key} $_->{retry_after_seconds} $_->{times}" }
           @{ $answer->{penalties} };
}

t::Clock::stop();

# two networks may share a number: rows are counted 100 ms apart

# a /56
my $NET = '2001:db8:0:';

fails("${NET}7f::1");
advance(1);
fails(sprintf "${NET}%x::1", $_) for 1 .. 63;
is(from("${NET}80::1")->{status}, 404, '64 keys of a /56: others pass');
advance(0.1);
fails("${NET}81::1");

my $answer = from("${NET}82::1");

is($answer->{status}, 429, 'one more, and the network is penalized');
is(header($answer, 'X-Penalty'), 'p', 'by this penalty');
is(header($answer, 'Retry-After'), 59, 'until the first of its keys is not');
is(from("${NET}100::1")->{status}, 404, 'another /56 is not');
is(from('192.0.2.1')->{status}, 404, 'nor an address of IPv4');
is(from("${NET}82::1", '/keys?k=1')->{status}, 404, 'nor in another zone');

$gateway->log_has(qr/\ penalty\ "p"\ of\ zone\ "z"\ begins:\ ban\ for\ 59\ s,
                     \ key\ "network:2001:db8::\/56",\ number\ 1/x,
                  'the log names it');
$gateway->log_has(qr/by ratelimit penalty .* key "network:2001:db8::\/56"/,
                  'also with the rejection');

is_deeply([penalties("?key=$KEY")], ["$KEY 59 1"], '/penalties has it');
is(scalar(grep { /^sha256/ } penalties()), 64, 'and 64 keys');
is(decode_json($api->get('/rejections?n=1')->{body})->{rejections}[0]{key}, $KEY,
   'so has /rejections');
like($gateway->get('/metrics')->{body},
     qr/^ratelimit_penalties_total\{zone="z",action="network"\} 1$/m,
     'the metric counts it');
like($api->get("/counters?rule=z&key=${NET}83::/64")->{body}, qr/"penalty":"p"/,
     '/counters has it for an address');
unlike($api->get("/counters?rule=z&key=${NET}183::/64")->{body}, qr/"penalty"/,
       'and for no other');

# it ends with the first one of the keys, and there is one more
advance(58.4);
is(header(from("${NET}82::1"), 'Retry-After'), 1, 'the rest of its time');
advance(0.5);
is(join(' ', fails("${NET}82::1"), from("${NET}82::1")->{status}),
   '404 404 429', 'its end: another key has its place');
is_deeply([penalties("?key=$KEY")], [], 'the network has none');
advance(0.1);
is(join(' ', fails("${NET}83::1"), from("${NET}84::1")->{status}),
   '404 404 429', 'one more, and it has');
is(header(from("${NET}84::1"), 'Retry-After'), 1, 'until the second key ends');

is($api->delete("/penalties?key=$KEY")->{body}, "{\"ended\":1}\n",
   'ended by hand');
is(from("${NET}84::1")->{status}, 404, 'it is not there');

# a /48: at most 256 keys and /56
advance(7200);
fails(sprintf '2001:db8:1:%x::1', $_ << 8) for 0 .. 255;
is(from('2001:db8:1:1::1')->{status}, 404, '256 keys of a /48: others pass');
advance(0.1);
fails('2001:db8:1:2::1');
is(from("2001:db8:1:$_\::1")->{status}, 429, "then none does: $_")
    for 3, 'ff';
is(from('2001:db8:2::1')->{status}, 404, 'another /48 is not penalized');
is_deeply([grep { !/sha256/ } penalties()], ['network:2001:db8:1::/48 60 1'],
          'one row for all of it');
like($gateway->get('/', 'X-From: 2001:db8:1:77::1', "X-RateLimit-Explain: $TOKEN")
         ->{body},
     qr/"network":\s*"network:2001:db8:1::\/48"/, 'explain names it');

# a /24, by a key that has more than the address
fails('192.0.2.9', "/user?k=$_") for 1 .. 256;
is(from('192.0.2.10', '/user?k=a')->{status}, 404, '256 keys of a /24');
advance(1);
fails('192.0.2.9', '/user?k=b');
is(from('192.0.2.10', '/user?k=a')->{status}, 429, 'and the network');
is(from('192.0.3.10', '/user?k=a')->{status}, 404, 'and no other');
$gateway->log_has(qr/penalty "u" .* key "network:192\.0\.2\.0\/24"/,
                  'the log names it');

# /top marks addresses of the network
my $clear = t::Gateway->limited(api => 1,
    zone => { z => 'key=$ratelimit_client rate=1000r/s keys_in_clear=on' },
    http => "$REALIP ratelimit_penalty p zone=z after=1r/1m time=1m on=404;",
    locations => { '/' => "ratelimit zone=z; $FAIL", '/404' => 'return 404;' });

$clear->get('/', "X-From: $_") for '2001:db8:0:ff::1', '2001:db8:0:1ff::1',
    map { (sprintf '2001:db8:0:%x::1', $_) x 2 } 1 .. 64;
advance(0.1);
$clear->get('/', 'X-From: 2001:db8:0:65::1') for 1, 2;

my %marked = map { $_->{key} => $_->{penalized} ? 1 : 0 }
    @{ decode_json(t::Api->new($clear)->get('/top?n=100')->{body})->{keys} };

is("@marked{'2001:db8:0:ff::/64', '2001:db8:0:1ff::/64'}", '1 0',
   '/top marks an address of the network, and no other');
$clear->stop;

# keys without an address are no network
advance(3600);
fails('192.0.2.9', "/keys?k=$_") for 1 .. 257;
is(from('192.0.2.9', '/keys?k=other')->{status}, 404, 'other keys pass');
is(from('192.0.2.9', '/keys?k=257')->{status}, 404, 'as does one too many');
is(from('192.0.2.9', '/keys?k=256')->{status}, 429, 'others are penalized');
is(join(' ', fails('192.0.2.9', '/user?k=b'),
        from('192.0.2.9', '/user?k=b')->{status}), '404 404 429',
   'they take no place of keys with an address');

$gateway->stop('QUIT', qr/does not begin/);
