# Six writers at two gateways: each change that is acknowledged is a version, and
# no gateway takes one that comes while it asks Redis for a loss.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( wait_for );

my @fleet = t::Gateway->limited(gateways => 2, workers => 4, api => 1,
                                redis => redis_start(),
                                zone => 'state=rules.state');
my @apis = map { t::Api->new($_) } @fleet;
my @answers;

# each sends its next change when the one before was answered
for my $writer (1 .. 6) {
    open my $answers, '-|' or do {
        for my $n (1 .. 25) {
            print $apis[$writer % 2]->change('POST', '/deny',
                                             ["k$writer-$n"])->{status}, "\n";
        }
        close STDOUT;
        POSIX::_exit(0);
    };
    push @answers, $answers;
}

my $made = grep { /^20/ } map { readline $_ } @answers;

cmp_ok($made, '>', 25, 'changes were made');

for my $gateway (@fleet) {
    ok(wait_for(sub {
        t::Api->new($gateway)->get('/document')->{version} == $made
    }), 'each change made a version');
    unlike($gateway->log, qr/puts back/, 'nothing was lost');
    $gateway->stop;
}
