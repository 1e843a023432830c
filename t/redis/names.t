# Host names of Redis: those of the configuration and those that nodes announce,
# asked of a name server that answers, changes its mind, says no, or nothing.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeDNS;
use t::FakeRedis;

use Time::HiRes qw( sleep time );

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $LONG = join '.', ('a' x 63) x 3, 'b' x 48, 'redis', 'test';

my $gateway;

sub fake {
    my ($addr, $port) = @_;
    return t::FakeRedis->new(sub { $GOOD }, addr => $addr, port => $port);
}

# a port that is free on all the addresses that a test uses
my $port = t::Gateway::free_port();

sub gateway {
    my ($http, $dns, %options) = @_;
    my $resolver = $dns ? "resolver 127.0.0.1:$dns->{port} ipv6=off;" : '';
    $gateway = t::Gateway->new(http => <<"CONF", %options)->start;
    $http
    ratelimit_zone \$arg_k zone=z:64k rate=10r/h redis=r;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z; empty_gif; }
    }
    $resolver
CONF
}

sub told { return t::Gateway::told($gateway->get('/?k=a')) }

sub comes {
    my ($what, $name) = @_;
    ok(wait_for(sub { told() eq $what }), $name) or diag($gateway->log);
}

# the fake counts a command after it has answered it
sub checked {
    my ($fake, $name) = @_;
    ok(wait_for(sub { $fake->seen->{commands} }), $name);
}

sub logged {
    my $what = shift;
    ok(wait_for(sub { $gateway->log =~ $what }), "logged: $what");
}

# one name, and what becomes of it; the resolver stands below the block
{
    my $dns = t::FakeDNS->new('redis.test' => '127.0.0.1');
    my $one = fake('127.0.0.1', $port);
    gateway("ratelimit_redis r { server Redis.test:$port; timeout 1s; }", $dns);
    is(told(), '200 PASSED 9', 'a name');
    my $asked = $dns->asked('redis.test');
    told() for 1 .. 5;
    is($dns->asked('redis.test'), $asked, 'asked for to connect, not to check');
    # it leads elsewhere
    my $two = fake('127.0.0.2', $port);
    $dns->set('redis.test' => '127.0.0.2');
    $one->stop;
    comes('200 PASSED 9', 'another address');
    checked($two, 'it is the new one');
    # the name server is gone, or out of order: what it last said still holds,
    # longer than nginx remembers it, which is for this second
    for my $says ('SILENCE', 'SERVFAIL') {
        sleep 1.1;
        $dns->set('redis.test' => $says);
        $asked = $dns->asked('redis.test');
        $two->stop;
        comes('200 DEGRADED -1', "$says, and no Redis");
        ok(wait_for(sub { $dns->asked('redis.test') > $asked }),
           "$says: asked");
        $two = fake('127.0.0.2', $port);
        comes('200 PASSED 9', "$says, and Redis is back");
    }
    # the name is gone: so is its address
    $dns->set('redis.test' => 'NXDOMAIN');
    $two->stop;
    logged(qr/no connection to redis\.test:$port: its name was not found/);
    $two = fake('127.0.0.2', $port);
    sleep 1.5;
    is(told(), '200 DEGRADED -1', 'no name, no address');
    is($two->seen->{connections}, 0, 'the old address is not used');
    $dns->set('redis.test' => '127.0.0.2');
    comes('200 PASSED 9', 'the name is back');
    $gateway->stop;
    $_->stop for $one, $two, $dns;
}

# several addresses: each in turn, until one is good
{
    my $dns = t::FakeDNS->new(
        'redis.test' => '127.0.0.5 127.0.0.3 127.0.0.9 127.0.0.4 127.0.0.7');
    for my $good ('127.0.0.3', '127.0.0.9') {
        my $fake = fake($good, $port);
        gateway("ratelimit_redis r { server redis.test:$port; }", $dns);
        comes('200 PASSED 9', "five addresses, of which $good is good");
        $gateway->stop;
        my @tried = $gateway->log =~ /no connection to/g;
        cmp_ok(scalar @tried, '<=', 4, 'none is tried twice');
        $fake->stop;
    }
    $dns->stop;
}

# a name whose server is no primary any more: it is asked for again, no sooner
# than a second after it was connected to, and not for each call
for my $word (qw( READONLY MASTERDOWN )) {
    my $dns = t::FakeDNS->new('redis.test' => '127.0.0.1');
    my $old = t::FakeRedis->new(sub { "-$word x\r\n" }, port => $port);
    my $new = fake('127.0.0.2', $port);
    my $begin = time;
    gateway("ratelimit_redis r { server redis.test:$port; timeout 1s; }",
            $dns);
    is(told(), '200 DEGRADED -1', "$word");
    my $calls = 0;
    while (time < $begin + 3.5 || $calls <= 20) {
        told();
        $calls++;
    }
    cmp_ok($old->seen->{connections}, '>', 1, "$word: connected to anew");
    cmp_ok($old->seen->{connections}, '<=', 1 + time - $begin,
           "$word: once a second");
    $dns->set('redis.test' => '127.0.0.2');
    comes('200 PASSED 9', "$word: another address");
    $dns->stop;
    $old->stop;
    $new->stop;
    $gateway->stop;
}

