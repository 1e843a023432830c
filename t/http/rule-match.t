# Which rules apply, by the host and the API key, and the limits of tiers.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

use Digest::SHA 'sha256_hex';

my $redis = redis_port();
my $prefix = key_prefix();
my $hash = sha256_hex('hashed');

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis r { server 127.0.0.1:$redis; prefix $prefix; timeout 5s; }

    map \$http_x_plan \$plan { default \$http_x_plan; none ''; }
    ratelimit_tier \$plan;

    ratelimit_zone \$arg_k zone=hosts:1m;
    ratelimit_rule host zone=hosts rate=9r/h host=api.example.com,*.Example.org;
    ratelimit_rule path zone=hosts rate=8r/h host=path.example "match=/hosts/{x}";

    ratelimit_zone \$arg_k zone=keys:1m;
    ratelimit_rule key zone=keys rate=7r/h api_key=sk_*,one?,sha256:$hash;

    ratelimit_zone \$arg_k zone=methods:1m;
    ratelimit_rule get zone=methods rate=6r/h methods=GET match=/methods/get;
    ratelimit_rule head zone=methods rate=6r/h methods=HEAD,POST
                   match=/methods/head;

    ratelimit_zone \$arg_k zone=tiers:1m;
    ratelimit_rule rate zone=tiers match=/tiers/rate rate=2r/h capacity=3
                   "tiers=pro:100r/h,the best:5r/h";
    ratelimit_rule limit zone=tiers match=/tiers/limit rate=\$arg_r
                   tiers=pro:4r/h;
    ratelimit_rule number zone=tiers match=/tiers/number tiers=pro:4
                   algorithm=fixed_window limit=2 window=366d;

    ratelimit_zone \$arg_k zone=redis:1m redis=r;
    ratelimit_rule strict zone=redis match=/redis/strict limit=2 window=1h
                   tiers=pro:4 sync=strict;
    ratelimit_rule lease zone=redis match=/redis/lease limit=2 window=1h
                   tiers=pro:4;

    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        add_header X-Rule \$ratelimit_rule always;
        location /hosts { ratelimit zone=hosts; empty_gif; }
        location /named { ratelimit zone=hosts rule=host; empty_gif; }
        location /methods { ratelimit zone=methods; root %%DIR%%; }
        location /keys { ratelimit zone=keys; empty_gif; }
        location /tiers { ratelimit zone=tiers; empty_gif; }
        location /redis { ratelimit zone=redis; empty_gif; }
    }
CONF


sub rule {
    my $answer = $gateway->get(@_);

    return t::Gateway::header($answer, 'X-Status') . ' '
           . (t::Gateway::header($answer, 'X-Rule') // '');
}


sub limit {
    my $answer = $gateway->get(@_);

    return join ' ', $answer->{status},
                     map { t::Gateway::header($answer, "X-RateLimit-$_") // '' }
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
