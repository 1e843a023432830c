# Sentinel: the master is found, a switch is followed, whatever becomes of the
# old one; one sentinel of three may be dead, deaf or know nothing.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( tally wait_for );
use t::FakeRedis;

use Time::HiRes qw( sleep time );

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

sub gateway {
    my ($sentinels, %options) = @_;
    my @addresses = map { "127.0.0.1:$_" } @$sentinels;
    my $master = $options{master} // 'm';
    return t::Gateway->limited(
        start => 0, workers => $options{workers} // 1, zone => 'rate=10r/h',
        timeout => $options{timeout} // '2s',
        redis => "sentinel $master @addresses; " . ($options{lines} // ''));
}

sub told { return t::Gateway::told($_[0]->get($_[1] // '/?k=a')) }

# Exact on both workers, and as soon as it can be.
sub limits {
    my ($gateway, $name) = @_;
    ok(wait_for(sub {
        tally($gateway->burst(30, '/?k=' . rand))
            eq '10 x 200, 20 x 429'
    }), "$name: it limits");
}

sub address {
    my ($host, $port) = @_;
    return join '', "*2\r\n", map { '$' . length($_) . "\r\n$_\r\n" }
                                  $host, $port;
}

# A sentinel that answers so.
sub fake {
    my $answer = shift;
    return t::FakeRedis->new(sub {
        $_[0] eq 'AUTH' ? "+OK\r\n" : ref $answer ? $answer->(@_) : $answer
    });
}

sub calls {
    my ($fake, $word) = @_;
    return scalar grep { $_->[2] eq $word } $fake->heard;
}

# real ones
my ($one, $two) = (redis_start(), redis_start());
redis_cli($two, 'replicaof', '127.0.0.1', $one);

sub sentinel {
    my ($port) = @_;
    return redis_start(port => $port, sentinel => <<"CONF");
sentinel monitor m 127.0.0.1 $one 2
sentinel down-after-milliseconds m 1000
sentinel failover-timeout m 3000
requirepass secret
sentinel sentinel-pass secret
CONF
}

sub sentinel_cli {
    my ($port, @command) = @_;
    return redis_cli($port, '--pass', 'secret', '--no-auth-warning',
                     'sentinel', @command);
}

my @sentinels = map { sentinel() } 1 .. 3;

sub master {
    return (split /\n/,
            sentinel_cli($_[0] // $sentinels[1], 'get-master-addr-by-name',
                         'm'))[1] // '';
}

# All sentinels know each other and both servers.
sub ready {
    my @up = @_;
    return wait_for(sub {
        my $links = grep {
            redis_try($_, 'info', 'replication') =~ /master_link_status:up/
        } $one, $two;
        $links == 1 && !grep {
            my $line = redis_try($_, '--pass', 'secret', '--no-auth-warning',
                                 'info', 'sentinel');
            $line !~ /status=ok,address=\S+,slaves=1,sentinels=3/
        } @up;
    }, 60);
}

ok(ready(@sentinels), 'three sentinels know each other');

my $gateway = gateway(\@sentinels, workers => 2,
                      lines => 'sentinel_password_file %%DIR%%/pw;');
$gateway->write('pw', "secret\n");
$gateway->start;

limits($gateway, 'discovery');
like(redis_cli($one, '--scan'), qr/^\w+:\{\d+\}$/m, 'discovery: on the master');

# switched by hand: the old master still answers
for my $time (1, 2) {
    my $was = master();
    is(sentinel_cli($sentinels[0], 'failover', 'm'), 'OK',
       "failover $time: begins");
    # a sentinel that a busy machine kept waiting gives a failover up
    ok(wait_for(sub {
        redis_try($sentinels[0], '--pass', 'secret', '--no-auth-warning',
                  'sentinel', 'failover', 'm') if master($sentinels[0]) eq $was;
        return master() ne $was;
    }, 120), "failover $time: another master");
    limits($gateway, "failover $time");
    ok(ready(@sentinels), "failover $time: all is well again");
}

unlike($gateway->log, qr/no connection to 127\.0\.0\.1:(?:$one|$two):/,
       'failovers by hand: no connection was lost for it');

# one sentinel is dead, the first to be asked, and then the master
{
    my $dead = master();
    redis_stop($sentinels[0]);
    redis_stop($dead);
    my @answers;
    ok(wait_for(sub {
        push @answers, $gateway->burst(5, '/?k=' . rand);
        master() ne $dead;
    }, 60), 'the master is killed: another one is made');
    limits($gateway, 'the master is killed');
    is(scalar(grep { $_->{status} != 200 } @answers), 0,
       'the master is killed: meanwhile all pass');
    redis_start(port => $dead);
    # a busy machine may make the old master the master once more
    ok(ready(@sentinels[1, 2]), 'the old master comes back, one is a replica');
    limits($gateway, 'the old master is back');
}

$gateway->stop;

# a gateway that starts with one sentinel dead
$gateway = gateway(\@sentinels, lines => 'sentinel_password_file %%DIR%%/pw;');
$gateway->write('pw', "secret\n");
$gateway->start;
limits($gateway, 'the first sentinel is dead');
$gateway->stop;

# a wrong password, none, an unknown master
for (['wrong', "sentinel_password_file %%DIR%%/pw;", 'm',
      "no connection to 127.0.0.1:$sentinels[1]: AUTH answered WRONGPASS"],
     ['none', '', 'm', "127.0.0.1:$sentinels[1] answered "
                       . 'SENTINEL GET-MASTER-ADDR-BY-NAME with NOAUTH'],
     ['secret', "sentinel_password_file %%DIR%%/pw;", 'other',
      "sentinel 127.0.0.1:$sentinels[1] knows no master \"other\""])
{
    my ($password, $lines, $master, $log) = @$_;
    my $gateway = gateway([@sentinels[1, 2]], lines => $lines,
                          master => $master, timeout => '200ms');
    $gateway->write('pw', "$password\n");
    $gateway->start;
    is(told($gateway), '200 DEGRADED -1', "password $password, $master: passes");
    like($gateway->log, qr/\[error\] .*ratelimit redis "r": \Q$log\E/,
         "password $password, $master: the log");
    unlike($gateway->log, qr/secret|wrong/,
           "password $password, $master: no secret");
    $gateway->stop;
}

redis_stop($_) for @sentinels, $one, $two;

# a server of its own user, and odd answers of sentinels
my $server = t::FakeRedis->new(sub {
    $_[0] eq 'AUTH' ? "+OK\r\n" : $GOOD
});

for (['nil', "*-1\r\n", 'knows no master "m"'],
     ['a nil string', "\$-1\r\n", 'with something unexpected'],
     ['an error', "-IDONTKNOW x\r\n",
      'answered SENTINEL GET-MASTER-ADDR-BY-NAME with IDONTKNOW'],
     ['a status', "+OK\r\n", 'with something unexpected'],
     ['an integer', ":5\r\n", 'with something unexpected'],
     ['no element', "*0\r\n", 'knows no master "m"'],
     ['one element', "*1\r\n\$9\r\n127.0.0.1\r\n", 'knows no master "m"'],
     ['three elements', "*3\r\n" . ("\$9\r\n127.0.0.1\r\n" x 3),
      'knows no master "m"'],
     ['no host', address('', $server->{port}), 'names no address'],
     ['a host with blanks', address('no host', $server->{port}),
      'names no address'],
     ['a long host', address('a' x 256, $server->{port}), 'names no address'],
     ['port 0', address('127.0.0.1', 0), 'names no address'],
     ['port 65536', address('127.0.0.1', 65536), 'names no address'],
     ['no port', address('127.0.0.1', ''), 'names no address'],
     ['nils', "*2\r\n\$-1\r\n\$-1\r\n", 'names no address'],
     ['integers', "*2\r\n:1\r\n:6379\r\n", 'names no address'],
     ['arrays', "*2\r\n*1\r\n\$9\r\n127.0.0.1\r\n*1\r\n:1\r\n",
      'names no address'],
     ['no protocol', "HTTP/1.1 400 Bad Request\r\n\r\n",
      'a broken or too large reply'],
     ['the end of the connection', undef, 'closed by the server'],
     ['silence', '', ''])
{
    my ($name, $bytes, $log) = @$_;
    my ($odd, $good, $gateway);
    # where this process gets no time for 10 ms only the second one is asked
    wait_for(sub {
        $_->stop for grep { $_ } $gateway, $odd, $good;
        $odd = fake($bytes);
        $good = fake(address('127.0.0.1', $server->{port}));
        $gateway = gateway([$odd->{port}, $good->{port}])->start;
        is(told($gateway), '200 PASSED 9', "$name: the other one is asked");
        return calls($odd, 'SENTINEL');
    });
    ok(wait_for(sub {
        $gateway->log =~ /127\.0\.0\.1:$odd->{port}\b.*\Q$log\E/
    }), "$name: the log: $log") if $log ne '';
    cmp_ok(calls($odd, 'SENTINEL'), '<=', 3, "$name: not asked on and on");
    $gateway->stop;
    $_->stop for $odd, $good;
}

# one connection to one sentinel, of all workers; once a second; no script, no
# database; a user of its own; none is left when nobody asks any more
{
    my $port = $server->{port};
    my @heard;
    my $sentinel = fake(sub { address('127.0.0.1', $port) });
    my $spare = fake(sub { address('127.0.0.1', $port) });
    my $gateway = gateway([$sentinel->{port}, $spare->{port}], workers => 4,
                          lines => 'username u; password_file %%DIR%%/pw;'
                                   . 'sentinel_username s;'
                                   . 'sentinel_password_file %%DIR%%/spw;');
    $gateway->write('pw', "a\n");
    $gateway->write('spw', "b\n");
    my $begin = t::Clock::now();
    $gateway->start;
    is(told($gateway), '200 PASSED 9', 'with users');
    t::Clock::pass(4);
    my $passed = t::Clock::now() - $begin;
    my @at = map { $_->[0] } grep { $_->[2] eq 'SENTINEL' } $sentinel->heard;
    cmp_ok(scalar @at, '<=', 1 + $passed, "asked @{[scalar @at]} times in "
           . "$passed s of 4 workers");
    cmp_ok(scalar @at, '>=', 3, 'asked while all is well');
    is(join(' ', sort keys %{{ map { $_->[2] => 1 } $sentinel->heard }}),
       'AUTH SENTINEL', 'a sentinel hears nothing else');
    ok(t::Clock::wait_for(sub { asking($gateway, $sentinel->{port}) == 1 }),
       'one worker is connected to it');
    is($spare->seen->{connections}, 0, 'nor to the other one');
    # the worker that asks is killed; its place is taken
    my ($pid) = map { $_->{pid} } asking($gateway, $sentinel->{port});
    kill KILL => $pid;
    my $killed = t::Clock::now();
    ok(t::Clock::wait_for(sub {
        grep { $_->[2] eq 'SENTINEL' && $_->[0] > $killed + 0.1 }
             $sentinel->heard
    }), 'the worker that asks is killed: another one asks');
    # the second worker may ask at once
    my $asked = calls($sentinel, 'SENTINEL');
    cmp_ok($asked, '<=', 2 + t::Clock::now() - $begin, 'one a second, no more');
    # a sentinel that falls silent is left for the other
    kill STOP => $sentinel->{pid};
    ok(t::Clock::wait_for(sub { calls($spare, 'SENTINEL') >= 2 }),
       'silent: the other one is asked');
    is(told($gateway), '200 PASSED 9', 'silent: nothing else happens');
    kill CONT => $sentinel->{pid};
    $gateway->stop('QUIT', qr/exited on signal 9/);
    $_->stop for $sentinel, $spare;
}

# Which worker has a connection to a port: [{pid}]
sub asking {
    my ($gateway, $port) = @_;
    return grep { t::Gateway::connections($_->{pid}, $port) }
           map { { pid => $_ } } $gateway->workers;
}

# READONLY asks anew, but once a second
{
    my $flag = File::Temp->newdir;
    my $readonly = t::FakeRedis->new(sub { "-READONLY x\r\n" });
    my $sentinel = fake(sub {
        address('127.0.0.1', -e "$flag/switched" ? $server->{port}
                                                 : $readonly->{port})
    });
    my $begin = t::Clock::now();
    my $gateway = gateway([$sentinel->{port}], workers => 2)->start;
    for (1 .. 30) {
        $gateway->burst(10, '/?k=' . rand);
        t::Clock::pass(0.1);
    }
    is(told($gateway), '200 DEGRADED -1', 'READONLY: it passes');
    my $asked = calls($sentinel, 'SENTINEL');
    cmp_ok($asked, '<=', 1 + t::Clock::now() - $begin, 'READONLY: once a second');
    open my $file, '>', "$flag/switched" or die;
    ok(t::Clock::wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       'READONLY: the new master');
    # what the demoted one had is closed
    ok(t::Clock::wait_for(sub { !asking($gateway, $readonly->{port}) }),
       'READONLY: the old one is let go');
    $gateway->stop;
    $_->stop for $readonly, $sentinel;
}

$server->stop;
