# A Redis Cluster of one's own to be killed, stopped and moved about: nodes 0 to
# 2 begin as primaries, 3 to 5 as their replicas. No persistence: what is killed
# comes back empty. And a watcher, which knows when every slot is served.

package t::chaos::Cluster;

use strict;
use warnings;

use File::Path qw( make_path );
use POSIX ();
use Test::More ();
use Time::HiRes qw( sleep clock_gettime CLOCK_MONOTONIC );

use t::Gateway;
use t::chaos::Resp;

use constant { SLOTS => 16384, NODES => 6, NODE_TIMEOUT_MS => 2000 };

# a key in each of the three parts of the slots, first to last
my @PROBES = ('{3}', '{1}', '{0}');

sub now { return clock_gettime(CLOCK_MONOTONIC) }

sub new {
    my ($class, $net, $dir) = @_;
    make_path("$dir/$_") for 0 .. NODES - 1;
    my $self = bless { net => $net, dir => $dir, pids => {}, owner => $$,
                       port => t::Gateway::free_port() }, $class;
    unlink glob "$dir/*/nodes.conf";
    $self->start($_) for 0 .. NODES - 1;
    $self->join_up;
    return $self;
}

sub address {
    my ($self, $node) = @_;
    return "$self->{net}{addresses}[$node]:$self->{port}";
}

sub nodes { return 0 .. NODES - 1 }

