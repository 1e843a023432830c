# HTTP/2: each stream is a request, also a hundred of one connection at once,
# and also while they wait for Redis.

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->limited(workers => 2, listen => 'http2',
    redis => redis_port(),
    zone => { local => 'rate=100r/h', fleet => 'rate=100r/h redis=r' },
    locations => { map { ("/$_" => "ratelimit zone=$_;") } qw( local fleet ) });

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
                                retry-after:\ \d+\r\n .*
                                \r\n\r\n\{"error":\{"code":"RATE_LIMIT_EXCEEDED"}smx,
         "$kind: a rejection");
}

$gateway->stop;
