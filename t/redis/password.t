# password_file is read again when it changes: open connections log in again and
# go on, new ones and new workers use the new password. A file that is missing,
# empty or being written leaves the old one.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header wait_for );
use t::FakeRedis;

t::Clock::hurry();

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

sub gateway {
    my ($where, $password) = @_;
    return t::Gateway->limited(
        workers => 2, redis => $where, zone => 'rate=10r/h sync=strict',
        files => { pw => "$password\n" });
}

sub told { return t::Gateway::told($_[0]->get('/?k=' . rand)) }

# Whether each worker has an answer of Redis for its requests.
sub all_workers {
    my $gateway = shift;
    my %seen;
    return wait_for(sub {
        $seen{header($_, 'X-Pid')} = t::Gateway::told($_)
            for $gateway->burst(20, '/?k=' . rand);
        return 2 == grep { ($seen{$_} // '') =~ /PASSED|REJECTED/ } $gateway->workers;
    });
}

# AUTHs that a fake had over each connection.
sub logins {
    my $fake = shift;
    my %logins;
    $logins{$_->[1]}++ for grep { $_->[2] eq 'AUTH' } $fake->heard;
    return join ' ', map { $logins{$_} } sort keys %logins;
}

# a server that notes who logs in, and when it knows the new password
my $known = t::Gateway::dir('known');

sub knows {
    my $password = shift;
    open my $file, '>', "$known/$password" or die;
}

knows('old');

my $fake = t::FakeRedis->new(sub {
    return $GOOD if $_[0] ne 'AUTH';
    return -e "$known/$_[-1]" ? "+OK\r\n" : "-WRONGPASS x\r\n";
});

my $gateway = gateway("server 127.0.0.1:$fake->{port}; password_file pw", 'old');

ok(all_workers($gateway), 'the old password');
is(logins($fake), '1 1', 'one AUTH a connection');

# the same once more is no new password; nor is none
$gateway->write('pw', "old\n");
t::Clock::pass(2.5);
$gateway->write('pw', '');
t::Clock::pass(2.5);
unlink "$gateway->{dir}/pw";
t::Clock::pass(2.5);
is(logins($fake), '1 1', 'the same, an empty file, no file: no other AUTH');
ok(all_workers($gateway), 'and the connections go on');
unlike($gateway->log, qr/cannot read/, 'a file that is missing may come back');

# a new one
knows('new');
$gateway->write('pw', "new\n");
ok(wait_for(sub { logins($fake) eq '2 2' }),
   'a new password: one more AUTH over each connection') or diag(logins($fake));
ok(all_workers($gateway), 'which go on');
is($fake->seen->{connections}, 2, 'they are the same ones');
is(scalar(() = $gateway->log =~ /\[notice\] .*"r": a new password in ".*pw"/g), 1,
   'one line for both workers');

# one that Redis does not know yet
$gateway->write('pw', "early\n");
ok(wait_for(sub {
    $gateway->log =~ /\[error\] .*"r": \S+ answered AUTH with WRONGPASS/
}), 'Redis does not know it: the log');
ok(all_workers($gateway), 'but the connections go on');
is($fake->seen->{connections}, 2, 'the same ones');
knows('early');

# a worker that begins now has what the file says, not what the master read
unlink "$known/old";
kill 'KILL', ($gateway->workers)[0];
ok(all_workers($gateway), 'a new worker has the new password');
unlike($gateway->log, qr/no connection to .*AUTH answered/,
       'and tries no other one');
unlike($gateway->log, qr/\b(?:old|new\n|early)\b/, 'no password in the log');
$gateway->stop('QUIT', 'exited on signal 9');
$fake->stop;

# a real server: the old password is taken away, all connections are closed, and
# nobody reloads
my $port = redis_start();

redis_cli($port, qw( acl setuser rl on >first ~* &* +@all ));
$gateway = gateway("server 127.0.0.1:$port; username rl; password_file pw",
                   'first');
ok(all_workers($gateway), 'a user: the first password');
redis_cli($port, qw( acl setuser rl >second ));
$gateway->write('pw', "second\n");
ok(wait_for(sub { $gateway->log =~ /a new password/ }),
   'a user: the second one is read');
redis_cli($port, qw( acl setuser rl <first ));
redis_cli($port, qw( client kill user rl ));
ok(all_workers($gateway), 'a user: connections with the second one');
unlike($gateway->log, qr/AUTH/, 'a user: Redis refused none');
$gateway->stop;
redis_stop($port);

# a Sentinel, which has a password of its own
{
    my $master = t::FakeRedis->new(sub { $GOOD });
    my $at = $master->{port};
    my $answer = "*2\r\n\$9\r\n127.0.0.1\r\n\$" . length($at) . "\r\n$at\r\n";
    my $sentinel = t::FakeRedis->new(sub { $_[0] eq 'AUTH' ? "+OK\r\n" : $answer });
    my $gateway = gateway("sentinel m 127.0.0.1:$sentinel->{port}; "
                          . 'sentinel_password_file pw', 'old');
    ok(all_workers($gateway), 'a Sentinel: the old password');
    $gateway->write('pw', "new\n");
    ok(wait_for(sub { logins($sentinel) =~ /2/ }),
       'a Sentinel: it is logged in to again') or diag(logins($sentinel));
    is(logins($master), '', 'a Sentinel: the password is for it alone');
    $gateway->stop;
    $_->stop for $master, $sentinel;
}

# connections that follow the rules log in again with their next call
{
    my $fake = t::FakeRedis->new(sub {
        return "+OK\r\n" if $_[0] eq 'AUTH';
        return "-NOPERM x\r\n" if $_[0] eq 'SUBSCRIBE';
        return $_[0] eq 'EVAL' ? "*3\r\n:0\r\n:0\r\n:0\r\n" : $GOOD;
    });
    my $gateway = t::Gateway->new(http => <<"CONF");
    ratelimit_redis r { server 127.0.0.1:$fake->{port}; password_file pw; }
    ratelimit_zone \$arg_k zone=z:1m rate=10r/h redis=r state=%%DIR%%/state;
    server { listen 127.0.0.1:%%PORT%%; }
CONF
    $gateway->write('pw', "old\n");
    $gateway->start;
    # AUTHs over connections that have carried EVAL, of those behind the first
    my $again = sub {
        my (%eval, $again);
        for ($fake->heard) {
            $eval{$_->[1]} = 1 if $_->[2] eq 'EVAL';
            $again++ if $_->[2] eq 'AUTH' && $eval{$_->[1]};
        }
        return $again // 0;
    };
    ok(wait_for(sub { grep { $_->[2] eq 'EVAL' } $fake->heard }),
       'rules: asked for');
    is($again->(), 0, 'rules: one AUTH');
    $gateway->write('pw', "new\n");
    ok(wait_for(sub { $again->() }), 'rules: another one');
    $gateway->stop;
    $fake->stop;
}

# a file that could be read once, and cannot any more
{
    my $fake = t::FakeRedis->new(sub { $_[0] eq 'AUTH' ? "+OK\r\n" : $GOOD });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}; password_file pw", 'old');
    ok(all_workers($gateway), 'no file to read: before');
    unlink "$gateway->{dir}/pw";
    mkdir "$gateway->{dir}/pw" or die;
    ok(wait_for(sub {
        $gateway->log =~ /\[notice\] .*"r": the workers cannot read ".*pw", a new password needs a reload/
    }), 'no file to read: the log');
    ok(all_workers($gateway), 'no file to read: the connections go on');
    is(logins($fake), '1 1', 'no file to read: no other AUTH');
    rmdir "$gateway->{dir}/pw";
    $gateway->stop;
    $fake->stop;
}
