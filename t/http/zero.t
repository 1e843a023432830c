# A limit of 0 rejects each request, and "unlimited" is no limit.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header told );

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';

my $gateway = t::Gateway->limited(
    redis => redis_port(),
    zone => { here => 'limit=$limit window=1h', fleet => 'limit=$limit window=1h redis=r',
              rate => 'rate=$limit', leaky => 'rate=$limit algorithm=leaky_bucket burst=5',
              open => 'limit=$limit window=1h redis=r sync=strict' },
    rules => ['first zone=open limit=2 window=1h priority=1',
              'tried zone=here match=/try key=$arg_k limit=$limit window=1h dry_run',
              'other zone=here match=/try limit=2 window=1h'],
    files => { tokens => "ops:$TOKEN\n" },
    http => 'map $http_x_plan $limit { default $http_x_plan; suspended 0; }
             ratelimit_explain token_file=tokens;',
    locations => {
        (map { ("/$_" => "ratelimit zone=$_;") } qw( here fleet rate leaky open )),
        '/part' => 'ratelimit zone=leaky burst=2;',
        '/look' => 'ratelimit zone=here look;',
        '/try' => 'ratelimit zone=here rule=tried; ratelimit zone=here rule=other;',
    });

my $n = 0;

sub ask {
    my ($path, $plan, $k) = @_;
    return $gateway->get("$path?k=" . ($k // $n++), "X-Plan: $plan");
}

for my $path (qw( /here /fleet /rate /leaky /part /open )) {
    my @plans = $path =~ /rate|leaky|part/ ? ('suspended', '0r/s', '0r/m') : ('suspended', '0');
    for my $plan (@plans) {
        my $answer = ask($path, $plan);
        is(told($answer), '429 REJECTED 0', "$path: $plan");
        is(header($answer, 'X-RateLimit-Limit'), 0, "$path: $plan: the limit");
        is(header($answer, 'Retry-After'), '', "$path: $plan: there is nothing to wait for");
        like($answer->{body}, qr/"message":"This limit is 0"/, "$path: $plan: the body");
    }
    is(join(' ', map { ask($path, $_)->{status} } ('unlimited') x 9),
       join(' ', (200) x 9), "$path: unlimited") if $path ne '/open';
}

is(told(ask('/open', '0', 'given')), '429 REJECTED 0', 'what another rule took');
is(join(' ', map { ask('/open', 'unlimited', 'given')->{status} } 1 .. 3), '200 200 429',
   'is given back');
is(told(ask('/look', 'suspended')), '200 PASSED 0', 'a look');
is(join(' ', map { told(ask('/try', 'suspended', 'dry')) } 1 .. 3),
   '200 REJECTED_DRY_RUN 1 200 REJECTED_DRY_RUN 0 429 REJECTED 0', 'a dry run');

my $answer = t::Api::answer($gateway->get('/here?k=explained', 'X-Plan: 0',
                                          "X-RateLimit-Explain: $TOKEN"));

is(join(' ', map { "$_->{rule} $_->{limit} $_->{remaining}" }
             grep { $_->{applies} } @{ $answer->{json}{zones}[0]{rules} }), 'here 0 0',
   'explained');

$gateway->stop;

# constants, tiers and documents
my $words = t::Gateway->limited(
    redis => redis_port(),
    zone => { own => 'rate=0r/s', fleet => 'redis=r', doc => 'redis=r',
              map { $_ => '' } qw( zero word leaky calls group ) },
    rules => [
        'zero zone=zero rate=0r/s tiers=pro:2r/h',
        'fleet zone=fleet limit=0 window=1h tiers=pro:2,open:unlimited',
        'word zone=word limit=unlimited tiers=free:2r/h,suspended:0,old:0r/m',
        'leaky zone=leaky rate=unlimited algorithm=leaky_bucket burst=5'
        . ' tiers=suspended:0,free:1r/h',
        'calls zone=calls algorithm=concurrency limit=0 tiers=pro:1',
        'enterprise zone=group group=plan priority=1 tier=enterprise limit=unlimited',
        'tried zone=group group=plan priority=2 tier=tried limit=unlimited dry_run',
        'rest zone=group group=plan limit=2 window=1h',
        'all zone=group limit=3 window=1h match=/group/all',
        'fixed zone=doc match=/doc/fixed limit=2 window=1h',
    ],
    files => { tokens => "ops:$TOKEN\n" },
    http => q{map $http_x_plan $none { default ''; } ratelimit_tier $http_x_plan;}
            . 'ratelimit_explain token_file=tokens; ratelimit_headers x ietf;',
    locations => {
        '/leaky' => 'ratelimit zone=leaky burst=2 nodelay;',
        '/rl/' => 'ratelimit_api zone=doc %%WRITE%%;',
        map { ("/$_" => "ratelimit zone=$_;") }
            qw( own zero fleet word calls group doc ) });

sub words {
    my ($path, $plan, $times) = @_;
    my $k = $n++;
    return join ' ', map { $words->get("$path?k=$k", "X-Plan: $plan")->{status} }
                     1 .. $times // 3;
}

is(words(@$_[0, 1]), $_->[2], "$_->[0]: plan \"$_->[1]\"")
    for ['/own', '', '429 429 429'], ['/zero', '', '429 429 429'], ['/zero', 'pro', '200 200 429'],
        ['/fleet', '', '429 429 429'], ['/fleet', 'pro', '200 200 429'],
        ['/fleet', 'open', '200 200 200'], ['/word', '', '200 200 200'],
        ['/word', 'free', '200 200 429'], ['/word', 'suspended', '429 429 429'],
        ['/word', 'old', '429 429 429'], ['/leaky', '', '200 200 200'],
        ['/leaky', 'suspended', '429 429 429'], ['/calls', '', '429 429 429'],
        ['/calls', 'pro', '200 200 200'], ['/group', '', '200 200 429'],
        ['/group', 'enterprise', '200 200 200'], ['/group', 'tried', '200 200 429'],
        ['/group/all', '', '200 200 429'];
is(words('/leaky', 'free', 4), '200 200 200 429', 'the part of a location');
is(words('/group/all', 'enterprise', 4), '200 200 200 429',
   'a rule outside of the group limits');

my $none = $words->get('/zero?k=headers');

is(join(' ', map { header($none, $_) =~ s/;pk=.*//r } qw( X-RateLimit-Limit X-RateLimit-Remaining
                                            Retry-After RateLimit-Policy )),
   '0 0  "zero";q=0;w=1', 'headers of 0');
is(header($words->get('/word?k=headers'), 'X-RateLimit-Limit'), '',
   'no headers of a limit that there is not');

sub explained {
    my ($path, $plan) = @_;
    my $json = t::Api::answer($words->get("$path?k=e", "X-Plan: $plan",
                                          "X-RateLimit-Explain: $TOKEN"))->{json};
    return join '; ', map {
        join ' ', grep { defined } @$_{qw( rule because limit limit_from remaining )}
    } @{ $json->{zones}[0]{rules} };
}

is(explained('/zero', ''), 'zero 0 rule 0', '0 explained');
is(explained('/word', 'suspended'), 'word 0 tier 0', '0 of a tier explained');
is(explained('/word', ''), 'word unlimited', 'unlimited explained');
is(explained('/group', 'enterprise'),
   'tried tier; enterprise unlimited; rest group; all path', 'a group explained');

my $api = t::Api->new($words);

sub amounts {
    my ($amount) = @_;
    my %rule = (params => { limit => 2, window => 3600 });
    return { rules => [
        { id => 'tiers', match => { route => '/doc/tiers' }, %rule,
          tiers => { plan => $amount } },
        { id => 'keys', match => { route => '/doc/keys' }, %rule, key => '$arg_k',
          limits_by_key => { whole => $amount } },
        { id => 'api', match => { route => '/doc/api' }, %rule,
          limits_by_api_key => { secret => $amount } },
        { id => 'own', match => { route => '/doc/own' },
          params => ref $amount ? { %$amount, window => 3600 }
                                : { limit => $amount, window => 3600 },
          tiers => { pro => 2 } },
        { id => 'over', match => { route => '/doc/over' }, key => '$arg_k', %rule },
        { id => 'times', match => { route => '/doc/times' }, key => '$arg_k', %rule,
          tiers => { plan => $amount } } ],
        overrides => [
            { id => 'o', rule => 'over', type => 'absolute', value => $amount,
              tenant => { part => '$arg_k', value => 'whole' } },
            { id => 'double', rule => 'times', type => 'multiplicative', value => 2,
              tenant => { part => '$arg_k', value => 'whole' } } ] };
}

for (['0', 0, '429 429 429'], ['a limit of 0', { limit => 0 }, '429 429 429'],
     ['unlimited', 'unlimited', '200 200 200'],
     ['a limit of unlimited', { limit => 'unlimited' }, '200 200 200'],
     ['a number', 2, '200 200 429'])
{
    my ($name, $amount, $statuses) = @$_;
    my $put = $api->change(PUT => '/document', amounts($amount));
    like(t::Api::said($put), qr/^20[01]$/, "a document with $name");
    ok($api->follows($put->{version}), "$name: it counts");
    for my $rule (qw( tiers keys api own over )) {
        my $k = $rule =~ /tiers|api|own/ ? $n++ : 'whole';
        is(join(' ', map { $words->get("/doc/$rule?k=$k", 'X-Plan: plan',
                                       'X-API-Key: secret')->{status} } 1 .. 3),
           $statuses, "$name: $rule");
    }
    is(join(' ', map { $words->get('/doc/times?k=whole', 'X-Plan: plan')->{status} } 1 .. 3),
       $name eq 'a number' ? '200 200 200' : $statuses, "$name: times 2");
    is(words('/doc/own', 'pro'), '200 200 429', "$name: a tier of the rule");
    $api->delete("/counters?rule=$_&key=whole", 'If-Match: *') for qw( keys over times );
}

my $put = $api->change(PUT => '/document', amounts('unlimited'));

ok($api->follows($put->{version}), 'the last one');

my $counter = $api->get('/counters?rule=over&key=whole')->{json};

is($counter->{unlimited}, 1, 'a counter without a limit');
is($counter->{override}, 'o', 'and why');
is(t::Api::said($api->change(PATCH => '/counters?rule=over&key=whole', { used => 0 })),
   '422 invalid', 'nothing to change');
is($api->delete('/counters?rule=over&key=whole', 'If-Match: *')->{status}, 200, 'a reset');

$put = $api->change(PUT => '/document', amounts(0));

ok($api->follows($put->{version}), 'and 0');
is($api->get('/counters?rule=over&key=whole')->{json}{limit}, 0, 'a counter of 0');
is(t::Api::said($api->change(PATCH => '/counters?rule=over&key=whole', { add => 1 })),
   '422 invalid', 'nothing to add to');
is(t::Api::said($api->change(PATCH => '/rules/tiers', { tiers => { plan => $_->[0] } })),
   "422 invalid: /rules/0/tiers/plan$_->[1]", 'no amount')
    for ['0', ' expected a number, or "unlimited"'], [-1, ' must be at least 0'],
        [{ limit => '$arg_k' }, '/limit expected a number, or "unlimited"'];

is(join('; ', map { "$_->{pointer} $_->{detail}" }
        @{ $api->post('/document/validate', { rules => [{ id => 'claim',
               params => { rate => '$ratelimit_jwt_rate' } }] })->{json}{warnings} }),
   '/rules/0/params/rate is no limit without a valid token, expected a "map" of it in '
   . 'nginx.conf, with a number for ""', 'a claim as a limit');

$words->stop;
