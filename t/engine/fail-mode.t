# What a request gets when Redis has no answer: fail_mode open, local, closed.
# "local": each node goes on from what it knew last, by every algorithm, on two
# workers, through a reload, and gives back what it need not keep. "closed": a
# 503 in every form that an answer has.

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP ();
use Time::HiRes qw( sleep );

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally wait_for );
use t::FakeRedis;

# an answer to who has left
$SIG{PIPE} = 'IGNORE';

my $MORE = <<'CONF';
    add_header X-Reason $ratelimit_reason always;
    add_header X-Left $ratelimit_remaining always;
    add_header X-Delay $ratelimit_delay always;
CONF

my %ALGORITHMS = (
    token_bucket => 'rate=10r/h',
    leaky_bucket => 'rate=10r/h burst=9 nodelay',
    fixed_window => 'limit=10 window=366d',
    sliding_window => 'limit=10 window=10h',
    sliding_log => 'limit=10 window=10h',
);

sub told { return t::Gateway::told(@_) }

sub tally_of {
    my ($gateway, $n, $path) = @_;
    return tally($gateway->burst($n, $path));
}

# Two gateways and a Redis that dies: each goes on from what it knew.
sub fleet {
    my ($port) = @_;
    return t::Gateway->limited(
        workers => 2, redis => $port, timeout => '300ms',
        zone => { probe => 'redis=r rate=1000000r/s',
                  map { $_ => "redis=r algorithm=$_ $ALGORITHMS{$_}" }
                      keys %ALGORITHMS },
        http => 'ratelimit_fail_mode local;', server => $MORE,
        locations => { map { ("/$_" => "ratelimit zone=$_;") }
                           'probe', keys %ALGORITHMS });
}

my $port = redis_start();
my ($one, $two) = map { fleet($port) } 1, 2;

$_->becomes('PASSED', '/probe?k=%s') or die 'no Redis' for $one, $two;

# in one moment: no gateway sees a demand, for which it would hold tokens
t::Clock::stop();

for (sort keys %ALGORITHMS) {
    my $path = "/$_?k=a";
    # one after the other: of answers at a time, on two workers, any is noted
    is(tally(map { $one->get($path) } 1 .. 6), '6 x 200', "$_: six here");
    is(told($two->get("/$_?k=a")), '200 PASSED 3', "$_: one there");
}

t::Clock::go();

redis_stop($port);
$two->becomes('DEGRADED', '/probe?k=%s') or die 'still an answer';

for (sort keys %ALGORITHMS) {
    my $answer = $two->get("/$_?k=a");
    is(told($answer), '200 DEGRADED -1', "$_: without Redis it passes");
    is(header($answer, $_->[0]), $_->[1], "and says so: $_->[0]")
        for ['X-RateLimit-Policy', 'degraded'], ['X-RateLimit-Limit', 10],
            ['X-RateLimit-Reset', ''], ['Retry-After', ''],
            ['X-Source', 'fallback'];
    like(header($answer, 'X-Reason'), qr/^(?:breaker_open|unreachable|lost)$/,
         'and why');
    is(tally_of($two, 20, "/$_?k=a"), '2 x 200, 18 x 429',
       "$_: what it knew is left, and no more");
    $answer = $two->get("/$_?k=a");
    is(told($answer), '429 REJECTED 0', "$_: then it is rejected");
    is(header($answer, 'X-RateLimit-Policy'), 'degraded', "$_: degraded");
    is(header($answer, 'X-Left'), 0, "$_: the variable");
    cmp_ok(header($answer, 'Retry-After'), '>', 1, "$_: with Retry-After");
    cmp_ok(header($answer, 'X-RateLimit-Reset'), '>', time, "$_: and Reset");
    is(tally_of($one, 20, "/$_?k=a"), '4 x 200, 16 x 429',
       "$_: the other gateway knew of six");
    is(tally_of($two, 20, "/$_?k=b"), '10 x 200, 10 x 429',
       "$_: another client has all");
}

$two->reload;

is(tally_of($two, 5, "/$_?k=a"), '5 x 429', "$_: a reload forgets nothing")
    for sort keys %ALGORITHMS;

redis_start(port => $port);

