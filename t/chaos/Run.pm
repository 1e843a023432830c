# A run: six nodes, two gateways, one fault after the other under load, and what
# must hold after each.

package t::chaos::Run;

use strict;
use warnings;

use File::Path qw( make_path );
use List::Util qw( max shuffle );
use POSIX ();
use Test::More ();
use Time::HiRes qw( sleep );

use t::Gateway;
use t::chaos::Cluster;
use t::chaos::Net;
use t::chaos::Oracle;

use constant {
    TIMEOUT_MS  => 100,
    PER_KEY     => 20,      # requests a second, see Oracle.pm
    HOT         => 100,     # of the one key that is followed by leases
    PASSES_S    => 40,      # for what must happen some time
    WAIT_S      => 8,       # the longest that one may take on a busy machine
    MEMORY_KB   => 8192,    # what a worker may have grown
    NODES       => 6,
    ALONE       => 100,     # the limit of what gateways count without Redis
};

# of ten keys
my %SHARES = (known => 4, bucket => 3, quota => 2, local => 1);

# rate: requests a second. settle: seconds of load before and after a fault.
# quota: the limit of that family. recovers: in so many seconds all must be
# limited again.
sub new {
    my ($class, %self) = @_;
    my $self = bless { n => 0, rows => [], %self }, $class;
    $t::chaos::Oracle::FAMILIES{quota}{limit} = $self->{quota};
    $t::chaos::Oracle::FAMILIES{lease}{limit} = $self->{quota} * HOT / PER_KEY;
    $self->{prefix} = "chaos$$";
    $self->{dir} = t::Gateway::dir('chaos');
    make_path($self->{dir});
    $self->{$_} = $self->compile($_) for qw( load wire );
    $self->{net} = t::chaos::Net->new($self->{wire});
    $self->{cluster} = t::chaos::Cluster->new($self->{net},
                                              "$self->{dir}/nodes");
    $self->{gateways} = [map { $self->gateway_new($_) } qw( east west )];
    $self->recovers;
    return $self;
}

sub compile {
    my ($self, $name) = @_;
    my $program = "$self->{dir}/$name";
    system($ENV{CC} || 'cc', '-O2', '-o', $program, "t/chaos/$name.c") == 0
        or die "t/chaos/$name.c does not compile";
    return $program;
}

sub gateway_new {
    my ($self, $name, $timeout) = @_;
    my $limits = \%t::chaos::Oracle::FAMILIES;
    my $cluster = $self->{cluster};
    my $seeds = join ' ', map { $cluster->address($_) } 0 .. 2;
    my $redis = 'redis=r sync=strict';
    $timeout //= TIMEOUT_MS . 'ms';
    return t::Gateway->new(name => $name, workers => 2, http => <<"CONF")
    ratelimit_redis r {
        cluster $seeds;
        timeout $timeout;
        prefix $self->{prefix};
        buckets 256;
    }
    ratelimit_zone \$arg_k zone=known:1m $redis algorithm=fixed_window
                   limit=$limits->{known}{limit} window=366d;
    ratelimit_zone \$arg_k zone=quota:1m $redis algorithm=fixed_window
                   limit=$limits->{quota}{limit} window=366d;
    ratelimit_zone \$arg_k zone=lease:1m redis=r algorithm=fixed_window
                   limit=$limits->{lease}{limit} window=366d;
    ratelimit_zone \$arg_k zone=bucket:1m $redis
                   rate=$limits->{bucket}{rate}r/s
                   capacity=$limits->{bucket}{limit};
    ratelimit_zone \$arg_k zone=alone:1m $redis algorithm=fixed_window
                   limit=@{[ALONE]} window=366d fail_mode=local;
    ratelimit_zone \$arg_k zone=trickle:1m $redis fail_mode=local
                   rate=@{[ALONE]}r/d;
    ratelimit_zone \$arg_k zone=ahead:1m redis=r algorithm=sliding_window
                   limit=@{[ALONE]} window=1d fail_mode=local;
    ratelimit_zone \$arg_k zone=local:1m algorithm=fixed_window
                   limit=$limits->{local}{limit} window=366d;
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        add_header X-Status \$ratelimit_status always;
        location /known { ratelimit zone=known; empty_gif; }
        location /quota { ratelimit zone=quota; empty_gif; }
        location /lease { ratelimit zone=lease; empty_gif; }
        location /bucket { ratelimit zone=bucket; empty_gif; }
        location /local { ratelimit zone=local; empty_gif; }
        location /alone { ratelimit zone=alone; empty_gif; }
        location /trickle { ratelimit zone=trickle; empty_gif; }
        location /ahead { ratelimit zone=ahead; empty_gif; }
        location /metrics { ratelimit_metrics; }
    }
CONF
        ->start;
}

# What a fault calls.
sub ok {
    my ($self, $is, $what) = @_;
    return Test::More::ok($is, "$self->{fault}{name}: $what");
}

