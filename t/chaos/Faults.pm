# The faults: what is done to Redis, to the network and to the gateways while
# the load runs, and what that permits.
#
#     name     as the report calls it
#     do       the function, called with the run and the numbers below
#     short    its numbers in t/chaos/chaos.t; a fault without is left out there
#     full     its numbers in make chaos
#     net      needs a network of its own
#     loses    what may be lost, so that clients get more than their limits:
#              "writes" to Redis, five per cent more; "all" that Redis has, a
#              limit more for each client; "local", the counter in shared
#              memory that a worker just wrote when it was killed
#     closed   requests whose connection closes without an answer are permitted
#     moves    a replica takes over, and no write is lost
#     serves   Redis serves all the time: at most a quarter may be DEGRADED,
#              and that for a busy machine's sake
#     log      what nginx itself says to it in the error log
#     fresh    one request a connection: a worker that exits closes idle ones,
#              and a request that is just then under way gets no answer

package t::chaos::Faults;

use strict;
use warnings;

use Time::HiRes qw( sleep );

use t::Gateway;

sub table {
    return (
        { name => 'primary killed, and back', do => \&kill_primary,
          loses => 'writes',
          short => { pause => 0.5 }, full => { pause => 3 } },
        { name => 'primary killed, replica behind', do => \&kill_primary,
          loses => 'writes', full => { pause => 1, behind => 0.2 } },
        { name => 'primary stopped', do => \&stop_primary,
          short => { seconds => 1 }, full => { seconds => 1 } },
        { name => 'primary stopped, replica takes over', do => \&stop_primary,
          loses => 'writes', full => { seconds => 6 } },
        { name => 'CLUSTER FAILOVER', do => \&fail_over, serves => 1,
          moves => 1,
          short => { times => 1 }, full => { times => 6 } },
        { name => 'slots migrate and come back', do => \&migrate, serves => 1,
          short => { slots => 8 }, full => { slots => 30 } },
        { name => 'all nodes cut off, packets lost', do => \&cut, net => 1,
          short => { does => 'drop', seconds => 1.5 },
          full => { does => 'drop', seconds => 5 } },
        { name => 'one node cut off, packets lost', do => \&cut, net => 1,
          full => { does => 'drop', seconds => 5, one => 1 } },
        { name => 'all nodes cut off, refused', do => \&cut, net => 1,
          short => { does => 'refuse', seconds => 1 },
          full => { does => 'refuse', seconds => 5 } },
        { name => '100 ms delay, 5 % loss', do => \&cut, net => 1,
          short => { does => 'slow 100 5', seconds => 2 },
          full => { does => 'slow 100 5', seconds => 10 } },
        { name => '20 ms delay, 5 % loss', do => \&cut, net => 1,
          full => { does => 'slow 20 5', seconds => 10 } },
        { name => 'single connections faulty', do => \&faulty, net => 1,
          full => { seconds => 10, packets => 50 } },
        { name => 'maxmemory reached', do => \&fill,
          short => { seconds => 1 }, full => { seconds => 5 } },
        { name => 'scripts flushed', do => \&flush, serves => 1,
          short => { times => 10 }, full => { times => 100 } },
        { name => 'connections killed', do => \&kill_clients,
          short => { times => 3 }, full => { times => 20 } },
        { name => 'all nodes down', do => \&all_down, loses => 'all',
          full => { seconds => 10 } },
        { name => 'restart without data', do => \&all_down, loses => 'all',
          short => { seconds => 0.5 }, full => { seconds => 0 } },
        { name => 'five gateways without Redis', do => \&alone,
          short => { others => 30 }, full => { others => 30 } },
        { name => 'workers killed', do => \&kill_workers, closed => 1,
          loses => 'local', serves => 1,
          log => qr/\[alert\] .*(?:exited\ on\ signal\ 9
                                 |sendmsg\(\)\ failed\ \((?:32|104|111):)/x,
          short => { times => 30, storm => 1000 },
          full => { times => 1000, storm => 3000 } },
        { name => 'reload every second', do => \&reload, serves => 1,
          fresh => 1, short => { times => 2 }, full => { times => 15 } },
        { name => 'clients abort', do => \&abort, serves => 1,
          short => { seconds => 1, rate => 500 },
          full => { seconds => 10, rate => 1000 } },
        { name => 'SIGQUIT with replies pending', do => \&quit,
          short => { times => 1 }, full => { times => 5 } },
    );
}

# Redis

# behind: so many seconds before, the replica gets nothing any more. It cannot
# follow with a password that its primary does not know.
sub kill_primary {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    my $pairs = $cluster->pairs;
    my $primary = (keys %$pairs)[0];
    my @auth = ($pairs->{$primary}, qw( config set masterauth ));
    if ($is{behind}) {
        $cluster->run(@auth, 'unknown');
        $cluster->run($primary, qw( client kill type replica ));
        sleep $is{behind};
    }
    $cluster->kill($primary);
    $cluster->run(@auth, '');
    $run->waits('the replica takes over', sub {
        ($cluster->run($pairs->{$primary}, 'info', 'replication') // '')
            =~ /role:master/
    });
    $run->served;
    sleep $is{pause};
    $cluster->start($primary);
}

# A stopped process is there, and silent.
sub stop_primary {
    my ($run, %is) = @_;
    my ($primary) = keys %{ $run->{cluster}->pairs };
    $run->{cluster}->signal(STOP => $primary);
    sleep $is{seconds};
    $run->{cluster}->signal(CONT => $primary);
    $run->mark;
}

# One shard after the other: the other primaries do not vote for one twice in
# four seconds.
sub fail_over {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    for my $time (1 .. $is{times}) {
        my ($replica) = grep { $_ % 3 == $time % 3 }
                        values %{ $cluster->pairs };
        $run->waits('a replica follows', sub {
            $cluster->run($replica, 'info', 'replication')
                =~ /master_link_status:up/
        });
        $cluster->run($replica, 'cluster', 'failover');
        $run->waits('it becomes the primary', sub {
            ($cluster->run($replica, 'info', 'replication') // '')
                =~ /role:master/
        });
        $run->mark;
        $run->waits('its primary follows it', sub { $cluster->healthy(1) });
        # a primary ignores who it does not know as its replica yet
        sleep 1 if $time < $is{times};
    }
}

sub migrate {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    my ($from, $to) = $cluster->primaries;
    my @slots = $cluster->used_slots($from, $run->{prefix}, $is{slots});
    $run->ok(scalar @slots, 'there are keys to move');
    for (@slots) {
        $cluster->move_slot($_, $from, $to);
        sleep 0.02;
    }
    for (@slots) {
        $cluster->move_slot($_, $to, $from);
    }
    $run->mark;
}

sub fill {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    $cluster->run($_, qw( config set maxmemory ), 1) for $cluster->nodes;
    sleep $is{seconds};
    $cluster->run($_, qw( config set maxmemory ), 0) for $cluster->nodes;
    $run->mark;
}

sub flush {
    my ($run, %is) = @_;
    for (1 .. $is{times}) {
        $run->{cluster}->run($_, qw( script flush ))
            for $run->{cluster}->nodes;
        sleep 0.05;
    }
    $run->mark;
}

sub kill_clients {
    my ($run, %is) = @_;
    for (1 .. $is{times}) {
        $run->{cluster}->run($_, qw( client kill type normal ))
            for $run->{cluster}->nodes;
        sleep 0.2;
    }
    $run->mark;
}

sub all_down {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    $cluster->kill($cluster->nodes);
    sleep $is{seconds};
    $cluster->start($_) for $cluster->nodes;
}

# Five gateways that know of each other lose all Redis nodes: each admits its
# share of what it knows to be left, so all of them at most twice the limit.
sub alone {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    my $limit = $run->ALONE;
    my @more = map { $run->gateway_new("alone$_") } 1 .. 3;
    my @fleet = (@{ $run->{gateways} }, @more);
    $run->waits('each gateway knows of five', sub {
        @fleet == grep { $_->get('/metrics')->{body}
                         =~ /^ratelimit_gateways\S* 5$/m } @fleet
    });
    my @families = qw( alone trickle ahead );
    my $passed = sub {
        my ($n, $path) = @_;
        return scalar grep { $_->{status} == 200 } t::Gateway::send_all(
            [map { my $i = $_; map { [$_, $path] } @fleet } 1 .. $n]);
    };
    # others have used some before, and all gateways have seen that; where a busy
    # Redis was too late for one of them it is done again, with another key
    my (%used, $tries);
    for my $family (@families) {
        $run->waits("$family: each gateway has heard of the others", sub {
            my $path = $used{$family} = "/$family?k=used" . ++$tries;
            my @answers = (t::Gateway::send_all([
                map { my $i = $_; map { [$_, $path] } @fleet }
                    2 .. $is{others} / @fleet
            ]), map { $_->get($path) } @fleet);
            return !grep { t::Gateway::header($_, 'X-Status') ne 'PASSED' }
                         @answers;
        });
    }
    $cluster->signal(STOP => $cluster->nodes);
    $passed->(4, '/known?k=breaker');
    for my $family (@families) {
        my $new = $passed->($limit, "/$family?k=new");
        my $rest = $passed->($limit, $used{$family});
        $run->is($new, 2 * $limit, "$family: the fleet admits twice the limit");
        $run->ok($rest >= @fleet, "$family: each gateway admits some");
        $run->at_most($is{others} + $rest, 2 * $limit,
                      "$family: with what was admitted before");
    }
    $cluster->signal(CONT => $cluster->nodes);
    $run->mark;
    $_->stop for @more;
}

# The network
sub cut {
    my ($run, %is) = @_;
    my $node = '';
    if ($is{one}) {
        my ($primary) = keys %{ $run->{cluster}->pairs };
        ($node) = $run->{cluster}->address($primary) =~ /\.(\d+):/;
    }
    $run->{net}->does("$is{does} $node");
    sleep $is{seconds};
    $run->{net}->does('pass');
    $run->mark;
}

# First as long without: what is degraded then, on a busy machine, is not by the
# faults.
sub faulty {
    my ($run, %is) = @_;
    my @times = $run->mark;
    sleep $is{seconds};
    $run->{net}->does("faulty $is{packets}");
    push @times, $run->mark;
    sleep $is{seconds};
    $run->{net}->does('pass');
    push @times, $run->mark;
    $run->{compares} = \@times;
}

# The gateways

# Wherever a worker is when it dies, its locks and counters are in the shared
# memory of one that goes on.
sub kill_workers {
    my ($run, %is) = @_;
    $run->load_start('storm', rate => $is{storm}, seconds => 300,
                     only => 'local');
    for (1 .. $is{times}) {
        my $gateway = $run->{gateways}[rand @{ $run->{gateways} }];
        my @workers = $gateway->workers;
        kill KILL => $workers[rand @workers] if @workers;
        sleep rand 0.04;
    }
    $run->mark;
    $run->load_end('storm');
    $run->{resets} = $is{times};
    for my $gateway (@{ $run->{gateways} }) {
        $run->waits('all workers are there again', sub {
            $gateway->workers == $gateway->{workers}
        });
    }
    # more keys than the zone has parts with a lock of their own
    for my $i (0 .. 9) {
        my @answers = t::Gateway::send_all(
            [map { [$run->{gateways}[$_ % 2], "/local?k=part$i-$_"] }
             0 .. 299]);
        my $right = grep { t::Gateway::told($_) eq '200 PASSED 999999' }
                    @answers;
        $run->is($right, 300, 'no part of the zone is locked') if $right != 300;
    }
}

sub reload {
    my ($run, %is) = @_;
    for (1 .. $is{times}) {
        $_->signal('HUP') for @{ $run->{gateways} };
        sleep 1;
    }
    $run->mark;
    for my $gateway (@{ $run->{gateways} }) {
        $run->waits('old workers end', sub {
            $gateway->workers == $gateway->{workers}
        });
    }
}

sub abort {
    my ($run, %is) = @_;
    $run->load_start('aborts', rate => $is{rate}, abort => 5,
                     seconds => $is{seconds});
    sleep $is{seconds};
    $run->load_end('aborts');
    $run->mark;
}

# How many connections of clients the workers have. One that waits for that has
# no inode.
sub accepted {
    my $port = sprintf ':%04X', $_[0]{port};
    open my $file, '<', '/proc/net/tcp' or die "tcp: $!";
    return scalar grep { my @of = split;
                         $of[1] =~ /$port\z/ && $of[3] eq '01' && $of[9] } <$file>;
}

# A gateway of its own that is told to end while all its requests wait, for
# replies that never come, and for some that do.
sub quit {
    my ($run, %is) = @_;
    my $cluster = $run->{cluster};
    for my $time (1 .. $is{times}) {
        for my $answers (0, 1) {
            my @nodes = $cluster->primaries;
            my $gateway = $run->gateway_new("leaver$time$answers",
                                            $answers ? '10s' : '900ms');
            my $wanted = $answers ? 'PASSED' : 'DEGRADED';
            $run->waits('the gateway has its connections', sub {
                30 == grep { t::Gateway::header($_, 'X-Status') eq 'PASSED' }
                      map { $gateway->get("/known?k=leaver$_") } 1 .. 30
            });
            $cluster->signal(STOP => @nodes);
            my $child = t::Gateway::beside(sub {
                t::Gateway::wait_for(sub { accepted($gateway) == 60 });
                sleep 0.1;
                $gateway->signal('QUIT');
                sleep 0.2;
                $cluster->signal(CONT => @nodes) if $answers;
            });
            my @answers = t::Gateway::send_all(
                [map { [$gateway, "/known?k=leaver$_"] } 1 .. 60]);
            waitpid $child, 0;
            $cluster->signal(CONT => @nodes);
            $run->mark;
            $run->is(t::Gateway::tally(@answers), '60 x 200',
                     'every request of a worker that ends is answered');
            $run->ok(scalar(grep { t::Gateway::header($_, 'X-Status')
                                   eq $wanted } @answers),
                     "and some were $wanted");
            $gateway->stop;
        }
    }
}

1;
