# Every resource of the endpoint, read and changed by HTTP, and what the gateway
# does then: rules, tiers and who has them, overrides, the two lists, versions
# and the way back, status.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Api;

my $gateway = t::Gateway->limited(workers => 2,
    zone => { one => 'key=$ratelimit_api_key state=%%DIR%%/rules.state',
              clear => 'key=$ratelimit_api_key keys_in_clear=on limit=5'
                       . ' window=calendar:day algorithm=fixed_window' },
    locations => { '/rl/' => 'ratelimit_api zone=one %%WRITE%%;',
                   '/clear/' => 'ratelimit_api zone=clear %%WRITE%%;',
                   '/' => 'ratelimit zone=one;' });

my $api = t::Api->new($gateway);

sub limit {
    my ($key, $path) = @_;
    my $answer = $gateway->get($path // '/', "X-API-Key: $key");
    return join ' ', $answer->{status}, header($answer, 'X-RateLimit-Limit');
}

# nothing yet
my $answer = $api->get('/document');

is_deeply($answer->{json}, { version => 0, rules => [] }, 'nothing yet');
is($answer->{etag}, '"0"', 'version 0');
is_deeply($api->get('/versions')->{json}, { version => 0, versions => [] },
          'no versions');
is($api->get('/versions/1')->{status}, 404, 'no version 1');
is_deeply($api->get('/allow')->{json}, [], 'no allow list');

# the whole document
my %orders = (
    id => 'orders', match => { route => '/v1/orders/**', methods => ['GET'] },
    key => ['$ratelimit_api_key'], algorithm => 'fixed_window',
    params => { limit => 10, window => 'calendar:day' },
    tiers => { pro => { limit => 100 } },
    limits_by_api_key => { sk_vip => { limit => 1000 } },
);

$answer = $api->put('/document', { rules => [\%orders] }, 'If-Match: "0"',
                    'X-Ratelimit-Reason: the first');
is(t::Api::said($answer) . " $answer->{version}", '201 1', 'PUT /document');
like($answer->{etag}, qr/^"1-[0-9a-f]{16}"$/, 'its tag: version and record');
is($answer->{json}{version}, 1, 'its version');
is_deeply([keys %{ $answer->{json}{rules}[0]{limits_by_api_key} }], [t::Api::sha('sk_vip')],
          'API keys are stored as their hashes');
unlike($answer->{body} . $gateway->read('rules.state') . $gateway->log,
       qr/sk_vip/, 'nowhere in the clear');
ok($api->follows(1), 'all workers follow');
is(limit('a', '/v1/orders/1'), '200 10', 'a limit');
is(limit('sk_vip', '/v1/orders/1'), '200 1000', 'an override');
is(limit('a', '/v2'), '200 ', 'no rule');
is($api->get('/document')->{body}, $answer->{body}, 'GET /document');

# conditions
for (['', '428 precondition-required'], ['If-Match: "0"', '412 conflict'],
     ['If-Match: "1"', '412 conflict'],
     ['If-Match: "1-0000000000000001"', '412 conflict'],
     ['If-Match: ' . $answer->{etag} =~ s/-/-0/r, '412 conflict'],
     ['If-Match: "2"', '412 conflict'], ['If-Match: "0", "2"', '412 conflict'],
     ['If-Match: x', '412 conflict'], ['If-Match: "01x"', '412 conflict'],
     ['If-Match: ', '412 conflict'], ['If-Match: *, "0"', '412 conflict'],
     ['If-Match: "0", *', '412 conflict'], ['If-Match: *x', '412 conflict'])
{
    my ($header, $said) = @$_;
    my $refused = $api->put('/document', { rules => [] }, $header ? $header : ());
    t::Api::problem_ok($refused, $said, "'$header'");
    is($refused->{json}{version}, 1, "'$header': the version") if $said =~ /412/;
}

for ('"0", "N"', '"N", "0"', 'W/"N"', 'N', '"N"') {
    my $is = $api->get('/document');
    my $tag = $is->{etag} =~ tr/"//dr;
    my $tags = s/N/$tag/r;
    $orders{params}{limit}++;
    is($api->put('/rules/orders', \%orders, "If-Match: $tags")->{version},
       $is->{version} + 1, "If-Match: $tags");
    is($api->put('/rules/orders', \%orders, "If-Match: $tags")->{status}, 412,
       "If-Match: $tags: once");
}

$orders{params}{limit} = 10;
my $now = $api->get('/document')->{etag};

is($api->get('/document', "If-None-Match: $_->[0]")->{status}, $_->[1],
   "If-None-Match: $_->[0]")
    for [$now, 304], ["W/$now", 304], ["\"0\", $now", 304], ['*', 304],
        ['"0"', 200];
is($api->get("/allow", "If-None-Match: $now")->{status}, 304,
   'the tag of any resource is the version');

# all rules: the rest of the document stays
{
    my %rest = (allow => ['sk_a*'], deny => ['sk_b*'],
                tier_of => { patterns => [{ pattern => 'x*', tier => 'pro' }] });
    my @rules = ({ id => 'one', params => { limit => 1, window => 60 } },
                 { id => 'two', params => { limit => 2, window => 60 } });
    my $before = $api->get('/document')->{json};
    $api->change('PUT', '/document', { %rest, rules => [\%orders] });
    is_deeply([map { $_->{id} } @{ $api->get('/rules')->{json} }], ['orders'],
              'GET /rules: an array');
    my $answer = $api->change('PUT', '/rules', \@rules);
    is("$answer->{status} " . join(' ', map { $_->{id} } @{ $answer->{json} }),
       '200 one two', 'PUT /rules: these, in this order');
    is($api->change('PUT', '/rules', \@rules)->{version}, $answer->{version},
       'the same ones make no version');
    my $document = $api->get('/document')->{json};
    is_deeply({ map { $_ => $document->{$_} } keys %rest }, \%rest,
              'the rest is what it was');
    for ([{ rules => \@rules }, ' expected an array'],
         [[{ %{ $rules[0] }, limits => 1 }], '/0/limits is not known'],
         [[{ %{ $rules[0] }, match => { endpoint_regex => '(' } }],
          '/0/match/endpoint_regex '],
         [[@rules, $rules[0]], '/2/id ']) {
        like(t::Api::said($api->change('PUT', '/rules', $_->[0])),
             qr{^422 invalid: /rules$_->[1]}, "not: $_->[1]");
    }
    is($api->put('/rules', [])->{status}, 428, 'it needs a condition');
    is_deeply($api->change('PUT', '/rules', [])->{json}, [], 'no rules');
    is_deeply($api->get('/allow')->{json}, $rest{allow}, 'but lists');
    $api->change('PUT', '/rules/validate', { params => $rules[0]{params} });
    is($api->get('/rules/validate')->{json}{id}, 'validate', 'any id is one');
    $api->change('PUT', '/document', $before);
}

# what clients log in with is no part of a rule: it would be shown
for (['key', { key => '$http_authorization' }],
     ['key/1', { key => ['$arg_k', '${HTTP_Cookie}-x'] }],
     ['cost', { cost => '$http_proxy_authorization' }],
     ['cost_end', { cost_end => 'a$http_cookie' }],
     ['params/limit', { params => { limit => '$http_cookie', window => 60 } }])
{
    my ($at, $rule) = @$_;
    t::Api::problem_ok($api->change('PUT', '/rules/secret',
                                    { params => { limit => 3, window => 60 },
                                      %$rule }),
        "422 invalid: /rules/1/$at expected a variable without what clients "
        . 'log in with: "$ratelimit_api_key" or a claim', "$at of a rule");
}

# one rule
$answer = $api->change('PUT', '/rules/orders', \%orders);
is($api->get('/rules/orders')->{json}{id}, 'orders', 'GET /rules/{id}');
is($api->change('PUT', '/rules/second', { params => { limit => 3, window => 60 },
    algorithm => 'fixed_window', match => { route => '/second' } })->{status},
   201, 'PUT of a new one');
$answer = $api->change('PATCH', '/rules/second',
                       { params => { limit => 4 }, priority => 7 },
                       'Content-Type: application/merge-patch+json');
is_deeply($answer->{json}{params}, { limit => 4, window => 60 }, 'PATCH');
ok($api->follows($answer->{version}), 'it is followed');
is(limit('b', '/second'), '200 4', 'and counts');
$answer = $api->change('DELETE', '/rules/second');
is_deeply($answer->{json}, { version => 0 + $answer->{version} },
          'DELETE: the version');
t::Api::problem_ok($api->get('/rules/second'), '404 not-found', 'it is gone');
is($api->get('/rules/second')->{etag}, $answer->{etag}, 'and as of when');

# what is not valid changes nothing, and says all of it
$now = $api->get('/document')->{etag};
$answer = $api->change('PUT', '/document', { rules => [
    { %orders, params => { capacity => 0, refill_rate => 1 },
      algorithm => 'token_bucket' }, { id => 'x', what => 1 } ] });
like(t::Api::said($answer),
     qr{^422 invalid: .*/rules/0/params/capacity must be > 0; .*/rules/1/what }s,
     'all errors at once');
is_deeply([map { $_->{id} } @{ $answer->{json}{errors} }[0, -1]], ['orders', 'x'],
          'each with its rule');
like(t::Api::said($api->change('PUT', '/document', \'{"rules":[{"id":"re",
       "match":{"endpoint_regex":"(x"},"params":{"limit":1,"window":60}}]}')),
     qr{^422 invalid: /rules/0/match/endpoint_regex }, 'a regular expression');