sub is {
    my ($self, $is, $wanted, $what) = @_;
    return Test::More::is($is, $wanted, "$self->{fault}{name}: $what");
}

sub waits {
    my ($self, $what, $is) = @_;
    return t::Gateway::wait_for($is, PASSES_S)
           || $self->ok(0, "$what, in time");
}

# From now on this fault does nothing more to Redis or the way to it.
sub mark { $_[0]{marked} = t::chaos::Cluster::now() }

sub served {
    my $self = shift;
    sleep 0.2;                     # the watcher looks each 20 ms, or 100
    $self->waits('all slots are served', sub {
        defined $self->{cluster}->served_since
    });
}

# The load: the rate's share of keys of each family, or of one only, of this
# fault alone.
sub load_start {
    my ($self, $name, %is) = @_;
    my $file = "$self->{dir}/$name$self->{n}";
    my $hot = $is{only} ? 0 : HOT;
    my $keys = int(($is{rate} - $hot) / PER_KEY);
    my $shares = $is{only} ? { $is{only} => 10 } : \%SHARES;
    my @paths = map { my $family = $_;
                      map { "/$family?k=$name$self->{n}-$_" }
                          1 .. max(1, $keys * $shares->{$family} / 10) }
                sort keys %$shares;
    @paths = shuffle(@paths, ("/lease?k=$name$self->{n}") x ($hot / PER_KEY));
    open my $list, '>', "$file.paths" or die "$file.paths: $!";
    print $list map { "$_\n" } @paths;
    close $list;
    pipe my $in, my $hold or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>', $file;
        close $hold;
        exec $self->{load}, @paths * PER_KEY, $is{fresh} ? 1 : 500,
             $is{abort} // 0, $is{seconds}, "$file.paths",
             map { $_->{port} } @{ $self->{gateways} } or POSIX::_exit(127);
    }
    $self->{loads}{$name} = { pid => $pid, hold => $hold, file => $file,
                              paths => \@paths };
}

# Ends it, and adds what it noted to that of the fault.
sub load_end {
    my ($self, $name) = @_;
    my $load = delete $self->{loads}{$name};
    close $load->{hold};
    waitpid $load->{pid}, 0;
    $self->is($?, 0, "$name: the load ends well") if $?;
    my ($records, $stall) =
        t::chaos::Oracle::read_load($load->{file}, @{ $load->{paths} });
    push @{ $self->{records} }, @$records;
    $self->{stall} = max($self->{stall}, $stall);
}

# Until both gateways limit again, on all nodes.
sub recovers {
    my $self = shift;
    my $right = sub {
        40 == grep { t::Gateway::header($_, 'X-Status') eq 'PASSED' }
              t::Gateway::send_all(
                  [map { [$self->{gateways}[$_ % 2], "/known?k=probe$_"] }
                   1 .. 40])
    };
    return t::Gateway::wait_for($right, PASSES_S);
}

