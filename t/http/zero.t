# A limit of 0 rejects each request, and "unlimited" is no limit.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header told );

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';

my $gateway = t::Gateway->limited(
    redis => redis_port(),
    zone => { here => 'limit=$limit window=1h', fleet => 'limit=$limit window=1h redis=r',
              rate => 'rate=$limit', leaky => 'rate=$limit algorithm=leaky_bucket burst=5',
              open => 'limit=$limit window=1h redis=r sync=strict' },
    rules => ['first zone=open limit=2 window=1h priority=1',
              'tried zone=here match=/try key=$arg_k limit=$limit window=1h dry_run',
              'other zone=here match=/try limit=2 window=1h'],
    files => { tokens => "ops:$TOKEN\n" },
    http => 'map $http_x_plan $limit { default $http_x_plan; suspended 0; }
             ratelimit_explain token_file=tokens;',
    locations => {
        (map { ("/$_" => "ratelimit zone=$_;") } qw( here fleet rate leaky open )),
        '/part' => 'ratelimit zone=leaky burst=2;',
        '/look' => 'ratelimit zone=here look;',
        '/try' => 'ratelimit zone=here rule=tried; ratelimit zone=here rule=other;',
    });

my $n = 0;

sub ask {
    my ($path, $plan, $k) = @_;

    return $gateway->get("$path?k=" . ($k // $n++), "X-Plan: $plan");
}

for my $path (qw( /here /fleet /rate /leaky /part /open )) {
    my @plans = $path =~ /rate|leaky|part/ ? ('suspended', '0r/s', '0r/m') : ('suspended', '0');

    for my $plan (@plans) {
        my $answer = ask($path, $plan);

        is(told($answer), '429 REJECTED 0', "$path: $plan");
        is(header($answer, 'X-RateLimit-Limit'), 0, "$path: $plan: the limit");
        is(header($answer, 'Retry-After'), '', "$path: $plan: there is nothing to wait for");
    }

    is(join(' ', map { ask($path, $_)->{status} } ('unlimited') x 9),
       join(' ', (200) x 9), "$path: unlimited") if $path ne '/open';
}

is(told(ask('/open', '0', 'given')), '429 REJECTED 0', 'what another rule took');
is(join(' ', map { ask('/open', 'unlimited', 'given')->{status} } 1 .. 3), '200 200 429',
   'is given back');
is(told(ask('/look', 'suspended')), '200 PASSED 0', 'a look');
is(join(' ', map { told(ask('/try', 'suspended', 'dry')) } 1 .. 3),
   '200 REJECTED_DRY_RUN 1 200 REJECTED_DRY_RUN 0 429 REJECTED 0', 'a dry run');

my $answer = t::Api::answer($gateway->get('/here?k=explained', 'X-Plan: 0',
                                          "X-RateLimit-Explain: $TOKEN"));

is(join(' ', map { "$_->{rule} $_->{limit} $_->{remaining}" }
             grep { $_->{applies} } @{ $answer->{json}{zones}[0]{rules} }), 'here 0 0',
   'explained');

$gateway->stop;
