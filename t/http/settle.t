# What a response says of the request's cost: cost_header= and count_status=,
# in shared memory and in Redis.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header wait_for );

my $redis = redis_port();
my $prefix = key_prefix();
my $up = t::Gateway::free_port();

# that owe: name, limit, and by how many seconds the wait grows by a debt of 100
my @limits = (
    ['owe-bucket', 'rate=100r/h', 3600],
    ['owe-leaky', 'algorithm=leaky_bucket rate=100r/h burst=99 nodelay', 3600],
    ['owe-fixed', 'algorithm=fixed_window limit=100 window=1h', 3600],
    ['owe-day', 'algorithm=fixed_window limit=100 window=calendar:day', 86400],
    ['owe-sliding', 'algorithm=sliding_window limit=100 window=1h', 1782],
    ['owe-strict', 'rate=100r/h sync=strict', 3600],
    ['owe-strict-fixed', 'algorithm=fixed_window limit=100 window=1h sync=strict', 3600],
    ['owe-async', 'rate=100r/h sync=async', 3600],
    ['owe-here', 'rate=100r/h fail_mode=local', 3600],
    ['owe-log', 'algorithm=sliding_log limit=100 window=1h', 0],
);
my %limits = (local => [grep { $_->[1] !~ /sync|fail_mode/ } @limits],
              fleet => \@limits);

my $PROXY = "proxy_pass http://127.0.0.1:$up";

sub rule { return "ratelimit zone=$_[0] rule=$_[1];" }

my $gateway = t::Gateway->limited(
    redis => $redis,
    zone => { local => '', fleet => 'redis=r',
              slow => 'algorithm=leaky_bucket rate=15r/m burst=9' },
    rules => [
        'tokens zone=local rate=100r/h cost_header=X-Cost',
        'reserve zone=local rate=100r/h cost=10 cost_header=X-Cost',
        'dry zone=local rate=2r/h cost_header=X-Cost dry_run',
        'other zone=local rate=100r/h match=/other cost_header=X-Other',
        'window zone=local limit=100 window=1h algorithm=fixed_window cost=10'
        . ' cost_header=X-Cost',
        'late zone=local rate=60r/m cost_header=X-Cost',
        'hour zone=local limit=60 window=1h algorithm=fixed_window'
        . ' cost_header=X-Cost',
        'large zone=local limit=1000000000 window=1d algorithm=fixed_window'
        . ' cost_header=X-Cost',
        'logins zone=local rate=3r/h count_status=401,403',
        'costly zone=local rate=9r/h cost=3 count_status=401',
        'tokens zone=fleet sync=strict rate=100r/h cost=10 cost_header=X-Cost',
        'logins zone=fleet rate=3r/h count_status=401,403',
        'quick zone=fleet sync=strict rate=1r/s cost_header=X-Cost',
        map { my $zone = $_;
              map { "$_->[0] zone=$zone $_->[1] cost_header=X-Cost" }
              @{ $limits{$zone} } } qw( local fleet ),
    ],
    http => <<"CONF",
    log_format cost '\$arg_k \$ratelimit_rule \$ratelimit_cost';
    access_log cost.log cost;
    server {
        access_log off;
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$arg_cost;
                     add_header X-Cost \$arg_more;
                     add_header X-Other \$arg_other;
                     return 200 "cost\\n"; }
        location /accel { add_header X-Cost \$arg_cost;
                          add_header X-Accel-Redirect /file;
                          return 200; }
        location /again { add_header X-Cost \$arg_cost;
                          add_header X-Accel-Redirect /second?then=\$arg_then;
                          return 200; }
        location /then { add_header X-Cost \$arg_then; return 200; }
        location /elsewhere { add_header X-Cost \$arg_cost always;
                              return 404; }
        location /intercepted { add_header X-Cost \$arg_cost always;
                                return 404; }
        location /401 { return 401; }
        location /403 { return 403; }
    }
