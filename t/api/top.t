# "/top": the keys with the most requests, and the most rejections, with their
# bounds; of all workers, by the key that a rule counts.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally );
use t::Api;
use t::Clock qw( advance );
use Digest::SHA qw( sha256_hex );

sub hash { return 'sha256:' . sha256_hex($_[0]) }

sub gateway {
    return t::Gateway->limited(workers => 2, api => 1,
        zone => { z => "key=\$ratelimit_api_key $_[0]",
                  addresses => "key=\$binary_remote_addr rate=1000r/s $_[0]",
                  unseen => 'rate=1r/s' },
        rules => ['first rate=5r/h', 'second rate=1000r/s',
                  'by-id rate=1000r/s match=/id key=$arg_id',
                  'dry rate=1r/h match=/dry dry_run'],
        server => 'ratelimit_explain token_file=%%DIR%%/tokens;',
        files => { tokens => "abcdefghijklmnopqrst\n" },
        locations => { '/' => 'ratelimit zone=z;', '/addresses'
                       => 'ratelimit zone=addresses;',
                       '/rl-a/' => 'ratelimit_api zone=addresses;' });
}

sub top {
    my ($api, $query) = @_;
    my $answer = $api->get('/top' . ($query // ''));
    is($answer->{status}, 200, 'top' . ($query // '')) or diag($answer->{body});
    return $answer->{json};
}

sub keys_of { return join ' ', map { "$_->{key} $_->{count}" } @{ $_[0]{keys} } }

# What the metrics say of the heaviest keys.
sub heaviest {
    my %of = $_[0]->get('/metrics')->{body}
             =~ /^ratelimit_top_key_requests_per_second\{zone="(\w+)"\} (\d+)$/mg;
    return join ', ', map { "$_ $of{$_}" } sort keys %of;
}

t::Clock::stop();

my $gateway = gateway('');
my $api = t::Api->new($gateway);

my $none = top($api);
is_deeply($none->{keys}, [], 'none so far');
is($none->{others_at_most}, 0, 'for certain');

# few are all taken, and exact: one after the other, because a worker that finds
# the list locked adds its request to the next one
for (['sk_a', 3, '3 x 200'], ['sk_b', 20, '5 x 200, 15 x 429'],
     ['sk_c', 8, '5 x 200, 3 x 429'])
{
    my ($key, $n, $told) = @$_;
    is(tally(map { $gateway->get('/', "X-API-Key: $key") } 1 .. $n), $told,
       "$n of $key");
}

my $all = top($api);

is(keys_of($all), hash('sk_b') . ' 20 ' . hash('sk_c') . ' 8 ' . hash('sk_a')
                  . ' 3', 'by requests, one for each, whatever the rules');
is($all->{total}, 31, 'in all');
is($all->{by}, 'requests', 'which is told');
like($all->{since}, qr/^20\d\d-\d\d-\d\dT/, 'since when');

my $first = $all->{keys}[0];
is($first->{per_second}, 20, 'as if a second were over');
is(heaviest($gateway), 'addresses 0, z 20', 'the metric');
advance(10);
is(top($api)->{keys}[0]{per_second}, 2, 'a rate');
is(heaviest($gateway), 'addresses 0, z 2', 'the metric');
t::Clock::go();
is_deeply([@$first{qw( at_least at_most counted_by )}],
          [20, 20, '$ratelimit_api_key'], 'its bounds, and what it is');

is(keys_of(top($api, '?by=rejected')), hash('sk_b') . ' 15 ' . hash('sk_c') . ' 3',
   'by rejections');

my $two = top($api, '?by=requests&n=2');
is(keys_of($two), hash('sk_b') . ' 20 ' . hash('sk_c') . ' 8', 'two of them');
is($two->{others_at_most}, 3, 'what others have at most');

# what is no request, and keys of other rules
$gateway->get('/', 'X-API-Key: sk_c',
              'X-RateLimit-Explain: abcdefghijklmnopqrst') for 1 .. 5;
is(top($api)->{total}, 31, 'an explained request is none');
$gateway->get('/dry', 'X-API-Key: sk_d') for 1, 2;
is(top($api, '?by=rejected')->{total}, 18, 'a dry run rejects nobody');
$gateway->get('/id?id=7');
my ($id) = grep { $_->{counted_by} eq '$arg_id' } @{ top($api)->{keys} };
is("$id->{key} $id->{count}", hash('7') . ' 1', 'of another key');
$gateway->get('/id?id=8', 'X-API-Key: 8');
is(join(' ', sort map { "$_->{counted_by} $_->{count}" }
             grep { $_->{key} eq hash('8') } @{ top($api)->{keys} }),
   '$arg_id 1 $ratelimit_api_key 1', 'the same text is another key');

$gateway->get('/addresses') for 1, 2;
is(top(t::Api->new($gateway, '/rl-a'))->{total}, 2, 'a zone has its own');

for my $query ('by=x', 'by=', 'n=0', 'n=101', 'n=x', 'n=', 'key=a', 'by=requests&by=rejected') {
    is($api->get("/top?$query")->{status}, 400, "400: $query");
}

is($api->send('POST', '/top')->{status}, 405, '405');

# a reload, a killed worker, and many keys
my $total = top($api)->{total};
$gateway->reload;
is(top($api)->{total}, $total, 'a reload keeps them');
$gateway->kill_workers;
is(top($api)->{total}, $total, 'killed workers, too');

$gateway->configure(http => $gateway->{http} =~ s/^ratelimit_rule by-id .*$//mr);
$gateway->reload;
($id) = grep { $_->{key} eq hash('7') } @{ top($api)->{keys} };
is($id->{counted_by}, undef, 'no rule counts by it any more');

t::Gateway::send_all([map { [$gateway, '/', 'X-API-Key: many' . $_] } 1 .. 600]);
my $many = top($api, '?n=100');
is(scalar @{ $many->{keys} }, 100, 'a hundred');
is($many->{keys}[0]{key}, hash('sk_b'), 'the heaviest stays');
ok($many->{keys}[0]{at_least} <= 20 && $many->{keys}[0]{at_most} >= 20,
   'within its bounds');
$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);

# in clear
$gateway = gateway('keys_in_clear=on');
$gateway->get('/', 'X-API-Key: sk_a') for 1 .. 6;
is(keys_of(top(t::Api->new($gateway))), 'sk_a 6', 'in clear');
is(keys_of(top(t::Api->new($gateway), '?by=rejected')), 'sk_a 1', 'of rejections');
$gateway->get('/addresses');
is(keys_of(top(t::Api->new($gateway, '/rl-a'))), '127.0.0.1 1', 'an address');
$gateway->get('/', 'X-API-Key: ' . 'k' x 100);
is_deeply([map { [@$_{qw( key cut )}] } @{ top(t::Api->new($gateway))->{keys} }],
          [['sk_a', undef], ['k' x 78, ['key']]], 'a long key is cut, and says so');
$gateway->stop;
