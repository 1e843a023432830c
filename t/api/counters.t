# A counter's state and its reset by the endpoint: of each algorithm, on one
# node and in Redis, by leases and not, split over shards; nothing is taken by
# looking, and a reset counts for all gateways.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Api;

my $port = redis_port();

my %RULES = (
    token_bucket => 'rate=6r/d',
    leaky_bucket => 'algorithm=leaky_bucket rate=1r/d burst=5 nodelay',
    fixed_window => 'algorithm=fixed_window limit=6 window=calendar:month',
    sliding_window => 'algorithm=sliding_window limit=6 window=1d',
    sliding_log => 'algorithm=sliding_log limit=6 window=1d',
);

sub gateway {
    my ($sync, %more) = @_;
    my @rules = map { my $log = /log/;
                      "$_ match=/$_ $RULES{$_} " . ($log ? '' : $sync) }
                sort keys %RULES;
    push @rules, 'shards rate=6r/d match=/shards sync=strict shards=3'
        if $more{redis};
    return t::Gateway->limited(%more, api => 1,
        zone => 'key=$ratelimit_api_key',
        rules => [@rules, 'slots match=/slots algorithm=concurrency limit=3',
                  'dynamic match=/dynamic rate=$arg_rate'],
        locations => { '/' => 'ratelimit zone=z;',
                       '/read/' => 'ratelimit_api zone=z;' });
}

sub counter {
    my ($rule, $key) = @_;
    return "/counters?rule=$rule&key=$key";
}

sub take {
    my ($gateway, $rule, $key) = @_;
    return $gateway->get("/$rule", "X-API-Key: $key")->{status};
}

