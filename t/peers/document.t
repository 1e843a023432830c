# The document of a zone without Redis is that of the fleet: a change at any
# gateway is decided by one of them, and reaches all.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Api;
use t::Gateway qw( wait_for );
use t::Ports qw( free_port );

my $SECRET = "a secret of all gateways, 1234567890\n";
my @ports = map { free_port() } 1 .. 3;

sub fleet {
    my ($n, %more) = @_;
    my $state = delete $more{state};
    my $peers = join ' ', map { "peer 127.0.0.1:$_;" } @ports;
    return scalar t::Gateway->limited(
        workers => 2, api => 1,
        files => { secret => $SECRET, $state ? (state => $state) : () },
        zone => { z => 'peers=fleet state=%%DIR%%/state' },
        http => "ratelimit_peers fleet { listen 127.0.0.1:$ports[$n]; $peers "
                . "secret_file %%DIR%%/secret; }\n", %more);
}

sub metric {
    my ($gateway, $name) = @_;
    return $gateway->get('/metrics')->{body} =~ /^ratelimit_$name\{[^}]*\} (\d+)$/m
           ? $1 : 'none';
}

sub connected {
    my ($n, @gateways) = @_;
    return ok(wait_for(sub {
        !grep { metric($_, 'peers_connected') ne $n } @gateways;
    }), "connected to $n others");
}

sub api { return t::Api->new(shift) }

# Until all of them have the document of that version, with rules of these ids.
sub have {
    my ($version, $ids, $name, @gateways) = @_;
    my @got;
    ok(wait_for(sub {
        @got = map { my $json = api($_)->get('/document')->{json};
                     join ' ', $json->{version},
                          map { $_->{id} } @{ $json->{rules} } } @gateways;
        return !grep { $_ ne "$version $ids" } @got;
    }), $name) or diag("@got, not $version $ids", map { $_->log } @gateways);
}

# Until their state files have that version.
sub saved {
    my ($version, @gateways) = @_;
    ok(wait_for(sub {
        !grep { my $status = api($_)->get('/status')->{json};
                $status->{newest} != $version || !$status->{state}{saved} } @gateways;
    }), "version $version is saved");
}

sub rule {
    return { algorithm => 'fixed_window', params => { limit => 5, window => 60 },
             @_ };
}

my @gateways = map { fleet($_) } 0 .. 2;
connected(2, @gateways);

# each of them in turn: two of them do not decide
is(api($gateways[0])->put('/rules/r0', rule(), 'If-None-Match: *')->{status},
   201, 'a first rule');
have(1, 'r0', 'all have it', @gateways);
is(api($gateways[1])->put('/rules/r1', rule(), 'If-Match: *')->{status},
   201, 'a rule at another gateway');
have(2, 'r0 r1', 'all have it', @gateways);
is(api($gateways[2])->put('/rules/r2', rule(), 'If-Match: *')->{status},
   201, 'and at the third one');
have(3, 'r0 r1 r2', 'all have it', @gateways);

# one version is made once, whoever asks
my $tag = t::Gateway::header(api($gateways[0])->get('/document'), 'ETag');
my @answers = map { api($_)->put('/rules/r3', rule(), "If-Match: $tag")
                    ->{status} } @gateways;
is("@answers", '201 412 412', 'If-Match holds for the fleet');
have(4, 'r0 r1 r2 r3', 'all have the first', @gateways);

# a large document comes in parts
my $large = { rules => [ map { +{ %{ rule() }, id => "large$_",
                                  params => { limit => 5, window => 60 },
                                  match => { route => '/' . 'x' x 900 . $_ } } }
                         1 .. 900 ] };
my $answer = api($gateways[1])->put('/document', $large, 'If-Match: *');
is($answer->{status}, 200, 'a large document');
ok(wait_for(sub {
    !grep { (api($_)->get('/status')->{json}{document}{version} // 0) != 5
            && api($_)->get('/document')->{json}{version} != 5 } @gateways;
}), 'all have it');
is(api($gateways[2])->delete('/rules/large7', 'If-Match: *')->{status}, 200,
   'and can change it');

# a gateway that begins without a document gets it; one with an older one, too
is(api($gateways[0])->put('/document', { rules => [ rule(id => 'small') ] },
                          'If-Match: *')->{status}, 200, 'a small one');
have(7, 'small', 'all have it', @gateways);
saved(7, @gateways);
my $state = $gateways[2]->read('state');
$gateways[2]->kill;
$gateways[2] = fleet(2);
have(7, 'small', 'one that has lost all has it again', $gateways[2]);
$gateways[2]->kill;
is(api($gateways[0])->put('/rules/more', rule(), 'If-Match: *')->{status}, 201,
   'a change while one is away');
$gateways[2] = fleet(2, state => $state);
have(8, 'small more', 'it learns of it when it is back', @gateways);
$gateways[2]->log_has(qr/begins with version 7 of its rules/,
                      'and began with its own');

# a reload keeps it, and goes on
$gateways[1]->reload;
connected(2, @gateways);
is(api($gateways[1])->delete('/rules/more', 'If-Match: *')->{status}, 200,
   'a change after a reload');
have(9, 'small', 'all have it', @gateways);

# two sides that do not hear each other both write: the higher version counts,
# and the other side says so
saved(9, @gateways);
$_->kill for @gateways;
my @states = map { $_->read('state') } @gateways;
@gateways = (fleet(0, state => $states[0]));
api($gateways[0])->put('/rules/left', rule(), 'If-Match: *');
have(10, 'small left', 'one side', $gateways[0]);
saved(10, $gateways[0]);
$states[0] = $gateways[0]->read('state');
$gateways[0]->kill;
@gateways = (fleet(1, state => $states[1]));
api($gateways[0])->put('/rules/right', rule(), 'If-Match: *');
api($gateways[0])->put('/rules/right2', rule(), 'If-Match: *');
have(11, 'small right right2', 'the other side', $gateways[0]);
unshift @gateways, fleet(0, state => $states[0]);
connected(1, @gateways);
have(11, 'small right right2', 'the higher version counts', @gateways);
$gateways[0]->log_has(qr/version 10 of its rules is replaced by version 11/,
                      'the other side logs that its change is gone');
is(metric($gateways[0], 'peers_replaced_versions_total'), 1, 'and counts it');
is(metric($gateways[1], 'peers_replaced_versions_total'), 0, 'it alone');

# another lineage is not taken, on either side
$_->kill for @gateways;
@gateways = (fleet(1));
api($gateways[0])->put('/rules/stranger', rule(), 'If-None-Match: *');
have(1, 'stranger', 'a fleet of its own', $gateways[0]);
unshift @gateways, fleet(0, state => $states[0]);
connected(1, @gateways);
$gateways[1]->log_has(qr/version 10 of its rules is not used: it is of another/,
                      'another lineage is refused');
have(1, 'stranger', 'and changes nothing', $gateways[1]);
have(10, 'small left', 'on either side', $gateways[0]);

$_->stop for @gateways;