for my $gateway ($one, $two) {
    ok($gateway->becomes('PASSED', '/probe?k=%s'), 'Redis is back');
}

# of a fixed window clients are never told more than before
t::Clock::stop();

for (sort keys %ALGORITHMS) {
    like(told($two->get("/$_?k=a")),
         $_ eq 'fixed_window' ? qr/^200 PASSED \d$/ : qr/^200 PASSED 9$/,
         "$_: it is asked, and came back empty");
}

# what another gateway gave back, or Redis forgot, is known with the next answer
redis_cli($port, 'flushall');
is(told($two->get("/$_?k=b")), '200 PASSED 9', "$_: as if fresh")
    for sort keys %ALGORITHMS;

t::Clock::go();

kill STOP => redis_pid($port);
$two->becomes('DEGRADED', '/probe?k=%s') or die 'still an answer';
is(tally_of($two, 30, "/$_?k=b"), '9 x 200, 21 x 429',
   "$_: nine are left when Redis hangs") for sort keys %ALGORITHMS;
kill CONT => redis_pid($port);

$_->stop for $one, $two;
redis_stop($port);

# Requests in flight: those that Redis let in are known here, too.
sub flights {
    my ($port) = @_;
    my $gateway = t::Gateway->limited(
        workers => 2, redis => $port, start => 0, server => $MORE,
        zone => { c => 'redis=r algorithm=concurrency limit=3 fail_mode=local',
                  late => 'redis=r rate=1r/h fail_mode=local' },
        locations => {
            '/' => 'ratelimit zone=c;',
            '/api' => 'ratelimit zone=c; proxy_read_timeout 60s;'
                      . 'proxy_pass http://unix:%%DIR%%/api.sock;',
            '/late' => 'ratelimit zone=late;',
            '/both' => 'ratelimit zone=c; ratelimit zone=late;' });
    $gateway->{api} = IO::Socket::UNIX->new(Listen => 100,
                                            Local => "$gateway->{dir}/api.sock")
        or die "api.sock: $!";
    return $gateway->start;
}

sub enter {
    my ($gateway, $key) = @_;
    $key //= 'a';
    my $client = $gateway->connect_to;
    syswrite $client, "GET /api?k=$key HTTP/1.0\r\nHost: a\r\n\r\n";
    IO::Select->new($gateway->{api})->can_read($t::Gateway::PATIENCE)
        or die 'nothing was passed on';
    my $held = $gateway->{api}->accept;
    sysread $held, my $head, 65536;
    return [$client, $held];
}

sub leave {
    my ($client, $held) = @{ $_[0] };
    my $header = $_[1] // 'X-A: b';
    syswrite $held, "HTTP/1.0 200 OK\r\n$header\r\n\r\nx";
    close $held;
    local $/;
    return readline $client;
}

$port = redis_start();
my $gateway = flights($port);
ok($gateway->becomes('PASSED', '/late?k=%s'), 'slots are Redis\'');

my @held = map { enter($gateway) } 1, 2;
is(told($gateway->get('/?k=a')), '200 PASSED 0', 'two are in flight');

redis_stop($port);
ok($gateway->becomes('DEGRADED', '/late?k=%s'), 'Redis is gone');

push @held, enter($gateway);
my $answer = $gateway->get('/?k=a');
is(told($answer), '429 REJECTED 0', 'with a third there is no slot');
is(header($answer, 'X-RateLimit-Policy'), 'degraded', 'degraded');
is(header($answer, 'Retry-After'), 1, 'a time to wait');
is(header($answer, 'X-RateLimit-Reset'), '', 'and no reset');

leave(shift @held);
ok(wait_for(sub { $gateway->get('/?k=a')->{status} == 200 }),
   'a slot that Redis had granted is free again');

# granted here, and denied by another rule: it is given back
is($gateway->get('/both?k=c')->{status}, 200, 'another rule passes once');
is(tally_of($gateway, 10, '/both?k=c'), '10 x 429', 'and then denies');
is(tally_of($gateway, 1, '/?k=c'), '1 x 200', 'the slots are back');

