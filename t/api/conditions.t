# What a change of the endpoint depends on, and what it leaves: a write that
# changes nothing makes no version, "If-None-Match: *" only creates, 201 says
# where, an override has a name of the client's, and an argument that is
# mistyped changes nothing.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header wait_for );
use t::Rules;

my $gateway = t::Gateway->limited(api => 1,
                                 zone => 'key=$http_x_api_key state=rules.state');

my $api = t::Api->new($gateway);
my $ANY = 'If-Match: *';
my $NEW = 'If-None-Match: *';
my $PATCH = 'Content-Type: application/merge-patch+json';

sub place { return header($_[0], 'Location') }

my %rule = (algorithm => 'fixed_window', params => { limit => 10, window => 60 },
            tiers => { pro => { limit => 100 } },
            limits_by_api_key => { sk_vip => { limit => 1000 } });
my $document = { rules => [{ id => 'search', %rule }, { id => 'orders', %rule }],
                 allow => ['sk_one', 'sk_internal_*'],
                 tier_of => { keys => { sk_two => 'pro' } } };

my %override = (key => 'sk_1', rule => 'search', type => 'absolute', value => 5,
                expires_at => '2099-01-01T00:00:00Z');

# creates only, and says where
my $answer = $api->put('/document', $document, $NEW);

is("$answer->{status} $answer->{version} " . place($answer), '201 1 /rl/document',
   'the first document: created');

for (['PUT', '/document', $document], ['PUT', '/rules/search', \%rule],
     ['PUT', '/tiers/pro', { limit => 7 }],
     ['PUT', '/tier_of/sk_two', { tier => 'free' }],
     ['PATCH', '/rules/search', { priority => 9 }, $PATCH],
     ['PUT', '/allow', []],
     ['DELETE', '/rules/search'])
{
    my ($method, $path, $body, @headers) = @$_;
    my $refused = $api->send($method, $path, $body, $NEW, @headers);
    t::Api::problem_ok($refused, '412 exists', "$method $path: it is there");
    is("$refused->{version} $refused->{json}{version}", '1 1',
       "$method $path: as of when");
}

for (['PUT', '/rules/third', \%rule], ['PUT', '/tiers/gold', { limit => 7 }],
     ['PUT', '/tier_of/sk_three', { tier => 'free' }],
     ['PUT', '/overrides/week', \%override])
{
    my ($method, $path, $body) = @$_;
    $answer = $api->send($method, "$path?reason=x", $body, $NEW);
    is("$answer->{status} " . place($answer), "201 /rl$path",
       "$method $path: created, and where");
    is($api->send($method, $path, $body, $NEW)->{status}, 412,
       "$method $path: once");
    is($api->get($path)->{status}, 200, "$method $path: it is there");
}

t::Api::problem_ok($api->put('/rules/third', \%rule, 'If-None-Match: "1"'),
                   '400 invalid', 'another condition');
t::Api::problem_ok($api->put('/rules/fourth', \%rule, $NEW, 'If-Match: "0"'),
                   '412 conflict', 'both conditions count');

# overrides
$answer = $api->post('/overrides', \%override, $ANY);
my ($id) = place($answer) =~ m{^/rl/overrides/([0-9a-f]{32})$};
is("$answer->{status} $id", "201 $answer->{json}{id}",
   'a POSTed override: where it is');
is($api->get("/overrides/$id")->{json}{value}, 5, 'and it is there');
is(place($api->post('/overrides', { %override, id => 'launch' }, $ANY)),
   '/rl/overrides/launch', 'one with a name');
is(place($api->post('/overrides', [\%override, \%override], $ANY)),
   '/rl/overrides', 'two: where all are');
is($api->post('/overrides', [], $ANY)->{status}, 200, 'none: nothing is created');

$answer = $api->put('/overrides/week', { %override, value => 6 }, $ANY);
is("$answer->{status} $answer->{json}{value} " . place($answer), '200 6 ',
   'PUT of one that is there');
