# Rules from PostgreSQL, by a real server and the feeder: what becomes of a row,
# who owns what, and what happens when a part of it is away.

use utf8;

use Encode ();
use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header wait_for );
use t::Ports qw( free_port );
use t::systems::postgres::Feed qw( between );

my %with = (workers => 2, api => 1, locations => { '/' => 'ratelimit zone=z;' },
            server => 'ratelimit_api_key header:X-Key basic;');
my $zone = 'key=$ratelimit_api_key rate=900r/m state=z.state';
my $redis = redis_port();
my @fleet = t::Gateway->limited(
    %with, gateways => 2, zone => { z => "$zone redis=r" },
    redis => "server 127.0.0.1:$redis; prefix " . key_prefix() . ';');
my $tls = free_port();
my ($alone) = t::Gateway->limited(
    %with, zone => { z => $zone }, files => certificates(),
    http => <<"CONF");
    access_log %%DIR%%/access.log;
    server {
        listen 127.0.0.1:$tls ssl;
        ssl_certificate here.pem;
        ssl_certificate_key here.key;
        ssl_client_certificate here.pem;
        ssl_verify_client on;
        location /rl/ { ratelimit_api zone=z write; }
    }
CONF
my ($api, $second, $lone) = map { t::Api->new($_) } @fleet, $alone;
my $database = t::systems::postgres::Feed->start;
my $feeder = $database->feeder(@fleet, $alone);

# One that signs itself, and is client and server; and another one.
sub certificates {
    my $dir = t::Gateway::dir('certificates');
    for ('here', 'other') {
        my $command = 'openssl req -x509 -newkey rsa:2048 -nodes -days 30 '
                      . "-subj /CN=$_ -addext subjectAltName=IP:127.0.0.1 "
                      . "-keyout $dir/$_.key -out $dir/$_.pem";
        my $said = qx($command 2>&1);
        $? == 0 or die $said;
    }
    return { map { $_ => t::Gateway::read({ dir => $dir }, $_) }
             map { ("$_.pem", "$_.key") } 'here', 'other' };
}

sub sql { return $database->sql(@_) }

sub document { return shift->get('/document')->{json} }