# at the start there is no name, or no name server
for (['NXDOMAIN', 'its name was not found'],
     ['SERVFAIL', 'the resolver answered with a failure'],
     ['SILENCE', 'the resolver did not answer'])
{
    my ($says, $log) = @$_;
    my $dns = t::FakeDNS->new('redis.test' => $says);
    my $fake = fake('127.0.0.1', $port);
    gateway("ratelimit_redis r { server redis.test:$port; timeout 200ms; }",
            $dns);
    is(told(), '200 DEGRADED -1', "$says: degraded");
    logged(qr/no connection to redis\.test:$port: $log/);
    # both have a question under way
    $gateway->reload;
    is(told(), '200 DEGRADED -1', "$says: a reload");
    $dns->set('redis.test' => '127.0.0.1');
    comes('200 PASSED 9', "$says: the name comes");
    $dns->set('redis.test' => $says);
    $fake->stop;
    comes('200 DEGRADED -1', "$says: all gone");
    sleep 0.2;
    $gateway->stop;
    $dns->stop;
}

# a worker that is killed or ended with a question under way
for my $signal ('TERM', 'QUIT') {
    my $dns = t::FakeDNS->new('redis.test' => 'SILENCE');
    gateway("ratelimit_redis r { server redis.test:$port; timeout 200ms; }",
            $dns);
    is(told(), '200 DEGRADED -1', "$signal: degraded");
    $gateway->stop($signal);
    $dns->stop;
}

# the longest name, and one that is too long
{
    my $dns = t::FakeDNS->new($LONG => '127.0.0.1');
    my $fake = fake('127.0.0.1', $port);
    is(length $LONG, 251, 'a long name');
    gateway("ratelimit_redis r { server $LONG:$port; timeout 1s; }", $dns);
    is(told(), '200 PASSED 9', 'a long name is resolved');
    $gateway->stop;
    my ($accepted, $text) = t::Gateway->new(
        http => "ratelimit_redis r { server abcde.$LONG:1; }")->check;
    ok(!$accepted, 'a name of more than 255 bytes');
    like($text, qr/invalid address ".*" \(too long\), expected "host:port"/,
         'is refused');
    $_->stop for $dns, $fake;
}

# nodes of a cluster announce names
for my $resolved (1, 0) {
    my $dns = t::FakeDNS->new('node.test' => '127.0.0.1',
                              'other.test' => '127.0.0.2');
    my $node = t::FakeRedis->new(sub {
        $_[0] ne 'CLUSTER' ? "-MOVED 5 other.test:$port\r\n"
        : "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n\$9\r\nnode.test\r\n:$port\r\n"
          . "\$2\r\nid\r\n*0\r\n"
    }, port => $port);
    my $other = fake('127.0.0.2', $port);
    gateway("ratelimit_redis r { cluster 127.0.0.1:$port; timeout 500ms; }",
            $resolved ? $dns : undef);
    if ($resolved) {
        comes('200 PASSED 9', 'a node\'s name, and one in MOVED');
        checked($node, 'the one');
        checked($other, 'and the other');
    } else {
        is(told(), '200 DEGRADED -1', 'names without a resolver');
        logged(qr/no connection to node\.test:$port: its host is a name, expected a "resolver"/);
    }
    $gateway->stop;
    $_->stop for $dns, $node, $other;
}

# the name of ASK's target is known too late for the call: no ASKING is left
# behind for the next one
{
    my $dns = t::FakeDNS->new('other.test' => '127.0.0.2');
    my $node = t::FakeRedis->new(sub {
        $_[0] ne 'CLUSTER' ? "-ASK 5 other.test:$port\r\n"
        : "*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n\$9\r\n127.0.0.1\r\n:$port\r\n"
          . "\$2\r\nid\r\n*0\r\n"
    }, port => $port);
    my $other = t::FakeRedis->new(sub {
        $_[0] eq 'ASKING' ? "+OK\r\n" : $GOOD
    }, addr => '127.0.0.2', port => $port);
    gateway("ratelimit_redis r { cluster 127.0.0.1:$port; timeout 100ms; }",
            $dns);
    kill STOP => $dns->{pid};
    is(told(), '200 DEGRADED -1', 'the name of ASK\'s target, too late');
    kill CONT => $dns->{pid};
    comes('200 PASSED 9', 'in time');
    like(join(' ', map { $_->[2] } $other->heard),
         qr/^(?:SCRIPT ?|ASKING EVALSHA ?)+$/, 'ASKING goes with its call');
    $gateway->stop;
    $_->stop for $dns, $node, $other;
}

# without a resolver nginx asks the system, when it reads the configuration;
# for "localhost" always
for my $with (0, 1) {
    my $dns = t::FakeDNS->new(localhost => 'NXDOMAIN');
    my $fake = fake('127.0.0.1', $port);
    gateway("ratelimit_redis r { server localhost:$port; timeout 1s; }",
            $with ? $dns : undef);
    comes('200 PASSED 9', 'localhost');
    is($dns->asked('localhost'), 0, 'nobody was asked for localhost');
    $gateway->stop;
    $_->stop for $dns, $fake;
}

{
    my ($accepted, $text) = t::Gateway->new(
        http => "\nratelimit_redis r { server gone.invalid:1; }")->check;
    ok(!$accepted, 'a name that the system does not know');
    like($text, qr/"ratelimit_redis" "r" has an invalid address "gone\.invalid:1" \(host not found\), expected "host:port" in \S+nginx\.conf:\d+/,
         'is refused, where it stands');
    my $dns = t::FakeDNS->new;
    ($accepted, $text) = t::Gateway->new(
        http => "ratelimit_redis r { server gone.invalid:1; }
                 resolver 127.0.0.1:$dns->{port};")->check;
    ok($accepted, 'with a resolver it is asked later') or diag($text);
    is($dns->asked('gone.invalid'), 0, 'and not by nginx -t');
    $dns->stop;
}
