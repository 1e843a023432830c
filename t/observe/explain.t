# "ratelimit_explain": a request with a token is answered with what its rules
# are, why others do not apply and what is left. Nothing is counted, and nothing
# is passed on. A request with a wrong token is one like any other.

use IO::Socket::INET;
use MIME::Base64 qw( decode_base64 );
use JSON::PP ();
use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Api;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $EXPLAIN = "X-RateLimit-Explain: $TOKEN";

# a Redis that accepts and never answers
my $silent = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1');

my $NEVER = 'proxy_pass http://127.0.0.1:%%PORT%%/never;';

my $gateway = t::Gateway->limited(
    redis => { nobody => 'server 127.0.0.1:1', silent => 'server 127.0.0.1:'
               . $silent->sockport . '; timeout 10s' },
    zone => {
        api => 'key=$ratelimit_api_key state=%%DIR%%/api.state',
        plain => 'rate=5r/h',
        slots => 'algorithm=concurrency limit=2',
        away => 'key=$ratelimit_api_key rate=5r/h redis=nobody',
        late => 'rate=5r/h redis=silent',
    },
    rules => ['fixed zone=api match=/v1/fixed rate=7r/h'],
    files => { users => "ann:{PLAIN}secret\n",
               tokens => "# who may ask\nops:$TOKEN\n",
               others => "another-token-0123456789\n" },
    http => <<'CONF',
    map $http_x_plan $plan { default ""; gold pro; }
    map $cookie_flavour $flavour { default none; ~. $cookie_flavour; }
    log_format explain '$request_method $uri $status';
    access_log %%DIR%%/access.log explain;
    ratelimit_explain token_file=tokens;
    proxy_method GET;
CONF
    server => 'ratelimit_tier $plan;',
    locations => {
        '/rl/' => 'ratelimit_api zone=api %%WRITE%%;',
        '/v1/' => "ratelimit zone=api; $NEVER",
        '/both/' => "ratelimit zone=api; ratelimit zone=plain; $NEVER",
        '/tried/' => "ratelimit zone=plain; ratelimit_dry_run on; $NEVER",
        '/away/' => "ratelimit zone=away; $NEVER",
        '/late/' => "ratelimit zone=late; $NEVER",
        '/slots/' => "ratelimit zone=slots; $NEVER",
        '/pk/' => 'ratelimit zone=plain; ratelimit_headers ietf; empty_gif;',
        '/free/' => $NEVER,
        '/old/' => 'rewrite ^/old/(.*)$ /v1/$1 last;',
        '/inside/' => 'internal; ratelimit zone=api;',
        '/gone/' => 'return 410 "gone\n";',
        '/try/' => 'try_files /nothing /inside/x;',
        '/off/' => "ratelimit zone=plain; ratelimit_explain off; $NEVER",
        '/other/' => 'ratelimit zone=plain; ratelimit_explain token_file=others;'
                     . $NEVER,
        '/sub/' => "auth_request /both/?k=sub; $NEVER",
        '/auth/' => 'auth_basic "x"; auth_basic_user_file %%DIR%%/users;'
                    . "ratelimit zone=plain; ratelimit_phase after_auth; $NEVER",
        '/any/' => "satisfy any; allow all; ratelimit zone=plain; $NEVER",
        '/none/' => "satisfy any; deny all; $NEVER",
        '/never' => 'access_log %%DIR%%/never.log explain; return 200;',
    });

my $api = t::Api->new($gateway);

sub explained { return t::Api::answer($gateway->get(@_)) }

