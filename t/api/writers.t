# Many writers at once, on two gateways and one Redis and on one node alone:
# what was accepted is there, in the history and in the document; what was
# refused is not. RATELIMIT_ROUNDS says how many rounds.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Api;

my $ROUNDS = $ENV{RATELIMIT_ROUNDS} || 100;

my $port = redis_port();
my $prefix = key_prefix();

sub conf {
    my ($redis, $zone) = @_;

    return <<"CONF";
    $redis
    ratelimit_zone \$arg_k zone=one:1m $zone;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=one write; }
    }
CONF
}

# Two writers read and write until each has added its rules: a conflict is a
# reason to read again. Returns how many there were.
sub race {
    my @api = @_;

    my @added = (0) x @api;
    my ($conflicts, $requests, @accepted) = (0, 0);

    while (grep { $_ < $ROUNDS } @added) {
        die "no end" if ++$requests > 20 * $ROUNDS + 100;

        my @who = grep { $added[$_] < $ROUNDS } 0 .. $#api;
        my @tags = map { $_->{etag} } map { $api[$_]->get('/rules') } @who;

        my @answers = map { t::Api::answer($_) } t::Gateway::send_all([map {
            $api[$who[$_]]->request('PUT',
                "/tier-of/w$who[$_]-" . ($added[$who[$_]] + 1), { tier => 'x' },
                "If-Match: $tags[$_]")
        } 0 .. $#who], 60);

        for my $i (0 .. $#who) {
            my $status = $answers[$i]{status};

            if ($status == 201) {
                $added[$who[$i]]++;
                push @accepted, $answers[$i]{version};

            } else {
                is(t::Api::said($answers[$i]), '412 conflict', 'refused')
                    if $status != 412;
                $conflicts++;
                return -1 if $status != 412;
            }
        }
    }

    my $end = (sort { $a <=> $b } @accepted)[-1];
    my %seen;

    is(scalar grep({ $seen{$_}++ } @accepted), 0, 'no version twice');
    is($end, @accepted, "each accepted write is one version: $end");

    return $conflicts;
}

sub all_there {
    my ($api, $writers, $name) = @_;

    my $keys = {};

    # what the other gateway has accepted comes here a little later

    t::Gateway::wait_for(sub {
        $keys = $api->get('/tier-of')->{json}{keys};
        return keys %$keys >= $writers * $ROUNDS;
    });

    is(scalar keys %$keys, $writers * $ROUNDS, "$name: none is lost");

    my @versions = map { $_->{version} }
                   @{ $api->get('/versions')->{json}{versions} };

    is_deeply(\@versions, [reverse $versions[-1] .. $versions[0]],
              "$name: the history has no gap");
    is(scalar @versions, $versions[0] < 51 ? $versions[0] : 51,
       "$name: of 50 versions");
    is($versions[0], $writers * $ROUNDS, "$name: as many versions");
}

# two gateways

my @gateways = map {
    t::Gateway->new(http => conf("ratelimit_redis fleet { server 127.0.0.1:$port;"
        . " prefix $prefix; }", 'redis=fleet'), workers => 2)->start;
} 1, 2;
my @api = map { t::Api->new($_) } @gateways;

ok(t::Gateway::wait_for(sub { $_->get('/versions')->{status} == 200 }),
   'Redis is there') for @api;

my $conflicts = race(@api);

cmp_ok($conflicts, '>=', 1, "two gateways: there were conflicts: $conflicts");
all_there($api[0], 2, 'two gateways');
ok(t::Gateway::wait_for(sub {
       return $api[0]->get('/rules')->{body} eq $api[1]->get('/rules')->{body};
   }), 'both have the same');

# a version that the other gateway has just made may be named here at once

for (1 .. 20) {
    my $one = $api[$_ % 2]->change('PUT', "/tier-of/next$_", { tier => 'x' });
    my $two = $api[1 - $_ % 2]->put("/tier-of/again$_", { tier => 'x' },
                                    "If-Match: $one->{etag}");

    is(t::Api::said($two), 201, 'what one gateway said, the other knows');
}

# any version: all of them succeed, as long as there are no more than it tries

my @any = t::Gateway::send_all([map {
    $api[$_ % 2]->request('PUT', "/tier-of/any$_", { tier => 'x' },
                          'If-Match: *')
} 1 .. 4], 60);

is(t::Gateway::tally(@any), '4 x 201', 'If-Match: *: four at once');
ok(t::Gateway::wait_for(sub {
       return !grep { $api[0]->get("/tier-of/any$_")->{status} != 200 } 1 .. 4;
   }), 'all are there');

$_->stop for @gateways;

# one node, its own two workers

my $alone = t::Gateway->new(http => conf('', 'state=%%DIR%%/rules.state'),
                            workers => 2)->start;
my $api = t::Api->new($alone);

$ROUNDS = $ROUNDS / 2;
cmp_ok(race($api, $api), '>=', 1, 'one node: there were conflicts');
all_there($api, 2, 'one node');
$alone->stop;
