# A stored document that does not go with a gateway's nginx.conf: what cannot be
# used is skipped and named, all the rest counts.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway;
use t::Rules;

my %day = (algorithm => 'fixed_window',
           params => { limit => 3, window => 'calendar:day' });

sub conf {
    my ($map, $lines) = @_;
    $map = $map ? 'map $arg_k $plan_key { default $arg_k; }' : '';
    return t::Gateway::limited_http(
        api => 1, zone => 'state=%%DIR%%/rules.state', http => "$map $lines");
}

sub passes {
    my ($gateway, $path) = @_;
    return scalar grep { $_->{status} == 200 } $gateway->burst(10, $path);
}

# What the metrics say: the number, and {pointer => [rule, reason]}.
sub metrics {
    my $text = $_[0]->get('/metrics')->{body};
    my ($n) = $text =~ /^ratelimit_rules_skipped\{zone="z"\} (\d+)$/m;
    my %info;
    $info{$2} = [$1, $3] while $text =~
        /^ratelimit_rules_skipped_info\{zone="z",id="(.*?)",pointer="(.*?)",reason="(.*?)"\} 1$/mg;
    return ($n, \%info);
}

sub skipped {
    return { map { $_->{pointer} => [$_->{id} // '', $_->{detail}] }
             @{ t::Api->new($_[0])->get('/status')->{json}{skipped} } };
}

# a reload takes a map and a rule away, and brings a rule that takes an id
{
    my $gateway = t::Gateway->new(workers => 2, http => conf(1,
        'ratelimit_rule gone zone=z rate=1000r/s;'))->start;
    my $api = t::Api->new($gateway);
    my $document = {
        rules => [
            { id => 'first', match => { route => '/first' }, %day },
            { id => 'mapped', key => '$plan_key', %day,
              match => { route => '/mapped' } },
            { id => 'taken', match => { route => '/taken' }, %day },
            { id => 'cost', match => { route => '/cost' },
              cost => '$plan_key', %day },
            { id => 'last', match => { route => '/last' }, %day },
        ],
        tier_of => { keys => { k1 => 'pro' } },
        allow => ['friend'],
        deny => ['bad', 'worse*'],
        overrides => [
            { id => 'o1', key => 'k', rule => 'gone', type => 'multiplicative',
              value => 2 },
            { id => 'o2', key => 'k', rule => 'mapped',
              type => 'multiplicative', value => 2 },
            { id => 'o3', key => 'doubled', rule => 'last',
              type => 'multiplicative', value => 2 },
        ],
    };
    my $answer = $api->put('/document', $document, 'If-Match: "0"');
    is(t::Api::said($answer), 201, 'a document');
    ok($api->follows(1), 'is followed');
    is($gateway->get('/?k=x', 'X-API-Key: bad')->{status}, 403, 'who is denied');
    is(passes($gateway, '/mapped?k=x'), 3, 'a rule with a variable of a map');
    is_deeply([metrics($gateway)], [0, {}], 'nothing is skipped');
    is_deeply(skipped($gateway), {}, 'nor in /status');
    my ($good, $said) = $gateway->check;
    ok($good && $said !~ /\[warn\]|\[error\]/, 'nginx -t says nothing');
    $gateway->configure(http => conf(0, 'ratelimit_rule taken zone=z rate=1000r/s;'));
    # before the reload
    ($good, $said) = $gateway->check;
    ok($good, 'nginx -t accepts the other configuration');
    like($said, qr/\[warn\] .*ratelimit zone "z": version 1 of its rules: "mapped" is skipped: \/rules\/1\/key expected a known variable/,
         'and warns of a rule');
    like($said, qr/\[warn\] .*version 1 of its rules: "o1" is skipped: \/overrides\/0\/rule is no rule of this document or of nginx.conf/,
         'and of an override');
    $gateway->reload;
    ok($api->follows(1), 'the document goes on after the reload');
    my %expected = (
        '/rules/1/key' => ['mapped', 'expected a known variable'],
        '/rules/2/id' => ['taken', 'is taken by a rule of nginx.conf'],
        '/rules/3/cost' => ['cost', 'expected a known variable'],
        '/overrides/0/rule' => ['o1', 'is no rule of this document or of nginx.conf'],
        '/overrides/1/rule' => ['o2', 'is no rule of this document or of nginx.conf'],
    );
    is($gateway->get('/?k=x', 'X-API-Key: bad')->{status}, 403,
       'who was denied is denied');
    is($gateway->get('/?k=x', 'X-API-Key: worse-1')->{status}, 403,
       'by a pattern, too');
    is(passes($gateway, '/first?k=new'), 3, 'a rule before counts');
    is(passes($gateway, '/last?k=new'), 3, 'and one behind');
    is(scalar(grep { $_->{status} == 200 }
              map { $gateway->get('/last?k=d', 'X-API-Key: doubled') } 1 .. 10),
       6, 'an override counts');
    is(passes($gateway, '/mapped?k=new'), 10, 'one that is skipped does not');
    is_deeply(skipped($gateway), \%expected, '/status names them');
    is_deeply([metrics($gateway)], [5, \%expected], 'and so do the metrics');
    my $log = $gateway->log;
    for (['"mapped"', '/rules/1/key expected a known variable'],
         ['"taken"', '/rules/2/id is taken by a rule of nginx.conf'],
         ['"o1"', '/overrides/0/rule is no rule'])
    {
        my $line = qr/\[error\] .*ratelimit zone "z": version 1 of its rules: \Q$_->[0]\E is skipped: \Q$_->[1]\E/;
        is(scalar(() = $log =~ /$line/g), 1, "the log names it once: $_->[0]");
    }
    # what is sent is read strictly
    t::Api::problem_ok($api->post('/document/validate', $document),
        '422 invalid: /rules/1/key expected a known variable; '
        . '/rules/2/id is taken by a rule of nginx.conf; '
        . '/rules/3/cost expected a known variable; '
        . '/overrides/0/rule is no rule of this document or of nginx.conf',
        'a document that is sent');
    my $none = 'is no rule of this document or of nginx.conf';
    # nor does one bad rule keep anybody from changing the rest
    is_deeply($api->change('POST', '/deny', ['new*'])->{status}, 200,
              'the deny list takes another entry');
    ok($api->follows(2), 'which is followed');
    is($gateway->get('/?k=x', 'X-API-Key: new-1')->{status}, 403, 'and denies');
    is($api->change('DELETE', '/rules/first')->{status}, 200,
       'a rule before it is deleted');
    ok($api->follows(3), 'which is followed');
    is_deeply([sort keys %{ skipped($gateway) }],
              ['/overrides/0/rule', '/overrides/1/rule', '/rules/0/key',
               '/rules/1/id', '/rules/2/cost'], 'the others are still skipped');
    t::Api::problem_ok($api->change('PATCH', '/rules/mapped', { percent => 50 }),
        '422 invalid: ' . join('; ', map { "$_->[0] $_->[1]" }
            ['/rules/0/key', 'expected a known variable'],
            ['/rules/1/id', 'is taken by a rule of nginx.conf'],
            ['/rules/2/cost', 'expected a known variable'],
            ['/overrides/0/rule', $none]),
        'but the rule itself must be right');
    t::Api::problem_ok($api->change('DELETE', '/rules/last'),
        '422 invalid: ' . join('; ', map { "$_->[0] $_->[1]" }
            ['/rules/0/key', 'expected a known variable'],
            ['/rules/1/id', 'is taken by a rule of nginx.conf'],
            ['/rules/2/cost', 'expected a known variable'],
            ['/overrides/0/rule', $none], ['/overrides/2/rule', $none]),
        'and a change may break nothing else');
    $gateway->configure(http => conf(1, 'ratelimit_rule gone zone=z rate=1000r/s;'));
    $gateway->reload;
    ok($api->follows(3), 'the configuration before');
    is_deeply(skipped($gateway), {}, 'nothing is skipped any more');
    is(passes($gateway, '/mapped?k=newer'), 3, 'the rule counts');
    $gateway->stop;
}

# a record that another gateway has written: an expression that this one cannot
# compile, entries that it does not know
{
    my $gateway = t::Gateway->new(http =>
        conf(0, 'ratelimit_explain token_file=tokens;'));
    $gateway->write('tokens', '0123456789abcdef');
    $gateway->write('rules.state', t::Rules::record(3, {
        rules => [
            { id => 'wrong', match => { endpoint_regex => '^/x(' }, %day },
            { id => 'right', match => { endpoint_regex => '^/x' }, %day },
            { id => 'empty', match => { endpoint_regex => '~' }, %day },
            { id => 'newer', shape => 'round', %day },
            7,
        ],
        tier_of => { keys => { 'k*' => 'pro', k => 'pro' },
                     patterns => [{ pattern => 'p*' },
                                  { pattern => 'q*', tier => 'pro' }] },
        deny => ['', 'bad'],
    }));
    my ($good, $said) = $gateway->check;
    ok($good, 'nginx -t accepts it');
    like($said, qr/\[warn\] .*"wrong" is skipped: \/rules\/0\/match\/endpoint_regex pcre2?_compile\(\) failed/,
         'and warns of the expression');
    $gateway->start;
    ok(t::Rules::follows($gateway, 3), 'the document is followed');
    is($gateway->get('/', 'X-API-Key: bad')->{status}, 403, 'who is denied');
    my $skipped = skipped($gateway);
    is_deeply([sort keys %$skipped],
              ['/deny/0', '/rules/0/match/endpoint_regex',
               '/rules/2/match/endpoint_regex', '/rules/3/shape', '/rules/4',
               '/tier_of/keys/k*', '/tier_of/patterns/0/tier'],
              '/status names what is skipped');
    is($skipped->{'/rules/0/match/endpoint_regex'}[0], 'wrong', 'by its id');
    like($skipped->{'/rules/0/match/endpoint_regex'}[1],
         qr/^pcre2?_compile\(\) failed/, 'with the reason');
    is(passes($gateway, '/other?k=a'), 10,
       'a rule whose expression is wrong does not apply to every path');
    is(passes($gateway, '/x?k=a'), 3, 'the other expression counts');
    my $answer = t::Api::answer($gateway->get('/x?k=b', 'X-API-Key: a',
                                 'X-RateLimit-Explain: 0123456789abcdef'));
    my ($rule) = grep { $_->{rule} eq 'wrong' }
                 map { @{ $_->{rules} } } @{ $answer->{json}{zones} };
    is($rule->{because}, 'skipped', 'an explanation says it');
    $gateway->stop;
}

# what is stored, and would be refused now, keeps nobody from changing the rest
{
    my $gateway = t::Gateway->new(http => conf(0, ''));
    $gateway->write('rules.state', t::Rules::record(3, {
        rules => [
            { id => 'wrong', match => { endpoint_regex => '^/x(' }, %day },
            { id => 'right', match => { route => '/right' }, %day },
        ],
        deny => [{ rule => 'gone', key => 'x' }, { more => 1 }],
    }));
    $gateway->start;
    ok(t::Rules::follows($gateway, 3), 'a document with entries that cannot be used');
    my $api = t::Api->new($gateway);
    is(t::Api::said($api->change('POST', '/deny', ['new'])), 200,
       'another entry is added');
    ok($api->follows(4), 'which is followed');
    is($gateway->get('/?k=x', 'X-API-Key: new')->{status}, 403, 'and denies');
    is(t::Api::said($api->change('PUT', '/tiers/pro?rule=right',
                                 { limit => 5 })), 201, 'a tier');
    is(t::Api::said($api->change('PATCH', '/rules/right', { percent => 50 })),
       200, 'another rule is changed');
    is(t::Api::said($api->change('PUT', '/tier_of/k', { tier => 'pro' })), 201,
       'an assignment');
    like(t::Api::said($api->change('PATCH', '/rules/wrong', { percent => 50 })),
         qr{^422 invalid: /rules/0/match/endpoint_regex pcre2?_compile},
         'the rule itself must be right');
    like(t::Api::said($api->change('PUT', '/document',
                                   $api->get('/document')->{json})),
         qr{^422 invalid: /deny/0/rule is no rule},
         'and so must a whole document');
    is(t::Api::said($api->change('DELETE', '/rules/wrong')), 200,
       'which may be deleted');
    $gateway->stop;
}
