# What tools/progress.pl says: on a terminal one line, in a log one for each
# quarter; what the command says else; and its result.

use strict;
use warnings;

use Test::More;

my $STEPS = 'for i in 1 2 3 4 5 6 7 8; do echo "ok t$i"; done; '
            . 'echo other; echo "ok: not a step"; exit 3';
my $TOLD = 'for i in 0 1 2 3; do echo "progress: $i of 4, part $i"; '
           . 'echo "ok t$i"; done; kill -TERM $$';

# What a command of bash prints under it, seconds left out; and its result.
sub said {
    my ($command, $step, $terminal) = @_;
    local $ENV{COMMAND} = $command;
    my $run = "tools/progress.pl demo 8 '$step' bash -c \"\$COMMAND\"";
    my $said = $terminal ? qx(script -qec '@{[$run =~ s/'/'\\''/gr]}' /dev/null)
                         : qx($run 2>&1);
    return $said =~ s/, \d+ s\b//gr, $? >> 8;
}

my ($log, $result) = said($STEPS, '^ok (\S+)$');

is($log, join('', map { "demo: $_ of 8\n" } 0, 2, 4, 6, 8)
         . "other\nok: not a step\n", 'a log: each quarter, and all else');
is($result, 3, 'and the result');

($log) = said($STEPS, '+^ok (\S+)$');
like($log, qr/^ok t1\n.*^ok t8\n/ms, 'with "+", the steps are shown, too');

($log, $result) = said($TOLD, '^ok');
is($log, join('', map { "demo: $_ of 4\n" } 0 .. 3) =~ s/of 4/of 8/r,
   'a command that says how far it is');
is($result, 128 + 15, 'and that a signal ends');

my ($terminal) = said($STEPS, '^ok (\S+)$', 1);
my ($line) = $terminal =~ /^(.*?)other/s;

is($line =~ tr/\n//, 0, 'a terminal: one line');
like($line, qr/\rdemo: 3 of 8: t3\e\[K\r/, 'with what is done');
like($terminal, qr/\r\e\[Kother\r\n.*\r\e\[K\z/s, 'which goes away');

done_testing();