redis_start(port => $port);
ok($gateway->becomes('PASSED', '/late?k=%s'), 'Redis is back');
leave(shift @held) for 1, 2;
ok(wait_for(sub { told($gateway->get('/?k=a')) eq '200 PASSED 2' }),
   'nobody has a slot');

redis_stop($port);
ok($gateway->becomes('DEGRADED', '/late?k=%s'), 'Redis is gone again');
@held = map { enter($gateway) } 1 .. 3;
is($gateway->get('/?k=a')->{status}, 429, 'none was kept here, nor lost');
leave($_) for @held;
$gateway->stop;

# What a rule's other parameters do without Redis. A server that nobody started
# has no answer from the first request on; the other one has them all.
my $dead = t::Gateway::free_port();
my $alive = redis_start();
my $TO_UP = 'proxy_pass http://unix:%%DIR%%/up.sock;';
my $UP = <<'CONF';
    server {
        listen unix:%%DIR%%/up.sock;
        location / { add_header X-Cost $arg_c; return 200 "up\n"; }
        location /status/401 { return 401; }
    }
CONF

$gateway = t::Gateway->limited(
    redis => { dead => $dead, alive => $alive },
    zone => { z => 'redis=dead rate=10r/h', two => 'redis=dead',
              keys => 'redis=dead', live => 'redis=alive rate=1r/h',
              back => 'redis=alive rate=5r/h', node => 'rate=5r/h' },
    rules => ['cost match=/cost rate=10r/h cost=$arg_c',
              'header match=/header rate=10r/h cost=5 cost_header=X-Cost',
              'status match=/status/** rate=2r/h count_status=401',
              'dry match=/dry rate=1r/h dry_run',
              'leaky match=/leaky algorithm=leaky_bucket rate=10r/s burst=2',
              'never match=/never rate=1r/h cost=2',
              'open match=/open rate=1r/h fail_mode=open',
              'none match=/none rate=1r/h',
              'gold match=/group rate=2r/h group=g tier=gold',
              'other match=/group rate=1r/h group=g',
              'part match=/part rate=1r/h percent=50',
              'tight zone=two rate=1r/h', 'wide zone=two rate=10r/h',
              'client zone=keys rate=10r/h',
              'tenant zone=keys rate=3r/h key=$arg_t'],
    http => "ratelimit_fail_mode local; ratelimit_tier \$arg_tier; $UP",
    server => $MORE,
    locations => {
        '/' => '',
        '/header' => "ratelimit zone=z rule=header; $TO_UP",
        '/status' => "ratelimit zone=z rule=status; $TO_UP",
        '/none' => 'ratelimit zone=z rule=none; ratelimit_fail_mode open;',
        '/group' => 'ratelimit zone=z rule=gold;',
        '/two' => 'ratelimit zone=two;',
        '/wide' => 'ratelimit zone=two rule=wide;',
        '/keys' => 'ratelimit zone=keys;',
        '/client' => 'ratelimit zone=keys rule=client;',
        '/live' => 'ratelimit zone=live; ratelimit zone=two rule=wide;',
        '/back' => 'ratelimit zone=back; ratelimit zone=node;'
                   . 'ratelimit zone=two rule=tight;',
        '/backs' => 'ratelimit zone=back;',
        '/node' => 'ratelimit zone=node;',
        '/ietf' => 'ratelimit zone=two; ratelimit_headers ietf draft3;',
        '/json' => 'ratelimit zone=two rule=tight;',
        map { ("/$_" => "ratelimit zone=z rule=$_;") }
            qw( cost dry leaky never open part ) });

is(told($gateway->get('/cost?k=a&c=4')), '200 DEGRADED -1', 'a cost of 4');
is($gateway->get('/cost?k=a&c=7')->{status}, 429, '7 more is too much');
is($gateway->get('/cost?k=a&c=6')->{status}, 200, '6 is not');
is($gateway->get('/cost?k=a&c=1')->{status}, 429, 'nothing is left');
is($gateway->get('/cost?k=a&c=0')->{status}, 200, 'what costs nothing passes');

