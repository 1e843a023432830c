# Which rules apply, by the host and the API key, and the limits of tiers.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );

use Digest::SHA 'sha256_hex';

my $redis = redis_port();
my $prefix = key_prefix();
my $hash = sha256_hex('hashed');

my $gateway = t::Gateway->limited(
    redis => $redis,
    http => 'map $http_x_plan $plan { default $http_x_plan; none ""; }'
            . 'ratelimit_tier $plan;',
    zone => { redis => 'redis=r', map { $_ => '' } qw( hosts keys methods tiers ) },
    rules => [
        'host zone=hosts rate=9r/h host=api.example.com,*.Example.org',
        'path zone=hosts rate=8r/h host=path.example "match=/hosts/{x}"',
        "key zone=keys rate=7r/h api_key=sk_*,one?,sha256:$hash",
        'get zone=methods rate=6r/h methods=GET match=/methods/get',
        'head zone=methods rate=6r/h methods=HEAD,POST match=/methods/head',
        'rate zone=tiers match=/tiers/rate rate=2r/h capacity=3'
        . ' "tiers=pro:100r/h,the best:5r/h"',
        'limit zone=tiers match=/tiers/limit rate=$arg_r tiers=pro:4r/h',
        'number zone=tiers match=/tiers/number tiers=pro:4'
        . ' algorithm=fixed_window limit=2 window=366d',
        'strict zone=redis match=/redis/strict limit=2 window=1h tiers=pro:4'
        . ' sync=strict',
        'lease zone=redis match=/redis/lease limit=2 window=1h tiers=pro:4',
    ],
    locations => {
        '/named' => 'ratelimit zone=hosts rule=host;',
        '/methods' => 'ratelimit zone=methods; root %%DIR%%;',
        map { ("/$_" => "ratelimit zone=$_;") } qw( hosts keys tiers redis ),
    });

sub rule {
    my $answer = $gateway->get(@_);
    return header($answer, 'X-Status') . ' ' . header($answer, 'X-Rule');
}

sub limit {
    my $answer = $gateway->get(@_);
    return join ' ', $answer->{status},
                     map { header($answer, "X-RateLimit-$_") }
                     qw( Limit Remaining );
}

# hosts: whole, by a glob, in any case, whatever the port
is(rule('/hosts?k=1', "Host: $_"), 'PASSED host', "host $_")
    for 'api.example.com', 'API.Example.COM', 'api.example.com:8080',
        'a.example.org', 'a.b.EXAMPLE.org', 'api.example.com.';
is(rule('/hosts?k=1', "Host: $_"), 'BYPASSED ', "no rule for host $_")
    for 'example.com', 'x.api.example.com', 'example.org', 'path.example',
        'api.example.com.evil';
is(rule('/hosts/7?k=1', 'Host: path.example'), 'PASSED path',
   'a host and a path');
is(rule('/hosts/7?k=1', 'Host: other.example'), 'BYPASSED ',
   'the path alone is not enough');
is(rule('/named?k=1', 'Host: api.example.com'), 'PASSED host',
   'a rule that a location names');
is(rule('/named?k=1', 'Host: other.example'), 'BYPASSED ',
   'is for its hosts alone there, too');

# methods: HEAD is not GET
for (['get', GET => 'PASSED get'], ['get', HEAD => 'BYPASSED '],
     ['get', POST => 'BYPASSED '], ['head', HEAD => 'PASSED head'],
     ['head', POST => 'PASSED head'], ['head', GET => 'BYPASSED '])
{
    my ($path, $method, $expected) = @$_;
    is(rule("$method /methods/$path?k=1"), $expected, "$path: $method");
}

# API keys
is(rule('/keys?k=1', "X-API-Key: $_"), 'PASSED key', "API key $_")
    for 'sk_', 'sk_live_1', 'one1', 'hashed';
is(rule('/keys?k=1', "X-API-Key: $_"), 'BYPASSED ', "no rule for API key $_")
    for 'SK_1', 'pk_1', 'one', 'one22', "sha256:$hash", $hash;
is(rule('/keys?k=1'), 'BYPASSED ', 'nor for a request without one');
is(rule('/keys?k=1', 'Authorization: Bearer sk_2'), 'PASSED key',
   'from any source of the location');

# tiers: another limit of the same counter
is(limit('/tiers/rate?k=1', 'X-Plan: none'), '200 3 2', 'the rule itself');
is(limit('/tiers/rate?k=2', 'X-Plan: pro'), '200 3 2',
   'another rate, the same capacity');
is(limit('/tiers/limit?k=1&r=2r/h', 'X-Plan: none'), '200 2 1',
   'a limit with a variable');
is(limit('/tiers/limit?k=2&r=2r/h', 'X-Plan: pro'), '200 4 3', 'of a tier');
is(limit('/tiers/limit?k=3', 'X-Plan: pro'), '200 4 3',
   'which needs no variable');
is(limit('/tiers/limit?k=3', 'X-Plan: free'), '200  ', 'others do');

for my $path ('/tiers/number', '/redis/strict', '/redis/lease') {
    is(join(', ', map { limit("$path?k=a", 'X-Plan: pro') } 1 .. 5),
       '200 4 3, 200 4 2, 200 4 1, 200 4 0, 429 4 0',
       "$path: the limit of a tier holds");
    is(join(', ', map { limit("$path?k=b", 'X-Plan: none') } 1 .. 3),
       '200 2 1, 200 2 0, 429 2 0', "$path: and that of the rule");
    is(limit("$path?k=c", 'X-Plan: PRO'), '200 2 1',
       "$path: a tier is compared exactly");
}

$gateway->stop;
