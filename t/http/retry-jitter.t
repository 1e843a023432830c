# "ratelimit_retry_jitter": the waits of clients differ, none is too short, and
# everything that tells the wait of one rejection tells the same.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told );

use JSON::PP qw( decode_json );

t::Clock::stop();

my $gateway = t::Gateway->limited(
    http => 'log_format retry $ratelimit_retry_after;'
            . "\naccess_log %%DIR%%/access.log retry;",
    zone => 'rate=1r/h algorithm=fixed_window',
    rules => ['month match=/never rate=1r/h cost=2'],
    server => 'ratelimit_headers x draft3 ietf;',
    locations => {
        '/' => 'ratelimit zone=z rule=z; ratelimit_retry_jitter 50%;',
        '/none' => 'ratelimit zone=z rule=z;',
        '/never' => 'ratelimit zone=z; ratelimit_retry_jitter 50%;',
    });

is(told($gateway, '/?k=a'), '200 PASSED 0', 'the window is spent');
is(header($gateway->get('/none?k=a'), 'Retry-After'), 3600, 'without');

my %waits;

for (1 .. 60) {
    my $answer = $gateway->get('/?k=a');
    my $wait = header($answer, 'Retry-After');
    my $reset = header($answer, 'X-RateLimit-Reset') - t::Clock::now();
    my ($t) = header($answer, 'RateLimit') =~ /;t=(\d+)/;
    $waits{$wait}++;
    is(join(' ', decode_json($answer->{body})
                 ->{error}{details}{retry_after_seconds},
            header($answer, 'RateLimit-Reset'), $t), "$wait $wait $wait",
       "$wait: in the body and the headers");
    ok($wait >= 3600 && $wait <= 5400, 'neither too early nor too late');
    ok(abs($reset - 3600) < 2, 'the window ends when it ends');
}

cmp_ok(scalar keys %waits, '>', 10, 'they differ');
is(join(' ', sort split /\n/, $gateway->read('access.log') =~ s/^-\n//gr),
   join(' ', sort 3600, map { ($_) x $waits{$_} } keys %waits), 'in the log');

is(header($gateway->get('/never?k=b'), 'Retry-After'), '',
   'no wait helps, and none is named');

my ($least) = sort { $a <=> $b } keys %waits;

advance($least);
is(told($gateway, '/?k=a'), '200 PASSED 0', 'the least of them was enough');

$gateway->stop;
