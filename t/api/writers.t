# Two writers at once with the same version in hand, on two gateways and one
# Redis and on one gateway alone: what was accepted is a version of its own, in
# the history and in the document; what was refused is not. RATELIMIT_ROUNDS says
# how many rounds.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally wait_for );
use t::Api;

my $ROUNDS = $ENV{RATELIMIT_ROUNDS} || 1000;

# What the history says of its versions is noted, and does not change.
sub note_history {
    my ($api, $history) = @_;
    return map {
        my ($version, $reason) = @{$_}{qw( version reason )};
        my $before = $history->{$version} //= $reason;
        $before eq $reason ? () : "version $version changed"
    } @{ $api->get('/versions')->{json}{versions} };
}

sub race {
    my ($name, $rounds, @api) = @_;
    my ($version, $tag, $refused) = (0, '"0"', 0);
    my (%accepted, %history, %document, @odd);
    for my $round (1 .. $rounds) {
        my @answers = map { t::Api::answer($_) } t::Gateway::send_all([map {
            $api[$_]->request('PUT', "/tier_of/w$_-" . $round % 50,
                              { tier => "t$round" }, "If-Match: $tag",
                              "X-RateLimit-Reason: $_-$round")
        } 0, 1], 60);
        my $base = $version;
        for my $i (0, 1) {
            my ($status, $new) = @{ $answers[$i] }{qw( status version )};
            if ($status == 412) {
                $refused++;
            } elsif ($status == 200 || $status == 201) {
                push @odd, "round $round: version $new twice" if $accepted{$new};
                push @odd, "round $round: $new behind $base" if $new != $base + 1;
                $accepted{$new} = "$i-$round";
                $document{"w$i-" . $round % 50} = "t$round";
                ($version, $tag) = ($new, $answers[$i]{etag}) if $new > $version;
            } else {
                push @odd, "round $round: " . t::Api::said($answers[$i]);
            }
        }
        push @odd, note_history($api[0], \%history) if $round % 40 == 0;
        last if @odd > 5;
    }
    push @odd, note_history($api[0], \%history);
    is("@odd", '', "$name: nothing odd");
    is(scalar keys %accepted, $version, "$name: a version for each: $version");
    is($version + $refused, 2 * $rounds, "$name: accepted, or refused");
    cmp_ok($refused, '>=', 1, "$name: some were refused: $refused");
    is_deeply(\%history, \%accepted,
              "$name: the history has all that was accepted, and no more");
    ok(wait_for(sub {
           return !grep { $_->get('/document')->{version} ne $version } @api;
       }), "$name: each gateway has the last");
    for my $api (@api) {
        my %hashed = map { t::Api::sha($_) => $document{$_} } keys %document;
        is_deeply($api->get('/tier_of')->{json}{keys}, \%hashed,
                  "$name: the document has what was accepted last");
    }
    my @versions = map { $_->{version} }
                   @{ $api[0]->get('/versions')->{json}{versions} };
    is_deeply(\@versions, [reverse $versions[-1] .. $version],
              "$name: the history has no gap");
    is(scalar @versions, $version < 51 ? $version : 51, "$name: of 50 versions");
}

my @gateways = t::Gateway->limited(gateways => 2, workers => 2, api => 1,
                                   redis => redis_port());
my @api = map { t::Api->new($_) } @gateways;

ok(wait_for(sub { $_->get('/versions')->{status} == 200 }), 'Redis is there')
    for @api;
race('two gateways', $ROUNDS, @api);

# a version that the other gateway has just made may be named here at once
for (1 .. 20) {
    my $one = $api[$_ % 2]->change('PUT', "/tier_of/next$_", { tier => 'x' });
    my $two = $api[1 - $_ % 2]->put("/tier_of/again$_", { tier => 'x' },
                                    "If-Match: $one->{etag}");
    is(t::Api::said($two), 201, 'what one gateway said, the other knows');
}

# any version: all of them succeed, as long as there are no more than it tries
my @any = t::Gateway::send_all([map {
    $api[$_ % 2]->request('PUT', "/tier_of/any$_", { tier => 'x' },
                          'If-Match: *')
} 1 .. 4], 60);

is(tally(@any), '4 x 201', 'If-Match: *: four at once');
ok(wait_for(sub {
       return !grep { $api[0]->get("/tier_of/any$_")->{status} != 200 } 1 .. 4;
   }), 'all are there');
$_->stop for @gateways;

# one gateway, its own two workers
my $alone = t::Gateway->limited(workers => 2, api => 1,
                                zone => 'state=rules.state');

race('one gateway', $ROUNDS / 10, (t::Api->new($alone)) x 2);
$alone->stop;