sub state_and_reset {
    my ($name, $first, $last, @rules) = @_;
    my ($api, $other) = map { t::Api->new($_) } $first, $last;
    for my $rule (@rules) {
        my $what = "$name, $rule";
                my $fresh = $api->get(counter($rule, 'a'));
        is($fresh->{status}, 200, $what) or diag($fresh->{body});
        is($fresh->{json}{remaining}, 6, "$what: fresh");
        is($fresh->{json}{limit}, 6, "$what: limit");
        is($fresh->{json}{algorithm}, $rule eq 'shards' ? 'token_bucket' : $rule,
           "$what: algorithm");
        take($first, $rule, 'a') for 1, 2;
        is($_->get(counter($rule, 'a'))->{json}{remaining}, 4,
           "$what: nothing is taken") for $api, $api, $other;
        is($api->get(counter($rule, 'a'))->{json}{used}, 2, "$what: used");
        is($api->get(counter($rule, 'b'))->{json}{remaining}, 6,
           "$what: another key");
        like($api->get(counter($rule, 'a'))->{body},
             qr/"window_seconds":\d+,"reset_at":"[\dT:-]{19}Z"/,
             "$what: reset_at");
        take($last, $rule, 'a') for 1 .. 12;
        is(take($_, $rule, 'a'), 429, "$what: spent") for $first, $last;
        is($other->get(counter($rule, 'a'))->{json}{remaining}, 0,
           "$what: nothing left");
        my $reset = $api->delete(counter($rule, 'a'));
        is($reset->{status}, 200, "$what: reset") or diag($reset->{body});
        is($_->get(counter($rule, 'a'))->{json}{remaining}, 6,
           "$what: fresh again") for $api, $other;
        ok(wait_for(sub { take($_[0] // $last, $rule, 'a') == 200 }),
           "$what: other nodes forget what they know");
        is(take($first, $rule, 'a'), 200, "$what: and this one");
    }
}

# one node
my $alone = gateway('', workers => 2);
my $api = t::Api->new($alone);

state_and_reset('one node', $alone, $alone, sort keys %RULES);

is($api->get(counter('slots', 'a'))->{json}{remaining}, 3, 'slots');
is(exists $api->get(counter('slots', 'a'))->{json}{reset_at}, '',
   'slots come back when requests end');
is($api->delete(counter('slots', 'a'))->{status}, 200, 'slots: reset');

# what is asked for
for (['/counters', '400 invalid'], ['/counters?rule=slots', '400 invalid'],
     ['/counters?key=', '400 invalid'], [counter('none', 'a'), '404 not-found'],
     [counter('slots', ''), '400 invalid'],
     [counter('slots', 'a&key=b'), '400 invalid'],
     [counter('dynamic', 'a'), '422 invalid'])
{
    t::Api::problem_ok($api->get($_->[0]), $_->[1], $_->[0]);
}

t::Api::problem_ok($api->delete('/counters?key=a'), '400 invalid',
                   'a reset is of one counter');

# all counters of a key
sub all_of {
    my $json = shift->get("/counters?$_[0]")->{json};
    return join(', ', map { "$_->{rule} " . ($_->{remaining} // '-')
                            . ($_->{unknown} ? " $_->{unknown}" : '') }
                      @{ $json->{counters} })
           . ($json->{more} ? " and $json->{more}" : '');
}

take($alone, $_, 'all') for 'fixed_window', 'fixed_window', 'sliding_log';
is(all_of($api, 'key=all'), join(', ', 'fixed_window 4', 'leaky_bucket 6',
    'sliding_log 5', 'sliding_window 6', 'token_bucket 6', 'slots 3',
    'dynamic - limit'), 'all counters of a key');
is(all_of($api, 'key=all&key=b'), '', 'no key has two parts');

my %listed = %{ $api->get('/counters?key=all')->{json}{counters}[0] };
my %single = %{ $api->get(counter('fixed_window', 'all'))->{json} };
delete $_->{reset_at} for \%listed, \%single;
is_deeply(\%listed, \%single, 'each as it is alone');

is($api->delete(counter('dynamic', 'a'))->{status}, 200,
   'one whose limit is a variable: reset');
is(t::Api->new($alone, '/read')->delete(counter('slots', 'a'))->{status}, 403,
   'a reset is a write');

# keys of parts; limits of a document: tiers, overrides, for a time
$api->change('PUT', '/document', { rules => [
    { id => 'parts', key => ['$arg_a', '$ratelimit_api_key'],
      match => { route => '/parts' }, algorithm => 'fixed_window',
      params => { limit => 10, window => 'calendar:month' },
      tiers => { pro => { limit => 20 } }, limits_by_api_key => { vip => { limit => 30 } } },
    { id => 'user', key => '$arg_u', params => { rate => '9r/d' } },
    { id => 'address', key => '$remote_addr', params => { rate => '9r/d' },
      match => { route => '/address' } }
  ], tier_of => { keys => { pro_1 => 'pro' } },
  deny => ['bad', '192.0.2.0/24', { rule => 'user', key => 'mallory' }],
  allow => ['good-*'],
  overrides => [{ id => 'twice', key => 'vip', type => 'multiplicative',
                  value => 2 }] });

ok($api->follows(1), 'all workers follow the document');
is(header($alone->get('/parts?a=xy', 'X-API-Key: pro_1'),
                      'X-RateLimit-Limit'), 20, 'its rules count');

my %said = map { $_ => $api->get(counter('parts', "xy&key=$_"))->{json} }
           qw( pro_1 vip none );

is($said{pro_1}{remaining}, 19, 'a key of two parts');
is_deeply([map { [@{ $said{$_} }{qw( limit tier override )}] }
           qw( pro_1 vip none )],
          [[20, 'pro', undef], [60, undef, 'twice'], [10, undef, undef]],
          'the limit is that of the key');
is(join(' ', map { $api->get(counter('parts', "xy&key=$_"))->{json}{list} // '-' }
           qw( bad good-1 none )), 'deny allow -', 'a list has the API key');
is(join(' ', map { $api->get(counter('user', $_))->{json}{list} // '-' }
           qw( mallory alice )), 'deny -', 'or the value of the key');
is(join(' ', map { $api->get(counter('address', $_))->{json}{list} // '-' }
           qw( 192.0.2.7 198.51.100.7 )), 'deny -', 'or the address');
is($api->get(counter('address', '192.0.2.7'))->{json}{used}, 0,
   'the counter is there all the same');
is($api->get(counter('parts', 'x&key=y&key=z'))->{status}, 400, 'three parts');
is(all_of($api, 'key=xy&key=pro_1'), 'parts 19', 'all counters of two parts');

$api->change('PUT', '/document', { rules => [ map {
    { id => "r$_", params => { limit => 10, window => 60 } } } 1 .. 110 ] });
ok($api->follows(2), 'another document');
like(all_of($api, 'key=a'), qr/^fixed_window .* and 17$/, 'too many of them');
$alone->stop;

# the plan that nginx.conf gives to a key: what its requests say
my $plans = t::Gateway->limited(
    zone => { one => 'key=$ratelimit_api_key', two => 'key=$arg_user',
              three => 'key=$ratelimit_api_key' },
    rules => ['plan zone=one limit=50 window=31d tiers=pro:1000,basic:100',
              'user zone=two limit=50 window=31d tiers=pro:1000 key=${arg_user}',
              'where zone=three limit=50 window=31d tiers=pro:1000,basic:100'],
    http => q(map $ratelimit_api_key $tier { alice pro; eve basic; default ''; }
              map $arg_user $user_tier { ann pro; default ''; }
              ratelimit_headers x;),
    locations => {
        '/rl/' => 'ratelimit_api zone=one %%WRITE%%; ratelimit zone=one;'
                  . 'ratelimit_tier $tier;',
        '/rl2/' => 'ratelimit_api zone=two;',
        '/rl3/' => 'ratelimit_api zone=three;',
        '/' => 'ratelimit zone=one; ratelimit_tier $tier;',
        '/user' => 'ratelimit zone=two; ratelimit_tier $user_tier;',
        '/a' => 'ratelimit zone=three; ratelimit_tier basic;',
        '/b' => 'ratelimit zone=three; ratelimit_tier pro;',
    });

$api = t::Api->new($plans, '/rl');

sub plan_of {
    my ($base, $counter, @headers) = @_;
    my $json = t::Api->new($plans, $base)->get($counter, @headers)->{json};
    return join ' ', map { $_ // 'none' } @{$json}{qw( limit remaining tier )};
}

for (['alice', '1000 999 pro'], ['bob', '50 49 none']) {
    my ($key, $said) = @$_;
    is(header($plans->get('/', "X-API-Key: $key"),
                          'X-RateLimit-Limit'), (split ' ', $said)[0],
       "$key: a request");
    is(plan_of('/rl', counter('plan', $key)), $said, "$key: its plan");
    is(plan_of('/rl', counter('plan', $key), 'X-API-Key: eve'), $said,
       "$key: whoever asks");
}

is(plan_of('/rl2', counter('user', 'ann')), '1000 1000 pro',
   'a plan by another key than that of the API');
is(plan_of('/rl2', counter('user', 'bob')), '50 50 none', 'and who has none');
is(plan_of('/rl2', counter('user', 'bob') . '&tier=pro'), '1000 1000 pro',
   'a plan that the query names');
is(plan_of('/rl2', counter('user', 'ann') . '&tier='), '50 50 none',
   'also that it is none');

# the plans of docs/plans-and-quotas.md: each rule has a limit of its own
my $page = 'docs/plans-and-quotas.md';
open my $plans_page, '<', $page or die "$page: $!";
my ($example) = do { local $/; <$plans_page> }
                =~ /```nginx http\n([^`]*group=plan tier=pro[^`]*)```/;

ok($example, 'the page has plans');

my $said = t::Gateway->limited(zone => {}, http => $example, locations => {
    '/' => 'ratelimit zone=plans; ratelimit_headers ietf;' });
is(join(' ', map { header($said->get('/', "X-API-Key: $_"),
                                      'RateLimit-Policy') =~ /"(pro|free)"/ }
             'Zq8mW2', 'other'),
   'pro free', 'and a client that has one gets it');
$said->stop;

t::Api::problem_ok(t::Api->new($plans, '/rl3')->get(counter('where', 'a')),
                   '422 invalid', 'plans that depend on the location');
is(plan_of('/rl3', counter('where', 'a') . '&tier=basic'), '100 100 basic',
   'of which one has to be named');

$plans->stop;

# in Redis, by two gateways
for my $sync ('', 'sync=strict', 'sync=async') {
    my $server = "server 127.0.0.1:$port; prefix " . key_prefix() . length $sync;
    my @gateways = gateway($sync, redis => $server, gateways => 2);
    my @rules = $sync =~ /strict/ ? ('shards', sort keys %RULES)
              : $sync =~ /async/ ? ()
              : sort keys %RULES;
    state_and_reset("Redis $sync", @gateways, @rules);
    my $api = t::Api->new($gateways[0]);
    is($api->get(counter('slots', 'a'))->{json}{remaining}, 3,
       "Redis $sync: slots");
    is($api->delete(counter('token_bucket', 'n'))->{status}, 200,
       "Redis $sync: a reset of nothing");
    $_->stop for @gateways;
}

# without Redis nothing is known
my $gone = gateway('', redis => t::Gateway::free_port(), timeout => '1s');

$api = t::Api->new($gone);
t::Api::problem_ok($api->get(counter('token_bucket', 'a')), '503 unavailable',
                   'no Redis: state');
t::Api::problem_ok($api->delete(counter('token_bucket', 'a')),
                   '503 unavailable', 'no Redis: reset');
is(all_of($api, 'key=a') =~ s/breaker_open/unreachable/gr, join(', ', map({ "$_ - unreachable" }
       sort(keys %RULES), 'shards', 'slots'), 'dynamic - limit'),
   'no Redis: all counters');
is(header($api->get(counter('token_bucket', 'a')), 'Retry-After'),
   1, 'no Redis: Retry-After');
$gone->stop;