is($gateway->get('/header?k=a&c=1')->{status}, 200, 'costs 5, then 1');
is($gateway->get('/header?k=a&c=5')->{status}, 200, '4 came back');
is($gateway->get('/header?k=a')->{status}, 429, '4 are left, 5 are asked for');
is($gateway->get('/header?k=b&c=9')->{status}, 200, 'costs 5, then 9');
is($gateway->get('/header?k=b')->{status}, 429, '1 is left');

is($gateway->get("/status/$_?k=a")->{status}, $_, "status $_")
    for 200, 200, 200, 401, 200, 401;
is($gateway->get('/status/200?k=a')->{status}, 429, 'two of them count');

is(told($gateway->get('/dry?k=a')), '200 DEGRADED ', 'a dry run');
is(told($gateway->get('/dry?k=a')), '200 REJECTED_DRY_RUN ',
   'which would reject');

t::Clock::stop();
my $begun = $gateway->begin(5, '/leaky?k=a');
ok(wait_for(sub { t::Gateway::answered($begun) == 3 }),
   'a leaky bucket: two of five wait');
advance(1);
my @answers = t::Gateway::finish($begun);
t::Clock::go();
is(tally(@answers), '3 x 200, 2 x 429', 'a leaky bucket');
is(scalar(grep { header($_, 'X-Delay') =~ /^0\.[012]\d\d$/
                 && header($_, 'X-Status') eq 'DEGRADED' } @answers), 2,
   'two of them are delayed');

$answer = $gateway->get('/never?k=a');
is(told($answer), '429 REJECTED 1', 'a cost that never can be paid');
is(header($answer, 'Retry-After'), '', 'no retry heals it');

is(tally_of($gateway, 5, '/open?k=a'), '5 x 200', 'a rule\'s own mode: open');
is(tally_of($gateway, 5, '/none?k=a'), '5 x 200', 'a location\'s: open');
is(tally_of($gateway, 5, '/group?k=a&tier=gold'), '2 x 200, 3 x 429', 'a tier');
is(tally_of($gateway, 5, '/group?k=a'), '5 x 200', 'not its own');

my %part;
$part{tally_of($gateway, 3, "/part?k=$_")}++ for 1 .. 40;
is(join(' / ', sort keys %part), '1 x 200, 2 x 429 / 3 x 200',
   'a share of the keys');

# all or nothing, over what is here and what is in Redis
is(tally_of($gateway, 10, '/two?k=a'), '1 x 200, 9 x 429', 'the tight one');
is(tally_of($gateway, 10, '/wide?k=a'), '9 x 200, 1 x 429',
   'the wide one got back what the tight one denied');
is(tally_of($gateway, 9, '/keys?k=a&t=x'), '3 x 200, 6 x 429', 'two keys');
is(tally_of($gateway, 9, '/client?k=a'), '7 x 200, 2 x 429',
   'the other one was not charged');
$answer = $gateway->get('/keys?k=a&t=y');
is(told($answer) . header($answer, 'X-Rule'), '429 REJECTED 0client',
   'each falls back by itself');

ok(wait_for(sub { header($gateway->get('/backs?k=w'), 'X-Source')
                              eq 'redis' }), 'the other Redis answers');
is(tally_of($gateway, 6, '/live?k=b'), '1 x 200, 5 x 429', 'Redis denies');
is(tally_of($gateway, 12, '/wide?k=b'), '9 x 200, 3 x 429',
   'what was granted here was given back');
is(tally_of($gateway, 6, '/back?k=c'), '1 x 200, 5 x 429', 'here it is denied');
ok(wait_for(sub {
    header($gateway->get('/backs?k=c'), 'X-Left') >= 0 }), 'asked again');
is(header($gateway->get('/node?k=c'), 'X-Left'), 3,
   'the node\'s own counter got back what was granted');
is(header($gateway->get('/backs?k=c'), 'X-Left'), 2, 'and so did Redis');

$answer = $gateway->get('/ietf?k=d');
is(header($answer, 'RateLimit'), '', 'ietf: what is left nobody knows');
is(header($answer, 'RateLimit-Remaining'), '', 'draft3: the same');
$answer = $gateway->get('/ietf?k=d');
is($answer->{status}, 429, 'denied');
like(header($answer, 'RateLimit'), qr/^"tight";r=0;t=\d+;pk=:[^:]+:$/,
     'ietf: nothing is left of one');
