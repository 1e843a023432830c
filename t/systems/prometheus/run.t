# make run MONITOR=1: Prometheus reads the gateway, and has the alerts.

use strict;
use warnings;

use JSON::PP ();
use File::Path qw( make_path remove_tree );
use File::Spec;
use Test::More;
use t::Ports qw( free_ports );

my $port = free_ports(21);
my $logs = ($ENV{RATELIMIT_LOGS} // 'build/t') . "/$$";
my $dir = File::Spec->rel2abs("$logs/run");

make_path($dir);

$ENV{RUN_DIR} = $dir;
$ENV{RUN_PORT} = $port;
$ENV{MONITOR} = 1;

END {
    local $?;
    qx(tools/run.sh stop 2>&1);
    remove_tree($logs) if Test::More->builder->is_passing;
}

my $text = qx(tools/run.sh start 2>&1);
my ($page) = $text =~ m{^Prometheus: (http\S+)/alerts$}m;

is($?, 0, 'it starts') or diag($text);
is(join(' ', $text =~ /^run: starting .* (\(\d of \d\))$/mg), '(1 of 2) (2 of 2)',
   'it says how far it is');

# What is at that place of the data.
sub api {
    my ($path, $what) = @_;
    my $answer = qx(curl -s $page/api/v1/$path);
    return eval { JSON::PP->new->utf8->decode($answer)->{data}{$what} } // [];
}

my @health;

for (1 .. 200) {
    @health = map { $_->{health} } @{ api('targets', 'activeTargets') };
    last if "@health" eq 'up';
    select undef, undef, undef, 0.1;
}

is("@health", 'up', 'Prometheus reads the gateway');
like(join(' ', map { $_->{name} } @{ api('rules', 'groups')->[0]{rules} }),
     qr/\bRatelimitDegraded\b/, 'and has the alerts');

qx(tools/run.sh stop 2>&1);
is($?, 0, 'it stops');
ok(!-e $dir, 'and leaves nothing');

done_testing();
