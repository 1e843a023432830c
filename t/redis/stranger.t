# A server at the address of a Cluster's node that is no node of that Cluster
# takes no calls: its id is not the one that the slot map has. The map is asked
# for each minute, though nothing is wrong.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( told wait_for );
use t::FakeRedis;

use File::Temp ();

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $flags = File::Temp->newdir;

t::Clock::hurry();

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }

# CLUSTER SLOTS' answer of [first, last, port, id] or [..., host]
sub slots {
    return '*' . @_ . "\r\n" . join '', map {
        "*3\r\n:$_->[0]\r\n:$_->[1]\r\n*4\r\n" . bulk($_->[4] // '127.0.0.1')
        . ":$_->[2]\r\n" . bulk($_->[3]) . "*0\r\n"
    } @_;
}

# A server that has this id and, if slots says so, is a node of a Cluster.
sub server {
    my ($port, $id, $slots) = @_;
    return t::FakeRedis->new(sub {
        return $_[0] eq 'EVALSHA' ? $GOOD : "+OK\r\n" if $_[0] ne 'CLUSTER';
        return $slots ? slots($slots->()) : "-ERR no Cluster\r\n";
    }, port => $port, id => $id);
}

sub gateway {
    my ($port, %more) = @_;
    return t::Gateway->limited(workers => 2, timeout => '2s', %more,
                               redis => "cluster 127.0.0.1:$port",
                               zone => 'rate=10r/h sync=strict');
}

# What requests of many keys are told: { 'PASSED 9' => n, ... }
sub statuses {
    my ($gateway) = @_;
    my %n;
    $n{told($_)}++ for $gateway->burst(20, '/?k=' . rand);
    $n{told($gateway->get('/?k=' . rand))}++ for 1 .. 20;
    return join ' ', sort keys %n;
}

sub checks { return scalar grep { $_->[2] eq 'EVALSHA' } $_[0]->heard }

sub flag { open my $file, '>', "$flags/$_[0]" or die }

my ($A, $B, $C) = map { $_ x 40 } 'a' .. 'c';

# one of two nodes dies, and another program's Redis stands at its address
{
    my ($one, $two, $three) = map { t::Gateway::free_port() } 1 .. 3;
    my $map = sub {
        return [0, 8191, $one, $A],
               [8192, 16383, -e "$flags/failover" ? ($three, $C) : ($two, $B)];
    };
    my $node = server($one, $A, $map);
    my $dies = server($two, $B, $map);
    my $gateway = gateway($one, workers => 1);
    is(statuses($gateway), '200 PASSED 9', 'two nodes');
    cmp_ok(checks($dies), '>', 0, 'the second one counts');
    $dies->stop;
    my $stranger = server($two, '-ERR This instance has cluster support disabled');
    $gateway->log_has(qr/no connection to 127.0.0.1:$two: another server is at its address/,
                      'a stranger: the log');
    my $before = checks($stranger);
    is(statuses($gateway), '200 DEGRADED -1 200 PASSED 9',
       'a stranger: its hash slots are degraded');
    is(checks($stranger), $before, 'a stranger counts nothing');
    ok(wait_for(sub {
        $gateway->get('/?k=' . rand) for 1 .. 5;
        $gateway->get('/metrics')->{body}
            =~ /breaker_state\{[^}]*$two"\} 1\b/;
    }), 'a stranger: the breaker is open');
    unlike($gateway->log, qr/connected to 127.0.0.1:$two again/,
           'a stranger: nobody is connected again');
    # the node is back
    $stranger->stop;
    $dies = server($two, $B, $map);
    ok(wait_for(sub { statuses($gateway) eq '200 PASSED 9' }),
       'the node is back');
    cmp_ok(checks($dies), '>', 0, 'the node is back and counts');
    # it dies again, and a replica takes over
    $dies->stop;
    $stranger = server($two, $C);
    my $replica = server($three, $C, $map);
    flag('failover');
    ok(wait_for(sub { statuses($gateway) eq '200 PASSED 9' }), 'a failover');
    cmp_ok(checks($replica), '>', 0, 'a failover: the replica counts');
    $gateway->stop;
    $_->stop for $node, $stranger, $replica;
}

# the whole Cluster is another one, at the same addresses
{
    my $port = t::Gateway::free_port();
    my $node = server($port, $A, sub { [0, 16383, $port, $A] });
    my $gateway = gateway($port);
    is(statuses($gateway), '200 PASSED 9', 'a Cluster');
    $node->stop;
    $node = server($port, $B, sub { [0, 16383, $port, $B] });
    ok(wait_for(sub { statuses($gateway) eq '200 PASSED 9' }),
       'a new Cluster at the addresses of the configuration');
    # what is there is none any more
    $node->stop;
    $node = server($port, $C);
    $gateway->log_has(qr/$port answered CLUSTER SLOTS with ERR no Cluster/,
                      'no Cluster: the log');
    is(statuses($gateway), '200 DEGRADED -1', 'no Cluster: degraded');
    $gateway->stop;
    $node->stop;
}

# a proxy that stands for two nodes, and one that knows no ids
for (['a proxy', $C, [0, 8191, $A], [8192, 16383, $B], [0, 0, $A]],
     ['no right', '-NOPERM x', [0, 16383, $A]],
     ['no id by itself', 'none', [0, 16383, $A]],
     ['no id in the map', $A, [0, 16383, '']])
{
    my ($name, $id, @ranges) = @$_;
    my $port = t::Gateway::free_port();
    my $node = server($port, $id, sub { map { [@$_[0, 1], $port, $_->[2]] } @ranges });
    my $gateway = gateway($port);
    is(statuses($gateway), '200 PASSED 9', "$name: is not checked");
    like($gateway->log, qr/answered CLUSTER MYID with NOPERM x/, "$name: the log")
        if $id =~ /^-/;
    $gateway->stop;
    $node->stop;
}

# a node whose name is not known for a while is where it was
{
    my ($one, $two) = map { t::Gateway::free_port() } 1 .. 2;
    my $map = sub {
        return [0, 8191, $one, $A],
               [8192, -e "$flags/names" ? (12287, $two, $B, '?')
                                        : (16383, $two, $B)];
    };
    my @nodes = (server($one, $A, $map), server($two, $B, $map));
    my $gateway = gateway($one);
    is(statuses($gateway), '200 PASSED 9', 'names: before');
    flag('names');
    # nothing is wrong
    advance(61);
    $gateway->log_has(qr/4096 hash slots have no node/,
                      'the map is asked for each minute');
    is(statuses($gateway), '200 DEGRADED -1 200 PASSED 9', 'names: the new map');
    my $before = checks($nodes[1]);
    $gateway->get('/?k=' . rand) for 1 .. 40;
    cmp_ok(checks($nodes[1]), '>', $before, 'names: "?" is where it was');
    like($gateway->get('/metrics')->{body},
         qr/^ratelimit_redis_topology_age_seconds\{redis="r"\} \d/m,
         'the age of the map');
    $gateway->stop;
    $_->stop for @nodes;
}