CONF
    locations => {
        (map { ("/$_" => rule('local', $_) . "$PROXY;") }
         qw( tokens reserve dry window large )),
        (map { ("/$_" => rule('local', $_) . "$PROXY/\$arg_to;") }
         qw( logins costly )),
        (map { ("/fleet-$_" => rule('fleet', $_) . "$PROXY;") }
         qw( tokens quick )),
        '/fleet-logins' => rule('fleet', 'logins') . "$PROXY/\$arg_to;",
        '/both' => rule('local', 'tokens') . rule('local', 'other') . "$PROXY;",
        '/page' => rule('local', 'tokens') . 'proxy_intercept_errors on;'
                   . "error_page 404 /tokens; $PROXY;",
        '/hidden' => rule('local', 'tokens') . "proxy_hide_header X-Cost; $PROXY;",
        '/accel' => rule('local', 'tokens') . "$PROXY;",
        '/file' => 'internal; return 200 "file\n";',
        '/again' => rule('local', 'tokens') . "$PROXY;",
        '/elsewhere' => rule('local', 'tokens') . 'proxy_intercept_errors on;'
                        . "error_page 404 =200 /second; $PROXY;",
        (map { ("/$_" => rule('local', $_) . 'ratelimit_headers x draft3 ietf;'
                         . 'proxy_pass http://127.0.0.1:%%PORT%%/slow?k=$arg_k;') }
         qw( late hour )),
        '/slow' => 'ratelimit zone=slow; add_header X-Cost 10; empty_gif;',
        '/second' => "internal; $PROXY/then;",
        '/intercepted' => rule('local', 'tokens') . 'proxy_intercept_errors on;'
                          . "error_page 404 /file; $PROXY;",
        '/gone' => rule('local', 'tokens') . 'proxy_pass http://127.0.0.1:1;',
        map { my $zone = $_;
              map { ("/$zone/$_->[0]" => rule($zone, $_->[0]) . "$PROXY/;") }
              @{ $limits{$zone} } } qw( local fleet ),
    });

sub header_of {
    my ($path, $name) = @_;
    return header($gateway->get($path), $name);
}

# a charge in Redis is nobody's to wait for
sub then_told {
    $gateway->settled($redis);
    return $gateway->told(@_);
}

# an hour's bucket gets a token in 36 seconds, which a busy machine may need
t::Clock::stop();

# more than the request took
is($gateway->told('/tokens?k=a&cost=30'), '200 PASSED 70', 'charged, and told at once');
is($gateway->told('/tokens?k=a&cost=1'), '200 PASSED 69', 'what it took already');
is($gateway->told('/tokens?k=a'), '200 PASSED 68', 'no header: the cost it has');
is($gateway->told('/gone?k=a'), '502 PASSED 67', 'no upstream: the same');

is(header_of('/tokens?k=a2&cost=30&more=5', 'X-Cost'), '',
   'the header is hidden, each of that name');
is($gateway->told('/tokens?k=a2'), '200 PASSED 64', 'and their sum counts');
is($gateway->told('/tokens?k=a3&cost=30&more=x'), '200 PASSED 99', 'or none does');
is(header_of('/tokens?k=a2&other=5', 'X-Other'), 5,
   'another rule\'s is not hidden');
is(header_of('/both?k=a2&other=5', 'X-Other'), '',
   'also where its rule does not apply');

# what the client does not get, it still costs
is($gateway->told('/hidden?k=h&cost=30'), '200 PASSED 70', 'hidden by nginx');
is($gateway->told('/accel?k=h&cost=30'), '200 PASSED 40', 'behind X-Accel-Redirect');
is($gateway->told('/intercepted?k=h&cost=30'), '404 PASSED 10', 'behind an error page');
is(header_of('/accel?k=h2&cost=30', 'X-Cost'), '', 'and is not shown');
is($gateway->told('/again?k=h3&cost=30'), '200 PASSED 70',
   'behind X-Accel-Redirect to another upstream');
