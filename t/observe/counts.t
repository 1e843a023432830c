# What "ratelimit_metrics" counts of decisions: each outcome and source, with
# exact numbers, through reloads, new documents and killed workers; costs, waits,
# delays, tables, leases, and what Redis has lost.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );
use t::Api;
use t::Rules;

my $port = redis_start();

# {name with its labels => value}, of all whose name begins so
sub series {
    my ($gateway, $begin) = @_;
    my %series = $gateway->get('/metrics')->{body} =~ /^(ratelimit_\S+) (\S+)$/mg;
    delete @series{ grep { !/^\Q$begin\E/ } keys %series };
    return \%series;
}

# the requests of a rule, of a zone with "zone/": "passed local 3, ..."
sub requests {
    my ($gateway, $rule, $zone) = @_;
    my $series = series($gateway, 'ratelimit_requests_total');
    my @counted;
    $zone //= 'z';
    for (sort keys %$series) {
        /\{zone="\Q$zone\E",rule="\Q$rule\E",outcome="(\w+)",source="(\w+)"\}/
            or next;
        push @counted, "$1 $2 $series->{$_}" if $series->{$_};
    }
    return join ', ', @counted;
}

sub value {
    my ($gateway, $name) = @_;
    return series($gateway, $name)->{$name};
}

# every outcome of local rules; one that rejects counts the request alone
my $local = t::Gateway->limited(workers => 2, listen => 'reuseport',
    zone => { z => 'rate=3r/d', two => 'rate=100r/d', leaky => '',
              dry => 'rate=1r/d', deny => 'state=deny.state', many => 'rate=9r/d',
              bans => 'rate=1r/d' },
    rules => ['few zone=two rate=2r/d',
              'slow zone=leaky algorithm=leaky_bucket rate=20r/s burst=5',
              'try zone=leaky algorithm=leaky_bucket rate=1r/d burst=5 dry_run',
              'cost zone=two rate=1000r/d cost=$arg_c match=/cost',
              map { "r$_ zone=many rate=9r/d" } 1 .. 17],
    http => 'ratelimit_penalty ban zone=bans after=1r/1m time=1h;',
    files => { 'deny.state' => t::Rules::record(1, {
                   rules => [{ id => 'r', key => '$arg_k',
                               params => { rate => '5r/d' } }],
                   deny => ['bad'] }) },
    locations => {
        '/' => 'ratelimit zone=z;',
        '/two' => 'ratelimit zone=two rule=two; ratelimit zone=two rule=few;',
        '/cost' => 'ratelimit zone=two rule=cost;',
        '/leaky' => 'ratelimit zone=leaky;',
        '/dry' => 'ratelimit zone=dry; ratelimit_dry_run on;',
        '/deny' => 'ratelimit zone=deny; ratelimit_api_key query:key;',
        '/many' => 'ratelimit zone=many;',
        '/bans' => 'ratelimit zone=bans;',
        '/denied' => 'ratelimit zone=deny; ratelimit_dry_run on; ratelimit_api_key query:key;',
    });

is(join(' ', values %{ series($local, 'ratelimit_requests_total{zone="z"') }),
   '0 0', 'two zeros at first');

# what can be is there at 0, what cannot be is not
sub zeros {
    my ($gateway, $rule, $zone) = @_;
    my $series = series($gateway, 'ratelimit_requests_total');
    return join ', ', sort map {
        $series->{$_} == 0
        && /zone="\Q$zone\E",rule="\Q$rule\E",outcome="(\w+)",source="(\w+)"/
        ? "$1 $2" : ()
    } keys %$series;
}

is(zeros($local, 'slow', 'leaky'), 'delayed local, passed local, rejected local',
   'a leaky bucket delays');
is(zeros($local, 'try', 'leaky'),
   'delayed_dry_run local, passed local, rejected_dry_run local', 'a dry run does not');
