# "retry=growth": a client that comes back before its Retry-After waits longer
# each time, up to a maximum, and as before once it has waited.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told );

use t::Api;

t::Clock::stop();

my $gateway = t::Gateway->limited(
    workers => 2, api => 1,
    zone => { z => 'rate=1r/m retry=growth', long => 'rate=1r/d retry=growth',
              cost => 'rate=10r/m cost=$arg_c retry=growth',
              plain => 'rate=10r/m', alone => 'rate=1r/s',
              limit => 'rate=$arg_limit retry=growth',
              part => 'algorithm=leaky_bucket rate=6r/m burst=3 nodelay '
                      . 'retry=growth' },
    files => { tokens => "ops:a-token-of-32-bytes-0123456789ab\n" },
    http => "ratelimit_zone \$arg_k zone=bad:1m rate=1r/h;\n"
            . "ratelimit_penalty ban zone=bad after=1r/1m time=1h;\n"
            . "ratelimit_explain token_file=tokens;\n",
    rules => ['path zone=plain match=/two rate=1r/m retry=growth'],
    locations => {
        '/' => 'ratelimit zone=z;',
        '/long' => 'ratelimit zone=long;',
        '/cost' => 'ratelimit zone=cost;',
        '/limit' => 'ratelimit zone=limit;',
        '/part/a' => 'ratelimit zone=part burst=2 nodelay;',
        '/part/b' => 'ratelimit zone=part burst=1 nodelay;',
        '/two' => 'ratelimit zone=plain; ratelimit_headers x ietf;',
        '/dry' => 'ratelimit zone=z; ratelimit_dry_run on;',
        '/bad' => 'ratelimit zone=bad;',
        '/both' => 'ratelimit zone=z; ratelimit zone=bad;',
        '/page' => 'ratelimit zone=z; ratelimit_retry_jitter 100%;',
    });

