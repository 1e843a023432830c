# One run of redis-failover.sh:
#
#   redis-failover.pl <folder> <first port> <kill the replica too> <seconds>
#
# Kills a primary of the cluster, sends requests of many clients to a gateway
# for so long, and prints: for how many seconds some were degraded; how many
# percent until then; how many of the last second.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw( sleep time );

use t::Gateway;

my ($dir, $first, $replica_too, $seconds) = @ARGV;

# not in the way of what is printed
Test::More->builder->output(\my $tap);

my @ports = $first .. $first + 5;
my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis r { cluster @{[map { "127.0.0.1:$_" } @ports]}; }
    ratelimit_zone \$arg_k zone=z:1m rate=100r/h redis=r;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF


sub degraded {
    my $n = shift;

    my $answer = $gateway->get("/?k=$n");

    $answer->{status} == 200 or die "status $answer->{status}\n";

    return t::Gateway::header($answer, 'X-Status') eq 'DEGRADED' ? 1 : 0;
}


sub pid {
    open my $file, '<', "$dir/$_[0]/pid" or die "$dir/$_[0]/pid: $!\n";
    return 0 + <$file>;
}


my $n = 0;

t::Gateway::wait_for(sub { !grep { degraded(++$n) } 1 .. 50 })
    or die "the cluster does not serve\n";

# the first three nodes are the primaries
my ($id) = `redis-cli -p $first cluster myid` =~ /(\w+)/;
my $replica = t::Gateway::wait_for(sub {
    `redis-cli -p $first cluster nodes` =~ /:(\d+)@\S* slave $id/ ? $1 : 0
}) or die "no replica\n";

kill KILL => pid($replica) if $replica_too;
kill KILL => pid($first);

my $begin = time;
my @requests;

while (time - $begin < $seconds) {
    my $degraded = degraded(++$n);
    push @requests, [time - $begin, $degraded];
    sleep 0.005;
}

sub percent {
    my @of = @_;

    return @of ? sprintf '%.0f%%', 100 * grep({ $_->[1] } @of) / @of : '-';
}

# over once a hundred in a row were checked: a busy machine may time out one
my ($last, $row) = (0, 0);

for (@requests) {
    $row = $_->[1] ? 0 : $row + 1;
    $last = $_->[0] if $_->[1];
    last if $row == 100;
}

my @until = grep { $_->[0] <= $last } @requests;
my @end = grep { $_->[0] > $seconds - 1 } @requests;

printf "%.1f %s %s\n", $last, percent(@until), percent(@end);

$gateway->kill;
system 'rm', '-rf', $gateway->{dir};
