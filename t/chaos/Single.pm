# Faults of one Redis and of connections to it, each with a gateway, a load and a
# time limit of its own: what the breaker does. The rows of t/chaos/Faults.pm have
# a Cluster.
#
#     name    as the report calls it
#     do      the function; returns what it measured, as a text
#     wanted  the same of what is permitted, for the report
#
# TIMEOUT_MS is the time limit of a call. Faults are timed by this process, which
# a busy machine may hold up; so what a fault lasted is measured, too.

package t::chaos::Single;

use strict;
use warnings;

use List::Util qw( max sum0 );
use Test::More ();
use Time::HiRes qw( sleep time );

use t::FakeRedis;
use t::Gateway;
use t::RateLimit;
use t::chaos::Oracle;
use t::chaos::Regions;

use constant { TIMEOUT_MS => 50 };

sub table {
    return (
        { name => 'redis stopped for 70 ms', do => \&stopped,
          wanted => 'median 30 ms' },
        { name => 'one connection silent', do => \&silent,
          wanted => 'others 0' },
        { name => 'a worker stopped for 80 ms', do => \&worker,
          wanted => 'opened 0' },
        { name => 'connections killed, one redis', do => \&killed,
          wanted => '20 degraded' },
        { name => 'an outage without traffic', do => \&quiet,
          wanted => '100 answered' },
        { name => 'more calls than redis can answer', do => \&overload,
          wanted => 'opened 2' },
        { name => 'two regions, 80 ms, and a cut', net => 1,
          do => \&t::chaos::Regions::figure, wanted => '0.5 %, 580 ms' },
    );
}

# Runs one: returns its row.
sub measure {
    my ($load, $row) = @_;
    my $self = bless { load => $load, name => $row->{name},
                       dir => t::Gateway::dir('single') }, __PACKAGE__;
    return { %$row, figure => $row->{do}->($self) };
}

sub at_most {
    my ($self, $is, $most, $what) = @_;
    Test::More::cmp_ok($is, '<=', $most, "$self->{name}: $what");
}

# That the fault took place.
sub at_least {
    my ($self, $is, $least, $what) = @_;
    Test::More::cmp_ok($is, '>=', $least, "$self->{name}: $what");
}

sub gateway {
    my ($self, $port, $workers) = @_;
    # load.c notes Retry-After, which a request that passes does not have: so it
    # says which worker answered
    my $gateway = t::Gateway->new(workers => $workers, http => <<"CONF")->start;
    ratelimit_redis r {
        server 127.0.0.1:$port;
        timeout @{[TIMEOUT_MS]}ms;
    }
    ratelimit_zone \$arg_k zone=z:1m redis=r sync=strict rate=1000000r/s;
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024 reuseport;
        add_header X-Status \$ratelimit_status always;
        add_header Retry-After \$pid always;
        location / { ratelimit zone=z; empty_gif; }
        location /metrics { ratelimit_metrics; }
    }
CONF
    t::Gateway::wait_for(sub { answered($gateway, 20) == 20 })
        or Test::More::fail("$self->{name}: it limits before");
    return $gateway;
}

sub answered {
    my ($gateway, $n) = @_;
    return scalar grep { t::Gateway::header($_, 'X-Status') eq 'PASSED' }
                  $gateway->burst($n, '/?k=a');
}

sub opened {
    my $gateway = shift;
    return metric($gateway, 'breaker_opened_total');
}

sub metric {
    my ($gateway, $name) = @_;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_redis_$name\S* (\d+)/m ? $1
           : die "no metric $name";
}

# The requests of a load that goes on while the function runs.
sub under_load {
    my ($self, $gateway, $rate, $do) = @_;
    my $paths = "$self->{dir}/paths";
    open my $list, '>', $paths or die "$paths: $!";
    print $list map { "/?k=$_\n" } 1 .. 100;
    close $list;
    pipe my $in, my $hold or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>', "$self->{dir}/load";
        close $hold;
        exec $self->{load}, $rate, 500, 0, 60, $paths, $gateway->{port}
            or POSIX::_exit(127);
    }
    sleep 0.5;
    $do->();
    sleep 0.5;
    close $hold;
    waitpid $pid, 0;
    my ($records) = t::chaos::Oracle::read_load("$self->{dir}/load", 1 .. 100);
    my @lost = grep { $_->{end} ne '-' || $_->{status} != 200 } @$records;
    Test::More::is(scalar @lost, 0, "$self->{name}: all pass");
    return @$records;
}

sub degraded { return grep { $_->{told} eq 'D' } @_ }

sub median { return (sort { $a <=> $b } @_)[@_ / 2] }

