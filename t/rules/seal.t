# Whoever writes to Redis makes no document: with a secret, the fleet's gateways
# seal their records there, and follow no other.

use Digest::SHA qw( hmac_sha256 hmac_sha256_hex );
use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header wait_for );
use t::Api;
use t::Rules;

t::Clock::hurry();

my $port = redis_start();
my $prefix = key_prefix();
my $key = t::Rules::key($prefix, 'z');

sub conf {
    my $secret = shift;
    return t::Gateway::limited_http(
        redis => "server 127.0.0.1:$port" . ($secret ? "; secret_file $secret" : ''),
        zone => 'state=%%DIR%%/rules.state', api => 1);
}

sub gateway {
    my ($secret, $record) = @_;
    my $gateway = t::Gateway->new(http => '');
    $gateway->write($_, "$_ of the fleet\n") for qw( secret other );
    $gateway->write('rules.state', $record) if $record;
    $gateway->configure(http => conf($secret));
    $gateway->start;
    return $gateway;
}

sub has {
    my ($gateway, $secret) = @_;
    $gateway->configure(http => conf($secret));
    $gateway->reload;
}

sub sealed {
    my ($record, $secret, $zone) = @_;
    my $of = hmac_sha256($zone // 'z', hmac_sha256('ratelimit seal', "$secret of the fleet"));
    return $record . 'hmac-sha256 ' . hmac_sha256_hex($record, $of) . "\n";
}

sub denies {
    my ($deny) = @_;
    return { rules => [], deny => ['sha256:' . ($deny x 64)] };
}

sub in_redis { return t::Rules::redis($port, 'HGET', $key, 'record') // '' }

# The record of a version that a gateway has.
sub own {
    my ($gateway, $version) = @_;
    wait_for(sub { $gateway->read('rules.state') =~ /\A[^\n]*"version":$version,/ });
    return $gateway->read('rules.state') =~ /\A([^\n]*\n[^\n]*\n)/ ? $1 : 'none';
}

sub seals {
    my ($gateway, $version, $secret, $name) = @_;
    my $record = own($gateway, $version);
    ok(wait_for(sub { in_redis() eq sealed($record, $secret) }), $name);
}

sub refused {
    my $gateway = shift;
    return $gateway->get('/metrics')->{body}
               =~ /^ratelimit_rules_refused_version\{zone="z"\} (\d+)$/m ? $1 : 'none';
}

my $NOT = 'of its rules is not used: it is not sealed by this "secret_file"; if a '
          . 'gateway goes by it, give that gateway the file and reload it, else '
          . 'delete it in Redis';

sub refuses {
    my ($gateway, $version, $name) = @_;
    ok(wait_for(sub { refused($gateway) eq $version }), "$name: the metric has it");
}

# Puts a record there as any program can that may write to Redis.
sub forge {
    my ($record, $text) = @_;
    t::Rules::redis($port, 'HSET', $key, version => t::Rules::version($record),
                    id => t::Rules::id($record), record => $text);
    t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
}

# a fleet without a secret
my ($one, $two) = map { gateway() } 1, 2;
my ($its, $others) = map { t::Api->new($_) } $one, $two;

is($its->change('PUT', '/document', denies('a'))->{status}, 201, 'a first version');
ok(t::Rules::follows($two, 1), 'all follow it');
is(in_redis(), own($two, 1), 'without a secret Redis has the record as it is');
$two->log_has(qr/\[notice\] .*zone "z": follows version 1 of its rules: "PUT \/document" by "" from 127\.0\.0\.1, reason ""/,
              'the log says who has made it');

# one gateway after the other gets it
has($one, 'secret');
seals($one, 1, 'secret', 'a new secret: the gateway seals the record');
$one->log_has(qr/\[warn\] .*version 1 of its rules is not sealed by this "secret_file", this gateway seals it/,
              'the log says so');

my $later = gateway();

ok(t::Rules::follows($later, 1), 'without a secret a gateway follows it, sealed');
is(own($later, 1), own($one, 1), 'and has it without the seal');
$later->stop;

is($others->change('PUT', '/document', denies('b'))->{status}, 200, 'a change without the secret');
refuses($one, 2, 'a gateway with the secret');
$one->log_has(qr/\[error\] .*version 2 $NOT/, 'the log says what to do');
t::Clock::pass(12);
is(() = $one->log =~ /version 2 $NOT/g, 1, 'once');
ok(t::Rules::follows($one, 1), 'the rules stay');

has($two, 'secret');
seals($two, 2, 'secret', 'the other gateway seals what it goes by');
ok(t::Rules::follows($one, 2), 'all follow it');
ok(wait_for(sub { refused($one) eq 0 }), 'no version is refused');

is($others->change('PUT', '/document', denies('c'), 'X-RateLimit-Reason: why')->{status}, 200,
   'a change');
is(in_redis(), sealed(own($two, 3), 'secret'), 'is sealed at once');
ok(t::Rules::follows($one, 3), 'and followed');
is(own($one, 3), own($two, 3), 'without the seal');

# versions of before
my %read = map { $_ => t::Api::said($its->get("/versions/$_")) } 1, 2;

is($read{1} . ' ' . $read{2}, '200 200', 'those that were sealed can be read');
t::Rules::redis($port, 'LSET', "$key:history", 0, t::Rules::record(2, denies('f'),
    id => sprintf '%016x', 99));
is($its->get('/versions/2')->{status}, 503, 'one that is forged cannot');
is($its->change('POST', '/versions/2/restore')->{status}, 503, 'nor does it come back');

# records of nobody
my $of = in_redis() =~ /"lineage":"(\w+)"/ ? $1 : die;
my $forged = t::Rules::record(4, denies('d'), lineage => $of);

my %forged = ('no seal' => $forged,
              'the seal of another zone' => sealed($forged, 'secret', 'y'),
              'the seal of another secret' => sealed($forged, 'other'),
              'the seal of another record' => $forged . (sealed($forged, 'secret')
                  =~ s/.*\n(?=hmac)//sr =~ tr/0123456789abcdef/1-9a-f0/r),
              'a seal that is cut' => substr(sealed($forged, 'secret'), 0, -2) . "\n",
              'two seals' => sealed(sealed($forged, 'secret'), 'secret') . "\n");

for my $name (sort keys %forged) {
    forge($forged, $forged{$name});
    refuses($one, 4, $name);
    ok(t::Rules::follows($one, 3), "$name: the rules stay");
    my $tag = $its->if_match(3);
    # the version in Redis is another one, and cannot be read
    is(t::Api::said($its->send('PUT', '/document', denies('c'), $tag)), '412 conflict',
       "$name: a write that changes nothing");
    is(t::Api::said($its->send('PUT', '/document', denies('e'), $tag)), '412 conflict',
       "$name: a write");
    like($its->change('PUT', '/document', denies('c'))->{body},
         qr/"status":503,.*nothing is changed: unsealed"/, "$name: a write whatever there is");
    t::Rules::redis($port, 'DEL', $key);
    seals($one, 3, 'secret', "$name: deleted, and a gateway puts back its own");
    ok(wait_for(sub { refused($one) eq 0 }), "$name: no version is refused");
}

is($its->change('PUT', '/document', denies('e'))->{status}, 200, 'changes go on');
ok(t::Rules::follows($_, 4), 'and are followed') for $one, $two;

# the record of a version that gateways go by
my $good = in_redis();

forge($good, $good =~ s/e{64}/1 x 64/er);

my $new = gateway('secret');

refuses($new, 4, 'a changed record');
has($one, 'secret');
seals($one, 4, 'secret', 'a gateway that begins has the right one');
ok(t::Rules::follows($new, 4), 'which is followed');
is(in_redis(), $good, 'as it was');
$new->stop;

# a secret that leaked
has($one, 'other');
seals($one, 4, 'other', 'another secret: another seal');
is($its->change('PUT', '/document', denies('2'))->{status}, 200, 'a change with it');
refuses($two, 5, 'a gateway with the former one');
has($two, 'other');
ok(t::Rules::follows($two, 5), 'with the new one it follows');
$_->stop for $one, $two;

# a fleet that starts with its files, and a Redis that is new
t::Rules::redis($port, 'FLUSHALL');

my $record = t::Rules::record(7, denies('3'));
my $begins = gateway('secret', $record);

ok(wait_for(sub { in_redis() eq sealed($record, 'secret') }, 40),
   'what a file has is sealed, too');
$begins->stop;
