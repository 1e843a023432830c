# What a document of rules says to a request: its lists, tiers and overrides,
# hosts, keys of several parts, values with variables; and what becomes of
# requests that are on their way when the document changes.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Rules;

use Digest::SHA 'sha256_hex';
use POSIX 'strftime';

my $redis = redis_start();
my $prefix = key_prefix();

sub window {
    my ($limit) = @_;
    return (algorithm => 'fixed_window',
            params => { limit => $limit, window => 'calendar:day' });
}

sub from_now {
    return strftime('%Y-%m-%dT%H:%M:%SZ', gmtime(time + $_[0]));
}

my %document = (
    rules => [
        { id => 'host', match => { route => '/host', host => ['*.Example.com'] },
          key => '$arg_k', window(5) },
        { id => 'tier', match => { route => '/tier' }, key => ['${arg_k}'],
          window(10), tiers => { free => { limit => 3 }, pro => { limit => 7 } },
          limits_by_api_key => { vip => { limit => 9 } } },
        { id => 'parts', match => { route => '/parts' },
          key => ['$http_x_tenant', 'u-$cookie_user.$request_method'],
          window(2) },
        { id => 'regex', match => { endpoint_regex => '^/re/[a-c]+$' },
          key => '$arg_k', window(4) },
        { id => 'variable', match => { route => '/variable' }, key => '$arg_k',
          algorithm => 'fixed_window', cost => '$http_x_cost',
          params => { limit => '$http_x_limit', window => 60 } },
        { id => 'boost', match => { route => '/boost' }, key => '$http_x_tenant',
          window(10) },
    ],
    tier_of => { patterns => [ { pattern => 'free_*', tier => 'free' } ],
                 keys => { 'sha256:' . sha256_hex('one') => 'pro',
                           'free_but_pro' => 'pro' } },
    allow => ['sk_ok_*', 'sha256:' . sha256_hex('plain')],
    deny => ['sk_bad_*', 'sk_ok_but_bad'],
    overrides => [
        { id => 'a', key => 'vip', rule => 'boost', type => 'multiplicative',
          value => 3, expires_at => '2030-01-01T00:00:00Z' },
        { id => 'b', tenant => { part => '$http_x_tenant', value => 'acme' },
          type => 'absolute', value => 20, expires_at => from_now(20) },
        { id => 'c', key => 'old', rule => 'boost', type => 'absolute',
          value => 99, expires_at => '2026-01-01T00:00:00Z' },
    ],
);

my $gateway = t::Gateway->limited(
    start => 0, api => 1, redis => $redis,
    zone => { z => 'state=rules.state', shared => 'redis=r state=shared.state' },
    rules => ['fixed match=/fixed limit=5 window=1h'],
    http => <<'CONF',
    log_format l '$request_uri $status $ratelimit_status $ratelimit_rule '
                 '$sent_http_ratelimit_limit';
    ratelimit_headers x draft3 ietf;
    access_log access.log l;
CONF
    server => 'ratelimit zone=z;',
    locations => {
        '/' => '', '/fixed' => 'ratelimit zone=z rule=fixed;',
        '/problem' => 'ratelimit_response problem;',
        '/off' => 'ratelimit_response off;', '/dry' => 'ratelimit_dry_run on;',
        '/page' => 'error_page 403 /denied;',
        '= /denied' => 'internal; return 200 "sorry";',
        '/shared' => 'ratelimit zone=shared;' });

$gateway->write('rules.state', t::Rules::record(1, \%document));
$gateway->start;
ok(t::Rules::follows($gateway, 1), 'the document counts');

