# Amounts and tiers by the key of a rule: of tenants, users and addresses, with
# whole values, hashes and patterns.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header );
use t::Rules;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $RULE = 'ratelimit_rule users zone=z match=/users limit=5 window=1d '
           . 'key=$http_x_user;';

sub conf {
    my ($lines) = @_;
    return t::Gateway::limited_http(
        api => 1, zone => 'key=$http_x_tenant state=%%DIR%%/rules.state',
        http => "$lines ratelimit_explain token_file=tokens;",
        server => 'ratelimit zone=z; ratelimit_tier $arg_tier;',
        locations => { '/' => '' });
}

my $gateway = t::Gateway->new(workers => 2, http => conf($RULE));

$gateway->write('tokens', "ops:$TOKEN\n");
$gateway->write('rules.state', t::Rules::record(1, {
    rules => [
        { id => 'tenants', match => { route => '/t' },
          params => { limit => 10, window => 86400 },
          tiers => { gold => { limit => 100 }, iron => { limit => 200 } },
          limits_by_key => { acme => { limit => 1000 } },
          limits_by_api_key => { acme => { limit => 500 } } },
        { id => 'addresses', match => { route => '/a' }, key => '$remote_addr',
          params => { limit => 10, window => 86400 },
          limits_by_key => { '127.0.0.1' => { limit => 20 },
                    '192.0.2.1' => { limit => 30 } } },
        { id => 'parts', match => { route => '/p' },
          key => ['$http_x_tenant', '$arg_k'],
          params => { limit => 10, window => 86400 },
          tiers => { gold => { limit => 100 } },
          limits_by_key => { t::Api::sha("acme\x1fk") => { limit => 40 } } },
        { id => 'golden', match => { route => '/only' }, tier => 'gold',
          params => { limit => 60, window => 86400 } },
    ],
    tier_of => {
        keys => { sk_1 => 'iron' },
        rules => { tenants => { beta => 'gold', t::Api::sha('gamma') => 'iron' },
                   users => { eve => 'gold', beta => 'iron' } },
        patterns => [ { rule => 'tenants', pattern => 'eu-*', tier => 'gold' },
                      { pattern => 'sk_*', tier => 'iron' },
                      { rule => 'tenants', pattern => 'us-*', tier => 'gold' } ],
    },
}));
$gateway->start;
ok(t::Rules::follows($gateway, 1), 'the document counts');

my $api = t::Api->new($gateway);

sub headers {
    my %of = @_;
    my %name = (t => 'X-Tenant', u => 'X-User', k => 'X-API-Key');
    return map { "$name{$_}: $of{$_}" } sort keys %of;
}

sub limit { return header($gateway->get(shift, headers(@_)),
                          'X-RateLimit-Limit') }

