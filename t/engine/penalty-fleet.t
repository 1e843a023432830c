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
                               api => 1, zone => 'rate=1r/h sync=strict fail_mode=local',
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
redis_cli($SERVER, 'flushall');

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
redis_cli($SERVER, '--eval', 'lua/penalties.lua', 'c', 'p', ',', 0, 0,
          'n', 0, 0, 0, 'r');
is(redis_cli($SERVER, 'exists', 'c', 'p') =~ s/\D//gr, 0, 'no key');

# what Redis has, or has later, it does not take once more
sub script {
    my @words = split ' ', redis_cli($SERVER, '--raw', '--eval',
                                     'lua/penalties.lua', 'c', 'p', ',', @_);
    return @words;
}

# twice in one call: both end at the same moment
my ($set, $last) = script(0, 0, ('n', 9e5, 9e6, 0, 'one'),
                          ('n', 9e5, 9e6, -1, 'one'));
cmp_ok($set, '>', 0, 'a data set has an id');
is($last, $set, 'a change that it has');
is((script($set, $last, 'n', 9e5, 9e6, 60e3, 'other'))[1], $last,
   'an older one');
is((script(0, 0))[6], 'one', 'it has what it had');
cmp_ok((script($set, $last, 'n', 0, 9e6, 0, 'ended'))[1], '>', $last,
   'a later one');
is((script($set, 1e18))[6], 'ended', 'all for one that knows too high a number');
is((script(17, $last + 1e9))[6], 'ended', 'and for one of another data set');
is((script(0, 0))[0], $set, 'the id stays');

# its clock is set back: what it has is of the future
redis_cli($SERVER, 'hset', 'p', 'n', '9000000000000000 9000000000000000 '
                                     . '8000000000000000 future');
is((script($set, 0, 'n', 9e5, 9e6, 500, 'now'))[6], 'now', 'the clock set back');
redis_cli($SERVER, 'del', 'c');
isnt((script(0, 0, 'n', 9e5, 9e6, 0, 'one'))[0], $set,
     'half of a data set is lost: another id');

# Redis is emptied, and the first that it hears of is one more penalty
redis_cli($SERVER, 'flushall');
wait_for(sub { redis_cli($SERVER, 'keys', '*penalties*')
                           =~ /changes/ });
ok(ban($one, "lot$_"), "penalty $_") for 1 .. 8;
ok(known($_, 9), 'nine penalties') for $one, $two;
redis_stop($SERVER);
ok(ban($one, 'meanwhile'), 'one more while Redis is away');
redis_start(port => $SERVER);

sub rows {
    my ($changes) = redis_cli($SERVER, 'keys', '*penalties*') =~ /(\S*changes)/;
    return $changes ? redis_cli($SERVER, 'zcard', $changes) =~ s/\D//gr : 0;
}

ok(wait_for(sub { rows() == 10 }), 'Redis gets all of them');
$two->stop;
$two->start;
ok(known($two, 10), 'a gateway that starts has all of them');

# a replica is promoted that has not got one of the last changes: the last one, or
# one before it, which no number tells of
my ($changes, $hash) = map { redis_cli($SERVER, 'keys', "*penalties*$_") }
                       ':changes', '}';

sub lose {
    my $rank = shift;
    return redis_cli($SERVER, 'eval', <<'LUA', 2, $changes, $hash, $rank) =~ s/\D//gr;
local name = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
redis.call('ZREM', KEYS[1], name)
redis.call('HDEL', KEYS[2], name)
return redis.call('ZCARD', KEYS[1])
LUA
}

is(lose(-1), 9, 'the last one is lost');
t::Clock::wait_for(sub { rows() == 10 });
is(rows(), 10, 'it is sent again');

ban($one, $_) for qw( late later );
ok(wait_for(sub { rows() == 12 }), 'two more');
is(lose(-2), 11, 'the one before the last is lost');

{
    local $t::Gateway::BETWEEN = sub { t::Clock::advance(1) };
    ok(wait_for(sub { rows() == 12 }), 'within two minutes it is sent again');
}

# Redis is away
redis_stop($SERVER);
ok(penalized($_, 'lost'), 'without Redis it is in force') for $one, $two;
ok(wait_for(sub { $one->log =~ /its penalties do not reach other gateways/ }),
   'the log says what is missing');
redis_start(port => $SERVER);
ok(wait_for(sub { penalized($two, 'lost') }), 'and afterwards');
$_->stop for $one, $two;

# under a secret nobody learns from Redis whose penalties these are
for my $secret ('', 'secret_file secret;') {
    redis_cli($SERVER, 'flushall');
    my ($one, $two) = map {
        my $gateway = t::Gateway->new(http => '');
        $gateway->write('secret', "a secret of the fleet\n");
        $gateway->configure(http => t::Gateway::limited_http(
            redis => "server 127.0.0.1:$SERVER; $secret", api => 1,
            zone => 'rate=1r/h sync=strict keys_in_clear=on',
            http => $PENALTY));
        $gateway->start;
    } 1, 2;
    ok(ban($one, 'mallory'), 'a penalty');
    ok(wait_for(sub { $two->get('/rl/penalties')->{body} =~ /"mallory"/ }),
       'both gateways know its key');
    my ($hash) = redis_cli($SERVER, 'keys', '*penalties*') =~ /^(\S+\})$/m;
    is(scalar redis_cli($SERVER, 'hvals', $hash) =~ /mallory/,
       $secret ? '' : 1, $secret ? 'Redis does not' : 'so does Redis');
    $_->stop for $one, $two;
}