is(header($answer, 'RateLimit-Remaining'), 0, 'draft3: the same');

$gateway->get('/json?k=e');
my $body = JSON::PP::decode_json($gateway->get('/json?k=e')->{body});
is($body->{error}{code}, 'RATE_LIMIT_EXCEEDED', 'JSON of a rejection');

$gateway->stop;

# What stands here for Redis is charged, and gets back, what Redis is.
$port = redis_start();
$gateway = t::Gateway->limited(
    redis => $port,
    zone => { cost => 'redis=r sync=strict rate=20r/h cost=5 cost_header=X-Cost',
              status => 'redis=r rate=3r/h count_status=401',
              tight => 'redis=r rate=1r/h' },
    http => "ratelimit_fail_mode local; $UP",
    server => $MORE,
    locations => {
        '/' => "ratelimit zone=cost; $TO_UP",
        '/api' => 'ratelimit zone=cost; proxy_pass http://unix:%%DIR%%/api.sock;',
        '/status' => "ratelimit zone=status; $TO_UP",
        '/tight' => "ratelimit zone=cost; ratelimit zone=tight; $TO_UP" });

ok(wait_for(sub { told($gateway->get('/?k=w')) =~ /PASSED/ }), 'Redis answers');
is(told($gateway->get('/?k=a&c=9')), '200 PASSED 11', '5, and then 4 more');
is(told($gateway->get('/?k=b&c=1')), '200 PASSED 19', '5, and 4 come back');
is($gateway->get('/tight?k=c')->{status}, 200, 'costs 5');
is($gateway->get('/tight?k=c')->{status}, 429, 'and 5 that are given back');
is($gateway->get("/status/$_?k=a")->{status}, $_, "status $_")
    for 200, 401, 401;

# taken here, since Redis is full: what comes back is not given to Redis
$gateway->{api} = IO::Socket::UNIX->new(Listen => 100,
                                        Local => "$gateway->{dir}/api.sock")
    or die "api.sock: $!";
is(told($gateway->get('/?k=d&c=9')), '200 PASSED 11', '9 of 20');
redis_cli($port, 'config', 'set', 'maxmemory', 1);
my $waits = enter($gateway, 'd');
redis_cli($port, 'config', 'set', 'maxmemory', 0);
like(leave($waits, 'X-Cost: 1'), qr/^X-Status: DEGRADED/m, 'degraded');
ok(wait_for(sub { told($gateway->get('/?k=w&c=0')) =~ /PASSED/ }), 'not full');
is(told($gateway->get('/?k=d&c=5')), '200 PASSED 6', '11 were left');

redis_stop($port);
ok(wait_for(sub { told($gateway->get('/?k=x' . rand))
                              =~ /DEGRADED/ }), 'Redis is gone');
is(tally(map { $gateway->get('/?k=a') } 1 .. 4),
   '2 x 200, 2 x 429', '11 are left');
is(tally(map { $gateway->get('/?k=b') } 1 .. 4),
   '3 x 200, 1 x 429', '19 are left');
is(tally(map { $gateway->get('/?k=c') } 1 .. 4),
   '3 x 200, 1 x 429', '15 are left');
is($gateway->get('/status/401?k=a')->{status}, 401, 'one more failure');
is($gateway->get('/status/401?k=a')->{status}, 429, 'was the last');
$gateway->stop;

# Redis answers, and says nothing, and answers, as a file says.
$gateway = t::Gateway->new(http => '')->configure(http => '');
my $mood = $gateway->write('mood', 'good');

# the third number: what is left
my $fake = t::FakeRedis->new(sub {
    open my $file, '<', $mood or return '';
    my $now = <$file> // '';
    return $now eq 'silent' ? '' : $now eq 'closes' ? undef
           : $now eq 'oom' ? "-OOM command not allowed\r\n"
           : $now eq 'wrong' ? "*4\r\n:1\r\n:-5\r\n:1\r\n:0\r\n"
           : "*4\r\n:1\r\n:3\r\n:2520000\r\n:0\r\n";
});

