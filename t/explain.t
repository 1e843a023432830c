# What would be done with a request: "/explain" goes the way that the request
# would go, and takes nothing.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use IO::Socket::INET;
use t::Api;

my $gateway = t::Gateway->new(http => <<'CONF')->start;
    ratelimit_zone $ratelimit_api_key zone=api:1m state=%%DIR%%/api.state;
    ratelimit_zone $arg_k zone=plain:1m rate=5r/h;
    ratelimit_zone $remote_addr zone=addr:1m rate=5r/h;
    ratelimit_zone $binary_remote_addr zone=bin:1m rate=5r/h;
    ratelimit_zone $ratelimit_api_key zone=away:1m rate=5r/h redis=nobody;
    ratelimit_rule fixed zone=api match=/v1/fixed rate=7r/h;

    ratelimit_redis nobody { server 127.0.0.1:1; }

    map $http_x_plan $plan { default ""; gold pro; }
    map $cookie_flavour $flavour { default none; ~. $cookie_flavour; }

    set_real_ip_from 127.0.0.1;
    real_ip_header X-From;

    log_format explain '$request_method $uri $status $remote_addr';
    access_log %%DIR%%/access.log explain;

    server {
        listen 127.0.0.1:%%PORT%%;
        ratelimit_tier $plan;

        location /rl/ { ratelimit_api zone=api write; }

        location /v1/ { ratelimit zone=api;
                        proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /both/ { ratelimit zone=api; ratelimit zone=plain;
                          proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /away/ { ratelimit zone=away;
                          proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /addr/ { ratelimit zone=addr;
                          proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /bin/ { ratelimit zone=bin;
                         proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /who { access_log off; return 200 $remote_addr; }
        location /free/ { proxy_pass http://127.0.0.1:%%PORT%%/never; }
        location /old/ { rewrite ^/old/(.*)$ /v1/$1 last; }
        location /inside/ { internal; ratelimit zone=api; }
        location /gone/ { return 410 "gone\n"; }
        location /drop/ { return 444; }

        location /auth/ {
            auth_basic "x";
            auth_basic_user_file %%DIR%%/users;
            ratelimit zone=plain;
            ratelimit_phase after_auth;
            proxy_pass http://127.0.0.1:%%PORT%%/never;
        }

        location /any/ {
            satisfy any;
            allow all;
            ratelimit zone=plain;
            proxy_pass http://127.0.0.1:%%PORT%%/never;
        }

        location /never { access_log %%DIR%%/never.log explain; return 200; }
    }

    server {
        listen 127.0.0.1:%%PORT%%;
        server_name other.example ~^re[0-9]+\.example$;

        location / { ratelimit zone=plain; proxy_pass http://127.0.0.1:1; }
    }
CONF

$gateway->write('users', "ann:{PLAIN}secret\n");

my $api = t::Api->new($gateway);


# "rule because", "rule 3/10 tier"; rules of all zones in one line
sub told {
    my $answer = $api->post('/explain', shift);
    my $json = $answer->{json};

    return t::Api::said($answer) if $answer->{status} != 200;

    my @rules;

    for my $zone (@{ $json->{zones} }) {
        push @rules, "($zone->{list})" if $zone->{list};

        push @rules, map {
            $_->{applies}
            ? "$_->{rule} " . ($_->{remaining} // '?') . "/$_->{limit} "
              . "$_->{limit_from}" . ($_->{override} ? " $_->{override}" : '')
              . ($_->{passes} ? '' : ' no')
            : "$_->{rule} -$_->{because}"
        } @{ $zone->{rules} };
    }

    my $allowed = $json->{allowed};

    return join ', ', (defined $allowed ? $allowed ? 'yes' : 'no' : 'unknown'),
                      @rules;
}

sub key { return { 'X-API-Key' => shift, @_ } }

is($api->change(PUT => '/rules', {
    rules => [
        { id => 'orders',
          match => { route => '/v1/orders/**', methods => ['POST'] },
          params => { limit => 10, window => 3600 },
          tiers => { pro => { limit => 20 } },
          override => { vip => { limit => 30 } } },
        { id => 'all', params => { limit => 100, window => 3600 },
          cost => 2, dry_run => JSON::PP::true },
        { id => 'tasty', match => { host => ['tasty.example'] },
          key => ['$ratelimit_api_key', '$flavour'],
          params => { limit => 4, window => 3600 } },
    ],
    blacklist => ['bad*'], whitelist => ['good*'],
    tier_of => { keys => { paul => 'pro' } },
    overrides => [{ id => 'week', key => 'wanda', rule => 'orders',
                    type => 'multiplicative', value => 5, reason => 'x' }],
})->{status}, 201, 'rules');


# which rules, and why not others

is(told({ uri => '/v1/orders/1', headers => key('ann') }),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty -host',
   'of a GET');
is(told({ method => 'POST', uri => '/v1/orders/1', headers => key('ann') }),
   'yes, fixed -path, orders 10/10 rule, all 100/100 rule, tasty -host',
   'of a POST');
is(told({ uri => '/v1/fixed', headers => key('ann') }),
   'yes, fixed 7/7 rule, orders -method, all 100/100 rule, tasty -host',
   'a rule of nginx.conf');
is(told({ uri => '/v1/fixed' }),
   'yes, fixed -key_empty, orders -method, all -key_empty, tasty -host',
   'without a key');

# a host, cookies, and parts of a key

is(told({ uri => '/v1/x', host => 'tasty.example:80',
          headers => key('ann', Cookie => ['a=b', 'flavour=sweet']) }),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty 4/4 rule',
   'a host, and a key of parts');

# whose limit

is(told({ method => 'POST', uri => '/v1/orders/1',
          headers => key('paul') }) =~ s/.*(orders.*?),.*/$1/r,
   'orders 20/20 tier', 'a tier by key');
is(told({ method => 'POST', uri => '/v1/orders/1',
          headers => key('ann', 'X-Plan' => 'gold') }) =~ s/.*(orders.*?),.*/$1/r,
   'orders 20/20 tier', 'a tier by a map of a header');
is(told({ method => 'POST', uri => '/v1/orders/1',
          headers => key('vip') }) =~ s/.*(orders.*?),.*/$1/r,
   'orders 30/30 key', 'of one key');
is(told({ method => 'POST', uri => '/v1/orders/1',
          headers => key('wanda') }) =~ s/.*(orders.*?),.*/$1/r,
   'orders 50/50 rule week', 'and for a time');

# lists

is(told({ uri => '/v1/x', headers => key('bad1') }), 'no, (blacklist)',
   'on the deny list');
is(told({ uri => '/v1/x', headers => key('good1') }), 'yes, (whitelist)',
   'on the allow list');


# the way of the request

is(told({ uri => '/old/%6frders/../fixed?a=1', headers => key('ann') }),
   told({ uri => '/v1/fixed', headers => key('ann') }), 'rewritten');
is(told({ uri => '/free/' }), 'yes', 'nothing is limited there');
is(told({ uri => '/rl/rules' }), 'yes', 'nor at the endpoint');
is(told({ uri => '/both/?k=1', headers => key('ann') }),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty -host, '
   . 'plain 5/5 rule', 'two zones');
is(told({ uri => '/?k=1', host => 'other.example' }), 'yes, plain 5/5 rule',
   'another server');
is(told({ uri => '/?k=1', host => 'RE12.example.' }), 'yes, plain 5/5 rule',
   'by a regular expression');
is(told({ uri => '/?k=1', headers => { host => 'other.example' } }),
   'yes, plain 5/5 rule', 'by the header');
is(told({ uri => '/any/?k=1' }), 'yes, plain 5/5 rule', 'satisfy any');

my $answer = $api->post('/explain', { uri => '/gone/' });
is("$answer->{status} $answer->{body}", "410 gone\n",
   'what is answered before is not explained');
is(t::Gateway::header($answer, 'X-RateLimit-Explained'), 'false', 'which it says');
is($api->post('/explain', { uri => '/inside/' })->{status}, 404,
   'an internal location is none of a client');
is($api->post('/explain', { uri => '/auth/?k=1' })->{status}, 401,
   'who is not let in is not counted behind that');
is(told({ uri => '/auth/?k=1',
          headers => { Authorization => 'Basic YW5uOnNlY3JldA==' } }),
   'yes, plain 5/5 rule', 'who is, is');


# nothing was taken; what others have taken is seen

is(t::Gateway::header($gateway->get('/both/?k=1', 'X-API-Key: ann'),
                      'X-RateLimit-Remaining'), 4, 'nothing was taken');
t::Gateway::send_all([map { [$gateway, 'GET /both/?k=2'] } 1 .. 5]);
is(told({ uri => '/both/?k=2' }) =~ s/.*, //r, 'plain 0/5 rule no',
   'what is used up');
is(told({ uri => '/both/?k=2' }) =~ s/,.*//r, 'no', 'so it is refused');

is(told({ uri => '/away/', headers => key('ann') }),
   'unknown, away ?/5 rule no', 'what Redis does not say is not known');

# whose address

$gateway->get($_) for '/addr/1', '/addr/2', '/bin/1';

is(told({ uri => '/addr/' }), 'yes, addr 3/5 rule', "the caller's own address");
is(told({ uri => '/addr/', address => $_ }), 'yes, addr 5/5 rule', $_)
    for '192.0.2.1', '2001:db8::1';
is(told({ uri => '/addr/', address => '127.0.0.1' }), 'yes, addr 3/5 rule',
   'one that has used something');
is(told({ uri => '/bin/', address => '127.0.0.1' }), 'yes, bin 4/5 rule',
   'in binary');
is(told({ uri => '/bin/', address => '2001:db8::1' }), 'yes, bin 5/5 rule',
   'also of IPv6');
is(told({ uri => '/addr/', address => '2001:DB8:0::1' }), 'yes, addr 5/5 rule',
   'as nginx writes it');
is(told({ uri => '/addr/', address => '192.0.2.9',
          headers => { 'X-From' => '127.0.0.1' } }), 'yes, addr 5/5 rule',
   'one that set_real_ip_from does not trust');
is(told({ uri => '/addr/', address => $_ }), '422 invalid: /address must be an '
   . 'IPv4 or IPv6 address, "192.0.2.1"', 'no address')
    for 'localhost', '', '192.0.2.1:80', '192.0.2.0/24', 7, '[::1]';

# another's address is gone with it, also from a connection that is kept: the
# endpoint is for those of this machine

my $socket = IO::Socket::INET->new("127.0.0.1:$gateway->{port}");

for my $uri ('/addr/', '/gone/', '/who') {
    my $body = qq({"uri":"$uri","address":"192.0.2.77"});

    print $socket "POST /rl/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
        . "application/json\r\nContent-Length: " . length($body)
        . "\r\n\r\n$body";
}

print $socket "GET /who HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /rl/status "
    . "HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

my $all = do { local $/; <$socket> };

like($all, qr{^HTTP/1.1\ 200.*?"zones".*?^HTTP/1.1\ 410.*?gone
              .*?^HTTP/1.1\ 200[^\x7b]*?^192\.0\.2\.77HTTP/1.1\ 200.*?^127\.0\.0\.1
              HTTP/1.1\ 200.*?"compiled"}msx, 'one connection, two addresses');

# the whole answer

$answer = $api->post('/explain',
    { method => 'POST', uri => '/v1/orders/1?x', headers => key('paul') });
my $json = $answer->{json};
my %orders = %{ $json->{zones}[0]{rules}[1] };

like(delete $orders{reset_at}, qr/^20\d\d-.*Z$/, 'when it is fresh');
like(delete $orders{key}, qr/^[0-9a-f]{32}$/, 'the key, as a hash');
is_deeply(\%orders, {
    rule => 'orders', fixed => JSON::PP::false, applies => JSON::PP::true,
    algorithm => 'token_bucket', limit => 20, window_seconds => 3600,
    limit_from => 'tier', override => undef, cost => 1,
    dry_run => JSON::PP::false, remaining => 20, passes => JSON::PP::true,
}, 'a rule that applies');
is($json->{zones}[0]{version}, 1, 'the version of the document');
is($json->{zones}[0]{tier}, 'pro', 'the tier');
is("$json->{location} $json->{path}", '/v1/ /v1/orders/1', 'the location');
like($json->{api_key}, qr/^sha256:[0-9a-f]{64}$/, 'the API key is a digest');
unlike($answer->{body}, qr/paul/, 'and nowhere in the clear');
is($answer->{type}, 'application/json', 'its type');


# what describes no request

t::Api::problem_ok($api->post('/explain', { uri => 'v1', method => 'get',
                                            x => 1, port => 0, host => '',
                                            headers => { 'a b' => 'c',
                                                         'd' => "e\nf" } }),
    '422 invalid: /x is unknown; /method must be a method, "POST"; '
    . '/uri must be a path as a request has it, "/v1/orders?limit=1"; '
    . join('; ', sort('/headers/a b is no name of a header',
           '/headers/d must be a text in one line, or a list of them'))
    . '; /port must be a port; /host must be a host', 'all that is wrong');
t::Api::problem_ok($api->post('/explain', {}), '422 invalid: /uri must be a '
    . 'path as a request has it, "/v1/orders?limit=1"', 'no path');
t::Api::problem_ok($api->post('/explain', [1]),
    '422 invalid:  must be an object', 'no object');
is($api->post('/explain', { uri => '/v1/../../etc' })->{status}, 422,
   'a path that leaves the root');
is($api->post('/explain', { uri => '/v1/x', headers =>
                            { map { ("h$_" => 'x' x 1000) } 1 .. 70 } })
       ->{status}, 413, 'too much of it');
is($api->post('/explain', { uri => '/v1/x', method => 'PURGE',
                            headers => { 'Content-Length' => '12',
                                         'Transfer-Encoding' => 'chunked',
                                         Connection => 'close',
                                         Expect => '100-continue' } })
       ->{status}, 200, 'headers that would be about a body');

# the endpoint's own requests are logged, and no other

is($api->post('/explain', { uri => '/both/1?k=addr',
                            headers => { 'X-From' => '192.0.2.9' } })
   ->{status}, 200, 'from another address');

$socket = IO::Socket::INET->new("127.0.0.1:$gateway->{port}");
print $socket "POST /rl/explain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
    . "application/json\r\nContent-Length: 39\r\n\r\n"
    . '{"uri":"/drop/","address":"192.0.2.78"}';
is(do { local $/; <$socket> } // '', '', 'a request that gets no answer');

my $log = $gateway->read('access.log');
like($log, qr{^POST /rl/explain 200 127\.0\.0\.1$}m,
     'the log has the request itself');
like($log, qr{^GET /drop/ 444 127\.0\.0\.1$}m, 'also of one without an answer');
like($log, qr{^GET /gone/ 410 127\.0\.0\.1$}m,
     'or what was answered before, but for its address');
unlike($log, qr{192\.0\.2\.|2001}, 'with its own address');
unlike($log, qr{^POST /v1/}m, 'and not the other');
is(grep({ -e } "$gateway->{dir}/never.log")
   ? $gateway->read('never.log') =~ tr/\n// : 0, 9,
   'nothing was sent on but by the requests');

$gateway->stop;


# counters in Redis, also those that are split, and by whatever sync

my $port = redis_start();
my $fleet = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis one { server 127.0.0.1:$port; timeout 5s; }
    ratelimit_zone \$arg_k zone=z:1m redis=one;
    ratelimit_rule lease zone=z rate=10r/h;
    ratelimit_rule strict zone=z rate=20r/h sync=strict;
    ratelimit_rule split zone=z rate=40r/h sync=strict shards=4;
    ratelimit_rule slots zone=z algorithm=concurrency limit=3;

    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=z; }
        location / { ratelimit zone=z; proxy_pass http://127.0.0.1:1; }
    }
CONF

$api = t::Api->new($fleet);

t::Gateway::wait_for(sub { told({ uri => '/?k=1' }) =~ /^yes/ });

is(told({ uri => '/?k=1' }), 'yes, lease 10/10 rule, strict 20/20 rule, '
   . 'split 40/40 rule, slots 3/3 rule', 'in Redis');
is(told({ uri => '/?k=1' }), 'yes, lease 10/10 rule, strict 20/20 rule, '
   . 'split 40/40 rule, slots 3/3 rule', 'nothing was taken there');

$fleet->get('/?k=1');

t::Gateway::wait_for(sub { told({ uri => '/?k=1' }) =~ m{slots 3/3} });
is(told({ uri => '/?k=1' }), 'yes, lease 9/10 rule, strict 19/20 rule, '
   . 'split 39/40 rule, slots 3/3 rule', 'what a request took is seen');

$fleet->stop;
