# Members of a rule that no request needs: "enabled", what people say of it, and
# other names of members.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::Api;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';

my $gateway = t::Gateway->limited(
    zone => { z => 'state=%%DIR%%/z.state' },
    files => { tokens => "ops:$TOKEN\n" },
    http => 'ratelimit_tier $http_x_plan; ratelimit_explain token_file=tokens;',
    locations => { '/rl/' => 'ratelimit_api zone=z %%WRITE%%;',
                   '/' => 'ratelimit zone=z;' });
my $api = t::Api->new($gateway);

my %notes = (description => "why\nit is", owner => 'team a', version => '1.2',
             labels => { env => 'prod', 'cost.center' => "\x{e9}" });

my @rules = (
    { id => 'off', group => 'g', enabled => JSON::PP::false, %notes,
      params => { limit => 1, window => 86400 } },
    { id => 'window', group => 'g', algorithm => 'sliding_window_counter',
      tier => 'gold', version => 3, params => { limit => 5, window => 86400 } },
    { id => 'never', enabled => JSON::PP::false, cost => 2,
      params => { limit => 1, window => 86400 } },
);

sub because {
    my $answer = t::Api::answer($gateway->get('/?k=1',
                                              "X-RateLimit-Explain: $TOKEN"));
    return join ', ', map { "$_->{rule} " . ($_->{because} // 'applies') }
                      @{ $answer->{json}{zones}[0]{rules} };
}

sub rule { return header($gateway->get(@_), 'X-Rule') }

is($api->put('/document', { rules => \@rules, overrides => [
       { id => 'o', key => 'k', rule => 'off', type => 'multiplicative',
         value => 2 } ] }, 'If-Match: *')->{status}, 201,
   'a disabled rule is one, for overrides and ids');
is_deeply($api->get('/document')->{json}{rules}, \@rules, 'it is shown as written');

is(because(), 'off disabled, window tier, never disabled', 'why it does not apply');
is(rule('/?k=1'), '', 'it is not applied');
is(rule('/?k=1', 'X-Plan: gold'), 'window', 'and takes no place in its group');

is($api->patch('/rules/off', { enabled => JSON::PP::true }, 'If-Match: *')
   ->{status}, 200,
   'enabled');
t::Gateway::wait_for(sub { rule('/?k=2') eq 'off' });
is(rule('/?k=2', 'X-Plan: gold'), 'off', 'it applies');
is_deeply($api->get('/rules/off')->{json},
          { %{ $rules[0] }, enabled => JSON::PP::true }, 'all else is kept');

my $answer = $api->patch('/rules/never', { enabled => undef }, 'If-Match: *');
is($answer->{status}, 422, 'a rule that rejects all is refused, if it is enabled');

$gateway->stop;
