# fail_mode=closed: without an answer of Redis a request gets a 503, in every
# form that an answer has, and costs nothing elsewhere; and nothing else gets
# one.

use JSON::PP ();

use t::RateLimit 'no_plan';
use t::Gateway qw( header passed tally wait_for );
use t::FakeRedis;

sub told { return t::Gateway::told(@_) }

my $alive = redis_start();
my $dead = t::Gateway::free_port();

my $gateway = t::Gateway->limited(
    workers => 2, timeout => '300ms',
    redis => { dead => $dead, alive => "server 127.0.0.1:$alive; timeout 5s;" },
    zone => { z => 'redis=dead rate=10r/h fail_mode=closed', node => 'rate=1r/h',
              leaky => 'algorithm=leaky_bucket rate=1r/m burst=9',
              live => 'redis=alive rate=1r/h fail_mode=closed' },
    rules => ['slots match=/slots algorithm=concurrency limit=3 fail_mode=closed',
              'dry match=/dry rate=5r/h fail_mode=closed dry_run',
              'open match=/open rate=7r/h fail_mode=open',
              'plain match=/plain/** rate=6r/h',
              'status match=/status rate=6r/h fail_mode=closed count_status=401'],
    http => <<'CONF',
    log_format rl '$uri $status $ratelimit_status';
    access_log %%DIR%%/access.log rl;
CONF
    server => <<'CONF',
        default_type text/plain;
        add_header X-Reason $ratelimit_reason always;
        add_header X-Left $ratelimit_remaining always;
        add_header X-Delay $ratelimit_delay always;
        add_header X-Retry $ratelimit_retry_after always;
        ratelimit zone=z rule=z;
        location @named { return 200 "named $ratelimit_retry_after\n"; }
        location /plain {
            ratelimit zone=z rule=plain;
            ratelimit_fail_mode closed;
            location /plain/open { ratelimit_fail_mode open; empty_gif; }
            location /plain/closed { empty_gif; }
        }
CONF
    locations => {
        '/' => '',
        '/problem' => 'ratelimit_response problem;',
        '/off' => 'ratelimit_response off;',
        '/444' => 'ratelimit_status 444;',
        '/429' => 'ratelimit_status 429; error_page 429 =200 /page;',
        '/own' => 'error_page 503 /page;',
        '/named' => 'error_page 503 =418 @named;',
        '= /page' => 'internal; return 200 "page $ratelimit_status\n";',
        '/any' => 'satisfy any; allow all;',
        '/after' => 'ratelimit_phase after_auth;',
        '/refused' => 'ratelimit_phase after_auth; deny all;',
        '/ietf' => 'ratelimit_headers ietf draft3;',
        '/none' => 'ratelimit_headers off;',
        '/json-slots' => 'ratelimit zone=z rule=slots;',
        '/try' => 'ratelimit_dry_run on;',
        '/node' => 'ratelimit zone=node; ratelimit zone=z;',
        '/alone' => 'ratelimit zone=node;',
        '/leaky' => 'ratelimit zone=leaky; ratelimit zone=z;',
        '/drip' => 'ratelimit zone=leaky;',
        '/live' => 'ratelimit zone=live; ratelimit zone=z;',
        '/lives' => 'ratelimit zone=live;',
        '/both' => 'ratelimit zone=z rule=z; ratelimit zone=z rule=open;',
        '/off-limits' => 'ratelimit off;',
        '/sub' => 'ratelimit off; auth_request /;',
        map { ("/$_" => "ratelimit zone=z rule=$_;") }
            qw( slots dry open status ) });

sub calls {
    return (redis_cli($alive, 'info', 'commandstats')
            =~ /^cmdstat_evalsha:calls=(\d+)/m)[0];
}

sub refused {
    my ($answer, $name) = @_;
    is($answer->{status}, 503, "$name: 503");
    is(header($answer, 'X-Status'), 'UNAVAILABLE', "$name: the status");
    like(header($answer, 'Retry-After'), qr/^[1-9]$/, "$name: Retry-After");
}

# the plain answer
my $answer = $gateway->get('/?k=a');
refused($answer, 'GET');
is(header($answer, $_->[0]), $_->[1], $_->[0])
    for ['X-RateLimit-Limit', 10], ['X-RateLimit-Remaining', -1],
        ['X-RateLimit-Policy', 'degraded'], ['X-RateLimit-Reset', ''],
        ['X-Source', 'fallback'], ['X-Rule', 'z'], ['X-Left', -1],
        ['X-Retry', header($answer, 'Retry-After')],
        ['Content-Type', 'application/json'];
