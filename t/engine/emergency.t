# "emergency=": while Redis has no answer each client is held to a rate of its
# own, on this node, by all of its workers, and by that alone.

use JSON::PP ();

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally );

sub told { return t::Gateway::told(@_) }

sub tally_of {
    my ($gateway, $n, $path) = @_;
    return tally($gateway->burst($n, $path));
}

my $port = t::Gateway::free_port();

my $gateway = t::Gateway->limited(
    workers => 2, redis => $port,
    zone => 'sync=strict rate=100r/h emergency=2r/h',
    rules => ['open match=/open rate=100r/h emergency=3r/h fail_mode=open',
              'cost match=/cost rate=100r/h cost=$arg_c emergency=2r/h',
              'status match=/status/** rate=100r/h count_status=401 emergency=2r/h',
              'slots match=/slots algorithm=concurrency limit=9 emergency=2r/h',
              'leaky match=/leaky algorithm=leaky_bucket rate=1r/m burst=9'
              . ' emergency=2r/h',
              'log match=/log algorithm=sliding_log rate=9r/h emergency=2r/h',
              'dry match=/dry rate=9r/h emergency=1r/h dry_run',
              'other match=/two rate=9r/h emergency=1r/h',
              'address match=/address rate=9r/h emergency=2r/h key=$remote_addr'],
    # the rule's own mode is open, whatever this says
    http => <<'CONF',
    ratelimit_fail_mode closed;
    server {
        listen unix:%%DIR%%/up.sock;
        location / { return 200 "up\n"; }
        location /status/401 { return 401; }
    }
CONF
    server => 'add_header X-Limit $ratelimit_limit always;'
              . 'add_header X-Delay $ratelimit_delay always;',
    locations => {
        '/' => 'ratelimit zone=z rule=z;',
        '/ietf' => 'ratelimit zone=z rule=z; ratelimit_headers ietf draft3;',
        '/status' => 'ratelimit zone=z rule=status;'
                     . 'proxy_pass http://unix:%%DIR%%/up.sock;',
        '/two' => 'ratelimit zone=z rule=z; ratelimit zone=z rule=other;',
        map { ("/$_" => "ratelimit zone=z rule=$_;") }
            qw( open cost slots leaky log dry address ) });

my $answer = $gateway->get('/?k=a');
is(told($answer), '200 DEGRADED -1', 'it passes, degraded');
is(header($answer, $_->[0]), $_->[1], $_->[0])
    for ['X-RateLimit-Policy', 'degraded'], ['X-RateLimit-Limit', 2],
        ['X-RateLimit-Reset', ''], ['Retry-After', ''],
        ['X-Source', 'fallback'];

is(tally_of($gateway, 10, '/?k=a'), '1 x 200, 9 x 429', 'a second one, no more');
is(tally_of($gateway, 10, '/?k=b'), '2 x 200, 8 x 429', 'each client has two');

$answer = $gateway->get('/?k=a');
is(told($answer), '429 REJECTED 0', 'then it is rejected');
is(header($answer, $_->[0]), $_->[1], $_->[0])
    for ['X-RateLimit-Policy', 'degraded'], ['X-RateLimit-Limit', 2],
        ['X-Limit', 2];
cmp_ok(header($answer, 'Retry-After'), '>', 1700, 'Retry-After');
cmp_ok(header($answer, 'Retry-After'), '<=', 1800, 'of this limit');
cmp_ok(header($answer, 'X-RateLimit-Reset'), '<=', time + 3601, 'and Reset');
is(JSON::PP::decode_json($answer->{body})->{error}{message},
   'Rate limit of 2 requests in 1 hour exceeded', 'the body, too');

$answer = $gateway->get('/ietf?k=a');
like(header($answer, 'RateLimit-Policy'), qr/^"z";q=2;w=3600;pk=/,
     'ietf: the limit in force');
like(header($answer, 'RateLimit'), qr/^"z";r=0;t=\d+;pk=/, 'nothing is left');
is(header($answer, 'RateLimit-Limit'), '2, 2;w=3600', 'draft3');

# of every algorithm, whatever a request costs
is(tally_of($gateway, 9, '/open?k=a'), '3 x 200, 6 x 429', 'fail_mode=open');
is(tally_of($gateway, 9, '/cost?k=a&c=90'), '2 x 200, 7 x 429',
   'a request is one');
is(tally_of($gateway, 9, '/cost?k=a&c=0'), '9 x 200',
   'but for one that costs nothing');
is(tally_of($gateway, 9, '/slots?k=a'), '2 x 200, 7 x 429', 'concurrency');
is(tally_of($gateway, 9, '/log?k=a'), '2 x 200, 7 x 429', 'sliding_log');
is(tally_of($gateway, 9, '/address?k=a'), '2 x 200, 7 x 429', 'another key');

my @answers = $gateway->burst(9, '/leaky?k=a');
is(tally(@answers), '2 x 200, 7 x 429', 'leaky_bucket');
is(join('', map { header($_, 'X-Delay') } @answers), '', 'without a delay');

is($gateway->get("/status/$_?k=a")->{status}, $_, "status $_")
    for 200, 200, 200, 401, 200, 401;
is($gateway->get('/status/200?k=a')->{status}, 429, 'two of them count');

is(told($gateway->get('/dry?k=a')), '200 DEGRADED ', 'a dry run');
is(told($gateway->get('/dry?k=a')), '200 REJECTED_DRY_RUN ', 'never rejects');

is(tally_of($gateway, 9, '/two?k=c'), '1 x 200, 8 x 429', 'two rules');
is(tally_of($gateway, 9, '/?k=c'), '1 x 200, 8 x 429',
   'what one granted in vain came back');

$gateway->reload;
is(tally_of($gateway, 9, '/?k=a'), '9 x 429', 'a reload forgets nothing');

# with Redis it is not there
redis_start(port => $port);
ok($gateway->becomes('PASSED', '/?k=%s'), 'Redis answers all workers');
is(tally_of($gateway, 50, '/?k=a'), '50 x 200', 'the rule\'s own limit');
is(header($gateway->get('/?k=a'), 'X-RateLimit-Limit'), 100, 'is told');
is($gateway->get("/status/$_?k=a")->{status}, $_, "status $_")
    for 401, 401, 401;

redis_stop($port);
ok($gateway->becomes('DEGRADED', '/?k=%s'), 'Redis is gone');
is(tally_of($gateway, 9, '/?k=a'), '9 x 429', 'the old emergency goes on');
is(tally_of($gateway, 9, '/?k=d'), '2 x 200, 7 x 429', 'a new client');

$gateway->stop;

# Its counters are not those of fail_mode=local, that the rule had before.
sub before {
    my ($mode) = @_;
    return t::Gateway::limited_http(
        redis => $port,
        zone => "algorithm=fixed_window limit=1 window=366d $mode");
}

$gateway = t::Gateway->new(http => before('fail_mode=local'))->start;
is(tally_of($gateway, 5, '/?k=a'), '1 x 200, 4 x 429', 'fail_mode=local');
$gateway->configure(http => before('emergency=2r/h'))->reload;
is(tally_of($gateway, 5, '/?k=a'), '2 x 200, 3 x 429', 'now emergency=');
$gateway->configure(http => before('fail_mode=local'))->reload;
is(tally_of($gateway, 5, '/?k=a'), '5 x 429', 'and back');
$gateway->stop;
