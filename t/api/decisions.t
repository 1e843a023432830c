# "/decisions": what a gateway has decided, by rule and outcome, all its workers
# together, over a reload.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally );
use t::Api;

my $gateway = t::Gateway->limited(workers => 2,
    zone => { z => 'key=$ratelimit_api_key', other => 'rate=1r/h' },
    rules => ['small match=/small rate=2r/h', 'tried match=/small rate=1r/h dry_run',
              'slow match=/slow algorithm=leaky_bucket rate=1000r/s burst=5'],
    locations => { '/' => 'ratelimit zone=z;', '/o' => 'ratelimit zone=other;',
                   '/rl/' => 'ratelimit_api zone=z %%WRITE%%;' });
my $api = t::Api->new($gateway);

sub decisions {
    return { map { my %row = %$_; delete $row{rule} => \%row }
             @{ $api->get('/decisions')->{json}{rules} } };
}

is_deeply(decisions(), { small => {}, tried => {}, slow => {} }, 'nothing yet');

is(tally($gateway->burst(5, '/small', 'X-API-Key: a')), '2 x 200, 3 x 429',
   'a limit');
$gateway->get('/o?k=a') for 1 .. 2;
$api->change('POST', '/deny', ['bad']);
$api->follows(1);
is($gateway->get('/slow', 'X-API-Key: bad')->{status}, 403, 'a deny list');

my $all = { small => { passed => 2, rejected => 3 },
            tried => { passed => 1, rejected_dry_run => 1 },
            slow => {}, '' => { denied => 1 } };

is_deeply(decisions(), $all, 'passed, rejected, tried and denied');
$gateway->reload;
is_deeply(decisions(), $all, 'a reload loses none');

$gateway->stop;
