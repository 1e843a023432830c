# A cluster that lets in nobody without a password: a user with exactly the
# rights that docs/redis.md names, and what happens with fewer, with a
# wrong password and with none. (t/redis/redis.t logs in to a single server.)

use t::RateLimit 'no_plan';
use t::FakeRedis;
use t::Gateway qw( tally told wait_for );

my $PASSWORD = 'correct-horse';

# two primaries, without replicas
my @ports = map {
    redis_start(args => ['--cluster-enabled', 'yes', '--cluster-node-timeout',
                         2000, '--cluster-config-file', "nodes-$_.conf"])
} 1, 2;

redis_cli($ports[0], 'cluster', 'addslotsrange', 0, 8191);
redis_cli($ports[1], 'cluster', 'addslotsrange', 8192, 16383);
redis_cli($ports[0], 'cluster', 'meet', '127.0.0.1', $ports[1]);

ok(wait_for(sub {
    2 == grep { redis_try($_, 'cluster', 'info') =~ /cluster_state:ok/ } @ports
}), 'a cluster');

# the rights as the manual has them
open my $file, '<', 'docs/redis.md' or die "docs/redis.md: $!";
my ($rights) = join('', <$file>)
               =~ /^ACL SETUSER rl reset on >password (.*?)^```/ms
    or die 'no ACL SETUSER in docs/redis.md';
close $file;

sub grant {
    my ($port, $user, @rights) = @_;
    is(redis_cli($port, 'acl', 'setuser', $user, 'reset', 'on', ">$PASSWORD",
                 @rights), 'OK', "$user has its rights");
}

my @rights = split ' ', $rights;

# each check needs these, the others are for long buckets and slots that move
my @needed = qw( +evalsha +script|load +cluster|slots +time +hget +hset );

is(join(' ', grep { my $one = $_; !grep { $_ eq $one } @rights } @needed), '',
   'the manual names what a check needs');

my %called;

for my $name (glob 'lua/*.lua') {
    open my $script, '<', $name or die "$name: $!";
    $called{'+' . lc} = 1 for join('', <$script>) =~ /\bcall\('(\w+)'/g;
}

delete @called{@rights};

is(join(' ', sort keys %called), '', 'the manual names what the scripts call');

for my $port (@ports) {
    grant($port, 'rl', @rights);
    for my $needed (@needed) {
        grant($port, 'no' . $needed =~ tr/+|//dr,
              grep { $_ ne $needed } @rights);
    }
    grant($port, 'elsewhere', map { $_ eq '~rl:*' ? '~other:*' : $_ } @rights);
}

sub ask {
    my ($port, @args) = @_;
    return redis_cli($port, '-a', 'general', '--no-auth-warning', @args);
}

redis_cli($_, 'config', 'set', 'requirepass', 'general') for @ports;

sub gateway {
    my ($user, $password, $more) = @_;
    my $login = defined $user ? "username $user;" : '';
    $login .= ' password_file pw;' if defined $password;
    return t::Gateway->limited(timeout => '1s', zone => 'rate=10r/h',
        redis => "cluster 127.0.0.1:$ports[0] 127.0.0.1:$ports[1]; prefix rl;"
                 . $login . ($more // ''),
        files => { defined $password ? (pw => "$password\n") : () });
}

# right
{
    my $gateway = gateway('rl', $PASSWORD);
    is(join(' ', map { told($gateway->get("/?k=$_")) } 1 .. 30),
       join(' ', ('200 PASSED 9') x 30), 'the right password: on all shards');
    is(tally($gateway->burst(50, '/?k=a')), '10 x 200, 40 x 429',
       'the right password: exact');
    is(scalar(() = $gateway->log =~ /\[error\]/g), 0,
       'the right password: nothing refused');
    $gateway->stop;
}

{
    my $gateway = gateway(undef, 'general');
    is(told($gateway->get('/?k=d')), '200 PASSED 9',
       'the default user\'s password');
    $gateway->stop;
}

# a long bucket is swept, and a slot moves: every right is put to use
{
    my $gateway = gateway('rl', $PASSWORD, 'buckets 1;');
    my $slot = ask($ports[0], 'cluster', 'keyslot', 'rl:{0}');
    my ($from, $to) = $slot < 8192 ? @ports : reverse @ports;
    my %id = map { $_ => ask($_, 'cluster', 'myid') } @ports;
    # what is no counter's state is dropped
    ask($from, 'hset', 'rl:{0}', map { ("junk$_", 'x') } 1 .. 63);
    $gateway->burst(40, "/?k=s$_") for 1 .. 40;
    is(ask($from, 'hexists', 'rl:{0}', 'junk1'), 0, 'a long bucket is swept');
    ask($to, 'cluster', 'setslot', $slot, 'importing', $id{$from});
    ask($from, 'cluster', 'setslot', $slot, 'migrating', $id{$to});
    is(ask($from, 'migrate', '127.0.0.1', $to, 'rl:{0}', 0, 5000, 'AUTH',
           'general'), 'OK', 'the key moves');
    is(told($gateway->get('/?k=new')), '200 PASSED 9', 'ASK is followed');
    ask($_, 'cluster', 'setslot', $slot, 'node', $id{$to}) for $to, $from;
    is(told($gateway->get('/?k=new')), '200 PASSED 8', 'MOVED is followed');
    unlike($gateway->log, qr/\[error\]/, 'and nothing was refused');
    $gateway->stop;
}

# wrong
for (['a wrong password', 'rl', 'wrong-horse', 'AUTH answered WRONGPASS'],
     ['an unknown user', 'nobody', $PASSWORD, 'AUTH answered WRONGPASS'],
     ['no password', undef, undef, 'with NOAUTH'],
     ['keys of others', 'elsewhere', $PASSWORD, 'with NOPERM'],
     # of a command inside the script Redis says ERR
     map { ["no right $_", 'no' . tr/+|//dr, $PASSWORD, 'with (?:NOPERM|ERR)'] }
         @needed)
{
    my ($name, $user, $password, $logged) = @$_;
    ask($_, 'script', 'flush') for @ports;
    my $gateway = gateway($user, $password);
    my $answer = $gateway->get('/?k=w');
    is(told($answer), '200 DEGRADED -1', "$name: it passes");
    is(tally($gateway->burst(20, '/?k=w')), '20 x 200',
       "$name: twenty at once");
    ok(wait_for(sub { $gateway->log =~ /$logged/ }), "$name: the log: $logged");
    unlike($gateway->log, qr/horse|general/, "$name: no password in it");
    unlike($gateway->log, qr/connected to/, "$name: nobody is connected again")
        if $name =~ /password/;
    $gateway->stop;
}

# a file that an editor began with a byte order mark
{
    my $gateway = gateway('rl', "\xef\xbb\xbf$PASSWORD");
    is(told($gateway->get('/?k=bom')), '200 PASSED 9', 'a byte order mark');
    $gateway->stop;
}

# an error that says what it was sent: the log has it without that
{
    my $fake = t::FakeRedis->new(sub {
        return "-ERR unknown command 'AUTH', with args beginning with: 'rl' "
               . "'battery' \r\n" if $_[0] eq 'AUTH';
        return "+OK\r\n";
    });
    my $gateway = t::Gateway->limited(
        redis => "server 127.0.0.1:$fake->{port}; password_file pw",
        files => { pw => "battery\n" }, zone => 'rate=10r/h');
    $gateway->log_has(qr/AUTH answered ERR$/m,
                      'unknown AUTH: the log');
    unlike($gateway->log, qr/battery|args/, 'unknown AUTH: no password in it');
    $gateway->stop;
    $fake->stop;
    $fake = t::FakeRedis->new(sub {
        return "-ERR \x01refused \xc3 (battery)\r\n" if $_[0] eq 'AUTH';
        return "-ERR max number of \x1bclients reached\r\n";
    });
    $gateway = t::Gateway->limited(
        redis => "server 127.0.0.1:$fake->{port}; password_file pw",
        files => { pw => "battery\n" }, zone => 'rate=10r/h');
    $gateway->log_has(qr/AUTH answered ERR$/m, 'echoed password: the log');
    unlike($gateway->log, qr/battery/, 'echoed password: it is not there');
    $gateway->stop;
    $fake->stop;
}

redis_stop($_) for @ports;
