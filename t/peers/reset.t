# An operator changes a counter at one gateway of a fleet without Redis: it
# changes at all of them, and spends from before a reset do not come back.

use t::RateLimit 'no_plan';                      # strict and warnings, too
use t::Api;
use t::Gateway qw( header passed tally wait_for );
use t::Ports qw( free_port );

my $SECRET = "a secret of all gateways, 1234567890\n";
my @ports = map { free_port() } 1 .. 3;
my @algorithms = qw( token_bucket leaky_bucket fixed_window sliding_window
                     sliding_log );
my %limit = map { $_ => "algorithm=$_ "
                        . (/bucket/ ? 'rate=20r/d nodelay burst=20'
                                    : 'limit=20 window=1h') } @algorithms;
$limit{token_bucket} =~ s| nodelay.*||;

sub fleet {
    my ($n) = @_;
    my $peers = join ' ', map { "peer 127.0.0.1:$_;" } @ports;
    return scalar t::Gateway->limited(
        workers => 2, files => { secret => $SECRET }, api => 1,
        zone => { z => 'peers=fleet' },
        rules => [ map { "$_ $limit{$_} match=/$_" } @algorithms ],
        locations => { map { ("/$_" => 'ratelimit zone=z;') } @algorithms },
        http => "ratelimit_peers fleet { listen 127.0.0.1:$ports[$n]; $peers "
                . "secret_file %%DIR%%/secret; }\n");
}

sub connected {
    my ($n, @gateways) = @_;
    return ok(wait_for(sub {
        !grep { $_->get('/metrics')->{body} !~
                /^ratelimit_peers_connected\{peers="fleet"\} $n$/m } @gateways;
    }), "connected to $n others");
}

sub used {
    my ($gateway, $rule) = @_;
    return t::Api->new($gateway)->get("/counters?rule=$rule&key=k")->{json}
           {used};
}

# Until all of them know that so much of a rule's counter is used.
sub known {
    my ($used, $rule, $name, @gateways) = @_;
    my @got;
    ok(wait_for(sub {
        @got = map { used($_, $rule) } @gateways;
        return !grep { $_ != $used } @got;
    }), "$rule: $name") or diag("@got, not $used");
}

my @gateways = map { fleet($_) } 0 .. 2;
connected(2, @gateways);

for my $rule (@algorithms) {
    is(passed($gateways[0]->burst(12, "/$rule?k=k")), 12, "$rule: spent");
    known(12, $rule, 'known', @gateways);
    is(t::Api->new($gateways[1])->delete("/counters?rule=$rule&key=k")
       ->{status}, 200, "$rule: reset at another one");
    known(0, $rule, 'reset everywhere', @gateways);
    is(passed($gateways[2]->burst(20, "/$rule?k=k")), 20,
       "$rule: all is there again");
    known(20, $rule, 'and known', @gateways);
    is(t::Api->new($gateways[0])->patch("/counters?rule=$rule&key=k",
       { add => 5 })->{status}, 200, "$rule: five more");
    known(15, $rule, 'are five more everywhere', @gateways);
    is(t::Api->new($gateways[2])->patch("/counters?rule=$rule&key=k",
       { used => 7 })->{status}, 200, "$rule: it is set");
    known(7, $rule, 'set everywhere', @gateways);
}

# a gateway that is away when a counter is reset learns of it when it is back:
# what it knows from before does not come back
my $rule = 'sliding_window';
$gateways[2]->signal('STOP');
kill STOP => $_ for $gateways[2]->workers;
connected(1, @gateways[0, 1]);
is(t::Api->new($gateways[0])->delete("/counters?rule=$rule&key=k")->{status},
   200, 'reset while one is away');
known(0, $rule, 'reset at the others', @gateways[0, 1]);
kill CONT => $_ for $gateways[2]->workers;
$gateways[2]->signal('CONT');
connected(2, @gateways);
known(0, $rule, 'at this one, too, and it stays so', @gateways);

# a gateway without the past gets both
$gateways[1]->kill;
is(passed($gateways[0]->burst(3, "/$rule?k=k")), 3, 'spent after the reset');
$gateways[1] = fleet(1);
connected(2, @gateways);
known(3, $rule, 'a new gateway knows what was spent since', @gateways);

$_->stop for @gateways;
