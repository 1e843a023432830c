# "/decisions": what a gateway has decided, by rule and outcome, all its workers
# together, over a reload. "/policy": the rules it has in use.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally );
use t::Api;

my $gateway = t::Gateway->limited(workers => 2,
    zone => { z => 'key=$ratelimit_api_key', other => 'rate=1r/h' },
    rules => ['small match=/small rate=2r/h', 'tried match=/small rate=1r/h dry_run',
              'mine match=/mine rate=$arg_rate key=$arg_a algorithm=token_bucket',
          'busy match=/busy algorithm=concurrency limit=3',
          'slow match=/slow algorithm=leaky_bucket rate=1000r/s burst=5'],
    locations => { '/' => 'ratelimit zone=z;', '/o' => 'ratelimit zone=other;',
                   '/rl/' => 'ratelimit_api zone=z %%WRITE%%;' });
my $api = t::Api->new($gateway);

sub decisions {
    return { map { my %row = %$_; delete $row{rule} => \%row }
             @{ $api->get('/decisions')->{json}{rules} } };
}

is_deeply(decisions(), { map { $_ => {} } qw( small tried mine busy slow ) },
          'nothing yet');

is(tally($gateway->burst(5, '/small', 'X-API-Key: a')), '2 x 200, 3 x 429',
   'a limit');
$gateway->get('/o?k=a') for 1 .. 2;
$api->change('POST', '/deny', ['bad']);
$api->follows(1);
is($gateway->get('/slow', 'X-API-Key: bad')->{status}, 403, 'a deny list');

my $all = { small => { passed => 2, rejected => 3 },
            tried => { passed => 1, rejected_dry_run => 1 },
            mine => {}, busy => {}, slow => {}, '' => { denied => 1 } };

is_deeply(decisions(), $all, 'passed, rejected, tried and denied');
$gateway->reload;
is_deeply(decisions(), $all, 'a reload loses none');

# the rules of nginx.conf and those of a document
sub policy {
    return map { join ' ', map { $_ // '-' }
                 @$_{qw( rule counted_by algorithm limit window_seconds )},
                 ($_->{fixed} ? 'fixed' : ()), ($_->{dry_run} ? 'dry_run' : ()) }
           @{ $api->get('/policy')->{json}{rules} };
}

my @fixed = ('small $ratelimit_api_key token_bucket 2 3600 fixed',
             'tried $ratelimit_api_key token_bucket 1 3600 fixed dry_run',
             'mine $arg_a - - - fixed',
             'busy $ratelimit_api_key concurrency 3 - fixed',
             'slow $ratelimit_api_key leaky_bucket 6 1 fixed');

is_deeply([policy()], \@fixed, 'rules of nginx.conf');
$api->change('PUT', '/rules/more', { key => ['$arg_a', '$arg_b'],
             params => { limit => 9, window => 60 } });
$api->change('PUT', '/rules/off', { enabled => JSON::PP::false,
                                    params => { limit => 9, window => 60 } });
$api->follows(3);
is_deeply([policy()], [@fixed, 'more $arg_a, $arg_b token_bucket 9 60'],
          'and that of a document');

$gateway->stop;

# what a rule does without Redis: its own mode, or that of its locations
$gateway = t::Gateway->limited(
    redis => 'server 127.0.0.1:1',
    zone => { same => 'redis=r', differ => 'redis=r' },
    rules => ['plain zone=same match=/p rate=1r/h',
              'own zone=same match=/o rate=1r/h fail_mode=closed',
              'few zone=same match=/f rate=9r/h emergency=1r/s',
              'behind zone=same match=/b rate=9r/h sync=async',
              'split zone=same match=/s rate=99r/h sync=strict shards=2',
              'any zone=differ match=/a rate=1r/h'],
    locations => { '/same/' => 'ratelimit zone=same; ratelimit_fail_mode local;',
                   '/one/' => 'ratelimit zone=differ; ratelimit_fail_mode closed;',
                   '/two/' => 'ratelimit zone=differ;',
                   map { ("/rl-$_/" => "ratelimit_api zone=$_ %%WRITE%%;") }
                       qw( same differ ) });

sub modes {
    return { map { $_->{rule} => exists $_->{fail_mode}
                   ? [@$_{qw( fail_mode emergency )}] : undef }
             @{ t::Api->new($gateway, "/rl-$_[0]")->get('/policy')
                ->{json}{rules} } };
}

my ($yes, $no) = (JSON::PP::true, JSON::PP::false);

is_deeply(modes('same'), { plain => ['local', $no], own => ['closed', $no],
                           few => ['open', $yes], behind => undef,
                           split => ['open', $no] },
          'what rules do without Redis');
is_deeply(modes('differ'), { any => [undef, $no] }, 'locations that differ');

$gateway->stop;