# The processes.
sub start {
    my ($self, $node) = @_;
    my $dir = "$self->{dir}/$node";
    my $ip = $self->{net}{addresses}[$node];
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDIN, '<', '/dev/null';
        open STDOUT, '>>', "$dir/log";
        open STDERR, '>&', \*STDOUT;
        # nobody would find it in its namespace: it ends with this program
        { exec @{ $self->{net}{inside} },
            'setpriv', '--pdeathsig', 'KILL', 'redis-server',
            '--port', $self->{port}, '--bind', $ip, '--protected-mode', 'no',
            '--cluster-announce-ip', $ip, '--unixsocket', "$dir/s",
            '--dir', $dir, '--save', '', '--appendonly', 'no',
            '--shutdown-timeout', 0, '--cluster-enabled', 'yes',
            '--cluster-config-file', 'nodes.conf',
            '--cluster-node-timeout', NODE_TIMEOUT_MS,
            '--repl-diskless-sync-delay', 0; }
        POSIX::_exit(127);
    }
    $self->{pids}{$node} = $pid;
    t::Gateway::wait_for(sub { ($self->run($node, 'ping') // '') eq 'PONG'
                               || ($self->run($node, 'ping') // '') =~ /^-/ })
        or die "no redis in $dir";
}

sub signal {
    my ($self, $name, @nodes) = @_;
    CORE::kill $name => $self->{pids}{$_} for @nodes;
}

sub kill {
    my ($self, @nodes) = @_;
    $self->signal(KILL => @nodes);
    waitpid delete $self->{pids}{$_}, 0 for @nodes;
    unlink "$self->{dir}/$_/s" for @nodes;
}

sub end {
    my $self = shift;
    $self->kill(keys %{ $self->{pids} });
    $self->watch_end if $self->{watcher};
}

sub DESTROY {
    my $self = shift;
    local ($?, $!);
    $self->end if $self->{owner} == $$;
}

# Commands.

# What the node answered: an error is "-text", no answer within 2 s undef.
sub run {
    my ($self, $node, @args) = @_;
    my $conn = t::chaos::Resp->new("$self->{dir}/$node/s") or return;
    $conn->tell(@args) or return;
    my ($got, $reply) = $conn->next(2);
    return $got ? $reply : undef;
}

sub join_up {
    my $self = shift;
    my @ids = map { $self->run($_, qw( cluster myid )) } nodes();
    for (0 .. 2) {
        my ($first, $end) = map { int(SLOTS * $_ / 3) } $_, $_ + 1;
        $self->run($_, qw( cluster addslotsrange ), $first, $end - 1);
        $self->run($_, qw( cluster set-config-epoch ), $_ + 1);
    }
    $self->run(0, qw( cluster meet ), split /:/, $self->address($_))
        for 1 .. 5;
    t::Gateway::wait_for(sub {
        !grep { ($self->run($_, qw( cluster info )) // '')
                !~ /known_nodes:6/ } nodes();
    }) or die 'the nodes do not meet';
    for my $node (3 .. 5) {
        t::Gateway::wait_for(sub {
            $self->run($node, qw( cluster replicate ), $ids[$node - 3])
                eq 'OK';
        }) or die "node $node does not replicate";
    }
    $self->healthy(30) or die 'the cluster is not ready';
}

# Whether within so many seconds all serve, and each primary has a replica that
# has its data.
sub healthy {
    my ($self, $seconds) = @_;
    return t::Gateway::wait_for(sub {
        my ($primaries, $links) = (0, 0);
        for my $node (nodes()) {
            my $info = $self->run($node, qw( cluster info )) // return;
            return if $info !~ /cluster_state:ok/
                      || $info !~ /cluster_slots_ok:16384/
                      || $info !~ /cluster_known_nodes:6/;
            $info = $self->run($node, qw( info replication )) // return;
            $primaries++ if $info =~ /role:master.*connected_slaves:[1-9]/s;
            $links++ if $info =~ /master_link_status:up/;
        }
        return $primaries == 3 && $links == 3;
    }, $seconds);
}

# Each primary's number, and with it that of its replica: {primary => replica},
# as the replicas say; what others have heard may be old.
sub pairs {
    my $self = shift;
    my %pairs;
    for my $node (keys %{ $self->{pids} }) {
        my $role = $self->run($node, 'role');
        next if !ref $role || $role->[0] ne 'slave';
        my ($primary) = grep { $self->{net}{addresses}[$_] eq $role->[1] }
                        nodes();
        $pairs{$primary} = $node;
    }
    return \%pairs;
}

# The primaries' numbers.
sub primaries {
    my $self = shift;
    return sort { $a <=> $b } keys %{ $self->pairs };
}

# Moves a slot and its keys, some at a time, as redis-cli does.
sub move_slot {
    my ($self, $slot, $from, $to) = @_;
    my ($from_id, $to_id) = map { $self->run($_, qw( cluster myid )) }
                            $from, $to;
    my @to = split /:/, $self->address($to);
    $self->run($to, qw( cluster setslot ), $slot, 'importing', $from_id);
    $self->run($from, qw( cluster setslot ), $slot, 'migrating', $to_id);
    sleep 0.01;
    for (1 .. 1000) {
        my $keys = $self->run($from, qw( cluster getkeysinslot ), $slot, 2);
        last if !ref $keys || !@$keys;
        $self->run($from, 'migrate', @to, '', 0, 5000, 'keys', @$keys);
        sleep 0.002;
    }
    $self->run($_, qw( cluster setslot ), $slot, 'node', $to_id)
        for $to, $from, grep { $_ != $from && $_ != $to } $self->primaries;
}

# Slots of a node in which keys of that prefix stand, at most $n.
sub used_slots {
    my ($self, $node, $prefix, $n) = @_;
    my %slots;
    for my $key (@{ $self->run($node, 'keys', "$prefix:*") // [] }) {
        $slots{ $self->run($node, qw( cluster keyslot ), $key) } = 1;
        last if keys %slots == $n;
    }
    return sort keys %slots;
}

# The watcher: a process that writes to each part of the slots all the time, and
# notes down each change: when, and whether all of them took it.
sub watch {
    my $self = shift;
    my $file = $self->{watched} = "$self->{dir}/watched";
    open my $out, '>', $file or die "$file: $!";
    $out->autoflush(1);
    my $parent = $$;
    $self->{watcher} = t::Gateway::beside(sub {
        my ($was, %conns) = (-1);
        while (getppid == $parent) {
            my $ok = $self->probe(\%conns) == @PROBES ? 1 : 0;
            print $out now(), " $ok\n" if $ok != $was;
            $was = $ok;
            sleep 0.02;
        }
    });
}

# How many of the parts some node took a write for.
sub probe {
    my ($self, $conns) = @_;
    my %took;
    for my $node (nodes()) {
        my $one = $conns->{$node} //= { waits => 0 };
        $one->{conn} //= t::chaos::Resp->new("$self->{dir}/$node/s") or next;
        next if $one->{waits};
        for (@PROBES) {
            $one->{conn}->tell('set', "probe$_", 1) or last;
            $one->{waits}++;
        }
        delete $conns->{$node} if $one->{waits} < @PROBES;
    }
    my $end = now() + 0.1;
    for my $node (nodes()) {
        my $one = $conns->{$node};
        next if !$one || !$one->{conn};
        while ($one->{waits}) {
            my $left = $one->{late} ? 0 : $end - now();
            my ($got, $reply) = $one->{conn}->next($left > 0 ? $left : 0);
            if (!defined $got) {
                delete $conns->{$node};
                last;
            }
            last if !$got;
            # an old answer says nothing of now
            $one->{waits}--;
            $took{ @PROBES - 1 - $one->{waits} } = 1
                if ($reply // '') eq 'OK' && !$one->{late};
        }
        $one->{late} = $one->{waits} > 0;
    }
    return scalar keys %took;
}

# Since when all has been served, in seconds of the monotonic clock; undef while
# it is not.
sub served_since {
    my $self = shift;
    open my $in, '<', $self->{watched} or die "$self->{watched}: $!";
    my ($last) = (<$in>)[-1] // return;
    my ($when, $ok) = split ' ', $last;
    return $ok ? $when : undef;
}

sub watch_end {
    my $self = shift;
    my $pid = delete $self->{watcher} or return;
    CORE::kill TERM => $pid;
    waitpid $pid, 0;
}

1;