sub told {
    my $answer = $gateway->get(@_);
    return join ' ', $answer->{status},
                     map { header($answer, $_) // '' }
                     qw( X-Status X-Rule X-RateLimit-Remaining );
}

sub key { return "X-API-Key: $_[0]" }

# what a response says of the limit alone
sub shown {
    my $answer = $gateway->get(@_);
    my $policy = header($answer, 'RateLimit-Policy') // '';
    $policy =~ s/;pk=:.*?://g;
    return join ' | ', (map { header($answer, $_) // '' }
                        qw( X-RateLimit-Limit RateLimit-Limit )), $policy;
}

# the deny list
for my $key ('sk_bad_1', 'sk_ok_but_bad') {
    my $answer = $gateway->get('/tier?k=d', key($key));
    is($answer->{status}, 403, "$key: denied");
    is(header($answer, 'X-Status'), 'DENIED', "$key: status");
    is(header($answer, 'Content-Type'), 'application/json', "$key: type");
    is($answer->{body}, '{"error":{"code":"API_KEY_DENIED",'
       . "\"message\":\"This API key is denied\"}}\n", "$key: body");
    is(header($answer, $_), '', "$key: no $_")
        for 'Retry-After', 'X-RateLimit-Limit', 'X-RateLimit-Remaining';
}

my $answer = $gateway->get('/problem', key('sk_bad_1'));

is(header($answer, 'Content-Type'), 'application/problem+json', 'a problem');
is($answer->{body}, '{"type":"about:blank","title":"Forbidden","status":403,'
   . "\"detail\":\"This API key is denied\"}\n", 'its body');

$answer = $gateway->get('/off', key('sk_bad_1'));
is($answer->{status}, 403, 'without a body of ours');
like($answer->{body}, qr/403 Forbidden/, "nginx's page");

$answer = $gateway->get('/page', key('sk_bad_1'));
is("$answer->{status} $answer->{body}", '403 sorry', 'an error_page');

is(told('/fixed?k=d', key('sk_bad_1')), '403 DENIED  ',
   'also where a location names a rule of nginx.conf');
is(told('/fixed?k=d', key('good')), '200 PASSED fixed 4',
   'which nobody that was denied has charged');
is(told('/dry?k=d', key('sk_bad_1')), '200 DENIED_DRY_RUN  ',
   'a dry run denies nobody');

# the allow list
is(told('/tier?k=a', key('sk_ok_1')), '200 BYPASSED  ', 'allowed: not counted');
is(told('/tier?k=a', key('plain')), '200 BYPASSED  ', 'allowed by its hash');
is(told('/fixed?k=a', key('plain')), '200 BYPASSED  ',
   'nor by a rule of nginx.conf');
is(told('/tier?k=a', key('sha256:' . sha256_hex('plain'))),
   '200 PASSED tier 9', 'who knows the hash has not the key');

# hosts, keys, values
is(told('/host?k=1', 'Host: a.EXAMPLE.com'), '200 PASSED host 4', 'a host');
is(told('/host?k=1', 'Host: a.example.org'), '200 BYPASSED  ', 'another');
is(told('/re/abc?k=1'), '200 PASSED regex 3', 'a regular expression');
is(told('/re/abcd?k=1'), '200 BYPASSED  ', 'that does not match');
is(told('/variable?k=1', 'X-Limit: 8', 'X-Cost: 3'), '200 PASSED variable 5',
   'a limit and a cost with variables');
is(told('/variable?k=1'), '200 BYPASSED  ', 'without a limit');
told('/variable?k=2', 'X-Limit: Basic secret', 'X-Cost: Basic other');
told('/variable?k=2', 'X-Limit: 8', 'X-Cost: Basic other');
like($gateway->log, qr/has a limit of "\(12 bytes\)", .*has a cost of "\(11 bytes\)", /s,
     'the log does not show values, which a document may take from anywhere');
unlike($gateway->log, qr/Basic/, 'nor a part of them');

my @ann = ('X-Tenant: acme2', 'Cookie: user=ann');

is(told('/parts', @ann), '200 PASSED parts 1', 'a key of two parts');
is(told('/parts', 'X-Tenant: acme2', 'Cookie: user=bob'), '200 PASSED parts 1',
   'another second part');
is(told('/parts', @ann), '200 PASSED parts 0', 'the same parts');
is(told('/parts', 'Cookie: user=ann'), '200 PASSED parts 1',
   'a part that is empty');

# tiers and overrides
is(told('/tier?k=1', key('none')), '200 PASSED tier 9', 'no tier');
is(told('/tier?k=2', key('free_1')), '200 PASSED tier 2', 'by a pattern');
is(told('/tier?k=3', key('one')), '200 PASSED tier 6', 'by a hash');
is(told('/tier?k=4', key('free_but_pro')), '200 PASSED tier 6',
   'a key before patterns');
is(told('/tier?k=5', key('vip')), '200 PASSED tier 8', 'an override of a key');

is(told('/boost', 'X-Tenant: t1', key('none')), '200 PASSED boost 9', 'no boost');
is(told('/boost', 'X-Tenant: t2', key('vip')), '200 PASSED boost 29', 'a factor');
is(told('/boost', 'X-Tenant: t3', key('old')), '200 PASSED boost 9',
   'one that has ended');
is(told('/boost', 'X-Tenant: acme'), '200 PASSED boost 19', 'of a tenant');
is(told('/parts', 'X-Tenant: acme', 'Cookie: user=u'), '200 PASSED parts 19',
   'whichever part it is');

for ([none => 10], [free_1 => 3], [one => 7], [vip => 9]) {
    my ($key, $limit) = @$_;
    is(shown('/tier?k=shown', key($key)),
       qq($limit | $limit, $limit;w=86400 | "tier";q=$limit;w=86400),
       "the limit of $key in all headers");
}

is(shown('/boost', 'X-Tenant: t2', key('vip')),
   '30 | 30, 30;w=86400 | "boost";q=30;w=86400', 'one for a time');
is(shown('/variable?k=shown', 'X-Limit: 123456789'),
   '123456789 | 123456789, 123456789;w=60 | "variable";q=123456789;w=60',
   'one of a variable');

ok(wait_for(sub {
       return told('/boost', 'X-Tenant: acme') =~ /boost [0-9]$/;
   }, 60), 'until its time');

$gateway->stop;

# Redis: other limits of one counter, and requests on their way at a change
$gateway->start;

for my $sync ('strict', 'lease') {
    my $n = $sync eq 'strict' ? 1 : 2;
    my @rules = map {;
        { id => $sync, key => '$arg_k', sync => $sync, window($_),
          tiers => { pro => { limit => 2 * $_ } } } } 3, 5;
    my $slow = { id => 'slow', key => '$arg_k', match => { route => '/shared/slow' },
                 algorithm => 'leaky_bucket',
                 params => { rate => '1r/s', burst => 5 } };
    my $old = t::Rules::record(2 * $n - 1, { rules => [$rules[0], $slow],
                                             tier_of => { keys => { p => 'pro' } } });
    my $new = t::Rules::record(2 * $n, { rules => [$rules[1]],
                                         tier_of => { keys => { p => 'pro' } } });
    ok(t::Rules::put($redis, $prefix, 'shared', 2 * $n - 2, $old), "$sync: a document");
    ok(t::Rules::follows($gateway, 2 * $n - 1, 'shared'), "$sync: counts");
    is(join(', ', map { told("/shared?k=$sync", key('none')) } 1 .. 4),
       "200 PASSED $sync 2, 200 PASSED $sync 1, 200 PASSED $sync 0, "
       . "429 REJECTED $sync 0", "$sync: the rule's limit");
    is(told("/shared?k=$sync-p", key('p')), "200 PASSED $sync 5",
       "$sync: the tier's");
    # three are delayed, by a rule that is gone before they go on
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    if ($pid == 0) {
        $gateway->burst(4, "/shared/slow?k=$sync-s", key('p'));
        POSIX::_exit(0);
    }
    select undef, undef, undef, 0.3;
    ok(t::Rules::put($redis, $prefix, 'shared', 2 * $n - 1, $new), "$sync: a change");
    ok(t::Rules::follows($gateway, 2 * $n, 'shared'), "$sync: counts now");
    is(told("/shared?k=$sync-p", key('p')), "200 PASSED $sync 8",
       "$sync: what was used stays used");
    is(shown("/shared?k=$sync-$_->[0]", key($_->[0])),
       qq($_->[1] | $_->[1], $_->[1];w=86400 | "$sync";q=$_->[1];w=86400),
       "$sync: the new limit of $_->[0]") for ['none', 5], ['p', 10];
    waitpid $pid, 0;
    ok(wait_for(sub {
           return 4 == (() = $gateway->read('access.log')
                             =~ m{/shared/slow\?k=$sync-s 200 \S+ \S+ 6, 6;w=\d+$}gm);
       }), "$sync: those on their way pass, and show their limit");
}

unlike($gateway->log, qr/\[(?:alert|crit|emerg)\]/, 'no alert');
$gateway->stop;
