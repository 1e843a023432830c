# "/rejections": who was rejected, by which rule, where and when; by key, rule
# and time; of all workers, over a reload and a killed worker.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally wait_for );
use t::Api;
use Digest::SHA qw( sha256_hex );
use IO::Socket::INET;

t::Clock::stop();

# an upstream that does not answer
my $upstream = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1')
    or die;
my $up = $upstream->sockport;

sub gateway {
    my ($more, @rest) = @_;
    return t::Gateway->limited(
        zone => { z => "key=\$ratelimit_api_key $more",
                  addresses => "key=\$binary_remote_addr $more",
                  other => 'key=$arg_k rate=1r/h' },
        rules => ['first rate=1r/h match=/first',
                  'orders algorithm=fixed_window limit=2 window=1h'
                  . ' match=/v1/orders/** group=g',
                  'slots algorithm=concurrency limit=1 match=/slots',
                  'dry rate=1r/h match=/dry dry_run',
                  'large rate=1r/h match=/large cost=9',
                  'from zone=addresses rate=1r/h'],
        api => 1,
        locations => { '/' => 'ratelimit zone=z;',
                       '/slots' => "ratelimit zone=z; proxy_pass http://127.0.0.1:$up;",
                       '/addresses' => 'ratelimit zone=addresses;',
                       '/other' => 'ratelimit zone=other;',
                       '/rl-a/' => 'ratelimit_api zone=addresses;' },
        @rest);
}

sub hash { return 'sha256:' . sha256_hex($_[0]) }

