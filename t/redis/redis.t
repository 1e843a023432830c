# One Redis server: the limit, what stands there afterwards, who may log in.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally told );

my $redis = redis_start();

sub conf {
    my ($port, $more) = @_;
    return <<"CONF";
    ratelimit_redis r { server 127.0.0.1:$port; timeout 2s; $more }
    ratelimit_zone \$ratelimit_api_key zone=z:1m rate=100r/h redis=r sync=strict;
    ratelimit_rule short zone=z rate=2r/2s sync=strict match=/short;
    ratelimit_rule user zone=z rate=5r/h key=\$arg_user;
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        add_header X-Status \$ratelimit_status always;
        add_header X-Source \$ratelimit_source always;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF
}

my $gateway = t::Gateway->new(workers => 2,
                              http => conf($redis, 'prefix pre.fix;'))->start;

# the limit
my @answers = $gateway->burst(300, '/', 'X-API-Key: very-secret-key');

is(tally(@answers), '100 x 200, 200 x 429', 'exactly the limit');
is(join(' ', sort { $b <=> $a }
             map { header($_, 'X-RateLimit-Remaining') }
             grep { $_->{status} == 200 } @answers),
   join(' ', reverse 0 .. 99), 'no two were told the same rest');
my ($passed) = grep { $_->{status} == 200 } @answers;
like(header($passed, 'X-Source'), qr/^(?:redis|lease)$/, 'the source');
is(told($gateway->get('/', 'X-API-Key: other')),
   '200 PASSED 99', 'another key has its own');
is(told($gateway->get('/')), '200 BYPASSED ', 'an empty key is not limited');

# a wait of the length told is enough
t::Clock::stop();
$gateway->get('/short', 'X-API-Key: w') for 1 .. 2;

my $rejected = $gateway->get('/short', 'X-API-Key: w');
is($rejected->{status}, 429, 'the short limit is spent');

# which the gateway remembers to the millisecond
t::Clock::advance(header($rejected, 'Retry-After') + 0.01);
is($gateway->get('/short', 'X-API-Key: w')->{status}, 200,
   'after Retry-After a request passes');
t::Clock::go();

# a rule with a key of its own
$gateway->get("/?user=shared", "X-API-Key: k$_") for 1 .. 5;
is(told($gateway->get('/?user=shared', 'X-API-Key: k6')),
   '429 REJECTED 0', 'several clients share a counter by another key');
is(told($gateway->get('/', 'X-API-Key: k6')), '200 PASSED 99',
   'and the rejection gave back what the other had taken');

# what stands in Redis
my @keys = split /\n/, redis_cli($redis, '--scan');

# of the node, not of a counter: t/engine/nodes.t
my @nodes = grep { $_ eq 'pre.fix:{0}:726c2d6e6f646573' } @keys;
@keys = grep { $_ ne $nodes[0] } @keys if @nodes;

cmp_ok(scalar @keys, '>', 5, 'there are keys');
is_deeply([grep { !/^pre\.fix:\{\d{1,5}\}$/ } @keys], [],
          'all of the form prefix:{bucket}');
is_deeply([grep { redis_cli($redis, 'pttl', $_) <= 0 } @keys, @nodes], [],
          'all have a TTL');
is_deeply([grep { $_ ne 'hash' } map { redis_cli($redis, 'type', $_) } @keys],
          [],
          'all are hashes');

my $all = join "\n", @keys, map { redis_cli($redis, 'hgetall', $_) } @keys;
unlike($all, qr/secret|other|shared/, 'no key of a client stands there');

# the script is gone
redis_cli($redis, 'script', 'flush');
@answers = $gateway->burst(300, '/', 'X-API-Key: after-flush');
is(tally(@answers), '100 x 200, 200 x 429',
   'after SCRIPT FLUSH the limit is exact');
unlike(join('', map { header($_, 'X-Status') } @answers),
       qr/DEGRADED/, 'and nobody goes without a check');

# a bucket of many counters that are full again loses some with each new one
redis_cli($redis, 'eval', <<'LUA', 1, 'long:{0}');
    for i = 1, 2046 do
        redis.call('HSET', KEYS[1], struct.pack('>I8', i), string.rep('\0', 12))
    end
LUA

my $long = t::Gateway->limited(
    redis => "server 127.0.0.1:$redis; prefix long; buckets 1",
    zone => 'rate=10r/h sync=strict');

is(told($long->get("/?k=$_")), '200 PASSED 9', "a long bucket: $_") for 1, 2;

my $fields = redis_cli($redis, 'hlen', 'long:{0}');

cmp_ok($fields, '<', 2048, "a long bucket: $fields are left");
cmp_ok($fields, '>', 1024, 'a long bucket: not all are looked at');
$long->stop;

# another secret makes other counters
$gateway->write('secret', "one\n");
$gateway->configure(http => conf($redis, 'secret_file secret; prefix s;'));
$gateway->reload;
is(told($gateway->get('/', 'X-API-Key: s')), '200 PASSED 99', 'with a secret');
is(told($gateway->get('/', 'X-API-Key: s')), '200 PASSED 98', 'it counts');
$gateway->write('secret', "two\n");
$gateway->reload;
is(told($gateway->get('/', 'X-API-Key: s')), '200 PASSED 99',
   'with another it counts apart');

$gateway->stop;
redis_stop($redis);

# who may log in
my $closed = redis_start();

redis_cli($closed, qw( acl setuser rl on >own ~rl:* -@all +evalsha
    +script|load +hget +hset +time +pttl +pexpire +hlen +hscan +hdel ));
redis_cli($closed, qw( config set requirepass general ));

my $n = 0;

for (['the default user', 'general', '', 'PASSED', undef],
     ['a user of few rights', 'own', 'username rl;', 'PASSED', undef],
     ['a wrong password', 'wrong', '', 'DEGRADED', 'AUTH answered WRONGPASS'],
     ['an unknown user', 'own', 'username nobody;', 'DEGRADED',
      'AUTH answered WRONGPASS'],
     ['no password', undef, '', 'DEGRADED', 'answered .* with NOAUTH'])
{
    my ($name, $password, $more, $status, $logged) = @$_;
    my $gateway = t::Gateway->new(http => '');
    if (defined $password) {
        $gateway->write('pw', "$password\n");
        $more .= ' password_file pw;';
    }
    $gateway->configure(http => conf($closed, $more))->start;
    my $left = $status eq 'PASSED' ? 99 - $n++ : -1;
    # each time the same client: what passes was counted by Redis
    is(told($gateway->get('/', 'X-API-Key: a')),
       "200 $status $left", "$name: $status");
    my $log = $gateway->log;
    defined $logged
        ? like($log, qr/\[error\] .*127\.0\.0\.1:$closed\b.*$logged/,
               "$name: the log")
        : unlike($log, qr/answered (?:AUTH|a check|SCRIPT)|no connection/,
                 "$name: no error in the log");
    unlike($log, qr/\b(?:general|own|wrong)\b/,
           "$name: no password in the log");
    $gateway->stop;
}
