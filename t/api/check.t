# POST /check: another program asks for a decision, by a rule and a key or as a
# request. It has the counters of requests, in memory and in Redis, and waits
# for Redis as a request does.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::FakeRedis;
use t::Api;

my $ONLY = 'Authorization: Bearer a-token-that-may-only-check';

sub gateway {
    my %more = @_;
    return t::Gateway->limited(%more, api => 1,
        zone => 'key=$ratelimit_api_key',
        rules => [map { defined $more{redis} ? $_ : s/ (?:sync|fail_mode)=\w+//r }
                  'charges match=/charges rate=3r/d',
                  'window match=/window algorithm=fixed_window limit=3 window=calendar:month',
                  'strict match=/strict rate=3r/d sync=strict',
                  'async match=/async rate=3r/d sync=async',
                  'closed match=/closed rate=3r/d fail_mode=closed',
                  'tried match=/tried rate=1r/d dry_run',
                  'by_address match=/by_address key=$remote_addr rate=2r/d',
                  'bucket match=/bucket algorithm=leaky_bucket rate=1r/s burst=5',
                  'dynamic match=/dynamic rate=$arg_rate',
                  'tokens match=/tokens limit=$arg_limit window=1d algorithm=fixed_window',
                  'none match=/none rate=0r/s'],
        files => { 'check.tokens' => "svc:a-token-that-may-only-check check\n"
                                     . "ann:a-token-that-may-all-else\t \n" },
        locations => { '/' => 'ratelimit zone=z;',
                       '/only/' => 'ratelimit_api zone=z token_file=%%DIR%%/check.tokens;',
                       '/explained' => 'ratelimit zone=z; ratelimit_explain token_file=%%DIR%%/check.tokens;',
                       '/numbers' => 'ratelimit_metrics token_file=%%DIR%%/check.tokens;',
                       '/local/' => 'ratelimit_api zone=z;' });
}

# "yes 2" of an answer: allowed, and what is left
sub short {
    my $json = shift;
    return join ' ', $json->{allowed} ? 'yes' : 'no', $json->{remaining} // '-',
                     $json->{status} // '?';
}

sub asked {
    my ($api, $rule, $key, %more) = @_;
    my $answer = $api->post('/check', { rule => $rule, key => $key, %more });
    return $answer->{status} == 200 ? short($answer->{json})
                                    : t::Api::said($answer);
}

sub by_key {
    my ($name, $gateway, $last) = @_;
    my ($api, $other) = map { t::Api->new($_) } $gateway, $last;
    for my $rule (qw( charges window strict )) {
        my $what = "$name, $rule";
        is(asked($api, $rule, 'k'), 'yes 2 PASSED', "$what: the first");
        is($last->get("/$rule", 'X-API-Key: k')->{status}, 200,
           "$what: a request has the same counter");
        is(asked($other, $rule, 'k'), 'yes 0 PASSED', "$what: the last");
        is(asked($api, $rule, 'k'), 'no 0 REJECTED', "$what: one too many");
        is($gateway->get("/$rule", 'X-API-Key: k')->{status}, 429,
           "$what: nor a request");
        is(asked($api, $rule, 'other'), 'yes 2 PASSED', "$what: another key");
    }
    is(asked($api, 'charges', 'c', cost => 2), 'yes 1 PASSED', "$name: a cost");
    is(asked($api, 'charges', 'c', cost => 2), 'no 1 REJECTED',
       "$name: more than there is");
    is(asked($api, 'charges', 'c', cost => 0), 'yes 1 PASSED',
       "$name: a look takes nothing");
    is(asked($api, 'charges', 'c', cost => 4), 'no 1 REJECTED',
       "$name: more than there ever is");
    is(asked($api, 'tried', 't'), 'yes 0 PASSED', "$name: a dry run");
    is(asked($api, 'tried', 't'), 'yes 0 REJECTED_DRY_RUN',
       "$name: a dry run over its limit");
    is(asked($api, 'none', 'n'), 'no 0 REJECTED', "$name: a limit of 0");
    is(asked($api, 'by_address', '192.0.2.1') =~ s/ \d.*//r, 'yes',
       "$name: by an address");
    # all or nothing
    my $all = sub {
        my ($atomic, @checks) = @_;
        my $answer = $api->post('/check', { atomic => $atomic, checks => [
            map { { rule => $_->[0], key => $_->[1] // 'all', cost => $_->[2] // 1 } }
            @checks] });
        return join ', ', $answer->{json}{allowed} ? 'yes' : 'no',
                          map { short($_) =~ s/ [A-Z_]+$//r }
                          @{ $answer->{json}{checks} };
    };
    my ($true, $false) = (JSON::PP::true(), JSON::PP::false());
    is($all->($true, ['charges'], ['strict'], ['window', 'all', 2]),
       'yes, yes 2, yes 2, yes 1', "$name: atomic");
    like($all->($true, ['charges'], ['strict'], ['window', 'all', 2]),
         qr/^no, no [12-], no [12-], no 1$/, "$name: atomic, and one rejects");
    for my $rule (qw( charges strict )) {
        ok(wait_for(sub { asked($api, $rule, 'all', cost => 0) eq 'yes 2 PASSED' }),
           "$name: atomic: $rule has it back");
    }
    is($all->($false, ['charges'], ['window', 'all', 2], ['charges', 'b']),
       'no, yes 1, no 1, yes 2', "$name: each for itself");
}

my $alone = gateway(workers => 2);
my $api = t::Api->new($alone);

by_key('one node', $alone, $alone);

my $full = $api->post('/check', { rule => 'charges', key => 'members' });
is_deeply([sort keys %{ $full->{json} }],
          [sort qw( allowed limit remaining reset_ms retry_after_s rule degraded status )],
          'the members');
is($full->{type}, 'application/json', 'the type');
is($full->{json}{limit}, 3, 'the limit');
is($full->{json}{rule}, 'charges', 'the rule');
is($full->{json}{retry_after_s}, 0, 'no wait');
ok($full->{json}{reset_ms} > 28_700_000 && $full->{json}{reset_ms} <= 28_800_000,
   'full again in eight hours') or diag($full->{json}{reset_ms});
is(header($full, 'X-RateLimit-Limit') // '', '', 'the answer has no limit of its own');

$api->post('/check', { rule => 'charges', key => 'members' }) for 1 .. 2;
my $late = $api->post('/check?status=429', { rule => 'charges', key => 'members' });
is($late->{status}, 429, 'status=429');
is($late->{type}, 'application/json', 'status=429: no problem');
is($late->{json}{retry_after_s}, header($late, 'Retry-After'), 'status=429: Retry-After');
ok($late->{json}{retry_after_s} > 28_700, 'the wait');
is($api->post('/check?status=429', { rule => 'charges', key => 'no' })->{status}, 200,
   'status=429, and it is allowed');
is($api->post('/check', { rule => 'charges', key => 'x', cost => 4 })
   ->{json}{retry_after_s}, undef, 'no retry helps');

my $waits = $api->post('/check', { checks => [({ rule => 'bucket', key => 'w' }) x 2] });
is($waits->{json}{checks}[1]{status}, 'DELAYED', 'a leaky bucket');
ok($waits->{json}{checks}[1]{delay_ms} > 900, 'a leaky bucket: the delay');

# a limit that a request would tell
is(asked($api, 'dynamic', 'd', limit => 5, window_ms => 86400000), 'yes 4 PASSED',
   'limit and window_ms');
is(asked($api, 'tokens', 'd', limit => 5), 'yes 4 PASSED', 'limit');
is(asked($api, 'tokens', 'z', limit => 0), 'no 0 REJECTED', 'limit of 0');
is($alone->get('/tokens?limit=5', 'X-API-Key: d')->{status}, 200, 'limit: as a request');
is(asked($api, 'tokens', 'd', limit => 5, cost => 0), 'yes 3 PASSED', 'limit: one counter');

# what is wrong
my $wrong = 'nothing';
for ([{ key => 'k' }, '422 invalid:  expected "rule" and "key", or "request" alone'],
     [{ rule => 'charges' }, '422 invalid:  expected "rule" and "key", or "request" alone'],
     [{ rule => 'nil', key => 'k' }, '422 invalid: /rule there is no such rule'],
     [{ rule => 1, key => 'k' }, '422 invalid: /rule expected a string'],
     [{ rule => 'charges', key => '' },
      '422 invalid: /key must not be empty: such a key is not counted'],
     [{ rule => 'charges', key => ['a', 'b'] },
      "422 invalid: /key must have 1 part(s), as the rule's key"],
     [{ rule => 'charges', key => 'sha256:' . '0' x 64 },
      '422 invalid: /key must be the key as clients send it: a counter is not found by the hash of its key'],
     [{ rule => 'charges', key => 'k', cost => -1 }, '422 invalid: /cost must be at least 0'],
     [{ rule => 'charges', key => 'k', cost => 0.5 },
      '422 invalid: /cost must be a whole number'],
     [{ rule => 'charges', key => 'k', costs => 1 },
      '422 invalid: /costs is not known, expected one of "rule", "key", "cost", "limit", "window_ms", "tier", "request"'],
     [{ rule => 'charges', key => 'k', limit => 1 },
      q{422 invalid: /limit expected none: the rule's limit comes from no variable}],
     [{ rule => 'dynamic', key => 'k' },
      '422 invalid: /limit is missing: the rule has it from a variable'],
     [{ rule => 'dynamic', key => 'k', limit => 5 },
      '422 invalid: /limit expected "limit" and "window_ms"'],
     [{ checks => [] }, '422 invalid: /checks must not be empty'],
     [{ checks => [({ rule => 'charges', key => 'k' }) x 101] },
      '422 invalid: /checks has 101 entries, expected at most 100'],
     [{ checks => [{ rule => 'charges', key => 'k' }, { rule => 'nil', key => 'k' }] },
      '422 invalid: /checks/1/rule there is no such rule'],
     [{ atomic => JSON::PP::true(), checks => [({ rule => 'charges', key => 'k' }) x 2] },
      '422 invalid: /atomic expected checks of one key, each of another rule'],
     [{ atomic => JSON::PP::true(),
        checks => [map { { rule => $_, key => $_ } } 'charges', 'window'] },
      '422 invalid: /atomic expected checks of one key, each of another rule'],
     [{ request => { path => 'v1' } },
      '422 invalid: /request/path must be a path as a client sends it: "/v1/users?page=2"'],
     [{ request => { address => '1.2.3' } }, '422 invalid: /request/address must be an address'],
     [{ request => { headers => { A => 1 } } },
      '422 invalid: /request/headers/A expected a string'],
     [{ request => { headers => { 'X-A' => 'a', 'x-a' => 'b' } } },
      '422 invalid: /request/headers/x-a is there twice'],
     [{ request => {}, rule => 'charges', key => 'k' },
      '422 invalid:  expected "rule" and "key", or "request" alone'],
     [\'{"rule":', undef], [\'[]', undef], [\'', '400 empty-body'])
{
    my $answer = $api->post('/check', $_->[0]);
    $wrong = t::Api::said($answer);
    defined $_->[1] ? is($wrong, $_->[1], $_->[1]) : like($wrong, qr/^422 invalid/, 'wrong');
}
t::Api::problem_ok($api->post('/check?status=418', { rule => 'charges', key => 'k' }),
                   '400 invalid', 'another status');
t::Api::problem_ok($api->post('/check', \('{"rule":"charges","key":"' . 'k' x 70_000 . '"}')),
                   '413 too-large', 'a large body');
is($api->get('/check')->{status}, 405, 'GET');
is(asked($api, 'charges', 'k', cost => 0), 'yes 0 PASSED',
   'nothing was taken by what is wrong');

# who may
my $only = t::Api->new($alone, '/only');
my %check = (rule => 'charges', key => 'rights');
is($only->post('/check', \%check, $ONLY)->{json}{remaining}, 2, 'a token that may only check');
for (['GET', '/status'], ['GET', '/'], ['GET', '/nothing'], ['DELETE', '/counters?rule=a&key=b'],
     ['POST', '/document/validate', {}], ['OPTIONS', '/rules'])
{
    my $answer = $only->send($_->[0], $_->[1], $_->[2], $ONLY);
    is($answer->{status}, 403, "it may not $_->[0] $_->[1]");
}
is($alone->get('/numbers', $ONLY)->{status}, 403, 'nor read metrics');
my $all = 'Authorization: Bearer a-token-that-may-all-else';
is($alone->get('/numbers', $all)->{status}, 200, 'another token of that file may');
my %explains = map { $_ => $alone->get('/explained', "X-RateLimit-Explain: $_")->{body} }
               'a-token-that-may-only-check', 'a-token-that-may-all-else';
is(join(' ', map { $explains{$_} =~ /"zones"/ ? 'yes' : 'no' } sort keys %explains), 'yes no',
   'nor have a request explained');
is($only->get('/status', $all)->{status}, 200, 'a token without the word reads');
t::Api::problem_ok($only->post('/check', \%check, $all), '403 read-only',
                   'but a check is a change');
t::Api::problem_ok(t::Api->new($alone, '/local')->post('/check', \%check, 'Authorization: none'),
                   '403 read-only', 'without tokens');

# lists, tiers and rules of a document
my $put = $api->change('PUT', '/document', { rules => [
    { id => 'parts', key => ['$arg_a', '$ratelimit_api_key'], match => { route => '/parts' },
      algorithm => 'fixed_window', params => { limit => 10, window => 'calendar:month' },
      tiers => { pro => { limit => 20 } } },
    { id => 'off', enabled => JSON::PP::false(), params => { rate => '1r/d' } },
    { id => 'user', key => '$arg_u', match => { route => '/user', methods => ['PUT'] },
      params => { rate => '3r/d' } } ],
  tier_of => { keys => { vip => 'pro' } }, deny => ['bad', { rule => 'user', key => 'mallory' }],
  allow => ['good'] });
ok($api->follows(1), 'a document') or diag($put->{body});
is(asked($api, 'parts', ['a', 'k']), 'yes 9 PASSED', 'a key of parts');
is(asked($api, 'parts', ['a', 'vip']), 'yes 19 PASSED', 'a tier');
is(asked($api, 'parts', ['b', 'k'], tier => 'pro'), 'yes 19 PASSED', 'a tier that is named');
is(asked($api, 'off', 'k'), 'yes - BYPASSED', 'a rule that is not enabled') for 1, 2;
is(asked($api, 'charges', 'bad'), 'no - DENIED', 'the deny list');
is(asked($api, 'user', 'mallory'), 'no - DENIED', 'the deny list, by the key of a rule');
is(asked($api, 'user', 'm'), 'yes 2 PASSED', 'a rule whose conditions nothing meets');
is(asked($api, 'charges', 'good'), 'yes - BYPASSED', 'the allow list') for 1 .. 4;

# described requests
sub described {
    my ($path, $key, %more) = @_;
    my $answer = $api->post('/check', { request => { path => $path, %more,
        headers => { 'X-API-Key' => $key, %{ $more{headers} // {} } } } });
    return $answer->{status} == 200
           ? short($answer->{json}) . ' ' . ($answer->{json}{rule} // '-')
           : t::Api::said($answer);
}
is(described('/charges', 'q'), 'yes 2 PASSED charges', 'a request');
is($alone->get('/charges', 'X-API-Key: q')->{status}, 200, 'and one of a client');
is(described('/charges?a=1', 'q'), 'yes 0 PASSED charges', 'the same counter');
is(described('/x/../%63harges', 'q'), 'no 0 REJECTED charges', 'the path is read as nginx does');
is(described('/other', 'q'), 'yes - BYPASSED -', 'no rule');
is(described('/user?u=u', 'q'), 'yes - BYPASSED -', 'another method');
is(described('/user?u=u', 'q', method => 'PUT'), 'yes 2 PASSED user', 'the method');
is(described('/charges', 'bad'), 'no - DENIED -', 'a deny list');
is(described('/charges', 'good'), 'yes - BYPASSED -', 'an allow list');
is(described('/by_address', 'q', address => '192.0.2.7'), 'yes 1 PASSED by_address', 'an address');
is(asked($api, 'by_address', '192.0.2.7'), 'yes 0 PASSED', 'the same by its key');
is(described('/tokens?limit=7', 'q'), 'yes 6 PASSED tokens', 'a limit of a variable');
is($api->post('/check', { request => { path => '/window', host => 'A.example.:80',
    headers => { authorization => 'Bearer r', Cookie => 'a=b', 'User-Agent' => 'u',
                 Host => 'b.example', Connection => 'close', 'Content-Length' => '7',
                 'X-Forwarded-For' => '192.0.2.1' } } })->{json}{status}, 'PASSED',
   'headers that nginx knows');

is(scalar(grep { $_->{json}{allowed} }
          $api->send_all(([POST => '/check', { rule => 'charges', key => 'many' }]) x 50)), 3,
   'many at once');

# where an operator looks
my $log = $alone->log;
like($log, qr/request rejected by ratelimit rule "charges" of zone "z", key "sha256:[0-9a-f]{64}", limit 3 in 86400 s, retry after \d+ s/,
     'the log');
like($log, qr/request denied by the list of ratelimit zone "z", key "sha256:/, 'the log: a list');
is($api->get('/rejections?key=many')->{json}{rejections}[0]{rule}, 'charges', 'the rejections');
like($alone->get('/metrics')->{body}, qr/rule="charges",outcome="rejected"/, 'the metrics');
$alone->stop;

# penalties
my $banned = t::Gateway->limited(api => 1, zone => 'key=$ratelimit_api_key rate=1r/d',
    http => 'ratelimit_penalty flood zone=z after=2r/h time=1h on=rejected;');
$api = t::Api->new($banned);
my @said = map { asked($api, 'z', 'k') } 1 .. 5;
is("@said[0, 1, 4]", 'yes 0 PASSED no 0 REJECTED no - PENALIZED', 'a penalty') or diag("@said");
my $penalty = $api->post('/check', { rule => 'z', key => 'k' })->{json};
is($penalty->{penalty}, 'flood', 'its name');
ok($penalty->{retry_after_s} > 3000, 'its rest');
is($banned->get('/', 'X-API-Key: k')->{status}, 429, 'it is that of requests');
is(asked($api, 'z', 'l'), 'yes 0 PASSED', 'another key');
$banned->stop;

# a fleet
my ($one, $two) = map { gateway(redis => redis_port(), workers => 2) } 1, 2;
by_key('redis', $one, $two);
is(asked(t::Api->new($one), 'async', 'a'), 'yes 2 PASSED', 'async');
$_->stop for $one, $two;

# Redis does not answer
my $silent = t::FakeRedis->new(sub {
    return $_[0] =~ /^(?:EVALSHA|EVAL)$/i ? '' : "+OK\r\n";
});
my $gateway = gateway(redis => $silent->{port}, timeout => '300ms');
$api = t::Api->new($gateway);
my %degraded = (charges => 'yes - DEGRADED', closed => 'no - UNAVAILABLE');
is(asked($api, $_, 'k'), $degraded{$_}, "Redis is silent: $_") for sort keys %degraded;
is($api->post('/check', { rule => 'charges', key => 'k' })->{json}{degraded} ? 1 : 0, 1,
   'degraded');
$gateway->stop;

# the client goes, the gateway reloads and ends, while Redis is asked
$gateway = gateway(redis => $silent->{port}, timeout => '10s');
$api = t::Api->new($gateway);
my $heard = sub { scalar grep { $_->[2] =~ /^EVALSHA$/i } $silent->heard };
my $before = $heard->();
my $body = '{"checks":[{"rule":"strict","key":"a"},{"rule":"strict","key":"b"}]}';
my $socket = t::Gateway::connect_to($gateway);
print $socket "POST /rl/check HTTP/1.1\r\nHost: a\r\n$t::Gateway::TOKEN\r\n"
              . "Content-Type: application/json\r\nContent-Length: " . length($body)
              . "\r\n\r\n$body";
ok(wait_for(sub { $heard->() >= $before + 2 }), 'two calls wait');
close $socket;
is($gateway->get('/other')->{status}, 200, 'the client has gone');
$gateway->stop;
$silent->stop;