sub list {
    my ($api, $query) = @_;
    my $answer = $api->get('/rejections' . ($query // ''));
    is($answer->{status}, 200, 'rejections' . ($query // ''))
        or diag($answer->{body});
    return $answer->{json};
}

sub rules { return join ' ', map { $_->{rule} } @{ $_[0]{rejections} } }

my $gateway = gateway('');
my $api = t::Api->new($gateway);

sub get { return $gateway->get($_[0], 'X-API-Key: ' . ($_[1] // 'sk_1'))->{status} }

is_deeply(list($api), { rejections => [], total => 0 }, 'none so far');

# one, with all that it has
is(get('/v1/orders/7'), $_) for 200, 200, 429;

my $all = list($api);
my ($one) = @{ $all->{rejections} };
my $time = delete $one->{time};

like($time, qr/^20\d\d-\d\d-\d\dT\d\d:00:00\.\d{3}Z$/, 'the time');
is_deeply($one, { number => 1, rule => 'orders', penalty => undef,
                  key => hash('sk_1'),
                  counted_by => '$ratelimit_api_key',
                  route => '/v1/orders/{id}', limit => 2,
                  window_seconds => 3600, retry_after_seconds => 3600,
                  dry_run => JSON::PP::false }, 'a rejection');
is($all->{total}, 1, 'how many there were');
unlike($gateway->log, qr/sk_1/, 'the log has no key');

# others: the newest first
my $begun = $gateway->begin(1, '/slots', 'X-API-Key: sk_1');
my $held = $upstream->accept;
is(get('/slots'), 429, 'requests in flight');
close $held;
t::Gateway::finish($begun);
get('/dry') for 1, 2;
get('/large');
get('/first', 'sk_2') for 1, 2;

my ($first, $large, $dry, $slots) = @{ list($api)->{rejections} };

is($first->{key}, hash('sk_2'), 'another key');
is($large->{retry_after_seconds}, undef, 'no retry helps');
ok($dry->{dry_run}, 'a dry run');
ok(!exists $slots->{window_seconds}, 'no window of requests in flight');
is(join(' ', map { $_->{number} } @{ list($api)->{rejections} }), '5 4 3 2 1',
   'numbers');

# of one key, one rule, since
is(rules(list($api, '?key=sk_2')), 'first', 'by key');
is(rules(list($api, '?key=' . hash('sk_2'))), 'first', 'by its hash');
is(rules(list($api, '?key=sk_3')), '', 'of a key without any');
is(rules(list($api, '?rule=dry')), 'dry', 'by rule');
is(rules(list($api, '?rule=dr')), '', 'not by a part of its name');
is(rules(list($api, '?rule=dry&key=sk_2')), '', 'by both');
is(list($api, '?rule=dry')->{total}, 5, 'the total is of all');

t::Clock::advance(5);
get('/first', 'sk_2');
my ($newest) = @{ list($api)->{rejections} };
is(rules(list($api, "?since=$newest->{time}")), 'first', 'since');
is(rules(list($api, '?since=2099-01-01T00:00:00Z')), '', 'since never');
is(join(' ', map { $_->{number} } @{ list($api, '?n=2')->{rejections} }), '6 5',
   'so many');
is(join(' ', map { $_->{number} }
             @{ list($api, '?rule=orders&n=1')->{rejections} }), '1',
   'of those that are wanted');

for my $query ('since=yesterday', 'since=', 'to=x', 'rule=a&rule=b', 'tier=x', 'n=0',
               'n=1001') {
    is($api->get("/rejections?$query")->{status}, 400, "400: $query");
}

is($api->send($_, '/rejections')->{status}, 405, "405: $_")
    for 'DELETE', 'POST';

# another zone has its own, one without an endpoint none
is(get("/addresses"), $_) for 200, 429;
get('/other?k=a') for 1, 2;
is(rules(list(t::Api->new($gateway, '/rl-a'))), 'from', 'of another zone');
is(rules(list($api, '?rule=from')), '', 'not of this');

# its keys are addresses of four bytes
my $bytes = t::Api->new($gateway, '/rl-a');

is(list($bytes)->{rejections}[0]{key}, hash(pack 'C4', 127, 0, 0, 1),
   'the hash of an address');
is(rules(list($bytes, '?key=127.0.0.1')), 'from', 'an address is found');
is(rules(list($bytes, '?key=127.0.0.2')), '', 'another one is not');
is(rules(list($bytes, '?key=::1')), '', 'nor one of IPv6');
is($bytes->get('/counters?rule=from&key=127.0.0.1')->{json}{used}, 1,
   'its counter');
is($bytes->get('/counters?rule=from&key=%7f%00%00%01')->{json}{used}, 1,
   'its counter, by its bytes');
is($bytes->get('/counters?key=127.0.0.1')->{json}{counters}[-1]{used}, 1,
   'among all of a key');
is($bytes->get('/counters?rule=from&key=::1')->{json}{used}, 0,
   'and no other one');

# a route that is too long
my $long = '/v1/orders/' . 'x' x 200;
get($long);
($newest) = @{ list($api)->{rejections} };
is($newest->{route}, substr($long, 0, 112), 'a route is cut');
is_deeply($newest->{cut}, ['route'], 'and says so');

# a thousand of them
get('/first', 'sk_many') for 1;
is(tally($gateway->burst(500, '/first', 'X-API-Key: sk_many')), '500 x 429',
   'many') for 1 .. 3;
$all = list($api);
is(scalar @{ $all->{rejections} }, 1000, 'the last thousand');
is($all->{total}, 1507, 'of more');
is($all->{rejections}[0]{number}, 1507, 'the newest');
is($all->{rejections}[-1]{number}, 508, 'the oldest');

# a reload, with workers that go on; killed ones
$gateway->reload;
is(list($api)->{total}, 1507, 'a reload keeps them');
t::Clock::go();
$gateway->kill_workers;
get('/first', 'sk_many');
is(list($api)->{total}, 1508, 'killed workers, too');
is(rules(list($api, '?key=sk_2')), '', 'overwritten');
$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);

# in clear, and by workers together
t::Clock::stop();
$gateway = gateway('keys_in_clear=on', workers => 2);
$api = t::Api->new($gateway);

get('/first', $_) for 'sk_1', 'sk_1', 'sk_2', 'sk_2';
is($_, 'sk_2 sk_1', 'in clear')
    for join ' ', map { $_->{key} } @{ list($api)->{rejections} };
is(rules(list($api, '?key=sk_1')), 'first', 'by key');
is(rules(list($api, '?key=' . hash('sk_1'))), 'first', 'by its hash');

my $key = 'k' x 100;
get('/first', $key) for 1, 2;
($newest) = @{ list($api)->{rejections} };
is($newest->{key}, 'k' x 78, 'a long key is cut');
is_deeply($newest->{cut}, ['key'], 'and says so');
is(rules(list($api, '?key=' . 'k' x 78)), '', 'it is not the key of its part');

$key = 'k' x 300;
get('/first', $key) for 1, 2;
is(list($api)->{rejections}[0]{key}, hash($key), 'one that nginx hashes is not');
is(rules(list($api, '?key=' . hash($key))), 'first', 'and is found');

get('/addresses') for 1, 2;
my $from = t::Api->new($gateway, '/rl-a');
is(list($from)->{rejections}[0]{key}, '127.0.0.1', 'an address is readable');
is(rules(list($from, '?key=127.0.0.1')), 'from', 'and is found');

# a rule that is gone
$gateway->configure(http => $gateway->{http} =~ s/^ratelimit_rule from .*$//mr);
$gateway->reload;
is_deeply([map { $_->{counted_by} } @{ list($from, '?rule=from')->{rejections} }],
          [undef], 'a rule that is gone counts by nothing');

# without keys_in_clear no key that was kept before is shown
$gateway->configure(http => $gateway->{http} =~ s/keys_in_clear=on//gr);
t::Clock::go();
$gateway->reload;
is_deeply(list($api)->{rejections}, [], 'hidden again: it starts anew');
$gateway->stop;

# a value of a request that looks like a hash is none, unless $ratelimit_api_key
# has made it
for my $clear ('', 'keys_in_clear=on') {
    my $hashes = t::Gateway->limited(
        zone => { z => "key=\$http_x_tenant $clear" }, api => 1,
        rules => ['tenant rate=1r/h'],
        http => 'ratelimit_penalty p zone=z after=1r/1h time=1h;',
        server => 'add_header X-Name $ratelimit_key always;',
        locations => { '/' => 'ratelimit zone=z;' });
    my $list = t::Api->new($hashes);
    my $like = hash('alice');
    my $answer;
    $answer = $hashes->get('/', "X-Tenant: $like") for 1 .. 4;
    like($answer->{body}, qr/PENALIZED/, 'one that is called like a hash');
    my ($name) = map { $_->{key} } @{ list($list)->{rejections} };
    is($name, hash($like), 'is a rejection by its own hash');
    is(rules(list($list, "?key=$like")), '', 'and not by that of another');
    is((map { $_->{key} } @{ $list->get('/penalties')->{json}{penalties} })[0],
       hash($like), 'a penalty');
    is((grep { $_->{key} eq $like }
        @{ $list->get('/top?by=rejected')->{json}{keys} }), 0, 'no heaviest key');
    is($list->delete("/penalties?key=$like")->{status}, 404, 'not of alice');
    $answer = $hashes->get('/', "X-Tenant: alice") for 1 .. 2;
    is(header($answer, 'X-Name'), hash('alice'), '$ratelimit_key');
    is($list->delete('/penalties?key=' . hash($like))->{status}, 200, 'its own');
    $answer = $hashes->get('/', "X-Tenant: $like") for 1 .. 2;
    is(header($answer, 'X-Name'), hash($like), '$ratelimit_key of the other');
    unlike(join("\n", grep { !/\Q$like\E" while|X-Tenant/ } grep { /key "/ }
                split /\n/, $hashes->log =~ s/, client: .*//gr),
           qr/"\Q$like\E", number/, 'nor does the log name another');
    $hashes->stop;
}
