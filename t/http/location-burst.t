# "ratelimit" with "burst=", "delay=" or "nodelay": a location uses a part of a
# leaky bucket that others use, too. The requests of all count together.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally );

# Retry-After is compared whole
t::Clock::stop();

my $redis = redis_port();
my $prefix = key_prefix();
my $TOKEN = 'a-token-of-32-bytes-0123456789ab';

my $gateway = t::Gateway->limited(
    redis => $redis,
    files => { tokens => "ops:$TOKEN\n" },
    http => 'ratelimit_explain token_file=tokens;'
            . 'map $http_x_rate $rate { default $http_x_rate; "" 10r/h; }'
            . 'ratelimit_tier $http_x_plan;',
    zone => { here => 'algorithm=leaky_bucket rate=10r/h burst=9 nodelay',
              tiers => '', there => 'redis=r' },
    rules => [
        'strict zone=there algorithm=leaky_bucket rate=10r/h burst=9 nodelay'
        . ' sync=strict',
        'tier zone=tiers match=/tiers/** algorithm=leaky_bucket rate=10r/h'
        . ' burst=9 nodelay tiers=pro:20r/h',
        'rate zone=tiers match=/rate/** algorithm=leaky_bucket rate=$rate'
        . ' burst=9 nodelay',
    ],
    locations => {
        '/' => 'ratelimit zone=here;',
        '/three' => 'ratelimit zone=here burst=2 nodelay;',
        '/one' => 'ratelimit zone=here burst=0;',
        '/all' => 'ratelimit zone=here nodelay;',
        '/strict' => 'ratelimit zone=there;',
        '/strict/three' => 'ratelimit zone=there rule=strict burst=2 nodelay;',
        '/strict/one' => 'ratelimit zone=there burst=0;',
        '/tiers' => 'ratelimit zone=tiers;',
        '/tiers/three' => 'ratelimit zone=tiers rule=tier burst=2 nodelay;',
        '/rate' => 'ratelimit zone=tiers;',
        '/rate/three' => 'ratelimit zone=tiers rule=rate burst=2 nodelay;',
    });

# "status limit remaining" of each
sub told {
    my ($n, $path, @headers) = @_;
    return join ', ', map {
        my $answer = $gateway->get("$path", @headers);
        join ' ', $answer->{status},
                  map { header($answer, "X-RateLimit-$_") } qw( Limit Remaining )
    } 1 .. $n;
}

for (['/', ''], ['/strict', '/strict'], ['/tiers', '/tiers'], ['/rate', '/rate'])
{
    my ($whole, $base) = @$_;
    is(told(4, "$base/three?k=1"), '200 3 2, 200 3 1, 200 3 0, 429 3 0',
       "$base: a part of its own");
    is(told(2, "$whole/x?k=1"), '200 10 6, 200 10 5',
       "$base: the others have the rest");
    is(told(1, "$base/three?k=1"), '429 3 0', "$base: and what they use counts");
    is(told(6, "$whole/x?k=1"), '200 10 4, 200 10 3, 200 10 2, 200 10 1, '
       . '200 10 0, 429 10 0', "$base: the part has changed nothing");
}

is(told(1, '/one?k=2'), '200 1 0', 'no burst');
is(told(1, '/one?k=2'), '429 1 0', 'none');
is(told(1, '/three?k=2'), '200 3 1', 'another part');
is(told(2, '/strict/one?k=2'), '200 1 0, 429 1 0', 'no burst, with Redis');
is(told(1, '/all?k=2'), '200 10 7', 'the burst of the rule, and its own nodelay');

# when a retry succeeds
my $answer = $gateway->get('/three?k=1');
is(header($answer, 'Retry-After'), 8 * 360, 'eight have to drain');
$answer = $gateway->get('/strict/three?k=1');
is(header($answer, 'Retry-After'), 8 * 360, 'with Redis, too');
is(header($gateway->get('/?k=1'), 'Retry-After'), 360, 'of the whole one has');

# another limit than the rule's own
is(told(4, '/tiers/three?k=3', 'X-Plan: pro'),
   '200 3 2, 200 3 1, 200 3 0, 429 3 0', 'of a tier');
is(header($gateway->get('/tiers/three?k=3', 'X-Plan: pro'), 'Retry-After'), 180,
   'by the rate of the tier');
is(told(4, '/rate/three?k=3', 'X-Rate: 20r/h'),
   '200 3 2, 200 3 1, 200 3 0, 429 3 0', 'of a variable');

# what an explained request shows
for my $base ('', '/strict') {
    like($gateway->get("$base/three?k=4", "X-RateLimit-Explain: $TOKEN")->{body},
         qr/"limit":3,.*"remaining":3,/, "$base: explained");
}

# what has no part
my $other = t::Gateway->limited(start => 0);
my $zone = 'ratelimit_zone $arg_k zone=z:1m';
my $leaky = 'algorithm=leaky_bucket rate=1r/s burst=9';
my $server = 'server { listen 127.0.0.1:1; location /';

for (["$zone rate=1r/s;", 'burst=1', 'a rule with algorithm leaky_bucket'],
     ["$zone $leaky;", 'burst=10', 'a burst of at most that of the rule'],
     ["$zone $leaky; ratelimit_rule a zone=z $leaky;", 'nodelay',
      '"rule=", since nginx.conf does not have one rule of the zone'],
     ["ratelimit_redis r { server 127.0.0.1:$redis; } $zone redis=r $leaky;",
      'delay=1', 'a rule with "sync=strict"'])
{
    my ($http, $more, $expected) = @$_;
    like($other->verdict("$http $server { ratelimit zone=z $more; } }"),
         qr/"ratelimit" has a "burst=", "delay=" or "nodelay" for zone "z", expected \Q$expected\E/,
         "$more: $expected");
}

like($other->verdict("$zone $leaky; $server { ratelimit zone=z burst=1 "
                       . 'nodelay delay=1; } }'),
     qr/"delay=" beside "nodelay", expected one of them/, 'both');

$gateway->stop;
