# A zone that follows a document in a single process, as under a debugger: its
# jobs are done in the loop, and it ends as it should, also after a reload.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::Rules;

# nginx's single process has the same master and no worker
my $gateway = t::Gateway->limited(
    start => 0, api => 1, main => 'master_process off;',
    zone => 'key=$ratelimit_api_key state=%%DIR%%/rules.state');

$gateway->{workers} = 0;

# Ends as it should.
sub ends {
    my $name = shift;
    $gateway->signal('QUIT');
    ok(wait_for(sub { $gateway->exited }), "$name: it ends");
    is($?, 0, "$name: by itself");
    $gateway->log_ok;
}

$gateway->start;

is(t::Rules::change($gateway, $_, t::Rules::rules($_ + 1))->{status},
   $_ ? 200 : 201, "version " . ($_ + 1)) for 0, 1;

is(t::Rules::version(t::Rules::api($gateway, 'GET /document')->{body}), 2,
   'it has the rules');
ends('without a reload');

$gateway->start;
is(t::Rules::version(t::Rules::api($gateway, 'GET /document')->{body}), 2,
   'they are in the state file');

# nginx alone would serve nothing more then, and end by itself
$gateway->signal('HUP');
ok(wait_for(sub { $gateway->log =~ /reconfiguring/ }), 'a reload');
ends('after a reload');
