# A thousand rounds of two writers at once, of two gateways and one Redis, with
# the same version in hand: each accepted write is in the history, as what it
# was, and no refused one is. RATELIMIT_ROUNDS says how many rounds.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Api;

my $ROUNDS = $ENV{RATELIMIT_ROUNDS} || 1000;

my $port = redis_port();
my $prefix = key_prefix();

my @gateways = map { t::Gateway->new(workers => 2, http => <<"CONF")->start } 1, 2;
    ratelimit_redis fleet { server 127.0.0.1:$port; prefix $prefix; }
    ratelimit_zone \$arg_k zone=one:1m redis=fleet;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=one write; }
    }
CONF
my @api = map { t::Api->new($_) } @gateways;

ok(t::Gateway::wait_for(sub { $_->get('/versions')->{status} == 200 }),
   'Redis is there') for @api;

my $tag = '"0"';
my ($version, $refused, $both, %accepted, %history, @odd) = (0, 0, 0);

# what the history says of the versions that it has
sub note {
    for (@{ $api[0]->get('/versions')->{json}{versions} }) {
        push @odd, "version $_->{version} changed"
            if ($history{$_->{version}} // $_->{reason}) ne $_->{reason};
        $history{$_->{version}} = $_->{reason};
    }
}

for my $round (1 .. $ROUNDS) {
    my @answers = map { t::Api::answer($_) } t::Gateway::send_all([map {
        $api[$_]->request('PUT', "/tier-of/w$_", { tier => "t$round" },
                          "If-Match: $tag",
                          "X-RateLimit-Reason: $_-$round")
    } 0, 1], 60);

    my $base = $version;

    for my $i (0, 1) {
        my $status = $answers[$i]{status};

        if ($status == 200 || $status == 201) {
            my $new = $answers[$i]{version};

            push @odd, "round $round: version $new twice" if $accepted{$new};
            push @odd, "round $round: $new behind $base" if $new != $base + 1;
            $accepted{$new} = "$i-$round";
            ($version, $tag) = ($new, $answers[$i]{etag}) if $new > $version;

        } elsif ($status == 412) {
            $refused++;

        } else {
            push @odd, "round $round: " . t::Api::said($answers[$i]);
        }
    }

    note() if $round % 40 == 0;
    last if @odd > 5;
}

note();

is("@odd", '', 'nothing odd');
is(scalar keys %accepted, $version, "as many versions as were accepted: $version");
is($version + $refused, 2 * $ROUNDS, 'accepted, or refused');
is(join(' ', grep { ($history{$_} // '') ne $accepted{$_} } sort keys %accepted),
   '', 'the history has all that was accepted, as it was');
is(scalar keys %history, scalar keys %accepted, 'and no more');
ok(t::Gateway::wait_for(sub {
       return !grep { $_->get('/rules')->{version} ne $version } @api;
   }), 'both gateways have the last');

$_->stop for @gateways;