is($api->get('/overrides/week')->{json}{value}, 6, 'changes it');
is(scalar(grep { $_->{id} eq 'week' } @{ $api->get('/overrides')->{json} }), 1,
   'that one');

for (['{"id":"other","key":"k","type":"absolute","value":1}', '/id is not the one that the path has'],
     ['{"rule":"nope","type":"absolute","key":"k","value":1,"expires_at":"2099-01-01T00:00:00Z"}',
      '/rule '],
     ['{"rule":"search","type":"absolute","key":"k","value":1,"expires_at":"2001-01-01T00:00:00Z"}',
      '/expires_at is in the past'],
     ['[]', ' expected an object'])
{
    my ($body, $said) = @$_;
    like(t::Api::said($api->put('/overrides/week', \$body, $ANY)),
         qr/^422 invalid: .*\Q$said\E/, "PUT of $body");
}

# the same once more makes no version
my $now = $api->get('/document');

for (['PUT', '/document', { %{ $now->{json} }, version => 77 }],
     ['PUT', '/document', $now->{json}],
     ['PUT', '/rules/third', $api->get('/rules/third')->{json}],
     ['PATCH', '/rules/third', { params => { limit => 10 } }, $PATCH],
     ['PATCH', '/rules/third', { priority => undef }, $PATCH],
     ['PUT', '/tiers/gold', { limit => 7 }],
     ['PUT', '/tier_of/sk_three', { tier => 'free' }],
     ['PATCH', '/tier_of', { keys => { sk_two => 'pro' } }, $PATCH],
     ['PUT', '/overrides/week', { %override, value => 6 }],
     ['PUT', '/allow', ['sk_one', 'sk_internal_*']],
     ['POST', '/allow', ['sk_one']])
{
    my ($method, $path, $body, @headers) = @$_;
    my $same = $api->send($method, $path, $body, $ANY, @headers);
    is("$same->{status} $same->{etag}", "200 $now->{etag}",
       "$method $path: nothing is changed");
}

is($api->get('/document')->{body}, $now->{body}, 'the document is what it was');
is(scalar @{ $api->get('/versions')->{json}{versions} }, $now->{version},
   'and so is the history');
$answer = $api->post("/versions/$now->{version}/restore", undef, $ANY);
is("$answer->{status} $answer->{etag} $answer->{body}",
   "200 $now->{etag} $now->{body}", 'the way back to what is there');
is($api->put('/document', $now->{json}, 'If-Match: "3-0000000000000001"')->{status},
   412, 'the condition counts all the same');
is($api->put('/document', $now->{json}, 'If-Match: ')->{status}, 412,
   'so does one without a tag');

# what differs does: a list's order, one member
for my $change (sub { @{ $_[0]{allow} } = reverse @{ $_[0]{allow} } },
                sub { $_[0]{rules}[0]{params}{limit}++ },
                sub { delete $_[0]{overrides} })
{
    my $document = $api->get('/document')->{json};
    my $version = $document->{version};
    $change->($document);
    is($api->put('/document', $document, $ANY)->{version}, $version + 1,
       'what differs is a version');
}

# arguments that there are not
$now = $api->get('/document');