is($gateway->told('/again?k=h4&cost=30&then=5'), '200 PASSED 95',
   'unless that one says another');
is($gateway->told('/elsewhere?k=h5&cost=30'), '200 PASSED 70',
   'behind an error page of another upstream');

# more than is left: the rest is owed, so it is not free for ever
is($gateway->told('/tokens?k=b&cost=40'), '200 PASSED 60', 'forty');
is($gateway->told('/tokens?k=b&cost=40'), '200 PASSED 20', 'forty again');
is($gateway->told('/tokens?k=b&cost=40'), '200 PASSED 0', 'and forty of twenty');
is(header_of('/tokens?k=b', 'Retry-After'), 36 * 21, 'the next waits for that');
is($gateway->told('/tokens?k=b'), '429 REJECTED 0', 'and pays nothing');

sub wait_of {
    my ($path, $cost) = @_;
    # sync=async goes by what Redis has said
    if ($path =~ /async/ && $path !~ /last/) {
        is($gateway->told("$path&cost=1"), '200 PASSED 99', "$path: one is spent");
        $gateway->settled($redis);
        $cost--;
    }
    like($gateway->told("$path&cost=$cost"),
         qr/^200 PASSED 0$/, "$path: $cost are spent");
    $gateway->settled($redis) if $path =~ /fleet/;
    return header_of($path, 'Retry-After') || 0;
}

for my $zone (qw( local fleet )) {
    for (@{$limits{$zone}}) {
        my ($name, undef, $longer) = @$_;
        my ($spent, $owed) = (wait_of("/$zone/$name?k=spent", 100),
                              wait_of("/$zone/$name?k=owed", 1000));
        # the last token is spent by the request that then owes
        $gateway->get("/$zone/$name?k=last&cost=99");
        $gateway->settled($redis) if $zone eq 'fleet';
        my $last = wait_of("/$zone/$name?k=last", 900);
        ok(abs($last - $owed) <= ($name =~ /async/ ? 72 : 1),
           "$zone, $name: by the last token, too: $last s");
        # what sync=async goes by may be a request behind, of 36 s
        my $off = abs($owed - $spent - $longer);
        ok($spent && $off <= ($name =~ /async/ ? 36 : 1),
           "$zone, $name: what is owed is waited for: $spent s, $owed s");
    }
}

# a response that takes four seconds, from when the API has the request
sub delayed {
    return $gateway->get('/metrics')->{body}
               =~ /^ratelimit_requests_total\{zone="slow",.*"delayed",.*\} (\d+)$/m ? $1 : 0;
}

for my $name ('late', 'hour') {
    $gateway->get("/slow?k=$name");
    my $before = delayed();
    my $late = $gateway->begin(1, "/$name?k=$name");
    ok(t::Gateway::wait_for(sub { delayed() > $before }), "$name: on its way");
    t::Clock::advance(4);
    my ($answer) = t::Gateway::finish($late);
    my $reset = $name eq 'late' ? 9 : 3600 - t::Clock::now() % 3600;
    is(header($answer, 'RateLimit-Reset'), $reset, "$name: seconds from the response on");
    like(header($answer, 'RateLimit'), qr/;t=$reset;/, 'in the list, too');
    ok(abs(header($answer, 'X-RateLimit-Reset') - t::Clock::now() - $reset) <= 1,
       'the same moment');
}

# less than it took
is($gateway->told('/reserve?k=c&cost=4'), '200 PASSED 96', 'given back');
is($gateway->told('/reserve?k=c&cost=0'), '200 PASSED 96', 'all of it');
is($gateway->told('/reserve?k=c&cost=10'), '200 PASSED 86', 'or nothing');
is($gateway->told('/window?k=c&cost=4'), '200 PASSED 96', 'of a window too');
is($gateway->told('/window?k=c&cost=40'), '200 PASSED 56', 'and charged to it');

