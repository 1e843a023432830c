# "/history": what a gateway has decided in each five seconds of the last five
# minutes. A step without a sample is a gap, never a wrong number.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( tally wait_for );
use t::Api;

my $gateway = t::Gateway->limited(workers => 2,
    zone => { z => 'key=$ratelimit_api_key', other => 'rate=1r/d' },
    rules => ['two match=/two algorithm=fixed_window limit=2 window=300d'],
    locations => { '/' => 'ratelimit zone=z;', '/o' => 'ratelimit zone=other;',
                   '/rl/' => 'ratelimit_api zone=z %%WRITE%%;' });
my $api = t::Api->new($gateway);

sub newest { my ($list, $n) = @_; return [@$list[-$n .. -1]] }
sub now { return $api->get('/history')->{json} }

# so many steps, each with its sample
sub steps {
    for (1 .. $_[0]) {
        my $before = now()->{ends_at};
        advance(5);
        wait_for(sub { (now()->{ends_at} // $before) ne $before }) or last;
    }
}

sub requests {
    my ($n, $path) = @_;
    return tally($gateway->burst($n, $path, 'X-API-Key: a'));
}

t::Clock::stop();
steps(2);

my $at = now();

is($at->{step_seconds}, 5, 'five seconds');
like($at->{ends_at}, qr/^2\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'until when');
is(join(' ', map { scalar @{ $at->{$_} } } qw( decisions refusals degraded )),
   '60 60 60', 'five minutes');
is($at->{decisions}[0], undef, 'nothing is known of before the start');
is_deeply(newest($at->{decisions}, 1), [0], 'nothing was asked');

is(requests(50, '/two'), '2 x 200, 48 x 429', 'a limit');
$gateway->get('/o?k=a') for 1 .. 3;
steps(1);
requests(5, '/two');
steps(2);
$at = now();
is_deeply([map { newest($at->{$_}, 3) } qw( decisions refusals degraded )],
          [[10, 1, 0], [9.6, 1, 0], [0, 0, 0]],
          'of the zone, a second; the newest comes last');

# a step without a sample
advance(15);
wait_for(sub { !defined now()->{decisions}[-2] });
requests(50, '/two');
steps(1);
is_deeply(newest(now()->{decisions}, 7), [10, 1, 0, undef, undef, undef, 10],
          'a gap');

# workers that come and go
$gateway->reload;
is_deeply(newest(now()->{decisions}, 7), [10, 1, 0, undef, undef, undef, 10],
          'a reload keeps it');
$gateway->kill_workers;
requests(5, '/two');
steps(1);
is_deeply(newest(now()->{decisions}, 3), [undef, 10, 1],
          'and so does a worker that is killed');

# counts that leave the memory, an hour after their rule
t::Clock::go();
$api->change('PUT', '/rules/gone', { match => { route => '/gone' },
             params => { limit => 100, window => 86400 } });
$api->follows(1);
is(requests(40, '/gone'), '40 x 200', 'a rule of the document');
$api->change('DELETE', '/rules/gone');
$api->follows(2);
t::Clock::stop();
advance(3585);
steps(1);

for (1 .. 6) {
    requests(50, '/two');
    steps(1);
}

my @rates = @{ newest(now()->{decisions}, 6) };

is(scalar(grep { !defined } @rates), 1, 'a gap where they leave');
is_deeply([grep { defined } @rates], [(10) x 5], 'and no wrong number');

$gateway->stop('QUIT', 'exited on signal 9');