# "<limit> <from> <tier>" of the rule that applies
sub explained {
    my $answer = t::Api::answer($gateway->get(shift, headers(@_),
                                              "X-RateLimit-Explain: $TOKEN"));
    my $zone = $answer->{json}{zones}[0];
    return join ', ', map { "$_->{limit} $_->{limit_from} "
                            . ($zone->{tier} // '-') }
                      grep { $_->{applies} } @{ $zone->{rules} };
}

sub counted {
    my $answer = $api->get("/counters?$_[0]");
    my $json = $answer->{json};
    return "$json->{limit} " . ($json->{tier} // '-');
}

my $version = 1;

sub changed {
    my ($method, $path, $body, $status, $name) = @_;
    my $answer = $api->change($method, $path, $body);
    is(t::Api::said($answer), $status, $name);
    ok($api->follows(++$version), "$name: followed");
    return $answer;
}

# amounts: the rule's key, the API key, the tier, the rule
is(explained('/t', @{ $_->[0] }), $_->[1], "/t @{ $_->[0] }") for
    [[t => 'one'], '10 rule -'],
    [[t => 'acme'], '1000 rule_key -'],
    [[t => 'acme', k => 'acme'], '1000 rule_key -'],
    [[t => 'one', k => 'acme'], '500 key -'],
    [[t => 'beta', k => 'acme'], '500 key gold'],
    [[t => 'beta'], '100 tier gold'],
    [[t => 'gamma'], '200 tier iron'],
    [[t => t::Api::sha('acme')], '10 rule -'],
    [[t => t::Api::sha('beta')], '10 rule -'];

is(explained('/a'), '20 rule_key -', 'an address');
is(explained('/p?k=k', t => 'acme'), '40 rule_key -', 'a key of parts');
is(explained('/p?k=l', t => 'acme'), '10 rule -', 'another one');

# tiers: whole keys before patterns, and these in their order; other rules'
is(explained(@{ $_->[0] }), $_->[1], "@{ $_->[0] }") for
    [['/t', t => 'beta', k => 'sk_1'], '200 tier iron'],
    [['/t', t => 'beta', k => 'sk_2'], '100 tier gold'],
    [['/t', t => 'eu-1', k => 'sk_2'], '100 tier gold'],
    [['/t', t => 'us-1', k => 'sk_2'], '200 tier iron'],
    [['/t', t => 'us-1'], '100 tier gold'],
    [['/t', t => 'one', u => 'eve'], '100 tier gold'],
    [['/t', t => 'one', u => 'beta'], '200 tier iron'],
    [['/t', t => 'beta', u => 'beta'], '100 tier gold'],
    [['/t?tier=iron', t => 'one'], '200 tier iron'],
    [['/t?tier=iron', t => 'beta'], '100 tier gold'],
    [['/only', t => 'beta'], '60 rule gold'],
    [['/only', t => 'one'], ''],
    [['/p?k=k', t => 'beta'], '100 tier gold'],
    [['/t', u => 'eve'], ''];

is(limit('/t', t => 'acme'), 1000, 'a request has that of its tenant');
is(limit('/t', t => 'us-2'), 100, 'and that of its tier');
is(limit('/t', t => 'one'), 10, 'or none');

# a counter has the limit that requests have
is(counted($_->[0]), $_->[1], $_->[0]) for
    ['rule=tenants&key=acme', '1000 -'], ['rule=tenants&key=one', '10 -'],
    ['rule=tenants&key=beta', '100 gold'], ['rule=tenants&key=us-7', '100 gold'],
    ['rule=tenants&key=one&tier=iron', '200 iron'],
    ['rule=addresses&key=192.0.2.1', '30 -'],
    ['rule=parts&key=acme&key=k', '40 -'],
    ['rule=parts&key=beta&key=k', '100 gold'];

# the endpoint: one at a time, and many
is($api->get("/tier_of/$_->[0]")->{json}{tier} // 'none', $_->[1],
   "the tier of $_->[0]") for
    ['beta?rule=tenants', 'gold'], ['beta?rule=users', 'iron'],
    ['us-1?rule=tenants', 'gold'], ['beta', 'none'], ['one?rule=users', 'none'];

is(t::Api::said($api->change(PUT => '/tier_of/x?rule=no', { tier => 'gold' })),
   '422 invalid: /tier_of/rules/no is no rule of this document or of '
   . 'nginx.conf', 'no such rule');
is(t::Api::said($api->change(PUT => "/tier_of/x?rule=$_", { tier => 'gold' })),
   '400 invalid', "no name of a rule: $_") for '%ff', 'tenants%00x';
is(t::Api::said($api->change(DELETE => '/rules/tenants')),
   '422 invalid: ' . join('; ', map { "/tier_of/$_ is no rule of this document "
                                      . 'or of nginx.conf' }
                                'rules/tenants', 'patterns/0/rule',
                                'patterns/2/rule'),
   'a rule whose keys have tiers is in use');

changed(PUT => '/tier_of/one?rule=tenants', { tier => 'gold' }, 201, 'a tier');
is(limit('/t', t => 'one'), 100, 'it counts');
ok($api->get('/tier_of')->{json}{rules}{tenants}{t::Api::sha('one')},
   'the hash is what is stored');
changed(DELETE => '/tier_of/' . t::Api::sha('one') . '?rule=tenants', undef,
        200, 'taken away');
is(limit('/t', t => 'one'), 10, 'by its hash');

changed(PATCH => '/tier_of', { rules => { tenants => { beta => undef,
                                                       new => 'gold' } } },
        200, 'many');
is(limit('/t', t => 'beta') . limit('/t', t => 'new') . limit('/t', t => 'us-1'),
   '10100100', 'they count, and others stay');

changed(PATCH => '/rules/tenants',
        { limits_by_key => { acme => undef, one => { limit => 7 } } },
        200, 'amounts');
is(explained('/t', t => 'acme'), '10 rule -', 'one is gone');
is(explained('/t', t => 'one'), '7 rule_key -', 'one is there');
is_deeply($api->get('/rules/tenants')->{json}{limits_by_key},
          { t::Api::sha('one') => { limit => 7 } }, 'it is stored as its hash');

# a reload without a rule: what names it is skipped, all else counts and changes
$gateway->configure(http => conf(''));
$gateway->reload;
ok(t::Rules::follows($gateway, $version), 'a reload');
is_deeply([map { $_->{pointer} } @{ $api->get('/status')->{json}{skipped} }],
          ['/tier_of/rules/users'], 'what is skipped');
is(explained('/t', t => 'us-1', u => 'eve'), '100 tier gold', 'others count');
is(explained('/t', t => 'two', u => 'eve'), '10 rule -', 'that one does not');
changed(PUT => '/tier_of/two?rule=tenants', { tier => 'iron' }, 201, 'a change');
is(limit('/t', t => 'two'), 200, 'it counts');
is(t::Api::said($api->change(PATCH => '/tier_of', { keys => { k => 'iron' } })),
   '422 invalid: /tier_of/rules/users is no rule of this document or of '
   . 'nginx.conf', 'a change of all at once must be valid');
changed(PUT => '/tier_of/mallory?rule=users', { tier => 'gold' }, 201,
        'also of what is skipped');
ok($api->get('/tier_of')->{json}{rules}{users}{t::Api::sha('mallory')},
   'which is stored as a hash, too');
$gateway->configure(http => conf($RULE));
$gateway->reload;
ok(t::Rules::follows($gateway, $version), 'a reload with the rule');
is(limit('/t', t => 'three', u => 'mallory'), 100, 'it counts again');

# as many as a document may have
my %many = (eve => undef, beta => undef, mallory => undef,
            map { ("t$_" => 'gold') } 1 .. 10000);

changed(PATCH => '/tier_of', { rules => { tenants => undef, users => \%many },
                               patterns => undef }, 200, 'ten thousand');
is(limit('/t', t => 'x', u => 't10000'), 100, 'the last of them counts');
is(limit('/t', t => 'x', u => 't10001'), 10, 'no other does');

$gateway->log_ok;
