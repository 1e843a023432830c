# The versions before the current one are those of the state file. A zone with
# neither a file nor Redis has none.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( tally );

for my $zone ('state=rules.state', '') {
    my $gateway = t::Gateway->limited(api => 1, zone => $zone, workers => 2);
    my $api = t::Api->new($gateway);
    my $name = $zone ? 'with a file' : 'with neither';
    # all at once: none is written yet when the next one comes
    is(tally(t::Gateway::send_all([map {
        $api->request('PUT', "/tier_of/$_", { tier => 'x' }, 'If-Match: *')
    } 1 .. 3], 60)), '3 x 201', "$name: three changes");
    my @versions = $zone ? (3, 2, 1) : 3;
    is_deeply([map { $_->{version} } @{ $api->get('/versions')->{json}{versions} }],
              \@versions, "$name: the list");
    is(join(' ', map { $api->get("/versions/$_")->{status} } 1 .. 3),
       $zone ? '200 200 200' : '404 404 200', "$name: each of them");
    is($api->change('POST', '/versions/1/restore')->{status}, $zone ? 200 : 404,
       "$name: the way back");
    $gateway->stop;
}
