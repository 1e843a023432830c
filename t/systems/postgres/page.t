# docs/postgres.md and what `make run FEED=postgres` prints are true: each
# command is run, in its order, against what that starts.

use strict;
use warnings;

use File::Path qw( make_path remove_tree );
use File::Spec;
use Test::More;
use t::Ports qw( free_ports );

my $port = free_ports(31);
my $logs = ($ENV{RATELIMIT_LOGS} // 'build/t') . "/$$";
my $dir = File::Spec->rel2abs("$logs/run");
my $functions = '';

make_path($dir);

$ENV{RUN_DIR} = $dir;
$ENV{RUN_PORT} = $port;
$ENV{FEED} = 'postgres';

END {
    local $?;
    qx(tools/run.sh stop 2>&1);
    remove_tree($logs) if Test::More->builder->is_passing;
}

# What a command prints. Functions are known to those behind it.
sub run {
    my $command = shift;
    if ($command =~ /^\w+\(\) /) {
        $functions .= $command;
        return '';
    }
    open my $out, '-|', 'timeout', 60, 'bash', '-c', "$functions($command\n) 2>&1"
        or die "bash: $!";
    local $/;
    return <$out> // '';
}

# Until the command prints this, for a change takes a moment.
sub prints {
    my ($command, $expected, $name) = @_;
    my $got = '';
    for (1 .. 100) {
        $got = run($command);
        last if $got =~ $expected;
        select undef, undef, undef, 0.1;
    }
    like($got, $expected, $name);
}

my $text = qx(tools/run.sh start 2>&1);

is($?, 0, 'it starts') or diag($text);
is(join(' ', $text =~ /^run: starting .* (\(\d of \d\))$/mg),
   '(1 of 2) (2 of 2)', 'it says how far it is');

my ($shown) = $text =~ /^PostgreSQL on (.*?)^make stop/ms;
my ($tiers, $limit, $change, $refused) = $shown =~ /^  (\S(?:.*\\\n)?.*)$/mg;

prints("$tiers\n", qr/^ *reports +\| pro /m, $tiers);
prints("$limit\n", qr/^X-RateLimit-Limit: 5\r$/m, $limit);
prints($limit =~ s/carol/alice/r, qr/^X-RateLimit-Limit: 8\r$/m, 'a tier');
prints($limit =~ s/carol/bob/r, qr/^X-RateLimit-Limit: 6\r$/m, 'an override');
is(run($change), "UPDATE 1\n", $change);
prints("$limit\n", qr/^X-RateLimit-Limit: 4\r$/m, 'its effect');
like(run($refused), qr/\(0 rows\)/, $refused);
run($change =~ s/limit_count = 4/limit_count = 5/r);
prints("$limit\n", qr/^X-RateLimit-Limit: 5\r$/m, 'and back');

# the page begins with the same example
open my $page, '<', 'docs/postgres.md' or die "docs/postgres.md: $!";
my @blocks = do { local $/; <$page> } =~ /^```console feed\n(.*?)^```/msg;

is(@blocks, 2, 'transcripts of the page');

for (join('', @blocks) =~ /^\$ (.*\n(?:[^\$].*\n)*)/mg) {
    my ($command, $expected) = /^(.*?\n)(.*)/s;
    $command =~ s{build/run/}{$dir/}g;
    $command =~ s/127\.0\.0\.1:80(\d\d)/'127.0.0.1:' . ($port + $1 - 80)/eg;
    is(run($command), $expected, $command =~ s/\n//r);
}

my ($pid) = qx(cat $dir/postgres/feeder.pid) =~ /(\d+)/;
my $said = qx(cat $dir/postgres/feeder.log);

qx(tools/run.sh stop 2>&1);
is($?, 0, 'it stops');
ok(!-e $dir, 'and leaves nothing');
ok(!readlink "/proc/$pid/cwd", 'not even the feeder');
like($said, qr/^(?:ratelimit-feed: \S+: rows that it refuses: .*\n)*$/,
     'which had nothing to complain of but the row');

done_testing();