is(zeros($local, '', 'deny'), 'denied local', 'a zone with a deny list denies');
is(zeros($local, '', 'bans'), 'penalized local', 'and one with a penalty penalizes');
is(zeros($local, '', 'z'), '', 'others do neither');
is(join(' ', map { value($local, "ratelimit_penalties_total{zone=\"bans\",action=\"$_\"}")
                   // '-' } qw( ban delay none )), '0 - 0', 'by its action');
is(value($local, 'ratelimit_new_keys_exceeded_total{zone="z"}'), undef,
   'no networks without new_keys=');
is(value($local, 'ratelimit_rules_not_counted_total{zone="many"}'), 0,
   'every rule counts');
$local->get('/many?k=a') for 1 .. 2;
is(value($local, 'ratelimit_rules_not_counted_total{zone="many"}'), 2,
   'requests with too many rules');

is(tally($local->burst(10, '/?k=a')), '3 x 200, 7 x 429', 'a limit');
is(requests($local, 'z'), 'passed local 3, rejected local 7', 'its requests');
is(value($local, 'ratelimit_cost_total{zone="z",rule="z"}'), 3, 'its cost');

is(tally($local->burst(5, '/two?k=a')), '2 x 200, 3 x 429', 'two rules');
is(requests($local, 'two', 'two'), 'passed local 2',
   'a request that another rule rejects does not count');
is(requests($local, 'few', 'two'), 'passed local 2, rejected local 3',
   'but for that one');

$local->get("/cost?k=a&c=$_") for 5, 7, 0;
is(requests($local, 'cost', 'two'), 'passed local 3', 'three requests');
is(value($local, 'ratelimit_cost_total{zone="two",rule="cost"}'), 12,
   'and what they cost');

is(tally($local->burst(3, '/leaky?k=a')), '3 x 200', 'a leaky bucket');
is(requests($local, 'slow', 'leaky'), 'delayed local 2, passed local 1',
   'delays two');
is(requests($local, 'try', 'leaky'), 'delayed_dry_run local 2, passed local 1',
   'and would delay two');
is(value($local, 'ratelimit_delay_seconds_count{zone="leaky"}'), 2,
   'their delays');
is(value($local, 'ratelimit_delay_seconds_bucket{zone="leaky",le="0.05"}'), 1,
   'one of 50 ms');
is(value($local, 'ratelimit_delay_seconds_bucket{zone="leaky",le="0.1"}'), 2,
   'one of 100 ms');

$local->get('/dry?k=a') for 1 .. 3;
is(requests($local, 'dry', 'dry'), 'passed local 1, rejected_dry_run local 2',
   'a dry run');

is(join(' ', map { $local->get("/$_?k=a&key=bad")->{status} } qw( deny deny denied )),
   '403 403 200', 'a deny list');
is(requests($local, '', 'deny'), 'denied local 2, denied_dry_run local 1',
   'is of the zone');

# a reload, killed workers, a document in which a rule is gone, and comes again
my $before = $local->get('/metrics')->{body};

sub same {
    my $what = shift;
    my %series = map { $_ => 1 } $before =~ /^ratelimit_(?:requests|cost)\S* \d+$/mg;
    my %now = map { $_ => 1 } $local->get('/metrics')->{body}
                              =~ /^ratelimit_(?:requests|cost)\S* \d+$/mg;
    is_deeply(\%now, \%series, "$what: all counts are there");
}

$local->reload;
same('a reload');

ok($local->kill_workers, 'killed');
same('killed workers');

is(tally($local->burst(6, '/?k=a')), '6 x 429', 'the limit goes on');
is(requests($local, 'z'), 'passed local 3, rejected local 13', 'and its counts');

$local->configure(http => $local->{http} =~ s/^ratelimit_rule cost .*$//mr
                                         =~ s/ratelimit zone=two rule=cost;//r);
$local->reload;
is(requests($local, 'cost', 'two'), 'passed local 3', 'a rule that is gone');
$local->stop('QUIT', qr/exited on signal 9/);

# rules of a document, through its versions
my $document = t::Gateway->limited(zone => 'state=rules.state', api => 1,
                                   workers => 2);
my $api = t::Api->new($document);

sub rules {
    my $limit = shift;
    my $answer = $api->put('/document', { rules => [
        map { { id => $_, key => '$arg_k', match => { route => "/$_" },
                params => { rate => "$limit/d" } } } @_ ] },
        'If-Match: *');
    ok($api->follows($answer->{version}), "a document: @_");
}

rules('2r', 'one');
is(tally($document->burst(3, '/one?k=a')), '2 x 200, 1 x 429', 'its rule');
is(requests($document, 'one'), 'passed local 2, rejected local 1', 'counts');
rules('3r', 'one', 'two');
is(tally($document->burst(3, '/two?k=a')), '3 x 200', 'one more');
is(requests($document, 'one'), 'passed local 2, rejected local 1',
   'a new version keeps the counts');
rules('3r', 'two');
is(requests($document, 'one'), 'passed local 2, rejected local 1',
   'also those of a rule that is gone');
rules('3r', 'one');
$document->get('/one?k=b');
is(requests($document, 'one'), 'passed local 3, rejected local 1',
   'and it goes on when it comes again');
is(requests($document, 'two'), 'passed local 3', 'the other is gone now');
$document->stop;

# Redis: strict, leased, remembered, and none
my $redis = t::Gateway->limited(workers => 2, listen => 'reuseport',
    redis => { r => $port, gone => t::Gateway::free_port() },
    zone => { z => 'redis=r', gone => 'redis=gone' },
    rules => ['strict limit=5 window=366d match=/strict sync=strict',
              'lease limit=100000 window=366d match=/lease',
              'spent limit=2 window=366d match=/spent',
              'dry limit=1 window=366d match=/dry dry_run sync=strict',
              'async limit=5 window=366d match=/async sync=async',
              'header limit=100 window=366d match=/header sync=strict cost=5 cost_header=X-Cost',
              'open zone=gone limit=5 window=366d match=/open sync=strict',
              'closed zone=gone limit=5 window=366d match=/closed sync=strict fail_mode=closed',
              'local zone=gone limit=2 window=366d match=/local sync=strict fail_mode=local'],
    locations => { '/' => 'ratelimit zone=z;',
                   (map { ("/$_" => 'ratelimit zone=gone;') } qw( open closed local )),
                   '/header' => 'ratelimit zone=z; proxy_pass http://127.0.0.1:%%PORT%%/echo;',
                   '/echo' => 'add_header X-Cost 3; return 200;' });

is(zeros($redis, 'strict', 'z'), 'degraded fallback, passed redis, '
   . 'rejected memory, rejected redis', 'strict: no lease');
is(zeros($redis, 'header', 'z'), 'degraded fallback, passed redis, rejected redis',
   'a cost that the response tells: no memory');
is(zeros($redis, 'lease', 'z'), 'degraded fallback, passed lease, passed redis, '
   . 'rejected memory, rejected redis', 'lease');
is(zeros($redis, 'closed', 'gone'), 'passed redis, rejected memory, rejected redis, '
   . 'unavailable fallback',
   'closed is not degraded');

is(tally($redis->burst(8, '/strict?k=a')), '5 x 200, 3 x 429', 'strict');
is(requests($redis, 'strict'), 'passed redis 5, rejected redis 3', 'counts');
is(value($redis, 'ratelimit_wait_seconds_count{zone="z"}'), 8, 'all have waited');
is(value($redis, "ratelimit_redis_call_seconds_count{redis=\"r\",node=\"127.0.0.1:$port\"}"),
   8, 'each made a call');
like(value($redis, 'ratelimit_wait_seconds_sum{zone="z"}'), qr/^\d+\.\d+$/, 'for a time');

my ($leased, %lease) = 0;
ok(wait_for(sub {
    $leased += $redis->burst(200, '/lease?k=a');
    %lease = map { split / (?=\d)/ } split /, /, requests($redis, 'lease');
    return $lease{'passed lease'};
}), 'some without a call');
is($lease{'passed lease'} + ($lease{'passed redis'} // 0), $leased,
   'each leased request counts once');
is(value($redis, 'ratelimit_lease_calls_saved_total{zone="z",rule="lease"}'),
   $lease{'passed lease'}, 'which are saved');
cmp_ok(value($redis, 'ratelimit_lease_calls_total{zone="z"}'), '>', 0, 'by calls');
is(value($redis, 'ratelimit_cost_total{zone="z",rule="lease"}'), $leased,
   'their cost');
ok(wait_for(sub {
    $redis->burst(50, '/lease?k=a');
    return value($redis, 'ratelimit_lease_tokens{zone="z"}') > 0;
}), 'tokens in hand');

$redis->get('/spent?k=a') for 1 .. 6;
is(requests($redis, 'spent'), 'passed redis 2, rejected memory 4',
   'a rejection that is remembered');

$redis->get('/dry?k=a') for 1 .. 3;
is(requests($redis, 'dry'), 'passed redis 1, rejected_dry_run redis 2', 'a dry run');

$redis->get('/async?k=a') for 1 .. 3;
like(requests($redis, 'async'), qr/^passed lease 3$/, 'async');

$redis->get('/header?k=a') for 1 .. 3;
is(value($redis, 'ratelimit_cost_total{zone="z",rule="header"}'), 9,
   'what responses have said');

$redis->get("/$_?k=a") for ('open', 'closed', 'local') x 3;
is(requests($redis, 'open', 'gone'), 'degraded fallback 3', 'without Redis: open');
is(requests($redis, 'closed', 'gone'), 'unavailable fallback 3', 'closed');
is(requests($redis, 'local', 'gone'), 'degraded fallback 2, rejected fallback 1', 'local');

ok(wait_for(sub { defined value($redis, 'ratelimit_redis_clock_offset_seconds{redis="r"}') }),
   'the clock of Redis');
cmp_ok(abs value($redis, 'ratelimit_redis_clock_offset_seconds{redis="r"}'), '<', 60,
       'is that of this machine');
is(value($redis, 'ratelimit_redis_clock_offset_seconds{redis="gone"}'), undef,
   'not known without an answer');

# Redis loses all of it; the gateway knows what was in use
is(value($redis, 'ratelimit_state_lost_total{zone="z"}'), 0, 'nothing is lost');
$redis->get('/spent?k=lost');
select undef, undef, undef, 0.1;
redis_cli($port, 'FLUSHALL');
$redis->get('/spent?k=lost');
is(value($redis, 'ratelimit_state_lost_total{zone="z"}'), 1, 'a counter is lost');
$redis->get('/spent?k=lost');
$redis->get('/spent?k=never');
is(value($redis, 'ratelimit_state_lost_total{zone="z"}'), 1, 'once; no new one is');

# tables
cmp_ok(value($redis, 'ratelimit_lease_used{zone="z"}'), '>', 0, 'leases');
cmp_ok(value($redis, 'ratelimit_lease_used{zone="z"}'), '<=',
       value($redis, 'ratelimit_lease_places{zone="z"}'), 'have room');
is(value($redis, 'ratelimit_lease_refused_total{zone="z"}'), 0, 'none was refused');
$redis->stop;

my $full = t::Gateway->limited(zone => { 'z:64k' => 'rate=3r/d' });
my ($used, $places) = map { "ratelimit_table_$_\{zone=\"z\"}" } qw( used places );

is(value($full, $used), 0, 'an empty table');
$full->get("/?k=$_") for 1 .. 10;
is(value($full, $used), 10, 'ten counters');

# What was lost of a table, when keys come that are used so many times: 3,000 of
# them, and more until it is what is expected.
sub lost {
    my ($times, $expected) = @_;
    my ($lost, $n) = ('', 0);
    while ($n < 3000 || ($lost ne $expected && $n < 15000)) {
        t::Gateway::send_all([map { ([$full, "/?k=$times-$_"]) x $times }
                              $n .. $n + 499]);
        $n += 500;
        my $series = series($full, 'ratelimit_table_evicted_total');
        $lost = join ' ', map { /lost="(\w+)"/ && $series->{$_} > 0 ? $1 : () }
                          sort keys %$series;
    }
    is($lost, $expected, "used $times times: $expected are lost");
}

lost(1, 'new');
cmp_ok(value($full, $used), '>', value($full, $places) * 0.9, 'a full table');
lost(2, 'known new');
lost(3, 'known new rejecting');
$full->stop;
