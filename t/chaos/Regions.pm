# Two regions with a gateway and a Redis each, and a third Redis for both behind
# a wide network of 80 ms, which is cut between one region and that Redis for a
# while: how much passes above the limit, and how long it takes until what was
# spent is known there. A row of t/chaos/Single.pm.
#
# The third Redis has an address for each region, so that t/chaos/wire.c can cut
# one of them.

package t::chaos::Regions;

use strict;
use warnings;

use List::Util qw( max );
use Test::More ();
use Time::HiRes qw( sleep time );

use t::Gateway;
use t::Ports qw( free_port );
use t::RateLimit;
use t::chaos::Cluster;
use t::chaos::Net;
use t::chaos::Oracle;
use t::chaos::Run;

use constant { RTT_MS => 80, INTERVAL_MS => 500, RATE => 1200, LOAD => 200,
               SECONDS => 60, CUT => 15 };

sub figure {
    my $self = shift;
    my $net = t::chaos::Net->new(t::chaos::Run::compile($self, 'wire'));
    my @inside = @{ $net->{inside} };
    my @at = @{ $net->{addresses} }[0, 1];
    my $port = free_port();
    my $world = fork // die "fork: $!";
    if ($world == 0) {
        open STDOUT, '>', "$self->{dir}/world";
        exec @inside, 'redis-server', '--port', $port, '--bind', @at, '--save',
             '', '--protected-mode', 'no' or POSIX::_exit(127);
    }
    my $ask = sub { qx{@inside redis-cli -h $at[0] -p $port @_ 2>&1} };
    t::Gateway::wait_for(sub { $ask->('ping') =~ /PONG/ })
        or Test::More::fail("$self->{name}: the third Redis starts");
    $net->does('slow ' . RTT_MS . ' 0');
    my @near = map { redis_start() } @at;
    my @gateways = map { gateway($near[$_], "$at[$_]:$port") } 0, 1;
    my @lags = sort { $a <=> $b } map { lag($_, $gateways[0], $ask) } 1 .. 15;
    my @requests = load($self, \@gateways, sub {
        sleep SECONDS / 4;
        $net->does('drop 12');
        sleep CUT;
        $net->does('slow ' . RTT_MS . ' 0 12');
        sleep SECONDS * 3 / 4 - CUT;
    });
    $_->stop for @gateways;
    redis_stop($_) for @near;
    kill TERM => $world;
    waitpid $world, 0;
    $net->end;
    return judge($self, \@requests, \@lags);
}

sub gateway {
    my ($near, $far) = @_;
    my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis here { server 127.0.0.1:$near; }
    ratelimit_redis world {
        server $far;
        timeout @{[4 * RTT_MS]}ms;
        interval @{[INTERVAL_MS]}ms;
    }
    ratelimit_zone \$arg_k zone=here:1m redis=here rate=@{[10 * RATE]}r/m;
    ratelimit_zone \$arg_k zone=world:1m redis=world sync=async rate=@{[RATE]}r/m
                   regions=2;
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        location / { ratelimit zone=here; ratelimit zone=world; empty_gif; }
    }
CONF
    return $gateway;
}

# From a client's second request to its debit, in ms: the first one is told at
# once.
sub lag {
    my ($n, $gateway, $ask) = @_;
    my $calls = sub { $ask->('info', 'commandstats') =~ /_hset:calls=(\d+)/
                      ? $1 : 0 };
    my $before = $calls->();
    $gateway->get("/?k=lag$n");
    t::Gateway::wait_for(sub { $calls->() > $before });
    sleep 2 * RTT_MS / 1000;
    $before = $calls->();
    my $begin = time;
    $gateway->get("/?k=lag$n");
    t::Gateway::wait_for(sub { $calls->() > $before });
    return 1000 * (time - $begin);
}

# The requests of both gateways while the function runs.
sub load {
    my ($self, $gateways, $do) = @_;
    open my $list, '>', "$self->{dir}/paths" or die "paths: $!";
    print $list "/?k=all\n";
    close $list;
    pipe my $in, my $hold or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>', "$self->{dir}/load";
        close $hold;
        exec $self->{load}, LOAD, 500, 0, 2 * SECONDS, "$self->{dir}/paths",
             map({ $_->{port} } @$gateways) or POSIX::_exit(127);
    }
    $do->();
    close $hold;
    waitpid $pid, 0;
    my ($records) = t::chaos::Oracle::read_load("$self->{dir}/load", 'all');
    return @$records;
}

# A bucket of RATE was full: so many, and what comes back, may pass.
sub judge {
    my ($self, $requests, $lags) = @_;
    my @sent = sort { $a <=> $b } map { $_->{sent} } @$requests;
    my $right = RATE + RATE / 60 * ($sent[-1] - $sent[0]);
    my $passed = grep { $_->{status} == 200 } @$requests;
    my $wrong = grep { $_->{status} != 200 && $_->{status} != 429 } @$requests;
    my $over = 100 * ($passed - $right) / RATE;
    Test::More::is($wrong, 0, "$self->{name}: 200 or 429");
    $self->at_least($passed, $right / 2, 'passed');
    $self->at_most($over, 0.5, '% of the limit of a minute above it');
    return sprintf '%.2f %% above the limit; lag median %.0f ms, longest %.0f ms',
                   max($over, 0), $lags->[@$lags / 2], $lags->[-1];
}

1;