$gateway->configure(http => t::Gateway::limited_http(
    redis => $fake->{port}, timeout => '100ms', server => $MORE,
    zone => 'sync=strict rate=10r/h fail_mode=local'))->start;

# Redis answers again: five in a row, since a breaker readmits calls gradually
sub answers {
    my $path = shift;
    return wait_for(sub {
        5 == grep { told($_) eq '200 PASSED 3' }
             map { $gateway->get($path) } 1 .. 5
    });
}

for (['silent', 'timeout'], ['closes', 'lost'], ['oom', 'oom'],
     ['wrong', 'protocol'])
{
    my ($how, $reason) = @$_;
    ok(answers("/?k=$how"), "$how: three are left");
    $gateway->write('mood', $how);
    # what it says comes in time
    t::Clock::stop() if $how ne 'silent';
    my $first = $gateway->get("/?k=$how");
    is(told($first), '200 DEGRADED -1', "$how: degraded");
    is(header($first, 'X-Reason'), $reason, "$how: the reason");
    t::Clock::go();
    is(tally_of($gateway, 10, "/?k=$how"), '2 x 200, 8 x 429',
       "$how: two more");
    $gateway->write('mood', 'good');
}

is(header($gateway->get('/?k=a'), 'X-Reason'), '', 'no reason for an answer')
    if answers('/?k=b');

$gateway->stop;
$fake->stop;

# What nginx -t says.
sub refuses {
    my ($zone, $rest, $message) = @_;
    my $gateway = t::Gateway->new(http => <<"CONF");
    ratelimit_redis r { server 127.0.0.1:1; }
    ratelimit_zone \$arg_k zone=z:1m $zone;
    $rest
    server { listen 127.0.0.1:%%PORT%%; location / { ratelimit zone=z; } }
CONF
    my ($ok, $text) = $gateway->check;
    return ok($ok, "accepts $zone") if !defined $message;
    ok(!$ok, "refuses $zone $rest");
    like($text, qr/\[emerg\] .*\Q$message\E/, 'and says what it expected');
}

refuses('redis=r rate=1r/s fail_mode=shut', '',
        '"ratelimit_zone" has an invalid "fail_mode=shut", expected "open", '
        . '"local" or "closed"');
refuses('redis=r rate=1r/s fail_mode=', '', 'has an invalid "fail_mode="');
refuses('rate=1r/s fail_mode=local', '',
        'rule "z" has "fail_mode=local", expected a zone with "redis="');
refuses('rate=1r/s', 'ratelimit_rule x zone=z rate=1r/s fail_mode=open;',
        'rule "x" has "fail_mode=open", expected a zone with "redis="');
refuses('redis=r rate=1r/s', 'ratelimit_fail_mode on;',
        '"ratelimit_fail_mode" has an invalid "on", expected one of "open", '
        . '"local", "closed"');
refuses('redis=r rate=1r/s',
        'ratelimit_fail_mode open; ratelimit_fail_mode open;', 'is duplicate');
refuses('redis=r rate=1r/s fail_mode=closed',
        'ratelimit_rule x zone=z algorithm=concurrency limit=1 '
        . 'fail_mode=local; ratelimit_fail_mode local;', undef);
refuses('rate=1r/s', 'ratelimit_fail_mode closed;', undef);
refuses('redis=r rate=1r/s emergency=1r/s fail_mode=local', '',
        '"ratelimit_zone" "z" has "fail_mode=local" beside "emergency=", '
        . 'expected "fail_mode=open"');
refuses('redis=r rate=1r/s fail_mode=closed emergency=1r/s', '',
        'has "fail_mode=closed" beside "emergency="');
refuses('redis=r rate=1r/s emergency=$arg_r', '',
        'has an invalid "emergency=$arg_r", expected a rate without variables');
refuses('redis=r rate=1r/s emergency=5', '',
        'has an invalid "emergency=5", expected "r/" and a period after '
        . 'the number of requests');
refuses('redis=r rate=1r/s emergency=1073741824r/366d', '', undef);
refuses('rate=1r/s emergency=1r/s', '',
        'rule "z" has "emergency=1r/s", expected a zone with "redis="');
refuses('redis=r rate=1r/s emergency=1r/s', 'ratelimit_fail_mode closed;',
        undef);
