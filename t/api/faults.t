# The endpoint while Redis is away, full, or cut off, and while workers are
# killed: what is answered, and what is changed then. And by HTTP/2.

use Time::HiRes qw( sleep );
use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Http2;
use t::Api;

sub gateway {
    return t::Gateway->limited(api => 1, @_, http => <<'CONF');
    log_format s $status;
    server {
        listen unix:%%DIR%%/http2 http2;
        access_log %%DIR%%/access.log s;
        location /rl/ { ratelimit_api zone=z %%WRITE%%; }
    }
CONF
}

sub document { return { rules => [], allow => ["a$_[0]*"] } }

my $DOCUMENT = document(0);

# Redis: there, full, gone, back, empty
my $port = redis_start();
my $gateway = gateway(redis => $port, timeout => '1s');
my $api = t::Api->new($gateway);

ok(wait_for(sub { $api->get('/versions')->{status} == 200 }), 'Redis is there');
is($api->put('/document', $DOCUMENT, 'If-Match: "0"')->{version}, 1, 'a change');

redis_cli($port, 'config', 'set', 'maxmemory', 1);
my $full = $api->put('/document', document(1), $api->if_match(1));
t::Api::problem_ok($full, '503 unavailable', 'full');
like($full->{json}{detail}, qr/oom$/, 'full: why');
is(header($full, 'Retry-After'), 1, 'full: Retry-After');
is($api->get('/versions')->{json}{version}, 1, 'full: nothing is changed');
redis_cli($port, 'config', 'set', 'maxmemory', 0);
is($api->put('/document', document(2), $api->if_match(1))->{version}, 2,
   'no longer full');

# a missing right: Redis 7 and 8 say so in different words, both without NOPERM
redis_cli($port, qw( acl setuser default -hset ));
my $refused = $api->put('/document', $DOCUMENT, $api->if_match(2));
t::Api::problem_ok($refused, '503 unavailable', 'a missing right');
like($refused->{json}{detail}, qr/noperm$/, 'a missing right: why');
redis_cli($port, qw( acl setuser default +hset ));
is($api->get('/versions')->{json}{version}, 2,
   'a missing right: nothing is changed');

redis_stop($port);
t::Api::problem_ok($api->change('PUT', '/document', document(9)),
                   '503 unavailable', 'gone');
is($api->get('/document')->{version}, 2, 'gone: reads come from the node');
is($api->get('/allow')->{status}, 200, 'gone: parts, too');
t::Api::problem_ok($api->get('/versions'), '503 unavailable', 'gone: versions');
t::Api::problem_ok($api->get('/versions/1'), '503 unavailable',
                   'gone: a version');
t::Api::problem_ok($api->post('/versions/1/restore', undef, 'If-Match: *'),
                   '503 unavailable', 'gone: the way back');
is($api->post('/document/validate', {})->{status}, 200, 'gone: validate');
ok(wait_for(sub { !$api->get('/status')->{json}{redis}{reachable} }),
   'gone: status says so');

redis_start(port => $port);
ok(wait_for(sub {
       return ($api->get('/versions')->{json}{version} // 0) == 2;
   }), 'back and empty: what the node has is put there again');
is($api->put('/document', document(3), $api->if_match(2))->{version}, 3,
   'changes go on');

# stopped: it takes what it gets, and does not answer
kill 'STOP', redis_pid($port);

my $stopped = $api->change('PUT', '/document', $DOCUMENT);

like(t::Api::said($stopped), qr/^504 unknown-outcome|^503 unavailable/,
     'no answer: it may have been done, or not');
is($api->get('/document')->{status}, 200, 'reads go on');
kill 'CONT', redis_pid($port);
ok(wait_for(sub {
       my $now = $api->get('/versions')->{json}{version} // 0;
       return $now >= 3 && $now <= 4 && $api->get('/document')->{version} eq $now;
   }), 'it was done, or not');

# a worker that drains while Redis does not answer ends
kill 'STOP', redis_pid($port);
my $child = t::Gateway::beside(sub { $api->change('PUT', '/document', $DOCUMENT) });
sleep 0.3;
$gateway->signal('HUP');
sleep 0.3;
kill 'CONT', redis_pid($port);
waitpid $child, 0;
$gateway->stop;

# the worker that writes is killed, again and again
my $alone = gateway(zone => 'state=rules.state', workers => 2);

$api = t::Api->new($alone);
$api->change('PUT', '/document', { rules => [] });

my ($last, @odd) = (1);

for my $round (1 .. 20) {
    my $writer = t::Gateway::beside(sub {
        $api->change('PUT', "/tier_of/k$_", { tier => "t$round" }) for 1 .. 20;
    });
    sleep 0.01 + rand 0.05;
    kill 'KILL', ($alone->workers)[int rand 2];
    waitpid $writer, 0;
    my $answer = {};
    ok(wait_for(sub {
           $answer = $api->get('/document');
           return $answer->{status} == 200;
       }), "killed $round: the endpoint answers") or last;
    my $version = $answer->{json}{version};
    push @odd, "round $round: $version behind $last" if $version < $last;
    push @odd, "round $round: the tag" if $answer->{version} ne $version;
    $last = $version;
}

is("@odd", '', 'killed: the document is the old one or the new one');

my @versions = map { $_->{version} } @{ $api->get('/versions')->{json}{versions} };

is_deeply(\@versions, [reverse $versions[-1] .. $versions[0]],
          'killed: no version is missing');
is($api->change('PUT', '/document', { rules => [] })->{status}, 200,
   'killed: changes go on');
$alone->stop('QUIT', 'exited on signal 9');

# HTTP/2: an answer, a stream that is reset, and one that ends behind it
my $http2 = gateway();
my $client = t::Http2->new("$http2->{dir}/http2");

for my $n (0 .. 49) {
    $client->get(4 * $n + 1, '/rl/document');
    $client->reset(4 * $n + 1) if $n % 2;
    $client->get(4 * $n + 3, '/rl/status');
}

is(scalar grep({ $client->ended(4 * $_ + 3) } 0 .. 49), 50,
   'HTTP/2: all others are answered');
$client->close;
$http2->stop;

SKIP: {
    my $curl = `curl --version`;
    skip 'curl without HTTP/2', 3 if $curl !~ /HTTP2/;
    my $http2 = gateway();
    my $curl_do = 'curl -s -m 20 --http2-prior-knowledge --unix-socket '
                  . "$http2->{dir}/http2 -w '%{http_code}' -o /dev/null "
                  . "-X PUT -H '$t::Gateway::TOKEN' -H 'If-Match: *' "
                  . "-H 'Content-Type: application/json' ";
    $http2->write('small', '{"rules":[]}' . ' ' x 200_000);
    $http2->write('large', ' ' x 2_000_000);
    is(`$curl_do --data-binary \@$http2->{dir}/small http://localhost/rl/document`,
       201, 'HTTP/2: a body');
    is(`$curl_do -T - http://localhost/rl/document < $http2->{dir}/small`,
       200, 'HTTP/2: a body without a length');
    # a curl that is still sending forgets the answer
    `$curl_do --data-binary \@$http2->{dir}/large http://localhost/rl/document`;
    `$curl_do -T - http://localhost/rl/document < $http2->{dir}/large`;
    ok(wait_for(sub {
           return $http2->read('access.log') =~ /\n413\n413\n\z/;
       }), 'HTTP/2: what is too large, with and without a length');
    $http2->stop;
}
