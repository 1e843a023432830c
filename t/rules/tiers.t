# A plan's limit is raised on one gateway: clients of that plan have it on all
# gateways within two seconds, what they have used stays used, and nobody else
# sees anything of it.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header tally wait_for );
use t::Rules;

use Time::HiRes qw( sleep );

my $port = redis_start();
my $prefix = key_prefix();

sub gateway {
    return t::Gateway->limited(workers => 2, redis => $port,
        zone => { plans => 'key=$ratelimit_api_key redis=r state=rules.state' },
        locations => { '/' => 'ratelimit zone=plans;',
                       '/rl/' => 'ratelimit_api zone=plans %%WRITE%%;' });
}

my @fleet = (gateway(), gateway());
my ($one, $two) = map { t::Api->new($_) } @fleet;

my @kinds = (
    [bucket => 'token_bucket', capacity => 100, refill_rate => 0.001],
    [window => 'fixed_window', limit => 100, window => 'calendar:day'],
    [sliding => 'sliding_window', limit => 100, window => 86400],
);

sub limits {
    my ($gateway, $path, $key) = @_;
    my $answer = $gateway->get($path, "X-API-Key: $key");
    return join ' ', map { header($answer, $_) // '-' }
                         qw( X-RateLimit-Limit X-RateLimit-Remaining );
}

is($one->put('/document', {
       rules => [(map { my ($path, $algorithm, %params) = @$_;
                       { id => $path, match => { route => "/$path" },
                         algorithm => $algorithm, params => \%params,
                         sync => 'strict',
                         tiers => { pro => { limit => 200 } } } } @kinds),
                 { id => 'leased', match => { route => '/leased' },
                   algorithm => 'fixed_window', sync => 'lease',
                   params => { limit => 100, window => 'calendar:day' },
                   tiers => { pro => { limit => 200 } } }],
       tier_of => { keys => { ann => 'pro' },
                    patterns => [{ pattern => 'pro_*', tier => 'pro' }] },
   }, 'If-Match: "0"')->{status}, 201, 'the plans');

ok(t::Rules::follows($_, 1, 'plans'), 'each worker has them') for @fleet;

# what each of them uses before the change, on both gateways
my %used = (ann => 150, pro_x => 60, bob => 70);

for my $path (map { $_->[0] } @kinds) {
    for my $key (sort keys %used) {
        is(tally(
               map { $_->burst($used{$key} / 2, "/$path", "X-API-Key: $key") }
                   @fleet),
           "$used{$key} x 200", "$path: $key uses $used{$key}");
    }
}

# of a lease what is in hand goes back; so many pass in the end, and no more
sub passes_in_the_end {
    my ($key, $all) = @_;
    my $passed = 0;
    my $try = sub {
        $passed += grep { $_->{status} == 200 }
                   map { $_->burst(150, '/leased', "X-API-Key: $key") } @fleet;
        sleep 0.4;
        return $passed >= $all;
    };
    wait_for($try);
    $try->();
    return $passed;
}

is(passes_in_the_end('ann', 200), 200, 'leased: a plan is used up');

my $tag = $two->get('/document');
my $before = $tag->{version};

my $answer = $one->put('/tiers/pro', { limit => 500, capacity => 500 },
                       "If-Match: $tag->{etag}");
is($answer->{status}, 200, 'the limit of a plan is raised');
is($answer->{version}, $before + 1, 'as the next version');

# unspent tokens of a lease come back meanwhile
for my $gateway (@fleet) {
    ok(wait_for(sub {
           limits($gateway, '/window', 'pro_y') =~ /^500 / }),
       'each gateway has it');
}

# a worker that has not looked yet would count by shares of the limit before
ok(t::Rules::follows($_, 2, 'plans'), 'each worker has it') for @fleet;

for my $kind (@kinds) {
    my $path = $kind->[0];
    # a bucket keeps the share that was used: 150 of 200 are 375 of 500
    my %left = $path eq 'bucket' ? (ann => 125, pro_x => 350, bob => 30)
                                 : (ann => 350, pro_x => 440, bob => 30);
    for my $key (sort keys %left) {
        my @answers = map { $_->burst(300, "/$path", "X-API-Key: $key") }
                          @fleet;
        my $passed = grep { $_->{status} == 200 } @answers;
        # of a bucket that was scaled 1/64 may be rounded away, and it refills
        my $slack = $path ne 'bucket' || $key eq 'bob' ? 0 : 8;
        cmp_ok($passed, '<=', $left{$key} + 1, "$path: $key has no more left");
        cmp_ok($passed, '>=', $left{$key} - $slack,
               "$path: $key has all that is left");
        is(tally(grep { $_->{status} !~ /200|429/ } @answers), '',
           "$path: $key: nothing else");
    }
}

is(passes_in_the_end('ann', 300), 300, 'leased: what it was raised by is left');
is(passes_in_the_end('cay', 100), 100, 'leased: another has its own limit');

is_deeply($two->get('/tiers/pro')->{json}{rules},
          { map { $_ => { limit => 500, capacity => 500 } }
                'leased', map { $_->[0] } @kinds },
          'the other gateway tells it');

$_->log_ok for @fleet;
