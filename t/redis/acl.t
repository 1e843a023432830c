# The rights that docs/redis.md gives the gateways' user: enough for all that
# the module does, on a server, in a Cluster, and on a Sentinel where nobody else
# may log in, and no more: without any one of them Redis refuses something. What
# Redis refuses stands in its ACL LOG. (t/redis/auth.t: wrong passwords, missing
# rights.)
#
# A right that the page gains must be put to use in drive(), which is all that
# the module asks of Redis; what only some kind of Redis sees goes to %ONLY.

use t::RateLimit 'no_plan';
use t::Api;
use t::Clock;
use t::Gateway qw( tally wait_for );

# rights that a kind of Redis alone is asked for; all others: "server"
my %ONLY = (cluster => [qw( +cluster|slots +cluster|myid +asking )],
            database => [qw( +select )]);

# those that zones with documents need beside the others
my @DOCUMENTS = qw( &rl:rules:* +eval +lpush +lindex +llen +rpop
                    +publish +subscribe +ping );

# those that the module can do without
my @OPTIONAL = qw( +client|setname );

my %ALGORITHMS = (
    token_bucket => 'rate=5r/h',
    leaky_bucket => 'rate=5r/h burst=4 nodelay',
    fixed_window => 'limit=5 window=366d',
    sliding_window => 'limit=5 window=1h',
    sliding_log => 'limit=5 window=1h',
    concurrency => 'limit=1',
);
my @HASHES = qw( token_bucket leaky_bucket fixed_window sliding_window both
                 sweep );
my @STEPS = (sort(keys %ALGORITHMS), qw( both clock sweep slot ));

my ($rights, $sentinel_rights) = rights();
my @rights = @$rights;
my $up = t::Gateway::free_port();
my $drive = 0;
my $PATIENCE = $t::Gateway::PATIENCE;