$answer = $api->change('PUT', '/rules/re', { match => { endpoint_regex => '(x' },
                                            params => { limit => 1, window => 60 } });
like(t::Api::said($answer), qr{^422 invalid: /rules/1/match/endpoint_regex },
     'that of one rule');
is($answer->{json}{errors}[0]{id}, 're', 'with its id');
is($api->get('/document')->{etag}, $now, 'nothing is changed');
is_deeply($api->post('/document/validate', { rules => [\%orders] })
              ->{json}{valid}, JSON::PP::true, 'validate');
like(t::Api::said($api->post('/document/validate', { rules => [{}] })),
     qr/^422 invalid: /, 'validate: what is wrong');
is($api->get('/document')->{etag}, $now, 'validate changes nothing');

my $all = { rules => [], deny => ['*'] };

is(t::Api::said($api->change('PUT', '/document', $all)) =~ s/:.*//r,
   '422 deny-all', 'what rejects all');
is($api->change('PUT', '/document?force=1', $all)->{status}, 200, 'force');
is($api->change('PUT', '/document', { rules => [\%orders] })->{status}, 200,
   'and back');

# tiers, and who has one
is($api->change('PUT', '/tiers/pro', { limit => 500, capacity => 500 })
       ->{status}, 200, 'PUT /tiers/pro');