for (['DELETE', '/tiers/pro?Rule=search', 'Rule'],
     ['DELETE', '/tiers/pro?rules=search', 'rules'],
     ['DELETE', '/tiers/pro?rule=search&rule=orders', 'rule'],
     ['DELETE', '/tiers/pro?key=x', 'key'],
     ['DELETE', '/rules/search?rule=search', 'rule'],
     ['DELETE', '/allow?keys=sk_one', 'keys'],
     ['DELETE', '/allow?force', 'x', 422],
     ['POST', '/document/validate?reason=x', 'reason', 400, {}],
     ['PATCH', '/counters?rule=search&key=a&dry_run=1', 'dry_run', 400, { add => 1 }],
     ['PUT', '/document?owner=x', 'owner', 400, { rules => [] }],
     ['PUT', '/rules?dry_run=yes', 'x', 400, [], qr/^expected "dry_run=1"$/],
     ['PUT', '/rules?dry_run=', 'x', 400, [], qr/^expected "dry_run=1"$/],
     ['PUT', '/rules?owner=', 'x', 400, [], qr/^expected a name in UTF-8$/],
     ['PUT', '/rules?owner=%ff', 'x', 400, [], qr/^expected a name in UTF-8$/],
     ['PUT', '/document?' . 'x' x 300, 'x' x 64, 400, { rules => [] }],
     ['GET', '/overrides?Key=sk_1', 'Key'], ['GET', '/document?rule=search', 'rule'],
     ['GET', '/tiers/pro?reason=x', 'reason'], ['GET', '/versions?n=1', 'n'],
     ['GET', '/status?verbose=1', 'verbose'],
     ['GET', '/counters?rule=search&key=a&keys=b', 'keys'],
     ['DELETE', '/counters?rule=a&rule=b&key=c', 'rule'])
{
    my ($method, $path, $name, $status, $body, $detail) = @$_;
    my $refused = $api->send($method, $path, $body, $ANY);
    is($refused->{status}, $status // 400, substr "$method $path", 0, 60);
    like($refused->{json}{detail}, $detail // qr/^"\Q$name\E" is no query argument/,
         "$name: the message") if !$status || $status == 400;
}

# a dry run: its conditions are those of the change
for (['PUT', '/rules?dry_run=1', '200 3', []], ['DELETE', '/tiers/pro?dry_run=1', '200 3'],
     ['POST', '/overrides?dry_run=1', '200 1', { %override, id => 'more' }],
     ['PUT', '/rules/fourth?dry_run=1', '200 1', \%rule],
     ['PUT', '/rules/search?dry_run=1', '412 -', \%rule, $NEW],
     ['PUT', '/rules/search?dry_run=1', '412 -', \%rule, 'If-Match: "1"'],
     ['DELETE', '/rules/none?dry_run=1', '404 -'],
     ['PUT', '/deny?dry_run=1', '422 -', ['*']])
{
    my ($method, $path, $said, $body, $condition) = @$_;
    my $shown = $api->send($method, $path, $body, $condition // $ANY);
    my $changes = $shown->{json}{changes};
    is("$shown->{status} " . ($changes ? @$changes : '-'), $said, "$method $path");
}

is($api->get('/document')->{etag}, $now->{etag}, 'nothing of this changed anything');
is($api->delete('/tiers/pro?rule=search&', $ANY)->{status}, 200,
   'what there is counts');
is_deeply([sort map { $_->{id} } grep { $_->{tiers}{pro} }
           @{ $api->get('/document')->{json}{rules} }], ['orders', 'third'],
          'of that rule alone');

$gateway->stop;

# a gateway that has not heard of the last version: what changes nothing of its
# own is no answer for the fleet
my $port = redis_start();
my $deaf = t::Gateway->limited(redis => $port, api => 1);

$api = t::Api->new($deaf);
ok(wait_for(sub {
       $api->put('/document', { allow => ['a*'] }, $ANY)->{version} eq 1
   }), 'a fleet');

my $old = $api->get('/document');
my $record = t::Rules::record(2, { rules => [1], deny => ['*'] });

t::Rules::put($port, key_prefix(), 'z', 1, $record);
t::Api::problem_ok($api->put('/document', $old->{json}, "If-Match: $old->{etag}"),
                   '412 conflict', 'another version is current');
$answer = $api->put('/document', $old->{json}, $ANY);
is("$answer->{status} $answer->{version}", '200 3', 'whatever it is: changed');
is($api->put('/document', $old->{json}, $ANY)->{version}, 3, 'once');
redis_stop($port);
t::Api::problem_ok($api->put('/document', $old->{json}, $ANY), '503 unavailable',
                   'without Redis nobody knows');
$deaf->stop;