# what is no cost
for my $cost ('x', '-1', '1.5', '1+') {
    my $before = $gateway->told("/tokens?k=d&cost=$cost");
    $before =~ s/(\d+)$/$1 - 1/e;
    is($gateway->told("/tokens?k=d&cost=1"), $before, "\"$cost\" is not counted");
}

ok(index($gateway->log, 'ratelimit rule "tokens" has a cost of "x" in the '
             . 'response\'s "x-cost", expected a number of 0 or more; it '
             . 'is not counted') > 0, 'and says so');

# more than a counter holds
for my $cost (qw( 1073741824 1073741825 99999999999999999999 )) {
    is($gateway->told("/large?k=$cost&cost=$cost"), '200 PASSED 0',
       "$cost is all of it");
}

# a dry run counts what it would have admitted
is($gateway->told('/dry?k=e&cost=2'), '200 PASSED ', 'admitted');
is($gateway->told('/dry?k=e&cost=2'), '200 REJECTED_DRY_RUN ', 'would be rejected');
like($gateway->get('/metrics')->{body},
     qr/^ratelimit_cost_total\{zone="local",rule="dry"\} 2$/m, 'and is not charged');

# failed logins
is($gateway->told('/logins?k=f'), '200 PASSED 3', 'success does not count');
is($gateway->told('/logins?k=f&to=401'), '401 PASSED 2', 'a failure does');
is($gateway->told('/logins?k=f&to=403'), '403 PASSED 1', 'of each status named');
is($gateway->told('/logins?k=f&to=404'), '200 PASSED 1', 'no other');
is($gateway->told('/logins?k=f&to=401'), '401 PASSED 0', 'the last');
is($gateway->told('/logins?k=f'), '429 REJECTED 0', 'then all are denied');

is($gateway->told('/costly?k=f&to=401'), '401 PASSED 6', 'at its cost');

# in Redis
is($gateway->told('/fleet-tokens?k=a&cost=30'), '200 PASSED 70', 'told at once');
is(then_told('/fleet-tokens?k=a&cost=4'), '200 PASSED 66', 'and charged behind it');
is(then_told('/fleet-tokens?k=a'), '200 PASSED 56', 'given back behind it');
is($gateway->told('/fleet-tokens?k=b&cost=1000'), '200 PASSED 0', 'all of it');
is(then_told('/fleet-tokens?k=b'), '429 REJECTED 0', 'the next pays for it');

# a bucket that fills within the timeout
is($gateway->told('/fleet-quick?k=c&cost=0'), '200 PASSED 1', 'given back');
is(then_told('/fleet-quick?k=c&cost=0'), '200 PASSED 1', 'in Redis, too');

is($gateway->told('/fleet-logins?k=f&to=401'), '401 PASSED 2', 'a failed login');
is(then_told('/fleet-logins?k=f&to=403'), '403 PASSED 1', 'another');
is(then_told('/fleet-logins?k=f&to=401'), '401 PASSED 0', 'the last');
is(then_told('/fleet-logins?k=f'), '429 REJECTED 0', 'then all are denied');

# the log has what a request has cost in the end
for (['/reserve?k=g1&cost=40', 'g1 reserve 40', 'charged'],
     ['/reserve?k=g2&cost=4', 'g2 reserve 4', 'given back'],
     ['/reserve?k=g3', 'g3 reserve 10', 'no header'],
     ['/costly?k=g4', 'g4 costly 0', 'a status that does not count'],
     ['/costly?k=g5&to=401', 'g5 costly 3', 'one that does'],
     ['/fleet-tokens?k=g6&cost=3', 'g6 tokens 3', 'in Redis'])
{
    my ($path, $line, $name) = @$_;
    $gateway->get($path);
    ok(wait_for(sub { $gateway->read('cost.log') =~ /^\Q$line\E$/m }), $name);
}

t::Clock::go();
$gateway->stop;