like(header($answer, 'X-Reason'), qr/^(?:unreachable|breaker_open)$/, 'X-Reason');

my $error = JSON::PP::decode_json($answer->{body})->{error};
is_deeply($error, { code => 'RATE_LIMIT_UNAVAILABLE',
                    message => 'Rate limit temporarily unavailable',
                    details => { rule => 'z', limit => 10, unit => 'requests',
                                 window_seconds => 3600,
                                 retry_after_seconds =>
                                     header($answer, 'Retry-After') } },
          'the JSON');
like($gateway->log, qr/\[info\] .*request answered with 503, no answer from Redis, by ratelimit rule "z" of zone "z"/,
     'the log');

is(tally($gateway->burst(50, '/?k=a')), '50 x 503', 'all at once');
is($gateway->get('/?k=')->{status}, 200, 'without a key: not limited');

# its forms
$answer = $gateway->get('HEAD /?k=a');
refused($answer, 'HEAD');
is($answer->{body}, '', 'HEAD: no body');

refused($gateway->get('POST /?k=a', 'Content-Length: 0'), 'POST');

$answer = $gateway->get('/problem?k=a');
refused($answer, 'problem');
is(header($answer, 'Content-Type'), 'application/problem+json',
   'problem: the type');
is_deeply(JSON::PP::decode_json($answer->{body}),
          { type => 'https://iana.org/assignments/http-problem-types'
                    . '#temporary-reduced-capacity',
            title => 'Temporary Reduced Capacity', status => 503,
            detail => 'Rate limit temporarily unavailable' }, 'the problem');

$answer = $gateway->get('/off?k=a');
refused($answer, 'off');
like($answer->{body}, qr/<title>503 /, 'off: nginx\'s own page');

refused($gateway->get('/444?k=a'), 'ratelimit_status 444');
refused($gateway->get('/429?k=a'), 'error_page of another status');

$answer = $gateway->get('/own?k=a');
refused($answer, 'error_page');
is($answer->{body}, "page UNAVAILABLE\n", 'error_page: its body');

$answer = $gateway->get('/named?k=a');
is($answer->{status}, 418, 'error_page: its status');
like($answer->{body}, qr/^named [1-9]$/, 'error_page: the variables');

refused($gateway->get('/any?k=a'), 'satisfy any');
refused($gateway->get('/after?k=a'), 'after_auth');
is($gateway->get('/refused?k=a')->{status}, 403, 'who has no access gets that');

$answer = $gateway->get('/ietf?k=a');
refused($answer, 'ietf');
like(header($answer, 'RateLimit-Policy'), qr/^"z";q=10;w=3600;pk=/,
     'ietf: the policy');
is(header($answer, $_), '', "$_: nothing is known")
    for 'RateLimit', 'RateLimit-Remaining', 'RateLimit-Reset';
is(header($answer, 'RateLimit-Limit'), '10, 10;w=3600', 'draft3: the limit');

$answer = $gateway->get('/none?k=a');
is($answer->{status} . header($answer, 'Retry-After'), 503,
   'no headers: no Retry-After');

$answer = $gateway->get('/slots?k=a');
refused($answer, 'slots');
$error = JSON::PP::decode_json($answer->{body})->{error};
is_deeply([sort keys %{ $error->{details} }],
          ['limit', 'retry_after_seconds', 'rule', 'unit'], 'slots: the JSON');

refused($gateway->get('/plain/closed?k=a'), 'ratelimit_fail_mode');
is(told($gateway->get('/plain/open?k=a')), '200 DEGRADED -1',
   'a location of its own');

# gRPC
$answer = $gateway->get('POST /?k=a', 'Content-Type: application/grpc',
                        'Content-Length: 0');
is($answer->{status}, 200, 'gRPC: its HTTP status');
is(header($answer, 'grpc-status'), 14, 'gRPC: UNAVAILABLE');
is(header($answer, 'grpc-message'), 'Rate limit temporarily unavailable',
   'gRPC: the message');
like(header($answer, 'Retry-After'), qr/^[1-9]$/, 'gRPC: Retry-After');