# Status, X-RateLimit-Remaining and Retry-After.
sub row {
    my ($path, $expected, $name) = @_;
    is(told($gateway->get($path), 'Retry-After') =~ s/ +$//r, $expected, $name);
}

# each request is the only one, so the workers have one time
row('/?k=a', '200 PASSED 0', 'the token');
row('/?k=a', '429 REJECTED 0 60', 'the wait');
row('/?k=a', '429 REJECTED 0 60', 'a request that was on its way');

for (120, 240, 480, 960, 1920, 3600, 3600) {
    advance(1);
    row('/?k=a', "429 REJECTED 0 $_", "too early: $_ seconds");
}

advance(0.2);
row('/?k=a', '429 REJECTED 0 3600', 'the maximum');
advance(3599);
row('/?k=a', '429 REJECTED 0 3600', 'a second too early: all of it again');
row('/?k=b', '200 PASSED 0', 'others do not wait');

advance(3600);
row('/?k=a', '200 PASSED 0', 'it has waited');
row('/?k=a', '429 REJECTED 0 60', 'and waits as at first');
advance(60);
row('/?k=a', '200 PASSED 0', 'for so long');

# nobody is rejected for coming at the named moment, jitter or none
row('/?k=c', '200 PASSED 0', 'another client');

for my $path ('/?k=c', '/page?k=c') {
    my $wait = header($gateway->get($path), 'Retry-After');
    advance($wait);
    row('/?k=c', '200 PASSED 0', "$path: as told, after $wait s");
}

# early requests cost nothing, and are told when all is back
row('/cost?k=a&c=10', '200 PASSED 0', 'ten tokens');
row('/cost?k=a&c=10', '429 REJECTED 0 60', 'ten more');
advance(30);
row('/cost?k=a&c=1', '429 REJECTED 0 120', 'five are back: it should wait');

my $answer = $gateway->get('/cost?k=a&c=1');

ok(abs(header($answer, 'X-RateLimit-Reset') - t::Clock::now() - 120) < 2,
   'the reset is not before the wait');
advance(120);
row('/cost?k=a&c=10', '200 PASSED 0', 'no early request has cost one');
row('/cost?k=a&c=11', '429 REJECTED 0', 'more than there can be');
row('/cost?k=a&c=0', '200 PASSED 0', 'which is no wait');

# a wait of more than the maximum does not grow
row('/long?k=a', '200 PASSED 0', 'a token a day');
row('/long?k=a', '429 REJECTED 0 86400', 'the wait');
advance(3600);
row('/long?k=a', '429 REJECTED 0 82800', 'is as long as before');

# a second rule: the request costs neither, and both are named
row('/two?k=a', '200 PASSED 0', 'two rules');
row('/two?k=a', '429 REJECTED 0 60', 'one rejects');
advance(1);
$answer = $gateway->get('/two?k=a');
is(header($answer, 'X-Rule'), 'path', 'early by that one');
is(join(' ', header($answer, 'RateLimit-Policy') =~ /"(\w+)"/g), 'plain path',
   'both are policies');
is(header($answer, 'RateLimit') =~ s/;pk=[^;,]*//r, '"path";r=0;t=120',
   'and one is known');
advance(120);
$answer = $gateway->get('/two?k=a');
like(header($answer, 'RateLimit'), qr/"plain";r=9;/, 'the other was not charged');

# another limit is another wait; a dry run has none
row('/limit?k=a&limit=1r/h', '200 PASSED 0', 'a token an hour');
row('/limit?k=a&limit=1r/h', '429 REJECTED 0 3600', 'the wait');
row('/limit?k=a&limit=5r/h', '429 REJECTED 0 720', 'that of another limit');
row('/limit?k=b&limit=1r/m', $_, 'a limit') for '200 PASSED 0', '429 REJECTED 0 60';

for my $grown ([29, 120], [58, 240], [116, 480]) {
    advance(1);
    row('/limit?k=b&limit=2r/m', "429 REJECTED 0 $$grown[0]", 'a limit in turn with another');
    advance(1);
    row('/limit?k=b&limit=1r/m', "429 REJECTED 0 $$grown[1]", 'each wait grows');
}

row('/?k=d', '200 PASSED 0', 'a token');
row('/dry?k=d', '200 REJECTED_DRY_RUN', 'a dry run');
advance(1);
row('/?k=d', '429 REJECTED 0 59', 'leaves no wait');
row('/dry?k=d', '200 REJECTED_DRY_RUN', 'and knows none');

# an operator resets the counter
advance(1);
row('/?k=d', '429 REJECTED 0 118', 'grown');
is(t::Api->new($gateway)->delete('/counters?rule=z&key=d')->{status}, 200,
   'a reset');
row('/?k=d', '200 PASSED 0', 'the wait is forgotten, too');
row('/?k=d', '429 REJECTED 0 60', 'another wait');
is(t::Api->new($gateway)->patch('/counters?rule=z&key=d', { add => 1 })
   ->{status}, 200, 'a token more');
row('/?k=d', '200 PASSED 0', 'and this wait is forgotten');

# where a penalty of another zone is in force, no wait is left
row('/bad?k=e', $_, 'a rejection of that zone')
    for '200 PASSED 0', ('429 REJECTED 0 3600') x 2;
row('/both?k=x', $_, 'of both') for '200 PASSED 0', '429 REJECTED 0 3600';
row('/both?k=e', '429 PENALIZED  3600', 'the penalty');
row('/?k=e', '200 PASSED 0', 'the other zone was not asked');

# operators see the wait, and that no request passes though tokens are back
my $api = t::Api->new($gateway);
my $EXPLAIN = 'X-RateLimit-Explain: a-token-of-32-bytes-0123456789ab';

sub explained { return t::Api::answer($gateway->get(@_, $EXPLAIN))->{json} }

sub seen {
    my ($path) = @_;
    return join ' ', map { $_ // '-' } map {
        $_->{allowed}, @{ $_->{zones}[0]{rules}[0] }{qw( passes remaining
                                                        wait_seconds )}
    } explained($path);
}

row('/?k=g', '200 PASSED 0', 'a token');
row('/?k=g', '429 REJECTED 0 60', 'the wait');
advance(59);
row('/?k=g', '429 REJECTED 0 120', 'grown');
advance(60);
is(seen('/?k=g'), '0 0 1 60', 'explained: a token is back, no request passes');
is(seen('/dry?k=g'), '1 1 1 60', 'explained: a dry run has none');
is($api->get('/counters?rule=z&key=g')->{json}{wait_seconds}, 60, 'listed');
is(seen('/?k=nobody'), '1 1 1 -', 'explained: no wait');
row('/?k=g', '429 REJECTED 0 240', 'nobody made it longer but the client');

# parts of one bucket share the wait
is($gateway->statuses(('/part/a?k=p') x 3), '200 200 200', 'parts: spent');
row('/part/b?k=p', '429 REJECTED 0 20', 'parts: the wait');

for ([a => 40], [b => 80], [a => 160], [b => 320]) {
    my ($part, $wait) = @$_;
    advance(1);
    row("/part/$part?k=p", "429 REJECTED 0 $wait", "parts: $part, grown");
}

$gateway->stop;

# each gateway of a fleet has waits of its own; a reset is for all of them
my ($one, $two) = t::Gateway->limited(
    gateways => 2, redis => redis_port(), api => 1,
    zone => 'rate=1r/m sync=strict retry=growth');

is(told($one, '/?k=f'), '200 PASSED 0', 'fleet: the token');
is(told($one->get('/?k=f'), 'Retry-After'), '429 REJECTED 0 60', 'fleet: the wait');
is(told($two->get('/?k=f'), 'Retry-After'), '429 REJECTED 0 60', 'fleet: of both');
advance(1);
is(told($one->get('/?k=f'), 'Retry-After', 'X-Source'),
   '429 REJECTED 0 120 memory', 'fleet: grown, and Redis is not asked');
is(told($two->get('/?k=f'), 'Retry-After'), '429 REJECTED 0 120',
   'fleet: each gateway counts what came to it');

is(t::Api->new($one)->delete('/counters?rule=z&key=f')->{status}, 200,
   'fleet: a reset');
t::Clock::wait_for(sub { told($two, '/?k=f') =~ /^200/ });
is(told($one->get('/?k=f'), 'Retry-After'), '429 REJECTED 0 60',
   'fleet: no gateway remembers a wait');

$_->stop for $one, $two;
