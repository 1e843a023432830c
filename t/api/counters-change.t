# "PATCH /counters" gives tokens back, or sets what is used, on all gateways: of
# each algorithm, without Redis, by leases, strict, split and in a Cluster. What
# the answer says is what clients get then, no more and no less. What a change
# may be, and what its errors say.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( passed wait_for );
use t::Api;
use JSON::PP qw( encode_json );

my $LIMIT = 20;

my %RULES = (
    bucket => "rate=${LIMIT}r/d",
    fixed => "algorithm=fixed_window limit=$LIMIT window=calendar:month",
    sliding => "algorithm=sliding_window limit=$LIMIT window=1d",
    log => "algorithm=sliding_log limit=$LIMIT window=1d",
    leaky => 'algorithm=leaky_bucket rate=1r/d burst=' . ($LIMIT - 1)
             . ' nodelay',
);

my $prefix = key_prefix();
my $clustered = 0;
my @fleet;

sub gateways {
    my ($redis, @rules) = @_;
    return t::Gateway->limited(workers => 2, api => 1,
        ($redis ? (gateways => 2, redis => "$redis; prefix $prefix" . @rules)
                : ()),
        rules => [map { s/^(\w+)/$1 match=\/$1/r } @rules],
        zone => { 'z:4m' => 'key=$ratelimit_api_key'
                  . ($redis ? ' redis=r' : '') },
        locations => { '/' => 'ratelimit zone=z;',
                       '/read/' => 'ratelimit_api zone=z;' });
}

# How many of n each passed, of all workers.
sub spend {
    my ($n, $rule, $key, @gateways) = @_;
    return passed(map { $_->burst($n, "/$rule", "X-API-Key: $key") } @gateways);
}

# So many seconds later, when each worker has taken a turn. The nodes of a
# Cluster, whose clock it is, too, would take each other for dead.
sub pause {
    advance(shift) if !$clustered;
    $_->burst(8, '/metrics') for @fleet;
}

# So many pass, however often all gateways are asked, and those first that have
# not made the change. Then each worker knows that nothing is left.
sub passes_ok {
    my ($wanted, $rule, $key, $name) = @_;
    my $total = 0;
    wait_for(sub {
        $total += spend(12, $rule, $key, reverse @fleet);
        return $total >= $wanted;
    });
    for (1 .. 2) {
        pause(0.3);
        $total += spend(12, $rule, $key, @fleet);
    }
    is($total, $wanted, "$rule: $name");
}

# A change, and what it answers: what is used and what remains.
sub change_ok {
    my ($gateway, $body, $used, $rule, $key, $name) = @_;
    my $api = t::Api->new($gateway);
    my $path = "/counters?rule=$rule&key=$key";
    my $answer = $api->patch($path, $body);
    my $json = $answer->{json};
    is($answer->{status}, 200, "$rule: $name") or diag($answer->{body});
    is_deeply([@{$json}{qw( rule used remaining limit )}],
              [$rule, $used, $LIMIT - $used, $LIMIT], "$rule: $name: answer");
    is_deeply([sort keys %$json], [sort keys %{ $api->get($path)->{json} }],
              "$rule: $name: the members of a look");
}

sub changes_ok {
    my ($rule) = @_;
    spend($LIMIT, $rule, 'k', @fleet) for 1, 2;
    passes_ok(0, $rule, 'k', 'spent');
    change_ok($fleet[0], { used => 12 }, 12, $rule, 'k', 'used is less');
    passes_ok(8, $rule, 'k', 'what is not used');
    change_ok($fleet[0], { add => 5 }, 15, $rule, 'k', 'five more');
    passes_ok(5, $rule, 'k', 'they are there');
    change_ok($fleet[-1], { add => 1e0 }, 19, $rule, 'k', 'one more');
    change_ok($fleet[0], { add => $LIMIT }, 0, $rule, 'k', 'all that was used');
    passes_ok($LIMIT, $rule, 'k', 'the whole limit and no more');
    change_ok($fleet[0], { used => 0 }, 0, $rule, 'k', 'nothing is used');
    change_ok($fleet[0], { add => 3 }, 0, $rule, 'k', 'nothing comes back');
    change_ok($fleet[0], { used => $LIMIT }, $LIMIT, $rule, 'k', 'all is used');
    passes_ok(0, $rule, 'k', 'all is used');
}

# without Redis: both workers
@fleet = gateways('', map { "$_ $RULES{$_}" } sort keys %RULES);
changes_ok($_) for sort keys %RULES;

# what a change may be
my $api = t::Api->new($fleet[0]);
my $patch = "/counters?rule=fixed&key=k";

my $said = '422 invalid: /%s must be a whole number from %d to 20, the limit '
           . 'of the counter; an override allows more';

for ((map { [$_, sprintf $said, 'add', 1] }
      { add => 0 }, { add => 21 }, { add => 1.5 }, { add => '5' },
      { add => undef }, { add => 1e300 }),
     (map { [$_, sprintf $said, 'used', 0] } { used => -1 }, { used => 21 }),
     (map { [$_, '422 invalid:  must be {"add": <tokens>} or '
                 . '{"used": <tokens>}'] }
      { used => 1, add => 1 }, { used => 1, more => 1 }, { remaining => 1 }, {},
      [], \'{"add": 1', \'{"add": 1, "add": 2}',
      \('{"add": 1' . ' ' x 2000 . '}')))
{
    my ($body, $wanted) = @$_;
    t::Api::problem_ok($api->patch($patch, $body), $wanted,
                       ref $body eq 'SCALAR' ? substr $$body, 0, 20
                                             : encode_json($body));
}

