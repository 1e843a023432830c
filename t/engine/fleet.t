# A fleet: gateways that share a cluster admit exactly the limit between them.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally told );

use Time::HiRes qw( sleep time );

my $cluster = join ' ', map { "127.0.0.1:$_" } cluster_ports();

my @fleet = t::Gateway->limited(
    gateways => 2, workers => 2, redis => { fleet => "cluster $cluster" },
    zone => { z => 'key=$ratelimit_api_key rate=100r/m redis=fleet',
              hour => 'rate=1000r/366d sync=strict redis=fleet' },
    locations => { '/' => 'ratelimit zone=z;', '/hour' => 'ratelimit zone=hour;' });

# 1,500 requests to both at once, a limit that does not come back meanwhile
my @answers = t::Gateway::send_all(
    [map { [$fleet[$_ % 2], '/hour?k=a'] } 1 .. 1500], 60);

is(tally(@answers), '1000 x 200, 500 x 429', 'exactly the limit between them');

my @left = map { header($_, 'X-RateLimit-Remaining') }
           grep { $_->{status} == 200 } @answers;

is_deeply([sort { $a <=> $b } @left], [0 .. 999],
          'no two were told the same rest');

# many clients at once, on all shards
@answers = t::Gateway::send_all(
    [map { [$fleet[$_ % 2], '/hour?k=many' . int $_ / 20] } 0 .. 999], 60);
my %rest;
push @{ $rest{told($_)} }, 1 for @answers;

is(join(' ', map { scalar @{ $rest{"200 PASSED $_"} // [] } } 980 .. 999),
   join(' ', (50) x 20), 'each of 50 clients was counted by itself');

# 100 a minute, 500 in a second over two gateways
my $begin = time;
@answers = t::Gateway::send_all(
    [map { [$fleet[$_ % 2], '/', 'X-API-Key: burst'] } 1 .. 500]);
my $seconds = time - $begin;

# a token comes back each 0.6 s, if the machine needs as long
my ($passed) = tally(@answers) =~ /^(\d+) x 200, \d+ x 429$/;

cmp_ok($passed, '>=', 100, '100 pass');
cmp_ok($passed, '<=', 100 + int($seconds / 0.6), 'and no more');
is(scalar(grep { $_->{status} == 429 } @answers), 500 - $passed,
   'the rest gets 429');

my @waits = sort { $b <=> $a }
            map { header($_, 'Retry-After') }
            grep { $_->{status} == 429 } @answers;

is("$waits[0] $waits[-1]", '1 1', 'and may come back in a second');

sleep $waits[0];

is($fleet[0]->get('/', 'X-API-Key: burst')->{status}, 200,
   'after that the next request passes');

$_->stop for @fleet;