sub fault {
    my ($self, $fault, %numbers) = @_;
    $self->{fault} = $fault;
    push @{ $self->{done} }, $fault;
    $self->{n}++;
    $self->{records} = [];
    $self->{compares} = undef;
    $self->{resets} = $self->{stall} = 0;
    $self->{logged} = { map { $_->{name} => length $_->log }
                        @{ $self->{gateways} } };
    my $before = $self->workers_at_rest;
    my @primaries = $self->{cluster}->primaries;
    $self->{cluster}->watch;
    $self->mark;
    $self->load_start('load', rate => $self->{rate}, seconds => 300,
                      fresh => $fault->{fresh});
    sleep $self->{settle};
    $fault->{do}->($self, %numbers);
    $self->served;
    my $served = max($self->{marked}, $self->{cluster}->served_since // 0);
    $self->ok($self->recovers, 'it recovers');
    sleep $self->{settle};
    $self->load_end('load');
    $self->{cluster}->watch_end;
    my $loses = $fault->{loses};
    if (!$loses && !$fault->{moves}
        && "@primaries" ne join ' ', $self->{cluster}->primaries)
    {
        Test::More::diag("$fault->{name}: this machine is so busy that the "
                         . 'cluster failed over by itself');
        $loses = 'writes';
    }
    my $got = t::chaos::Oracle::judge($self->{records}, $loses);
    $got->{recovered} = max(0, ($got->{unlimited_at} // 0) - $served);
    push @{ $self->{rows} }, { name => $fault->{name}, %$got,
                               stall => $self->{stall} };
    $self->judge($got);
    $self->compare(@{ $self->{compares} }) if $self->{compares};
    $self->workers_ok($before);
    $self->log_ok;
    $self->ok($self->{cluster}->healthy(60), 'the cluster is whole again');
}

sub judge {
    my ($self, $got) = @_;
    my $fault = $self->{fault};
    my $wrong = $got->{wrong};
    $self->is($got->{failed}, 0, 'no 5xx, no request without an answer');
    $self->is($got->{closed}, 0, 'no connection closed instead')
        if !$fault->{closed};
    $self->is(scalar @$wrong, 0, 'no wrong answer')
        or Test::More::diag(join "\n", @$wrong[0 .. ($#$wrong > 9 ? 9
                                                    : $#$wrong)]);
    $self->at_most($got->{resets}, $self->{resets},
                   'counters in shared memory begin anew')
        if ($fault->{loses} // '') eq 'local';
    $self->at_most($got->{over}, 0.05 * $got->{right}, 'overage')
        if ($fault->{loses} // '') eq 'writes';
    $self->at_most($got->{over}, $got->{again}, 'overage')
        if ($fault->{loses} // '') eq 'all';
    $self->at_most($got->{degraded}, $got->{requests} / 4, 'DEGRADED')
        if $fault->{serves};
    $self->at_most($got->{longest}, WAIT_S, 'seconds of the longest wait');
    $self->at_most($got->{recovered}, $self->{recovers},
                   'seconds until all is limited again');
}

# From begin on all was well, from fault to end it was not: what was DEGRADED
# beyond what was before.
sub compare {
    my ($self, $begin, $fault, $end) = @_;
    my @shares = map {
        my ($from, $to) = @$_;
        my @sent = grep { $_->{sent} >= $from && $_->{sent} < $to }
                   @{ $self->{records} };
        @sent ? (grep { $_->{told} eq 'D' } @sent) / @sent : 1
    } [$begin, $fault], [$fault, $end];
    Test::More::diag(sprintf '%s: DEGRADED %.1f %% before, %.1f %% with it',
                     $self->{fault}{name}, map { 100 * $_ } @shares);
    $self->at_most($shares[1] - $shares[0], 0.15, 'DEGRADED beyond');
}

sub at_most {
    my ($self, $is, $most, $what) = @_;
    Test::More::cmp_ok($is, '<=', $most, "$self->{fault}{name}: $what");
}

# What each worker holds: {pid => {fds, redis, memory}}, fds without those that
# lead to Redis.
sub workers_state {
    my $self = shift;
    my %state;
    for my $pid (map { $_->workers } @{ $self->{gateways} }) {
        my @fds = glob "/proc/$pid/fd/*";
        my $redis = t::Gateway::connections($pid, $self->{cluster}{port});
        open my $status, '<', "/proc/$pid/status" or next;
        my ($memory) = map { /^RssAnon:\s+(\d+)/ ? $1 : () } <$status>;
        $state{$pid} = { fds => @fds - $redis, redis => $redis,
                         memory => $memory // 0 };
    }
    return \%state;
}

# The same, when the last requests' connections have been closed.
sub workers_at_rest {
    my $self = shift;
    my ($state, $was, $same) = ({}, '', 0);
    t::Gateway::wait_for(sub {
        $state = $self->workers_state;
        my $is = join ' ', map { "$_ $state->{$_}{fds}" } sort keys %$state;
        $same = $is eq $was ? $same + 1 : 0;
        $was = $is;
        sleep 0.05;
        return $same == 5;
    });
    return $state;
}

# Workers that lived through it hold as much as before.
sub workers_ok {
    my ($self, $before) = @_;
    my $now;
    my $same = t::Gateway::wait_for(sub {
        $now = $self->workers_state;
        return !grep { $before->{$_} && ($now->{$_}{fds} != $before->{$_}{fds}
                                         || $now->{$_}{redis} > NODES) }
               keys %$now;
    });
    $self->ok($same, 'workers have their file descriptors back');
    for (grep { $before->{$_} } keys %$now) {
        Test::More::diag("$_: $before->{$_}{fds} before, $now->{$_}{fds} and "
                         . "$now->{$_}{redis} to redis now") if !$same;
        # a sanitizer keeps what was freed, and finds leaks by itself
        $self->at_most($now->{$_}{memory} - $before->{$_}{memory}, MEMORY_KB,
                       'KB of memory that a worker has grown')
            if !$ENV{RATELIMIT_STATIC};
    }
}

sub log_ok {
    my $self = shift;
    my $caused = $self->{fault}{log};
    for (@{ $self->{gateways} }) {
        my @bad = grep { /\[(?:alert|emerg|crit)\]/
                         && !($caused && /$caused/) }
                  split /^/, substr $_->log, $self->{logged}{$_->{name}};
        $self->is("@bad", '', "$_->{name} has a clean error log");
    }
}

sub end {
    my $self = shift;
    my @caused = map { $_->{log} // () } @{ $self->{done} };
    my $caused = @caused ? join '|', @caused : undef;
    $_->stop('QUIT', $caused) for @{ $self->{gateways} };
    $self->{cluster}->end;
    $self->{net}->end;
}

1;