is($api->get($patch)->{json}{used}, $LIMIT, 'nothing of that is a change');

my $hashed = 'key=sha256:' . 'aB' x 32;

for (['PATCH', '/counters?key=k', '400 invalid', qr/"rule=<id>" for one/],
     ['PATCH', '/counters?rule=none&key=k', '404 not-found', qr/no such rule/],
     ['PATCH', "$patch&key=k", '400 invalid', qr/1 time/],
     (map { [$_, "/counters?rule=fixed&$hashed", '400 invalid',
             qr/not found by the hash of its key/] } qw( GET PATCH DELETE )),
     ['GET', "/counters?$hashed", '400 invalid', qr/as clients send it/],
     ['PATCH', "$patch&reason=" . 'x' x 257, '400 invalid', qr/256 bytes/])
{
    my ($method, $path, $said, $why) = @$_;
    my $answer = $api->send($method, $path, $method eq 'PATCH' ? { used => 0 }
                                                               : undef);
    t::Api::problem_ok($answer, $said, "$method $path");
    like($answer->{json}{detail}, $why, "$method $path: why");
}

my @zero = ($patch, { used => 0 });

t::Api::problem_ok($api->patch(@zero, 'Content-Type: text/plain'),
                   '415 unsupported-media-type', 'a text');
t::Api::problem_ok(t::Api->new($fleet[0], '/read')->patch(@zero),
                   '403 read-only', 'where nothing may be changed');
is(t::Gateway::header($api->send('OPTIONS', '/counters'), 'Allow'),
   'GET, HEAD, PATCH, DELETE, OPTIONS', 'the methods');

# who has changed what
$api->patch("$patch&reason=a%20gift", { add => 2 });
$api->patch($patch, { used => 7 }, 'X-RateLimit-Reason: a test');
$api->delete("$patch&reason=enough&tier=pro");
is_deeply([$fleet[0]->log =~ /: (a counter .*) by "" from .*( reason ".+")/g],
    ['a counter gets 2 more: "PATCH /counters?rule=fixed"', ' reason "a gift"',
     'a counter is set to 7 used: "PATCH /counters?rule=fixed"',
     ' reason "a test"',
     'a counter is reset: "DELETE /counters?rule=fixed"', ' reason "enough"'],
    'each change is logged, with its reason');
unlike($fleet[0]->log, qr/key=k/, 'and no key');
$_->stop for @fleet;

# limits that only some know
@fleet = gateways('', 'flights algorithm=concurrency limit=3',
                  'dynamic rate=$arg_rate',
                  'plan limit=5 window=31d tiers=pro:50');
$api = t::Api->new($fleet[0]);

t::Api::problem_ok($api->patch('/counters?rule=dynamic&key=k', { used => 0 }),
                   '422 invalid', 'a limit of a variable');

my $answer = $api->patch('/counters?rule=flights&key=k', { add => 1 });

t::Api::problem_ok($answer, '422 invalid', 'requests in flight');
like($answer->{json}{detail}, qr/"flights" has algorithm=concurrency.* another/,
     'requests in flight: why');

$answer = $api->patch('/counters?rule=plan&key=k&tier=pro', { used => 40 });
is_deeply([@{ $answer->{json} }{qw( limit used remaining tier )}],
          [50, 40, 10, 'pro'], 'a tier that the query names');
$_->stop for @fleet;

# in Redis, and in a Cluster
my %SYNCS = (lease => '', strict => 'sync=strict', both => 'fail_mode=local',
             shards => 'sync=strict shards=7');

for my $redis ('server 127.0.0.1:' . redis_port(),
               'cluster ' . join ' ', map { "127.0.0.1:$_" } cluster_ports())
{
    my @rules;
    $clustered = ($redis =~ /^cluster/);
    for my $name (sort keys %RULES) {
        for my $sync (sort keys %SYNCS) {
            next if $sync eq 'shards' && $name =~ /^(?:log|leaky)$/;
            push @rules, "${name}_$sync $RULES{$name} $SYNCS{$sync}";
        }
    }
    @fleet = gateways($redis, @rules, "async $RULES{bucket} sync=async");
    changes_ok(/^(\w+)/) for @rules;
    # async tells Redis behind, and counts as fresh until it has
    spend($LIMIT, 'async', 'k', $fleet[0]);
    ok(wait_for(sub {
        t::Api->new($fleet[0])->get('/counters?rule=async&key=k')
            ->{json}{remaining} == 0;
    }), 'async: Redis knows');
    pause(0.3);
    change_ok($fleet[0], { add => 5 }, 15, 'async', 'k', 'five more');
    my $total = 0;
    ok(wait_for(sub {
        $total += spend(5, 'async', 'k', @fleet);
        return $total >= 5;
    }), 'async: they are there');
    $_->stop for @fleet;
}

# without Redis nothing is changed
@fleet = t::Gateway->limited(redis => t::Gateway::free_port(), api => 1,
                             timeout => '1s',
                             zone => 'key=$ratelimit_api_key rate=6r/d');
$api = t::Api->new($fleet[0]);

for ({ add => 1 }, { used => 0 }) {
    $answer = $api->patch('/counters?rule=z&key=k', $_);
    t::Api::problem_ok($answer, '503 unavailable', 'no Redis');
    like($answer->{json}{detail}, qr/nothing is changed: (?:unreachable|breaker_open)/, 'why');
}

$_->stop for @fleet;
