# Redis Cluster: the slot map is learned, and kept up with: a slot that moves, a
# failover, a script that is gone. No request is lost, none is counted twice.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally told wait_for );

my @ports = cluster_start();
my $prefix = key_prefix();

# one seed only: the others must be learned
sub gateway {
    my ($buckets) = @_;
    return t::Gateway->limited(
        workers => 2, timeout => '10s', zone => 'rate=100r/h sync=strict',
        redis => "cluster 127.0.0.1:$ports[0]; prefix $prefix$buckets;"
                 . " buckets $buckets");
}

# The nodes as one of them sees them: {port => {id, of, slots}}
sub nodes {
    my %nodes;
    for (split /\n/, redis_cli($ports[0], 'cluster', 'nodes')) {
        my ($id, $port, $of, $slots) =
            /^(\w+) \S+?:(\d+)@\S* \S+ (\S+) \S+ \S+ \S+ \S+ ?(.*)$/;
        $nodes{$port} = { id => $id, of => $of, slots => $slots };
    }
    return \%nodes;
}

sub owner {
    my ($slot) = @_;
    my $nodes = nodes();
    for my $port (keys %$nodes) {
        for (split ' ', $nodes->{$port}{slots}) {
            return $port if /^(\d+)(?:-(\d+))?$/ && $slot >= $1
                            && $slot <= ($2 // $1);
        }
    }
    die "nobody has slot $slot";
}

# Strict: of a lease, a worker may have tokens when another is told that there
# are none.
sub exact {
    my ($gateway, $name) = @_;
    my @answers = $gateway->burst(200, '/?k=' . rand);
    is(tally(@answers), '100 x 200, 100 x 429', "$name: exact");
    is(scalar(grep { header($_, 'X-Status') eq 'DEGRADED' }
              @answers), 0, "$name: no one goes without a check");
}

# The replica gets the slots of its primary, as soon as it has its data.
sub failover {
    my ($replica) = @_;
    wait_for(sub {
        redis_try($replica, 'info', 'replication')
            =~ /master_link_status:up/
    }) or return;
    redis_cli($replica, 'cluster', 'failover');
    return wait_for(sub { nodes()->{$replica}{slots} });
}

# keys on all shards
my $gateway = gateway(1024);

$gateway->get("/?k=$_") for 1 .. 60;

for my $port (grep { nodes()->{$_}{slots} } @ports) {
    like(redis_cli($port, '--scan', '--pattern', "${prefix}1024:*"),
         qr/^${prefix}1024:\{\d+\}$/m, "keys on the shard of $port");
}

exact($gateway, 'all shards');

# SCRIPT FLUSH on all
redis_cli($_, 'script', 'flush') for @ports;
exact($gateway, 'no script');
$gateway->stop;

# one bucket is one slot: it moves, under load
my $one = gateway(1);
my $key = "${prefix}1:{0}";
my $slot = redis_cli($ports[0], 'cluster', 'keyslot', $key);
my $from = owner($slot);
my ($to) = grep { $_ != $from && nodes()->{$_}{slots} } @ports;

sub move_begin {
    my ($from, $to) = @_;
    my $nodes = nodes();
    redis_cli($to, 'cluster', 'setslot', $slot, 'importing',
              $nodes->{$from}{id});
    redis_cli($from, 'cluster', 'setslot', $slot, 'migrating',
              $nodes->{$to}{id});
}

sub move_key {
    my ($from, $to) = @_;
    redis_cli($from, 'migrate', '127.0.0.1', $to, $key, 0, 5000);
}

sub move_end {
    my ($from, $to) = @_;
    my $id = nodes()->{$to}{id};
    redis_cli($_, 'cluster', 'setslot', $slot, 'node', $id) for $to, $from;
    wait_for(sub { owner($slot) == $to });
}

is(told($one->get('/?k=m')), '200 PASSED 99', 'before it moves');

move_begin($from, $to);
is(told($one->get('/?k=m')), '200 PASSED 98',
   'migrating: the key is still there');
is(move_key($from, $to), 'OK', 'the key moves');
is(told($one->get('/?k=m')), '200 PASSED 97', 'ASK is followed');
is(tally($one->burst(200, '/?k=m')), '97 x 200, 103 x 429',
   'ASK, two hundred at once: exact');
redis_cli($to, 'script', 'flush');
exact($one, 'ASK without a script');

move_end($from, $to);
is(told($one->get('/?k=n')), '200 PASSED 99', 'MOVED is followed');
exact($one, 'after MOVED');

# and back
move_begin($to, $from);
move_key($to, $from);
move_end($to, $from);
exact($one, 'moved back');

# a failover by hand: the replica gets all, so counters stay
$from = owner($slot);
my $nodes = nodes();
my ($replica) = grep { $nodes->{$_}{of} eq $nodes->{$from}{id} } @ports;

is(told($one->get('/?k=f')), '200 PASSED 99', 'before a failover');
ok(failover($replica), 'a failover');
is(told($one->get('/?k=f')), '200 PASSED 98',
   'after a failover the counter is still there');
exact($one, 'after a failover');

$one->stop;

# the primary is killed, and another program's Redis stands at its address
my $owner = owner($slot);
my $many = gateway(1024);

sub asked { return join ' ', sort map { told($many->get('/?k=' . rand)) }
                             1 .. 60 }

unlike(asked(), qr/DEGRADED/, 'before a primary is killed');

# no failover for now
redis_cli($_, qw( config set cluster-replica-no-failover yes )) for @ports;
kill KILL => redis_cli($owner, qw( info server )) =~ /process_id:(\d+)/;
redis_start(port => $owner);
$many->log_has(qr/no connection to 127.0.0.1:$owner: another server is at its address/,
               'a stranger: the log');
like(asked(), qr/DEGRADED.*PASSED/, 'a stranger: some are degraded');

for my $port (grep { $_ != $owner } @ports) {
    redis_cli($port, qw( config set cluster-replica-no-failover no ));
}

ok(wait_for(sub { asked() !~ /DEGRADED/ }), 'a failover');
$many->stop;