# "ACL SETUSER rl ..." as the page has it: of a server, and of a Sentinel.
sub rights {
    open my $file, '<', 'docs/redis.md' or die "docs/redis.md: $!";
    my @lines = join('', <$file>) =~ /^ACL SETUSER rl (.*?)^```/msg;
    @lines == 2 or die 'not two ACL SETUSER rl in docs/redis.md';
    return map { [split ' '] } @lines;
}

sub admin {
    my ($port, @args) = @_;
    return redis_cli($port, '--user', 'admin', '--pass', 'general',
                     '--no-auth-warning', @args);
}

# Nobody may log in but the admin and the page's user.
sub close_to_others {
    my $port = shift;
    redis_cli($port, qw( acl setuser admin on >general ~* &* +@all ));
    redis_cli($port, qw( acl setuser default off ));
    like(redis_try($port, 'ping'), qr/NOAUTH/, 'no login, no answer');
}

sub grant {
    my ($ports, @of) = @_;
    my %answers = map { admin($_, 'acl', 'setuser', 'rl', @of) => 1 } @$ports;
    is(join(' ', keys %answers), 'OK', "the user's rights: "
       . (@of > 3 ? 'those of the page' : "@of"));
}

# The objects that Redis refused the user, each once.
sub refused {
    my %objects;
    for my $port (@_) {
        $objects{$_} = 1
            for admin($port, 'acl', 'log') =~ /^object\n(.*)$/mg;
    }
    return join ' ', sort keys %objects;
}

sub told {
    my ($gateway, $path) = @_;
    return t::Gateway::told($gateway->get($path));
}

sub server {
    my $port = redis_start();
    close_to_others($port);
    return $port;
}

# Two primaries; the only bucket is on the first.
sub cluster {
    my @ports = map {
        redis_start(args => ['--cluster-enabled', 'yes',
                             '--cluster-config-file', "nodes-$_.conf"])
    } 1, 2;
    redis_cli($ports[0], 'cluster', 'addslotsrange', 8192, 16383);
    redis_cli($ports[1], 'cluster', 'addslotsrange', 0, 8191);
    redis_cli($ports[0], 'cluster', 'meet', '127.0.0.1', $ports[1]);
    close_to_others($_) for @ports;
    ok(wait_for(sub {
        2 == grep { admin($_, 'cluster', 'info') =~ /cluster_state:ok/ }
                  @ports
    }), 'a cluster');
    return @ports;
}

sub gateway {
    my $where = shift;
    my (%rules, %locations);
    for my $algorithm (keys %ALGORITHMS) {
        my $cost = $algorithm eq 'concurrency' ? '' : 'cost_header=X-Cost';
        $rules{$algorithm} = "ratelimit_rule $algorithm zone=z $cost sync=strict "
                             . "algorithm=$algorithm $ALGORITHMS{$algorithm};";
        $locations{$algorithm} = <<"CONF";
        location /$algorithm {
            ratelimit zone=z rule=$algorithm; proxy_pass http://127.0.0.1:$up;
        }
        location /denied-$algorithm {
            ratelimit zone=z rule=$algorithm; ratelimit zone=z rule=spent;
            empty_gif;
        }
CONF
    }
    my $gateway = t::Gateway->new(http => '');
    $gateway->write('pw', "password\n");
    return $gateway->configure(http => <<"CONF")->start;
    ratelimit_redis r {
        $where; username rl; password_file pw; buckets 1; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=z:1m redis=r;
    ratelimit_zone \$arg_k zone=delay:1m
                   algorithm=leaky_bucket rate=5r/s burst=10;
    @rules{sort keys %rules}
    ratelimit_rule spent zone=z rate=1r/h key=\$arg_spent;
    ratelimit_rule quick zone=z rate=1000r/s;
    server {
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$arg_cost; return 204; }
    }
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        add_header X-Status \$ratelimit_status always;
        @locations{sort keys %locations}
        location /quick { ratelimit zone=z rule=quick; empty_gif; }
        location /both {
            ratelimit zone=z rule=token_bucket;
            ratelimit zone=z rule=fixed_window;
            empty_gif;
        }
        location /spent { ratelimit zone=z rule=spent; empty_gif; }
        location /delay { ratelimit zone=delay; empty_gif; }
        location /held {
            ratelimit zone=z rule=concurrency; ratelimit zone=delay; empty_gif;
        }
    }
CONF
}

# All that the module asks of Redis, or some of @STEPS, with counters of its own
# each time. Returns what differs from what should happen.
sub drive {
    my ($gateway, $ports, @steps) = @_;
    my $k = 'k' . ++$drive;
    my %do = map { $_ => 1 } @steps;
    my @off;
    admin($_, 'flushall') for @$ports;
    admin($_, 'script', 'flush') for @$ports;
    $gateway->get("/spent?k=$k&spent=$k");
    for (grep { $do{$_} } sort keys %ALGORITHMS) {
        push @off, $_ eq 'concurrency' ? in_flight($gateway, $k)
                                       : counted($gateway, $_, $k);
        push @off, "$_: " . given_back($gateway, $_, $k);
    }
    push @off, both($gateway, $k) if $do{both};
    clock_set_back($gateway, $ports->[0], $k) if $do{clock};
    sweep($gateway, $k) if $do{sweep};
    push @off, slot_moves($gateway, $ports, $k) if $do{slot} && @$ports > 1;
    return join ', ', grep { !/: ok$/ } @off;
}

# Granted, settled for more and for less than the cost, denied. What nobody
# waits for goes to Redis before the next request's call does.
sub counted {
    my ($gateway, $algorithm, $k) = @_;
    my $got = join ', ', map { told($gateway, "/$algorithm?k=$k$_") }
                             '&cost=3', '&cost=0', '', '';
    return "$algorithm: " . ($got eq '204 PASSED 2, 204 PASSED 2, '
                                     . '204 PASSED 1, 204 PASSED 0'
                             && told($gateway, "/$algorithm?k=$k")
                                =~ /^429 REJECTED/ ? 'ok' : $got);
}

# Granted, and denied by another counter.
sub given_back {
    my ($gateway, $algorithm, $k) = @_;
    my $got = told($gateway, "/denied-$algorithm?k=$k-b&spent=$k") . ', '
              . told($gateway, "/$algorithm?k=$k-b");
    return $got =~ /^429 REJECTED 0, 204 PASSED [04]$/ ? 'ok' : $got;
}

# Two counters of one client: one call.
sub both {
    my ($gateway, $k) = @_;
    my $got = told($gateway, "/both?k=$k-both");
    return 'both: ' . ($got eq '200 PASSED 4' ? 'ok' : $got);
}

# Two at once for the one slot, which is free again behind them.
sub in_flight {
    my ($gateway, $k) = @_;
    $gateway->get("/delay?k=$k");
    my $got = tally($gateway->burst(2, "/held?k=$k"));
    wait_for(sub {
        $gateway->get("/concurrency?k=$k")->{status} == 204
    }) or $got .= ', the slot is not freed';
    return 'concurrency: ' . ($got eq '1 x 200, 1 x 429' ? 'ok' : $got);
}

# Members of long ago go, those of the future are pulled back.
sub clock_set_back {
    my ($gateway, $port, $k) = @_;
    # that of the fleet's nodes is another's, and would count two for ever
    for my $key (grep { !/:726c2d6e6f646573$/ } split /\n/,
                 admin($port, qw( --scan --pattern rl:{0}:* )))
    {
        admin($port, 'zadd', $key, 1, 'old', '8e15', 'new');
    }
    $gateway->get("/$_?k=$k") for qw( sliding_log concurrency );
}

# A long bucket drops what is full again, whenever it has grown.
sub sweep {
    my ($gateway, $k) = @_;
    for my $n (1, 2) {
        t::Gateway::send_all([map { [$gateway, "/quick?k=$k-$n-$_"] }
                                  1 .. 100]);
    }
}

# ASK, and back: the first no longer has the bucket, the second not yet.
sub slot_moves {
    my ($gateway, $ports, $k) = @_;
    my ($from, $to) = @$ports;
    my @id = map { admin($_, 'cluster', 'myid') } @$ports;
    my $slot = admin($from, 'cluster', 'keyslot', 'rl:{0}');
    admin($to, 'cluster', 'setslot', $slot, 'importing', $id[0]);
    admin($from, 'cluster', 'setslot', $slot, 'migrating', $id[1]);
    admin($from, 'flushall');
    my $got = told($gateway, "/token_bucket?k=$k-ask");
    admin($_, 'flushall') for @$ports;
    admin($_, 'cluster', 'setslot', $slot, 'stable') for @$ports;
    return 'ASK: ' . ($got eq '204 PASSED 4' ? 'ok' : $got);
}

sub enough {
    my ($gateway, $ports, $name, @steps) = @_;
    admin($_, 'acl', 'log', 'reset') for @$ports;
    is(drive($gateway, $ports, @steps), '', "$name: all works");
    is(refused(@$ports), '', "$name: Redis refuses nothing");
    unlike($gateway->log, qr/\[error\]/, "$name: nothing in the log");
}

# Without sorted sets a gateway's heartbeat is refused, every five seconds.
sub enough_without_sets {
    my ($gateway, $ports, $name, @steps) = @_;
    admin($_, 'acl', 'log', 'reset') for @$ports;
    is(drive($gateway, $ports, @steps), '', "$name: all works");
    like(refused(@$ports), qr/^(?:z\w+)?$/,
         "$name: Redis refuses the heartbeat alone");
    unlike($gateway->log, qr/\[error\](?!.*the gateways are not counted)/,
           "$name: nothing else in the log");
}

sub needed {
    my ($gateway, $ports, $right, @steps) = @_;
    my $object = $right =~ s/^\+//r;
    grant($ports, "-$object");
    admin($_, 'acl', 'log', 'reset') for @$ports;
    # a reload would keep the slot map, and a breaker that keeps the log short
    $gateway->stop;
    $gateway->start;
    # what does not work without the right is not waited for
    local $t::Gateway::PATIENCE = 1;
    drive($gateway, $ports, @steps);
    $t::Gateway::PATIENCE = $PATIENCE;
    ok(wait_for(sub { refused(@$ports) eq $object }),
       "without $right Redis refuses something")
        or diag('refused: ' . refused(@$ports));
    # one line a second at most
    ok(wait_for(sub {
        return 1 if $gateway->log =~ /\[error\] .*ratelimit redis/;
        drive($gateway, $ports, @steps);
        return;
    }), "without $right: the log");
    grant($ports, $right);
}

cmp_ok(scalar(grep { /^\+/ } @rights), '>', 10, 'the page has rights');
is(join(' ', grep { /[@*&]/ } @rights), '~rl:* &rl:rules:*',
   'one by one, on the keys and channels of the prefix');

t::Clock::hurry();

my %only = map { $_ => 1 } (map { @$_ } values %ONLY), @DOCUMENTS;

# a server: all but what a Cluster is asked for
my $port = server();
my @server_rights = grep { !$only{$_} } @rights;

grant([$port], @server_rights);

my $gateway = gateway("server 127.0.0.1:$port");

enough($gateway, [$port], 'a server', @STEPS);

grant([$port], grep { !/^\+z/ } @server_rights);
enough_without_sets($gateway, [$port], 'a server without sorted sets',
                    @HASHES);
grant([$port], @server_rights);

my %optional = map { $_ => 1 } @OPTIONAL;

needed($gateway, [$port], $_, @STEPS)
    for grep { /^\+/ && !$optional{$_} } @server_rights;

for my $right (@OPTIONAL) {
    my $object = $right =~ s/^\+//r;
    grant([$port], "-$object");
    $gateway->stop;
    admin($port, 'acl', 'log', 'reset');
    $gateway->start;
    is(drive($gateway, [$port], @STEPS), '', "without $right: all works");
    is(refused($port), $object, "without $right: Redis refuses that alone");
    unlike($gateway->log, qr/\[error\]/, "without $right: nothing in the log");
    grant([$port], $right);
}

$gateway->stop;
redis_stop($port);

# a server's database
$port = server();
grant([$port], @server_rights, @{ $ONLY{database} });
$gateway = gateway("server 127.0.0.1:$port; database 3");

enough($gateway, [$port], 'a database', 'token_bucket');
is(admin($port, '-n', 3, qw( --scan --pattern *} )), 'rl:{0}',
   'the counters are there');
needed($gateway, [$port], $_, 'token_bucket') for @{ $ONLY{database} };

$gateway->stop;

# documents: what the gateway does by itself, and the script as the user
my $script = do { local (@ARGV, $/) = 'lua/rules.lua'; <> };

sub document {
    my ($user_port, @args) = @_;
    return redis_try($user_port, qw( --user rl --pass password ),
                     '--no-auth-warning', 'eval', $script, 2, 'rl:{rules:z}',
                     'rl:{rules:z}:history', @args);
}

# All operations; 52 records, so that the oldest goes.
sub documents {
    my $user_port = shift;
    admin($user_port, 'flushall');
    my @got = map { document($user_port, 'put', $_ - 1,
                             $_ > 1 ? 'id' : 0, $_, 'id', qq({"version":$_}\n)) }
               1 .. 52;
    push @got, map { document($user_port, @$_) }
        ['list'], ['version', 7], ['reset'], ['get', 1, 'a'];
    return join "\n", @got;
}

sub listeners {
    return admin($_[0], qw( pubsub numsub rl:rules:z )) =~ /(\d+)$/ ? $1 : '';
}

sub pings {
    return admin($_[0], qw( info commandstats )) =~ /_ping:calls=(\d+)/
           ? $1 : 0;
}

grant([$port], 'resetchannels', @server_rights, @DOCUMENTS);

$gateway = t::Gateway->new(http => '');
$gateway->write('pw', "password\n");
$gateway->configure(http => <<"CONF")->start;
    ratelimit_redis r {
        server 127.0.0.1:$port; username rl; password_file pw; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=z:1m redis=r state=rules.state;
    @{[map { "ratelimit_rule $_ zone=z sync=strict algorithm=$_ $ALGORITHMS{$_};" }
       sort keys %ALGORITHMS]}
    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=z %%WRITE%%; }
        location / { ratelimit zone=z; empty_gif; }
    }
CONF

admin($port, 'acl', 'log', 'reset');
ok(wait_for(sub { listeners($port) == 1 }), 'documents: listens');
like(documents($port), qr/^1\n1\nid\n(?s:.*)"version":7(?s:.*)52\nid\n\d{16}\n/,
     'documents: all works');

my $api = t::Api->new($gateway);

$gateway->get('/?k=r');
is($api->delete("/counters?rule=$_&key=r")->{status}, 200,
   "documents: a reset of $_")
    for sort keys %ALGORITHMS;

my $pings = pings($port);
ok(wait_for(sub { pings($port) > $pings + 1 }),
   'documents: the connection is watched');
is(listeners($port), 1, 'documents: listens on');
is(refused($port), '', 'documents: Redis refuses nothing');
unlike($gateway->log, qr/\[error\] .*ratelimit redis/,
       'documents: nothing in the log');

for my $right (@DOCUMENTS) {
    my $object = $right =~ s/^[+&]//r;
    if ($right =~ /^&/) {
        $object = 'rl:rules:z';
        grant([$port], 'resetchannels');
    } else {
        grant([$port], "-$object");
    }
    $gateway->stop;
    admin($port, 'acl', 'log', 'reset');
    if ($right =~ /^&|subscribe|ping/) {
        $gateway->start;
        ok(wait_for(sub {
            $gateway->log
            =~ /\[error\] .*refuses messages of changed rules: NOPERM/
        }), "without $right: the log");
    } else {
        documents($port);
    }
    is(refused($port), $object, "without $right Redis refuses something");
    $gateway->stop;
    grant([$port], $right);
}

# a Sentinel, and the server as its master
my $sentinel = redis_start(sentinel => <<"CONF");
sentinel monitor m 127.0.0.1 $port 1
sentinel auth-user m admin
sentinel auth-pass m general
CONF

close_to_others($sentinel);
grant([$port], @server_rights);
grant([$sentinel], @$sentinel_rights);
$gateway = gateway("sentinel m 127.0.0.1:$sentinel; sentinel_username rl; "
                   . 'sentinel_password_file pw');

enough($gateway, [$port], 'a Sentinel', 'token_bucket');
is(refused($sentinel), '', 'a Sentinel: it refuses nothing');
is(join(' ', grep { /^[+@*&~]/ } @$sentinel_rights),
   '+sentinel|get-master-addr-by-name +client|setname', 'one right, and the name');

grant([$sentinel], '-sentinel|get-master-addr-by-name');
ok(wait_for(sub {
    refused($sentinel) eq 'sentinel|get-master-addr-by-name'
}), 'without it the Sentinel refuses something');
ok(wait_for(sub {
    $gateway->log =~ /\[error\] .*ratelimit redis .*answered .*NOPERM/
}), 'without it: the log');

$gateway->stop;
redis_stop($_) for $sentinel, $port;

# a cluster
my @ports = cluster();

@rights = grep { $_ ne '+select' } @rights;
grant(\@ports, @rights);

$gateway = gateway("cluster 127.0.0.1:$ports[1] 127.0.0.1:$ports[0]");

enough($gateway, \@ports, 'a cluster', @STEPS);

needed($gateway, \@ports, $_, 'slot') for @{ $ONLY{cluster} };

$gateway->stop;
redis_stop($_) for @ports;