# The element of an array of the document, at all gateways unless one is named.
sub part {
    my ($at, $place, $member, $is) = @_;
    return (grep { ref && ($_->{$member} // '') eq $is }
            @{ document($at)->{$place} // [] })[0];
}

sub rule { return part(shift, 'rules', 'id', shift) }

sub arrives {
    my ($name, $what, @at) = @_;
    for (@at ? @at : ($api, $second, $lone)) {
        my $at = $_;
        ok(wait_for(sub { $what->($at) }), $name)
            or diag($feeder->read, $at->get('/document')->{body});
    }
}

# Until these rows, and no others, are refused.
sub refused_is {
    my ($rows, $name) = @_;
    my $is;
    wait_for(sub {
        $is = sql('SELECT DISTINCT relation, row_id, detail '
                  . 'FROM rate_limit_refused ORDER BY 1, 2, 3');
        return $is eq $rows;
    });
    is($is, $rows, $name);
}

sub limit_is {
    my ($limit, $name, @headers) = @_;
    my $is;
    wait_for(sub {
        $is = header($alone->get('/', @headers), 'X-RateLimit-Limit');
        return $is eq $limit;
    });
    is($is, $limit, $name);
}

# a row, a change of it, its end
sql(q{INSERT INTO rate_limit_rules (id, route, limit_count, window_ms)
      VALUES ('orders', '/orders/**', 10, 60000)});
arrives('a new rule', sub { rule($_[0], 'orders') });
is_deeply(rule($api, 'orders'),
          { id => 'orders', owner => 'postgres', algorithm => 'token_bucket',
            match => { route => '/orders/**' },
            params => { limit => 10, window => 60 } }, 'it is as its row says');
ok(wait_for(sub { header($_->get('/orders/1', 'X-Key: a'), 'X-RateLimit-Limit')
                  eq 10 }), 'it limits') for @fleet, $alone;

sql('UPDATE rate_limit_rules SET limit_count = 20');
arrives('a change', sub { rule($_[0], 'orders')->{params}{limit} == 20 });
isnt(sql('SELECT updated_at FROM rate_limit_rules'),
     sql('SELECT created_at FROM rate_limit_rules'), 'has its time');
sql('DELETE FROM rate_limit_rules');
arrives('a deleted row', sub { !rule($_[0], 'orders') });

# each column; what one of the gateways refuses, the others have
sql(q{INSERT INTO rate_limit_rules VALUES
      ('all', 'user', '/a/{id}', 'GET,POST', 100, 60000, '$arg_n', false,
       'token_bucket', 50, NULL, 'gold', 'g', -5, 50, 'local', 'lease', true,
       'schön "quoted"', '{"match": {"host": "a.test"}, "retry": "growth",
                           "params": {"capacity": 40}}');
      INSERT INTO rate_limit_rules (id, scope, route, limit_count, window_ms,
                                    weight_field, algorithm, burst, key)
      VALUES ('text', 'global', '~^/Ü', 3, 1000, '2', 'leaky_bucket', 7, NULL),
             ('case', 'ip', '~*^/x', 5, 1000, NULL, 'fixed_window', NULL, NULL),
             ('busy', 'api_key', NULL, 4, NULL, NULL, 'concurrency', NULL, NULL),
             ('keyed', 'zone', NULL, 0, 1000, NULL, 'sliding_log', NULL,
              '$arg_t')});
arrives('all columns', sub { rule($_[0], 'all') }, $api);
arrives('all but one', sub { rule($_[0], 'keyed') }, $lone);

my %is = map { $_->{id} => $_ } @{ document($api)->{rules} };

is(delete($is{all}{params}{refill_rate}) - 100 / 60 < 1e-12, 1, 'a rate');
is_deeply($is{all},
          { id => 'all', owner => 'postgres', algorithm => 'token_bucket',
            key => '$ratelimit_jwt_sub', tier => 'gold', group => 'g',
            priority => -5, percent => 50, fail_mode => 'local',
            sync => 'lease', dry_run => JSON::PP::true,
            enabled => JSON::PP::false, cost => '$arg_n', retry => 'growth',
            description => 'schön "quoted"',
            match => { route => '/a/{id}', methods => ['GET', 'POST'],
                       host => 'a.test' },
            params => { capacity => 40, window => 60 } }, 'all columns');

my %owned = (owner => 'postgres');

is_deeply([@is{qw( text case busy keyed )}],
          [{ %owned, id => 'text', key => 'all', algorithm => 'leaky_bucket',
             cost => 2, match => { endpoint_regex => '^/Ü' },
             params => { limit => 3, window => 1, burst => 7 } },
           { %owned, id => 'case', key => '$ratelimit_client', match =>
             { endpoint_regex => '~*^/x' }, algorithm => 'fixed_window',
             params => { limit => 5, window => 1 } },
           { %owned, id => 'busy', key => '$ratelimit_api_key', match => {},
             algorithm => 'concurrency', params => { limit => 4 } },
           { %owned, id => 'keyed', key => '$arg_t', match => {},
             algorithm => 'sliding_log', params => { limit => 0, window => 1 } }],
          'scopes, routes and algorithms');
refused_is('rate_limit_rules|all|fail_mode expected a zone that uses Redis',
           'the row that one gateway refuses');
sql("DELETE FROM rate_limit_rules");
refused_is('', 'it is gone');

# what the tables refuse
ok($database->refuses($_), $_) for
    map({ "INSERT INTO rate_limit_rules (id, $_" }
        "limit_count, window_ms) VALUES ('a b', 1, 1000)",
        "limit_count) VALUES ('a', 1)",
        "limit_count, window_ms) VALUES ('a', -1, 1000)",
        "limit_count, window_ms) VALUES ('a', 1, 1500)",
        "limit_count, window_ms, route) VALUES ('a', 1, 1000, 'a')",
        "limit_count, window_ms, route) VALUES ('a', 1, 1000, '/a//b')",
        "limit_count, window_ms, method) VALUES ('a', 1, 1000, 'get')",
        "limit_count, window_ms, scope) VALUES ('a', 1, 1000, 'x')",
        "limit_count, window_ms, algorithm) VALUES ('a', 1, 1000, 'gcra')",
        "limit_count, window_ms, algorithm) VALUES ('a', 1, 1000, 'concurrency')",
        "limit_count, window_ms, burst, algorithm) "
        . "VALUES ('a', 1, 1000, 2, 'fixed_window')",
        "limit_count, window_ms, algorithm) VALUES ('a', 10001, 1000, 'sliding_log')",
        "limit_count, window_ms, extra) VALUES ('a', 1, 1000, '[]')",
        "limit_count, window_ms, extra) VALUES ('a', 1, 1000, '{\"owner\": \"b\"}')"),
    map({ "INSERT INTO rate_limit_tier_of (key, tier) VALUES ($_)" }
        "'192.0.2.1', 'a'", "'2001:db8::/32', 'a'", "'sha256:12', 'a'", "'', 'a'",
        "'a', ''"),
    map({ "INSERT INTO rate_limit_lists $_" }
        "(list, address) VALUES ('deny', '0.0.0.0/0')",
        "(list, address) VALUES ('block', '192.0.2.1')",
        "(list, pattern) VALUES ('deny', '*')",
        "(list, key) VALUES ('deny', '192.0.2.1')",
        "(list, key, pattern) VALUES ('deny', 'a', 'b*')",
        "(list, address, rule) VALUES ('deny', '192.0.2.1', 'r')"),
    map({ "INSERT INTO rate_limit_overrides (key, type, value) VALUES ($_)" }
        "'a', 'times', 2", "'a', 'multiplicative', 0", "'a', 'multiplicative', NULL",
        "'a', 'multiplicative', 0.1234567", "'a', 'absolute', 1.5",
        "'a', 'absolute', -1", "'10.0.0.0/8', 'absolute', 1"),
    "INSERT INTO rate_limit_tiers VALUES ('none', 'pro', 1)";

# keys, in clear and as digests; what was refused has taken numbers
sql(join ';', map { "ALTER TABLE rate_limit_$_ ALTER id RESTART" }
              qw( tier_of lists overrides ));

my ($clear, $digest) = ('schlüssel', t::Api::sha('k2'));

sql(qq{INSERT INTO rate_limit_rules (id, limit_count, window_ms)
       VALUES ('r', 40, 60000);
       INSERT INTO rate_limit_rules (id, key, limit_count, window_ms)
       VALUES ('tenants', '\$arg_t', 40, 60000);
       INSERT INTO rate_limit_tiers VALUES ('r', 'pro', 400), ('r', 'free', 4),
                                           ('tenants', 'pro', NULL);
       INSERT INTO rate_limit_tiers VALUES ('r', 'burst', 5, 1000, 50);
       INSERT INTO rate_limit_tier_of (key, tier, rule)
       VALUES ('$clear', 'pro', NULL), ('$digest', 'free', NULL),
              ('basic:bob', 'pro', NULL), ('192.0.2.1', 'pro', 'tenants');
       INSERT INTO rate_limit_lists (list, address, key, pattern, rule, reason)
       VALUES ('deny', '192.0.2.0/24', NULL, NULL, NULL, 'scans'),
              ('deny', NULL, 'k3', NULL, NULL, NULL),
              ('deny', NULL, NULL, 'sk_*', NULL, 'ü"'),
              ('allow', NULL, 'acme', NULL, 'tenants', NULL);
       INSERT INTO rate_limit_overrides (key, part, rule, type, value, burst,
                                         expires_at, reason)
       VALUES ('k4', NULL, 'r', 'absolute', 7, NULL, '2099-01-01 00:00Z', 'x'),
              ('k4', NULL, NULL, 'multiplicative', 2.50, NULL, NULL, NULL),
              ('acme', '\$arg_t', NULL, 'absolute', NULL, NULL, NULL, NULL),
              ('k5', NULL, NULL, 'absolute', 8, 9, NULL, NULL),
              ('k6', NULL, NULL, 'absolute', 8, NULL, now(), 'ended')});
arrives('keys', sub { @{ document($_[0])->{overrides} // [] } == 4 });

my $is = document($api);
my ($all) = map { $_->{tiers} } grep { $_->{id} eq 'r' } @{ $is->{rules} };

is_deeply($all, { pro => { limit => 400 }, free => { limit => 4 },
                  burst => { limit => 5, window => 1, capacity => 50 } },
          'tiers');
is_deeply($is->{tier_of},
          { keys => { t::Api::sha(Encode::encode_utf8($clear)) => 'pro',
                      $digest => 'free', t::Api::sha('basic:bob') => 'pro' },
            rules => { tenants => { t::Api::sha('192.0.2.1') => 'pro' } } },
          'tiers of keys');
is_deeply([@$is{qw( deny allow )}],
          [[{ address => '192.0.2.0/24', reason => 'postgres.1 scans' },
            { key => t::Api::sha('k3'), reason => 'postgres.2' },
            { key => 'sk_*', reason => 'postgres.3 ü"' }],
           [{ key => t::Api::sha('acme'), rule => 'tenants',
              reason => 'postgres.4' }]], 'lists');
is_deeply($is->{overrides},
          [{ id => 'postgres.1', key => t::Api::sha('k4'), rule => 'r',
             type => 'absolute', value => 7, reason => 'x',
             expires_at => '2099-01-01T00:00:00Z' },
           { id => 'postgres.2', key => t::Api::sha('k4'), value => 2.5,
             type => 'multiplicative' },
           { id => 'postgres.3', type => 'absolute', value => 'unlimited',
             tenant => { part => '$arg_t', value => 'acme' } },
           { id => 'postgres.4', key => t::Api::sha('k5'), type => 'absolute',
             value => { limit => 8, capacity => 9 } }], 'overrides');

limit_is(4, 'a key known by its digest', 'X-Key: k2');
limit_is(400, 'a key in clear', 'X-Key: ' . Encode::encode_utf8($clear));
limit_is(400, 'a user, by its mark', 'Authorization: Basic Ym9iOng=');
limit_is(7, 'an override', 'X-Key: k4');
ok(wait_for(sub { $alone->get('/', 'X-Key: k3')->{status} == 403 }),
   'a denied key');

# what others have set stays, also if they come in between
is($api->change(PUT => '/rules/mine', { params => { rate => '1r/s' } })
       ->{status}, 201, 'on call: a rule');
is($api->change(POST => '/deny', ['203.0.113.7'])->{status}, 200,
   'on call: an address');
is($api->change(POST => '/overrides', { id => 'oncall', key => 'k4', value => 1,
                                        type => 'absolute' })->{status}, 201,
   'on call: an override');
is($api->change(PUT => '/tier_of/other', { tier => 'gold' })->{status}, 200 + 1,
   'on call: a tier of a key');
is($api->change(PATCH => '/tier_of', { patterns => [{ pattern => 'a*',
                                                      tier => 'x' }] })
       ->{status}, 200, 'on call: a tier of a pattern');
sql("UPDATE rate_limit_rules SET limit_count = 41 WHERE id = 'r'");
sql("INSERT INTO rate_limit_overrides (key, type, value) "
    . "VALUES ('k7', 'absolute', 1)");
sql("INSERT INTO rate_limit_lists (list, key) VALUES ('deny', 'k8')");
sql("DELETE FROM rate_limit_tier_of WHERE key = '$digest'");
arrives('changes beside those of others',
        sub { my $is = document($_[0]);
              @{ $is->{deny} } >= 4 && !$is->{tier_of}{keys}{$digest} });
$is = document($api);
is_deeply([map { $_->{id} } @{ $is->{rules} }], ['mine', 'r', 'tenants'],
          'rules of both');
is($is->{deny}[0], '203.0.113.7', 'lists of both');
is($is->{overrides}[-1]{id}, 'oncall', 'the override of others counts');
is($is->{tier_of}{keys}{t::Api::sha('other')}, 'gold', 'tiers of both');
is_deeply($is->{tier_of}{patterns}, [{ pattern => 'a*', tier => 'x' }],
          'and patterns');

# what others have taken over is not ours
is($api->change(PUT => '/rules/r', { params => { rate => '2r/s' } })->{status},
   200, 'on call: a rule of ours without our mark');
sql("INSERT INTO rate_limit_tier_of (key, tier) VALUES ('other', 'free')");
refused_is(join("\n", 'rate_limit_rules|r|id is taken by another rule',
                'rate_limit_tier_of|5|has a tier that others have set'),
           'rows whose place is taken');
is(rule($api, 'r')->{params}{rate}, '2r/s', 'it stays');
is($api->change(PATCH => '/rules/r', { owner => 'postgres' })->{status}, 200,
   'they give it back');
sql("DELETE FROM rate_limit_tier_of WHERE id = 5");
refused_is('', 'then all rows have their place');
arrives('the rule', sub { rule($_[0], 'r')->{params}{limit} == 41 });
is(document($api)->{tier_of}{keys}{t::Api::sha('other')}, 'gold',
   'the tier of others stays');

# rows that a gateway refuses do not keep the others
sql(q{INSERT INTO rate_limit_rules (id, key, limit_count, window_ms)
      VALUES ('bad', '$nonsense', 1, 1000), ('good', '$arg_k', 1, 1000);
      INSERT INTO rate_limit_tiers (rule, tier, limit_count, burst)
      VALUES ('busy', 'pro', 1, 2)} =~ s/'busy'/'good'/r);
sql(q{INSERT INTO rate_limit_overrides (key, rule, type, value)
      VALUES ('a', 'nobody', 'absolute', 1), ('b', 'bad', 'absolute', 1);
      INSERT INTO rate_limit_lists (list, rule, key) VALUES ('deny', 'no', 'a');
      INSERT INTO rate_limit_tier_of (rule, key, tier) VALUES ('no', 'a', 'b')});
arrives('the good row', sub { rule($_[0], 'good') });
is_deeply(rule($lone, 'good')->{tiers},
          { pro => { limit => 1, capacity => 2 } }, 'and its tier');
my $unknown = 'is no rule of this document or of nginx.conf';

refused_is(join("\n", "rate_limit_lists|6|rule $unknown",
                "rate_limit_overrides|7|rule $unknown",
                "rate_limit_overrides|8|rule $unknown",
                'rate_limit_rules|bad|key expected a known variable',
                "rate_limit_tier_of|6|$unknown"), 'each bad row, by its number');
sql(q{UPDATE rate_limit_rules SET key = '$arg_b' WHERE id = 'bad';
      DELETE FROM rate_limit_overrides WHERE rule = 'nobody';
      DELETE FROM rate_limit_lists WHERE rule = 'no';
      DELETE FROM rate_limit_tier_of WHERE rule = 'no'});
refused_is('', 'mended rows');
arrives('a mended row', sub { rule($_[0], 'bad') });

# a row that ends makes no version of its own
sql("INSERT INTO rate_limit_overrides (key, type, value, expires_at) "
    . "VALUES ('k9', 'absolute', 1, now() + interval '1500 ms')");
arrives('a row that ends soon',
        sub { part($_[0], 'overrides', 'key', t::Api::sha('k9')) }, $lone);
my $version = document($lone)->{version};

wait_for(sub { sql("SELECT count(*) FROM rate_limit_overrides "
                   . "WHERE expires_at < now()") eq 2 });
sql('NOTIFY rate_limit_feed');

# others change the document between the feeder's GET and its PUT
my $beside = between($alone->{port}, sub {
    $lone->change(PUT => '/rules/between', { params => { rate => '3r/s' } });
});

is($feeder->signal('TERM'), 1, 'SIGTERM');
waitpid $feeder->{pid}, 0;
is($?, 0, 'ends it, as is right');
is(document($lone)->{version}, $version, 'the end of a row makes no version');

$feeder = $database->feeder(@fleet, "http://127.0.0.1:$beside/rl/");
sql("UPDATE rate_limit_rules SET limit_count = 43 WHERE id = 'r'");
arrives('a change against others',
        sub { rule($_[0], 'r')->{params}{limit} == 43 });
is(rule($lone, 'between')->{params}{rate}, '3r/s', 'both changes hold');
like($alone->read('access.log'), qr/"PUT [^"]*" 412 /, 'it was refused once');

# nothing to do: a feeder that starts sends nothing
$feeder->stop;
my $puts = () = $alone->read('access.log') =~ /"PUT /g;
my $gets = () = $alone->read('access.log') =~ /"GET \/rl\/document/g;

$feeder = $database->feeder(@fleet, $alone);
wait_for(sub { $gets < (() = $alone->read('access.log')
                             =~ /"GET \/rl\/document/g) });
is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 1,
   'it holds the lock');

# two feeders: one works, the other one waits
my $two = $database->feeder(@fleet, $alone);

wait_for(sub { sql('SELECT count(*) FROM pg_stat_activity '
                   . "WHERE application_name = 'ratelimit-feed'") == 2 });
is(sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 1,
   'of two feeders one has the lock');
is((() = $alone->read('access.log') =~ /"PUT /g), $puts,
   'nothing is sent where all is there');
$feeder->signal('KILL');
$feeder->stop;
sql("UPDATE rate_limit_rules SET limit_count = 44 WHERE id = 'r'");
arrives('the other one goes on', sub { rule($_[0], 'r')->{params}{limit} == 44 });
$feeder = $two;

# a gateway is away: it stands still, then it is dead
$alone->signal('STOP');
kill STOP => $_ for my @workers = $alone->workers;
sql("UPDATE rate_limit_rules SET limit_count = 45 WHERE id = 'r'");
arrives('a gateway stands still: the others have the change',
        sub { rule($_[0], 'r')->{params}{limit} == 45 }, $api, $second);
sql("UPDATE rate_limit_rules SET limit_count = 46 WHERE id = 'r'");
arrives('and the next one', sub { rule($_[0], 'r')->{params}{limit} == 46 },
        $api, $second);
kill CONT => $_ for @workers, $alone->{pid};
arrives('it goes on', sub { rule($_[0], 'r')->{params}{limit} == 46 }, $lone);
$alone->kill;
sql("UPDATE rate_limit_rules SET limit_count = 47 WHERE id = 'r'");
arrives('a gateway is dead', sub { rule($_[0], 'r')->{params}{limit} == 47 },
        $api, $second);
$alone->start;
arrives('it starts again',
        sub { rule($_[0], 'r') && rule($_[0], 'r')->{params}{limit} == 47 },
        $lone);

# the database is away
$database->crash;
ok(wait_for(sub { $feeder->read =~ /^ratelimit-feed: database: /m }),
   'it says that the database is away');
is(rule($_, 'r')->{params}{limit}, 47, 'the rules stay') for $api, $lone;
$database->run;
sql("UPDATE rate_limit_rules SET limit_count = 48 WHERE id = 'r'");
arrives('the database is back',
        sub { rule($_[0], 'r')->{params}{limit} == 48 });
like($feeder->read, qr/^ratelimit-feed: database: is there again$/m, 'it says so');

# a large table; a poll finds what no message told
sql("ALTER TABLE rate_limit_overrides DISABLE TRIGGER notify;"
    . "INSERT INTO rate_limit_overrides (key, type, value) "
    . "SELECT 'user-' || n, 'absolute', n FROM generate_series(1, 10000) n");
ok(wait_for(sub { @{ document($_)->{overrides} // [] } > 7000 }, 90),
   'a large table') for $api, $lone;
$is = document($lone);

my $in = @{ $is->{overrides} };

ok(length($lone->get('/document')->{body}) > 1024 * 1024 - 2048,
   'what fits is in the document');
is(sql("SELECT count(*) FROM rate_limit_refused WHERE gateway ~ ':$alone->{port}/'"
       . " AND detail ~ '^(does not fit|is one too many)'"),
   sql('SELECT count(*) FROM rate_limit_overrides WHERE expires_at IS NULL '
       . 'OR expires_at > now()') - $in, 'what does not is named, each row');
sql("ALTER TABLE rate_limit_overrides ENABLE TRIGGER notify;"
    . "DELETE FROM rate_limit_overrides WHERE key ~ '^user-'");
refused_is('', 'all rows have their place again');
arrives('and are there', sub { @{ document($_[0])->{overrides} } < 10 });

# a gateway that does not let it in; who does not trust whom
$feeder->stop;
$feeder = $database->feeder($alone, '--token-file=/dev/null');
ok(wait_for(sub { $feeder->read =~ m{/dev/null: No data} }), 'no token');
$feeder->stop;
$feeder = $database->feeder($alone, '--token-file='
    . $alone->write('wrong', "not-the-token-0123456789\n"));
ok(wait_for(sub { $feeder->read =~ /: 401 / }), 'a wrong token');
unlike($feeder->read, qr/not-the-token/, 'which it does not say');
$feeder->stop;

# TLS, with a certificate in place of a token
my ($here, $other) = map { "$alone->{dir}/$_" } 'here', 'other';
my @certificate = ("https://127.0.0.1:$tls/rl", '--token-file=',
                   "--cert-file=$here.pem", "--key-file=$here.key");

$feeder = $database->feeder(@certificate, "--ca-file=$other.pem");
ok(wait_for(sub { $feeder->read =~ /^ratelimit-feed: https.*certificate/m }),
   'a server of another CA is not believed');
$feeder->stop;
$ENV{https_proxy} = 'http://127.0.0.1:1';
$feeder = $database->feeder(@certificate, "--ca-file=$here.pem");
sql("UPDATE rate_limit_rules SET limit_count = 50 WHERE id = 'r'");
arrives('by TLS', sub { rule($_[0], 'r')->{params}{limit} == 50 }, $lone);
ok(wait_for(sub { $alone->log =~ /"PUT \/document" by "CN=here" .* "postgres"/ }),
   'the author is that of the certificate');
$feeder->stop;

for ('', '--gateway=a --owner=A.b', '--gateway=a --nonsense',
     '--gateway=a more')
{
    my $said = qx(build/ratelimit-feed --token-file=x $_ 2>&1);
    is($? >> 8, 2, "options: $_");
    like($said, qr/^usage: /m, 'it says how');
}

$_->stop('QUIT', qr/ Redis | redis /) for @fleet, $alone;
