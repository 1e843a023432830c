# HTTP/2: each stream is a request, also a hundred of one connection at once,
# and also while they wait for Redis.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $gateway = t::Gateway->new(workers => 2, http => <<"CONF")->start;
    ratelimit_redis r {
        server 127.0.0.1:$redis;
        prefix $prefix;
        timeout 5s;
    }
    ratelimit_zone \$arg_k zone=local:1m rate=100r/h;
    ratelimit_zone \$arg_k zone=fleet:1m rate=100r/h redis=r;
    server {
        listen 127.0.0.1:%%PORT%% http2;
        location /local { ratelimit zone=local; empty_gif; }
        location /fleet { ratelimit zone=fleet; empty_gif; }
    }
CONF

sub curl {
    my ($path) = @_;
    return scalar
        `curl -si --http2-prior-knowledge http://127.0.0.1:$gateway->{port}$path`;
}

for my $kind (qw( local fleet )) {
    my $out = `h2load -n 400 -c 4 -m 100 http://127.0.0.1:$gateway->{port}/$kind?k=a`;

    my ($codes) = $out =~ /^(status codes: .*)$/m;
    is($codes, 'status codes: 100 2xx, 0 3xx, 300 4xx, 0 5xx',
       "$kind: exactly the limit");

    like(curl("/$kind?k=b"), qr{^HTTP/2\ 200\ .*
                                ^x-ratelimit-limit:\ 100\r\n
                                x-ratelimit-remaining:\ 99\r\n
                                x-ratelimit-reset:\ \d+\r\n}smx,
         "$kind: the headers");
    like(curl("/$kind?k=a"), qr{^HTTP/2\ 429\ .*
                                ^x-ratelimit-remaining:\ 0\r\n
                                x-ratelimit-reset:\ \d+\r\n
                                retry-after:\ \d+\r\n
                                \r\n
                                \{"error":\{"code":"RATE_LIMIT_EXCEEDED"}smx,
         "$kind: a rejection");
}

$gateway->stop;