# "rule because", "rule 3/10 tier"; rules of all zones in one line
sub brief {
    my $answer = explained(shift, $EXPLAIN, @_);
    my $json = $answer->{json};
    return $answer->{status} if $answer->{status} != 200 || !ref $json;
    my @rules;
    for my $zone (@{ $json->{zones} }) {
        push @rules, "($zone->{list})" if $zone->{list};
        push @rules, map {
            $_->{applies}
            ? "$_->{rule} " . ($_->{remaining} // '?') . "/$_->{limit} "
              . "$_->{limit_from}" . ($_->{override} ? " $_->{override}" : '')
              . ($_->{override_misfit} ? " !$_->{override_misfit}" : '')
              . ($_->{passes} ? '' : ' no')
              . ($_->{unknown} ? " $_->{unknown}" : '')
            : "$_->{rule} -$_->{because}"
        } @{ $zone->{rules} };
    }
    my $allowed = $json->{allowed};
    return join ', ', (defined $allowed ? $allowed ? 'yes' : 'no' : 'unknown'),
                      @rules;
}

sub orders { return brief(@_) =~ s/.*(orders.*?),.*/$1/r }

is($api->change(PUT => '/document', {
    rules => [
        { id => 'orders',
          match => { route => '/v1/orders/**', methods => ['POST'] },
          params => { limit => 10, window => 3600 },
          tiers => { pro => { limit => 20 } },
          limits_by_api_key => { vip => { limit => 30 } } },
        { id => 'all', params => { limit => 100, window => 3600 },
          cost => 2, dry_run => JSON::PP::true },
        { id => 'tasty', match => { host => ['tasty.example'] },
          key => ['$ratelimit_api_key', '$flavour'],
          params => { limit => 4, window => 3600 } },
    ],
    deny => ['bad*'], allow => ['good*'],
    tier_of => { keys => { paul => 'pro' } },
    overrides => [{ id => 'week', key => 'wanda', rule => 'orders',
                    type => 'multiplicative', value => 5, reason => 'x' },
                  { id => 'odd', key => 'otto', type => 'absolute',
                    value => { limit => 5, window => 'calendar:day' } }],
})->{status}, 201, 'rules');

# which rules, and why not others
is(brief('/v1/orders/1', 'X-API-Key: ann'),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty -host', 'a GET');
is(brief('POST /v1/orders/1', 'X-API-Key: ann'),
   'yes, fixed -path, orders 10/10 rule, all 100/100 rule, tasty -host',
   'a POST');
is(brief('/v1/fixed', 'X-API-Key: ann'),
   'yes, fixed 7/7 rule, orders -method, all 100/100 rule, tasty -host',
   'a rule of nginx.conf');
is(brief('/v1/fixed'),
   'yes, fixed -key_empty, orders -method, all -key_empty, tasty -host',
   'without a key');
is(brief('/v1/x', 'Host: tasty.example:80', 'X-API-Key: ann',
         'Cookie: a=b; flavour=sweet'),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty 4/4 rule',
   'a host, and a key of parts');

# whose limit
is(orders('POST /v1/orders/1', 'X-API-Key: paul'), 'orders 20/20 tier',
   'a tier by key');
is(orders('POST /v1/orders/1', 'X-API-Key: ann', 'X-Plan: gold'),
   'orders 20/20 tier', 'a tier by a map of a header');
is(orders('POST /v1/orders/1', 'X-API-Key: vip'), 'orders 30/30 key',
   'a key with a limit of its own');
is(orders('POST /v1/orders/1', 'X-API-Key: wanda'), 'orders 50/50 rule week',
   'a limit for a time');
is(orders('POST /v1/orders/1', 'X-API-Key: otto'), 'orders 10/10 rule !odd',
   'one that is no limit for the rule');

# lists
is(brief('/v1/x', 'X-API-Key: bad1'), 'no, (deny)', 'on the deny list');
is(brief('/v1/x', 'X-API-Key: good1'), 'yes, (allow)', 'on the allow list');
is(brief('/both/?k=1', 'X-API-Key: good1'),
   'yes, (allow), plain 5/5 rule', 'on the list of one of two zones');

# where a request is explained: where it would be checked
is(brief('/old/%6frders/../fixed?a=1', 'X-API-Key: ann'),
   brief('/v1/fixed', 'X-API-Key: ann'), 'a rewritten path');
is(brief('/both/?k=1', 'X-API-Key: ann'),
   'yes, fixed -path, orders -method, all 100/100 rule, tasty -host, '
   . 'plain 5/5 rule', 'two zones');
is(brief('/any/?k=1'), 'yes, plain 5/5 rule', 'satisfy any');
is(brief('/free/'), 'yes', 'nothing is limited here');
is(brief('/rl/document'), 'yes', 'nor at the endpoint');
is(brief('/none/'), 403, 'a request that may not come in');
is(explained('/try/', $EXPLAIN, 'X-API-Key: ann')->{json}{location},
   '/inside/', 'an internal redirect to where limits are');
is(brief('/gone/'), 410, 'a request that is answered before its check');
is(brief('/auth/?k=1'), 401, 'one that is not let in');
is(brief('/auth/?k=1', 'Authorization: Basic YW5uOnNlY3JldA=='),
   'yes, plain 5/5 rule', 'one that is');
is(brief('/sub/'), 'yes', 'the request itself and none within it');

# nothing was counted, and nothing was passed on
is(header($gateway->get('/both/?k=1', 'X-API-Key: ann'),
                      'X-RateLimit-Remaining'), 4, 'nothing was counted');
t::Gateway::send_all([map { [$gateway, 'GET /both/?k=2'] } 1 .. 5]);
is(brief('/both/?k=2') =~ s/.*, //r, 'plain 0/5 rule no', 'what is used up');
is(brief('/both/?k=2') =~ s/,.*//r, 'no', 'so the request is rejected');
is(brief('/tried/?k=2'), 'yes, plain 0/5 rule no', 'but not by a dry run');
is(brief('/slots/?k=1'), 'yes, 2/2' =~ s/2/slots 2/r . ' rule',
   'concurrency permits') for 1 .. 3;

$gateway->get("/both/?k=$_", 'X-RateLimit-Explain: wrong-token-0123456')
    for 3, 3;
is(brief('/both/?k=3') =~ s/.*, //r, 'plain 3/5 rule',
   'a request with a wrong token is counted');
is($gateway->get('/off/?k=4', $EXPLAIN)->{body}, '', 'off');
is($gateway->get('/other/?k=4', $EXPLAIN)->{body}, '', 'another file');
is(explained('/other/?k=4', 'X-RateLimit-Explain: another-token-0123456789')
   ->{json}{zones}[0]{rules}[0]{remaining}, 3, 'its token, without a name');

# 1 + 5 + 2 + 2, and the subrequest
is($gateway->read('never.log') =~ tr/\n//, 11,
   'nothing that is explained is passed on');
like($gateway->log, qr/request explained to "ops" and not passed on/,
     'the log names who has asked');
unlike($gateway->log, qr/\Q$TOKEN\E/, 'and not the token');

# Redis is away, or silent; the client leaves
is(brief('/away/', 'X-API-Key: ann') =~ s/breaker_open/unreachable/r,
   'unknown, away ?/5 rule no unreachable', 'Redis does not answer');

my $leaves = $gateway->connect_to;
print $leaves "GET /late/?k=1 HTTP/1.1\r\nHost: x\r\n$EXPLAIN\r\n\r\n";
$leaves->flush;
my $redis = $silent->accept;
ok($redis, 'a silent Redis is asked');
$gateway->get('/off/?k=5') for 1 .. 3;    # the worker has read the first one
close $leaves;
ok(wait_for(sub {
       $gateway->read('access.log') =~ m{^GET /late/ 499$}m }),
   'a client that leaves meanwhile');

# HEAD, a body, a connection that is kept
my $all = $gateway->raw(
    "HEAD /v1/x HTTP/1.1\r\nHost: x\r\n$EXPLAIN\r\n\r\n"
    . "POST /v1/x HTTP/1.1\r\nHost: x\r\n$EXPLAIN\r\nContent-Length: 5"
    . "\r\n\r\n12345"
    . "GET /v1/x HTTP/1.1\r\nHost: x\r\n$EXPLAIN\r\nConnection: close\r\n\r\n");

is(() = $all =~ /^HTTP\/1\.1 200 OK\r$/mg, 3, 'three answers');
is(() = $all =~ /"zones"/g, 2, 'HEAD has no body');

# a flood is not logged line by line
my $lines = () = $gateway->log =~ /request explained to/g;
$all = $gateway->raw(
    "GET /v1/x HTTP/1.1\r\nHost: x\r\n$EXPLAIN\r\n\r\n" x 30
    . "GET /off/?k=6 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");

is(() = $all =~ /"zones"/g, 30, 'all are explained');
$lines = (() = $gateway->log =~ /request explained to/g) - $lines;
cmp_ok($lines, '<', 30, 'and not all are logged');

# a client's name is shown as another hash of it, the same everywhere
my ($pk) = header($gateway->get('/pk/?k=7'), 'RateLimit-Policy')
    =~ /pk=:([^:]+):/;
my $named = explained('/pk/?k=7', $EXPLAIN)->{json}{zones}[0]{rules}[0]{key};
is(unpack('H*', decode_base64($pk)), substr($named, 0, 18), 'begins as pk');

# the whole answer
my $answer = explained('POST /v1/orders/1?x', $EXPLAIN, 'X-API-Key: paul');
my $json = $answer->{json};
my %orders = %{ $json->{zones}[0]{rules}[1] };

like(delete $orders{reset_at}, qr{^20\d\d-[\d-]+T[\d:]+Z$}, 'when it is fresh');
like(delete $orders{key}, qr/^[0-9a-f]{32}$/, 'the key, as a hash');
is_deeply(\%orders, {
    rule => 'orders', fixed => JSON::PP::false, applies => JSON::PP::true,
    algorithm => 'token_bucket', limit => 20, window_seconds => 3600,
    limit_from => 'tier', override => undef, cost => 1,
    dry_run => JSON::PP::false, remaining => 20, passes => JSON::PP::true,
}, 'a rule that applies');
is($json->{zones}[0]{version}, 1, 'the version of the document');
is($json->{zones}[0]{tier}, 'pro', 'the tier');
is("$json->{location} $json->{path}", '/v1/ /v1/orders/1', 'the location');
like($json->{api_key}, qr/^sha256:[0-9a-f]{64}$/, 'the API key is a digest');
unlike($answer->{body}, qr/paul/, 'and nowhere in the clear');
is($answer->{type}, 'application/json', 'its type');
is(header($answer, 'Cache-Control'), 'no-store', 'no cache keeps it');
is(header($answer, 'X-RateLimit-Limit'), '', 'it has no limits');

$gateway->stop;

# counters in Redis, also those that are split, and by whatever sync
my $fleet = $gateway = t::Gateway->limited(
    redis => redis_start(), files => { tokens => "ops:$TOKEN\n" },
    rules => ['lease rate=10r/h', 'strict rate=20r/h sync=strict',
              'split rate=40r/h sync=strict shards=4',
              'slots algorithm=concurrency limit=3'],
    http => 'ratelimit_explain token_file=tokens;',
    locations => { '/' => 'ratelimit zone=z; proxy_pass http://127.0.0.1:1;' });

wait_for(sub { brief('/?k=1') =~ /^yes/ });

is(brief('/?k=1'), 'yes, lease 10/10 rule, strict 20/20 rule, '
   . 'split 40/40 rule, slots 3/3 rule', 'in Redis') for 1 .. 2;

$fleet->get('/?k=1');

wait_for(sub { brief('/?k=1') =~ m{slots 3/3} });
is(brief('/?k=1'), 'yes, lease 9/10 rule, strict 19/20 rule, '
   . 'split 39/40 rule, slots 3/3 rule', 'what a request took is seen');

$fleet->stop;

# a penalty decides: it is named, and explaining is no event of it
my $banned = $gateway = t::Gateway->limited(
    files => { tokens => "ops:$TOKEN\n" },
    zone => { z => 'rate=1r/h', other => 'rate=9r/h' },
    http => <<'CONF',
    ratelimit_penalty flood zone=z after=1r/1h time=1h;
    ratelimit_penalty asks zone=z after=1r/1h time=2h on=200;
    ratelimit_explain token_file=tokens;
CONF
    server => 'add_header X-Penalty $ratelimit_penalty always;',
    locations => { '/' => 'ratelimit zone=z; ' . $NEVER,
                   '/two' => 'ratelimit zone=other; ratelimit zone=z; ' . $NEVER,
                   '/dry' => 'ratelimit zone=z; ratelimit_dry_run on; '
                             . $NEVER,
                   '/never' => 'return 200;' });

is(brief('/?k=a'), 'yes, z 1/1 rule', 'no penalty') for 1 .. 4;
is(explained('/?k=a', $EXPLAIN)->{json}{zones}[0]{penalty}, undef, 'null');
$gateway->get('/?k=a') for 1 .. 3;
is(brief('/?k=a'), 'no', 'a penalty: no rule is asked') for 1 .. 2;
is(brief('/two?k=a'), 'no, other 9/9 rule', 'nor those of the zones behind');
is(brief('/dry?k=a'), 'yes, z 0/1 rule no', 'a dry run has none');
is(brief('/?k=b'), 'yes, z 1/1 rule', 'nor has another key');

$answer = explained('/?k=a', $EXPLAIN);
is(header($answer, 'X-Penalty'), '', 'the explanation itself is not penalized');

my ($zone) = @{ $answer->{json}{zones} };
like(delete $zone->{penalty}{ends_at}, qr/^20\d\d-.*Z$/, 'its end');
like(delete $zone->{penalty}{retry_after_seconds}, qr/^3[56]\d\d$/, 'in seconds');
is_deeply($zone->{penalty}, { penalty => 'flood', network => undef,
                              action => 'ban', counted_by => '$arg_k' },
          'what it is');
is_deeply($zone->{rules}, [], 'no rules');

unlike($gateway->get('/metrics')->{body}, qr/outcome="penalized"\S* [1-9]/,
       'none of them is counted');
$gateway->stop;

# nginx -t
my $wrong = t::Gateway->limited(start => 0, files => {
    short => "ops:short\n", empty => "# nobody\n" });

for (['token_file=tokens', qr/open\(\) "[^"]*tokens" failed in "ratelimit_explain"/],
     ['token_file=short', qr/"ratelimit_explain" has an invalid token in [^ ]*short:1,/],
     ['token_file=empty', qr/"ratelimit_explain" has an invalid file "[^"]*empty", expected a token/],
     ['on', qr/"ratelimit_explain" has an invalid parameter "on", expected "token_file=<file>" or "off"/],
     ['off; ratelimit_explain off', qr/"ratelimit_explain" directive is duplicate/])
{
    my $said = $wrong->verdict("ratelimit_explain $_->[0];");
    like($said, $_->[1], $_->[0]);
    unlike($said, qr/ops:|short"/, "$_->[0]: no token is shown");
}