is_deeply($api->get('/tiers/pro')->{json},
          { rules => { orders => { limit => 500, capacity => 500 } } },
          'GET /tiers/pro');
is($api->change('PUT', '/tier_of/sk_prod_1', { tier => 'pro' })->{status}, 201,
   'PUT /tier_of/{key}');
$answer = $api->change('PUT', '/tier_of/a%2Fb/c', { tier => 'pro' });
is($answer->{status}, 201, 'a key with a slash');
is($api->get('/tier_of/a/b/c')->{json}{tier}, 'pro', 'it is the rest of the path');
t::Api::problem_ok($api->change($_->[0], "/tier_of/$_->[1]", { tier => 'pro' }),
                   '400 invalid', "$_->[0] $_->[1]: not another key")
    for ['PUT', 'a%2F%2Fb/c'], ['PUT', 'a//b/c'], ['PUT', 'x%2F..%2Fa%2Fb%2Fc'],
        ['DELETE', 'x/../a/b/c'], ['DELETE', 'a/%2e/b/c'];
is($api->get('/tier_of//a/b/c')->{status}, 400, 'nor read as another one');
$answer = $api->change('PATCH', '/tier_of',
                       { keys => { sk_a => 'pro', sk_b => 'pro',
                                   'a/b/c' => undef } });
is($answer->{status}, 200, 'PATCH /tier_of');
is($api->get('/tier_of/a/b/c')->{status}, 404, 'one is gone by it');
ok($api->follows($answer->{version}), 'it is followed');
is(limit($_, '/v1/orders/1'), '200 500', "$_ is pro") for qw( sk_prod_1 sk_a );
is(limit('other', '/v1/orders/1'), '200 10', 'another is not');

# overrides
$answer = $api->change('POST', '/overrides', { key => 'sk_a', rule => 'orders',
    type => 'multiplicative', value => 5, reason => 'launch week' });
is($answer->{status}, 201, 'POST /overrides');

my $id = $answer->{json}{id};

is_deeply($api->get("/overrides/$id")->{json}, $answer->{json},
          'GET /overrides/{id}');
ok($api->follows($answer->{version}), 'it is followed');
is(limit('sk_a', '/v1/orders/1'), '200 2500', 'five times as much');
is(scalar @{ $api->get('/overrides')->{json} }, 1, 'GET /overrides');

$answer = $api->change('POST', '/overrides', { key => 'sk_a', rule => 'orders',
                       type => 'multiplicative', value => 5,
                       expires_at => '2020-01-01T00:00:00Z' });
t::Api::problem_ok($answer, '422 invalid: /overrides/1/expires_at is in the past',
                   'one that has ended');
is($api->change('DELETE', "/overrides/$id")->{status}, 200, 'DELETE');
is($api->get("/overrides/$id")->{status}, 404, 'it is gone');
is_deeply($api->get('/overrides?key=%FF*')->{json}, [],
          'no override has a key that is not UTF-8');