$answer = $gateway->get('POST /off?k=a', 'Content-Type: application/grpc',
                        'Content-Length: 0');
refused($answer, 'gRPC with off');

# what only tries a rule, or says open, or has none
is(told($gateway->get('/dry?k=a')), '200 DEGRADED ', 'dry_run');
is(told($gateway->get('/try?k=a')), '200 DEGRADED ', 'ratelimit_dry_run');
is(header($gateway->get('/dry?k=a'), 'Retry-After'), '', 'no Retry-After');
is(told($gateway->get('/open?k=a')), '200 DEGRADED -1', 'open');
$answer = $gateway->get('/both?k=a');
refused($answer, 'closed and open');
is(header($answer, 'X-Rule'), 'z', 'closed decides');
is($gateway->get('/off-limits?k=a')->{status}, 200, 'no limit');
is($gateway->get('/sub?k=a')->{status}, 200, 'a subrequest is not limited');
refused($gateway->get('/status?k=a'), 'count_status');

# what others granted is given back; a known denial outweighs
refused($gateway->get('/node?k=a'), "in vain $_") for 1 .. 3;
is(told($gateway->get('/alone?k=a')), '200 PASSED 0',
   'a token of this node was given back');
is(told($gateway->get('/node?k=a')), '429 REJECTED 0', 'a known denial');

is($gateway->get('/drip?k=b')->{status}, 200, 'the next one is too early');
$answer = $gateway->get('/leaky?k=b');
refused($answer, 'not delayed');
is(header($answer, 'X-Delay'), '', 'nor said to be');

ok($gateway->becomes('PASSED', '/lives?k=%s'),
   'the other Redis answers all workers');
my $calls = calls();
refused($gateway->get('/live?k=a'), "in vain, Redis $_") for 1 .. 3;
ok(wait_for(sub { calls() >= $calls + 2 }), 'the gateway gives a token back');
ok(wait_for(sub {
    told($gateway->get('/lives?k=a')) eq '200 PASSED 0' }),
   'a token of Redis was given back');
$answer = $gateway->get('/live?k=a');
is(told($answer), '429 REJECTED 0', 'Redis\' denial outweighs');
is(header($answer, 'X-Rule'), 'live', 'and is told');

# Redis comes, through a reload, and goes
redis_start(port => $dead);
$gateway->reload;
ok($gateway->becomes('PASSED', '/?k=%s'),
   'when it answers there is a limit again');
my @answers = $gateway->burst(20, '/?k=n');
wait_for(sub {
    push @answers, $gateway->get('/?k=n');
    passed(@answers) == 10;
});
is(tally(@answers, $gateway->burst(5, '/?k=n')) =~ s/\d+ x 429/n x 429/r,
   '10 x 200, n x 429', 'and an exact one');
is($gateway->get('/status?k=n')->{status}, 200, 'count_status passes');

kill STOP => redis_pid($dead);
refused($gateway->get('/?k=s'), 'it hangs');
kill CONT => redis_pid($dead);

redis_cli($dead, 'config', 'set', 'maxmemory', 1);
ok(wait_for(sub {
    header($gateway->get('/?k=o'), 'X-Reason') eq 'oom' }), 'it is full');
refused($gateway->get('/?k=o'), 'full');
redis_cli($dead, 'config', 'set', 'maxmemory', 0);

redis_stop($dead);

my %statuses = map { $_ => 1 }
               $gateway->read('access.log') =~ /^\S+ (\d+) UNAVAILABLE$/mg;
is(join(' ', sort keys %statuses), '200 418 503',
   'every UNAVAILABLE is a 503, but for gRPC and an error_page');
unlike($gateway->read('access.log'),
       qr/ 5\d\d (?:PASSED|DEGRADED|REJECTED|BYPASSED|-)/,
       'and nothing else is one');

$gateway->stop;
redis_stop($alive);

# Retry-After is when Redis will be asked again
my $fake = t::FakeRedis->new(sub { '' });
$gateway = t::Gateway->limited(
    redis => $fake->{port}, timeout => '50ms',
    zone => 'rate=10r/h fail_mode=closed');

my @waits = map { header($gateway->get('/?k=a'), 'Retry-After') } 1 .. 20;
is(scalar(grep { $_ ne '1' } @waits), 0, 'a second');
$gateway->stop;
$fake->stop;