# From the first answer without a limit to the last one, for each stop.
sub stopped {
    my $self = shift;
    my $redis = redis_start();
    my $gateway = $self->gateway($redis, 2);
    my @stops;
    my @requests = $self->under_load($gateway, 1000, sub {
        for (1 .. 10) {
            my $begin = t::chaos::Cluster::now();
            kill STOP => redis_pid($redis);
            sleep 0.07;
            kill CONT => redis_pid($redis);
            push @stops, [$begin, t::chaos::Cluster::now()];
            sleep 0.6;
        }
    });
    my @without = map {
        my ($begin, $end) = @$_;
        my @done = sort { $a <=> $b } map { $_->{done} }
                   degraded(grep { $_->{done} > $begin
                                   && $_->{done} < $end + 0.55 } @requests);
        @done ? 1000 * ($done[-1] - $done[0]) : 0
    } @stops;
    my $longer = 1000 * median(map { $_->[1] - $_->[0] } @stops) - 70;
    $self->at_least(scalar(degraded(@requests)), 1, 'degraded');
    $self->at_most(median(@without), 30 + $longer, 'ms without limits');
    $gateway->stop;
    redis_stop($redis);
    return sprintf 'median %.0f ms, longest %.0f ms (stops of %.0f ms)',
                   median(@without), max(@without), 70 + $longer;
}

# Of eight workers' connections one gets no answer any more: that which a check
# comes over first, since not all workers may have any.
sub silent {
    my $self = shift;
    my $flag = "$self->{dir}/silent";
    my $connection;
    my $fake = t::FakeRedis->new(sub {
        $connection //= $t::FakeRedis::CONNECTION if -e $flag;
        return ($connection // 0) == $t::FakeRedis::CONNECTION ? ''
               : "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
    });
    my $gateway = $self->gateway($fake->{port}, 8);
    my @requests = $self->under_load($gateway, 800, sub {
        open my $file, '>', $flag or die "$flag: $!";
        sleep 2;
    });
    my %of;
    $of{$_->{retry}}++ for degraded(@requests);
    my ($worst, @others) = sort { $b <=> $a } values %of, 0, 0;
    $self->at_least($worst, 1, 'requests of its own worker');
    $self->at_most(sum0(@others), 0, 'requests of other workers');
    $self->at_most(opened($gateway), 0, 'times that it opens');
    $gateway->stop;
    $fake->stop;
    unlink $flag;
    return sprintf 'others %d, its own %d, of %d', sum0(@others), $worst,
                   scalar @requests;
}

sub worker {
    my $self = shift;
    my $redis = redis_start();
    my $gateway = $self->gateway($redis, 2);
    my @workers = $gateway->workers;
    my @requests = $self->under_load($gateway, 3000, sub {
        for (1 .. 20) {
            my $worker = $workers[$_ % 2];
            kill STOP => $worker;
            sleep 0.08;
            kill CONT => $worker;
            sleep 0.2;
        }
    });
    my $opened = opened($gateway);
    $self->at_most($opened, 0, 'times that it opens');
    $gateway->stop;
    redis_stop($redis);
    return sprintf 'opened %d, degraded %d of %d', $opened,
                   scalar(degraded(@requests)), scalar @requests;
}

sub killed {
    my $self = shift;
    my $redis = redis_start();
    my $gateway = $self->gateway($redis, 2);
    my @requests = $self->under_load($gateway, 1000, sub {
        for (1 .. 10) {
            redis_cli($redis, qw( client kill type normal ));
            sleep 0.3;
        }
    });
    my $degraded = degraded(@requests);
    $self->at_least(metric($gateway, 'reconnects_total'), 10, 'reconnects');
    $self->at_most($degraded, 20, 'degraded by ten times');
    $gateway->stop;
    redis_stop($redis);
    return sprintf '%d degraded of %d', $degraded, scalar @requests;
}

# It opens under load, then there is none; Redis comes back, and then requests.
sub quiet {
    my $self = shift;
    my $redis = redis_start();
    my $gateway = $self->gateway($redis, 2);
    my ($right, $times) = (0, 5);
    for (1 .. $times) {
        my $before = opened($gateway);
        kill STOP => redis_pid($redis);
        t::Gateway::wait_for(sub {
            $gateway->burst(20, '/?k=a');
            opened($gateway) > $before;
        }) or Test::More::fail("$self->{name}: it opens");
        sleep 3;
        kill CONT => redis_pid($redis);
        sleep 1.5;
        $right += answered($gateway, 20);
    }
    Test::More::is($right, 20 * $times, "$self->{name}: all are answered");
    $gateway->stop;
    redis_stop($redis);
    return sprintf '%d answered of %d', $right, 20 * $times;
}

# A server that answers 400 calls a second in their order, and 1,000 calls. For
# each second: how many requests in a hundred were answered in time.
sub overload {
    my $self = shift;
    my $due = 0;
    my $fake = t::FakeRedis->new(sub {
        $due = time if $due < time;
        $due += 1 / 400;
        sleep max(0, $due - time);
        return "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
    });
    my $gateway = $self->gateway($fake->{port}, 1);
    my $before = opened($gateway);
    my @requests = $self->under_load($gateway, 1000, sub { sleep 10 });
    my $opened = opened($gateway) - $before;
    my (%all, %passed);
    for (@requests) {
        my $second = int($_->{sent} - $requests[0]{sent});
        $all{$second}++;
        $passed{$second}++ if $_->{told} eq 'P';
    }
    $self->at_most($opened, 2, 'times that it opens');
    $self->at_least(int 100 * sum0(values %passed) / @requests, 5,
                    '% answered');
    $gateway->stop;
    $fake->stop;
    return sprintf 'opened %d; answered %s %%', $opened,
                   join ' ', map { int 100 * ($passed{$_} // 0) / $all{$_} }
                             0 .. 9;
}

1;