# lists
for (['deny', 403, 'sk_revoked_1'], ['allow', 200, 'sk_internal_1']) {
    my ($list, $status, $key) = @$_;
    is($api->change('PUT', "/$list", [$key =~ s/1$/*/r])->{status}, 200,
       "PUT /$list");
    $answer = $api->change('POST', "/$list", ['sk_more']);
    is_deeply($answer->{json}, [$key =~ s/1$/*/r, t::Api::sha('sk_more')],
              "POST /$list");
    ok($api->follows($answer->{version}), 'it is followed');
    is(limit($key, '/v1/orders/1') . '.', "$status .", "$key: no rule counts");
    t::Api::problem_ok($api->change('POST', "/$list", ['sk_new', { key => '127.0.0.0/8' }]),
        '422 invalid: /' . $list . '/3/key is an address or a network, expected an API key; '
        . 'the lists of clients take "address"',
        "POST /$list: an address");
    is($api->change('DELETE', "/$list?key=sk_more")->{status}, 200,
       "DELETE /$list");
    is_deeply($api->get("/$list")->{json}, [$key =~ s/1$/*/r], "GET /$list");
    is($api->change('DELETE', "/$list?key=%FF*")->{status}, 404,
       "DELETE /$list: none is not UTF-8");
    like(t::Api::said($api->change('DELETE', "/$list")), qr/^422 invalid/,
         'not all of it, unnamed');
}

# versions
$answer = $api->get('/versions');

my @versions = @{ $answer->{json}{versions} };
my ($first) = grep { $_->{version} == 1 } @versions;

is($answer->{version}, $versions[0]{version}, 'the newest first');
is($answer->{etag}, $api->get('/document')->{etag}, 'with the tag of all answers');
is_deeply([map { $_->{version} } @versions], [reverse 1 .. @versions],
          'all of them');
is($first->{reason}, 'the first', 'the reason');
like($first->{time}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'time');

my $old = $api->get('/versions/1');

is($old->{json}{version}, 1, 'GET /versions/{n}');
is($old->{version}, 1, 'its tag is its own');
is($first->{bytes}, length $old->{body}, 'its bytes');
is($api->get("/versions/$_")->{status}, 404, "/versions/$_")
    for 0, 99, -1, '01', '00001', '01x', '18446744073709551617';
is($api->post('/versions/1/restore')->{status}, 428, 'restore needs If-Match');
is($api->post("/versions/$_/restore", undef, 'If-Match: *')->{status}, 404,
   "restore of no version, $_") for 99, '001';
$answer = $api->post('/versions/1/restore?reason=back%20to%201', undef,
                     $api->if_match($versions[0]{version}));
is("$answer->{status} $answer->{version}", '200 ' . ($versions[0]{version} + 1),
   'restore');
is_deeply($answer->{json}{rules}, $old->{json}{rules}, 'the document of then');
is($api->get('/versions')->{json}{versions}[0]{reason}, 'back to 1',
   'a reason in the query');
is(t::Api::said($api->change('PUT', '/document', {}, "X-Ratelimit-Reason: $_->[0]")),
   $_->[1], "a reason of $_->[2]")
    for ['x' x 257, '400 invalid', '257 bytes'], ["\xff", '400 invalid', 'no UTF-8'],
        ["\xc3\xa9" x 128, 200, '256 bytes'];

# status
$answer = $api->get('/status');
is_deeply([@{ $answer->{json} }{qw( zone format redis warnings )}],
          ['one', '1.0', undef, 0], 'status');
is($answer->{json}{newest}, $answer->{version}, 'status: version');
ok(wait_for(sub { $api->get('/status')->{json}{state}{saved} }),
   'status: saved');
like($answer->{json}{since}, qr/^\d{4}-/, 'status: since');

# rules of nginx.conf beside those of a document; keys in the clear
my $clear = t::Api->new($gateway, '/clear');

is(t::Api::said($clear->change('PUT', '/document',
        { rules => [{ %orders, id => 'clear' }] })) =~ s/ is .*| must .*//r,
   '422 invalid: /rules/0/id', 'the id of one of nginx.conf');
$clear->change('PUT', '/document', { rules => [\%orders] });
is($clear->get('/document')->{json}{rules}[0]{limits_by_api_key}{sk_vip}{limit}, 1000,
   'keys in the clear');
is_deeply($clear->change('PATCH', '/rules/orders',
                         { limits_by_api_key => { t::Api::sha('sk_vip') => { limit => 7 } } })
              ->{json}{limits_by_api_key}{sk_vip}{limit}, 7,
          'a key in the clear, patched by its hash');
$answer = $clear->change('PATCH', '/rules/orders',
                         { limits_by_api_key => { t::Api::sha('sk_vip') => undef,
                                         t::Api::sha('sk_2') => { limit => 2 } } });
is_deeply([keys %{ $answer->{json}{limits_by_api_key} }], [t::Api::sha('sk_2')], 'taken out by it');
$answer = $clear->change('PATCH', '/rules/orders',
                         { limits_by_api_key => { sk_2 => undef } });
is_deeply($answer->{json}{limits_by_api_key}, {}, 'and a hash by its key');
$clear->change('PUT', '/tier_of/sk_3', { tier => 'free' });
is_deeply($clear->change('PATCH', '/tier_of', { keys => { t::Api::sha('sk_3') => undef } })
              ->{json}{keys}, {}, 'the same of tiers');
is($clear->change('PUT', '/tier_of/%ff', { tier => 'x' })->{status}, 400,
   'a name that is no UTF-8');

# overrides that a rule cannot take
$clear->change('PUT', '/document', { rules => [
    { id => 'running', algorithm => 'concurrency', params => { limit => 3 } }] });

my %both = (key => 'sk_5', type => 'absolute');

is(t::Api::said($clear->change('POST', '/overrides',
        [{ %both, value => 5 },
         { %both, rule => 'running', value => { limit => 5, window => 60 } }])),
   '422 invalid: /overrides/1/value expected a limit alone for concurrency',
   'an override that does not fit the rule that it names');
is($clear->change('POST', '/overrides',
                  { %both, value => { limit => 5, window => 60 } })->{status},
   201, 'and one that names none');
$answer = $clear->change('POST', '/overrides',
                         { %both, rule => 'running', id => 'r', value => 5 });
is($answer->{status}, 201, 'one that fits');
is(t::Api::said($clear->change('PUT', '/document', { rules => [
        { id => 'running', algorithm => 'concurrency', params => { limit => 3 } }],
        overrides => [{ %both, id => 'c', rule => 'running',
                        value => { limit => 5 } }] })), 200, 'the whole document');
is(t::Api::said($clear->change('PUT', '/overrides/c',
        { %both, rule => 'running', value => { limit => 5, capacity => 4 } })),
   '422 invalid: /overrides/0/value expected the same number as limit and '
   . 'capacity, since the algorithm is no bucket', 'one of a rule of the document');

# what has no effect, or not the one that is meant, is made, and the answer says so
my %paths = (key => ['$ratelimit_route'], params => { limit => 5, window => 60 });
my $invents = 'key has $ratelimit_route, so a client has a counter for each path that it'
              . ' invents, expected a "ratelimit_route ... /**" in each location of the zone';

$answer = $api->change('PUT', '/rules/paths', \%paths);
is($answer->{status} . ' ' . header($answer, 'X-RateLimit-Warning'),
   "201 /rules/0/$invents", 'a rule with a warning');
is(header($api->change('PATCH', '/rules/paths', { priority => 1 }), 'X-RateLimit-Warning'),
   "/rules/0/$invents", 'a PATCH has it, too');
is(header($api->change('DELETE', '/rules/paths'), 'X-RateLimit-Warning'), '',
   'without the rule there is none');

$answer = $api->change('PUT', '/document', { format => "1.99", rules => [
    { id => 'orders', "\x{e9}\r\nX-A: b" => 1, params => $paths{params} },
    map { { id => "p$_", %paths } } 1 .. 8 ] });
is_deeply($answer->{headers}{'x-ratelimit-warning'},
    ['/rules/0/??' . '??X-A: b is not known to this version: it is kept, and has no effect',
     map { "/rules/$_/$invents" } 1 .. 7], 'eight of nine, with nothing but plain characters');

# a full state folder: it is said that it is not saved
$now = $api->get('/document')->{etag};
unlink "$gateway->{dir}/rules.state.tmp";
mkdir "$gateway->{dir}/rules.state.tmp";
$answer = $api->change('PUT', '/document', { rules => [\%orders] });
is($answer->{status} . ' ' . header($answer, 'X-RateLimit-Saved'),
   '200 false', 'a change that the state file does not have');
is_deeply($api->change('DELETE', '/rules/orders')->{json}{saved},
          JSON::PP::false, 'and one without a body');
rmdir "$gateway->{dir}/rules.state.tmp";
ok(wait_for(sub { $api->get('/status')->{json}{state}{saved} }),
   'it is saved later');

$gateway->stop('QUIT', 'rules.state');
