# "database": counters stand there and nowhere else, after a reconnect too; a
# server that has no such database is not used.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

my @auth = ('--requirepass', 'hush');
my $port = redis_start(args => \@auth);
my $fake = t::FakeRedis->new(
    sub { $_[0] =~ /^(?:AUTH|SELECT)$/ ? "+OK\r\n" : $GOOD });

my @lines = ('database 3;', 'database 0;', '', 'database 99;');
my $redis = join '', map {
    "ratelimit_redis r$_ { server 127.0.0.1:$port; password_file pw; "
    . "timeout 2s; $lines[$_] }\n"
    . "ratelimit_zone \$arg_k zone=z$_:64k rate=10r/h redis=r$_;\n"
} 0 .. $#lines;
my $locations = join '', map {
    "location /$_ { ratelimit zone=z$_; empty_gif; }\n"
} 0 .. $#lines;

my $gateway = t::Gateway->new(http => <<"CONF");
    $redis
    ratelimit_redis f { server 127.0.0.1:$fake->{port}; password_file pw;
                        timeout 2s; database 7; }
    ratelimit_zone \$arg_k zone=f:64k rate=10r/h redis=f;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        $locations
        location /f { ratelimit zone=f; empty_gif; }
    }
CONF

$gateway->write('pw', "hush\n");
$gateway->start;

sub told { return t::Gateway::told($gateway->get(@_)) }

# Those of counters: each has a bucket of its own here.
sub keys_of {
    my @keys = split /\n/, redis_cli($port, '-a', 'hush', '--no-auth-warning',
                                     '-n', $_[0], qw( --scan --pattern *} ));
    return scalar @keys;
}

is(told('/0?k=a'), '200 PASSED 9', 'database 3');
is(keys_of(3), 1, 'the counter stands there');
is(keys_of(0), 0, 'and not in 0');

is(told('/1?k=b'), '200 PASSED 9', 'database 0');
is(told('/2?k=b'), '200 PASSED 9', 'none named');
cmp_ok(keys_of(0), '>', 0, 'both are 0');

is(told('/3?k=a'), '200 DEGRADED -1', 'a database that is not there');
ok(wait_for(sub {
    $gateway->log =~ /"r3": no connection to \S+: SELECT answered ERR/
}), 'the log says so');

# a new connection selects again
redis_cli($port, '-a', 'hush', '--no-auth-warning', 'client', 'kill', 'type',
          'normal');
ok(wait_for(sub { told('/0?k=c') eq '200 PASSED 9' }), 'connected again');
is(keys_of(3), 2, 'the counter stands there too') or
    redis_cli($port, '-a', 'hush', 'info', 'keyspace');

# the order of what goes ahead of all calls
is(told('/f?k=a'), '200 PASSED 9', 'a server that notes what it hears');
is(join(' ', map { $_->[2] } ($fake->heard)[0 .. 3]),
   'AUTH SELECT SCRIPT EVALSHA', 'AUTH, SELECT, SCRIPT LOAD, the check');

$gateway->stop;
$fake->stop;
