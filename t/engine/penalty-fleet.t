# Penalties of zones with Redis: they reach all gateways, they outlive gateways
# and a Redis that loses its data, and go on while Redis is away.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally wait_for );
use t::Api;

my $PENALTY = 'ratelimit_penalty p zone=z after=1r/1h time=1h;';
my $SERVER = redis_start();

sub fleet {
    my ($redis, %more) = @_;

    return t::Gateway->limited(gateways => 2, workers => 2, redis => $redis,
                               api => 1, zone => 'rate=1r/h sync=strict',
                               http => $PENALTY, %more);
}

# Until that many keys are penalized, as the endpoint tells.
sub known {
    my ($gateway, $total) = @_;

    return wait_for(sub {
        $gateway->get('/rl/penalties')->{body} =~ /"total":$total\b/ });
}

# Until a key is rejected by a penalty here; it need not be for another reason.
sub penalized {
    my ($gateway, $key) = @_;

    return $gateway->get("/?k=$key")->{body} =~ /PENALIZED/;
}

sub ban {
    my ($gateway, $key) = @_;

    return wait_for(sub { penalized($gateway, $key) });
}

for (['a server', $SERVER],
     ['a cluster', 'cluster ' . join(' ', map { "127.0.0.1:$_" }
                                     cluster_ports())
                   . '; prefix ' . key_prefix()])
{
    my ($name, $redis) = @$_;
    my ($one, $two) = fleet($redis);

    ok(ban($one, 'a'), "$name: a penalty");
    ok(known($two, 1), "$name: the other gateway knows it");
    ok(penalized($two, 'a'), "$name: and has it in force");
    ok(!penalized($two, 'b'), "$name: for this key alone");

    cmp_ok(header($two->get('/?k=a'), 'Retry-After'), '>', 3500,
           "$name: with its end");

    # many: one answer does not hold them

    ban($one, "many$_") for 1 .. 100;
    ok(known($two, 101), "$name: many");

    # ended by hand

    is(t::Api->new($two)->delete('/penalties?key=a')->{status}, 200,
       "$name: ended at the other gateway");
    ok(known($one, 100), "$name: is ended here");
    ok(!penalized($one, 'a'), "$name: and not in force");

    # a restart

    $two->stop;
    $two->start;
    ok(known($two, 100), "$name: a restart");

    # the worker that speaks with Redis is killed

    $one->kill_workers;
    ok(ban($one, 'c'), "$name: after workers were killed");
    ok(wait_for(sub { penalized($two, 'c') }), "$name: it reaches the others");

    $_->stop('QUIT', qr/exited on signal 9/) for $one, $two;
}

# Redis loses its data

my ($one, $two) = fleet($SERVER);

ok(ban($one, 'lost'), 'a penalty');
ok(wait_for(sub { penalized($two, 'lost') }), 'on both gateways');
redis_cli($SERVER, 'flushall');
ok(wait_for(sub { redis_cli($SERVER, 'keys', '*penalties*') =~ /changes/ }),
   'Redis has it again');
ok(penalized($_, 'lost'), 'it is in force') for $one, $two;

# hours, as long as they are of use
for my $key (split ' ', redis_cli($SERVER, 'keys', '*penalties*')) {
    cmp_ok(redis_cli($SERVER, 'pttl', $key) =~ s/\D//gr, '>', 3600e3,
           "$key has a time to live");
}

# what is forgotten leaves no key without a time to live

redis_cli($SERVER, '--eval', 'lua/penalties.lua', 'c', 'p', ',', 0, 'n', 0, 0,
          'r');
is(redis_cli($SERVER, 'exists', 'c', 'p') =~ s/\D//gr, 0, 'no key');

# Redis is away

redis_stop($SERVER);
ok(penalized($_, 'lost'), 'without Redis it is in force') for $one, $two;
ok(wait_for(sub { $one->log =~ /its penalties do not reach other gateways/ }),
   'the log says what is missing');
redis_start(port => $SERVER);
ok(wait_for(sub { penalized($two, 'lost') }), 'and afterwards');
$_->stop for $one, $two;
