# Real faults against a real cluster: nodes die, stop, fill up, move; the
# network is cut; workers are killed. The traffic goes on, and is counted right.
#
# This is the short form; `make chaos` runs the long one, with
# RATELIMIT_CHAOS=full. RATELIMIT_FAULT=<text> runs the faults with that in
# their name. What is right is in t/chaos/Oracle.pm.

use strict;
use warnings;

BEGIN {
    require t::chaos::Net;
    t::chaos::Net::isolate();
}

use t::RateLimit 'no_plan';
use t::chaos::Faults;
use t::chaos::Report;
use t::chaos::Run;
use t::chaos::Single;

$SIG{$_} = sub { exit 1 } for qw( INT TERM HUP );

my $form = $ENV{RATELIMIT_CHAOS} || 'short';
my $only = $ENV{RATELIMIT_FAULT} || '';

my @faults = grep { $_->{$form} && index($_->{name}, $only) >= 0 }
             t::chaos::Faults::table();
my @single = grep { $form eq 'full' && index($_->{name}, $only) >= 0
                    && !($_->{net} && t::chaos::Net::missing()) }
             t::chaos::Single::table();

my $done = 0;

ok(@faults + @single, "there is a fault with '$only' in its name");

if (@faults) {
    my $run = t::chaos::Run->new(
        $form eq 'full'
            ? (rate => 1000, settle => 2, quota => 80, recovers => 3)
            : (rate => 400, settle => 0.7, quota => 25, recovers => 10));
    for my $fault (@faults) {
        progress($fault);
        if ($fault->{net} && t::chaos::Net::missing()) {
            my $left_out = "$fault->{name}: left out, "
                           . t::chaos::Net::missing();
            $ENV{CI} ? fail($left_out) : diag($left_out);
            next;
        }
        $run->fault($fault, %{ $fault->{$form} });
    }
    $run->end;
    show(t::chaos::Report::table(@{ $run->{rows} }));
}

if (@single) {
    my $load = t::chaos::Run::compile({ dir => t::Gateway::dir('chaos') },
                                      'load');
    show(t::chaos::Report::figures(
        map { progress($_); t::chaos::Single::measure($load, $_) } @single));
}

# For tools/progress.pl, which `make chaos` runs this under.
sub progress {
    Test::More::note(sprintf 'progress: %d of %d, %s', $done++, @faults + @single,
         $_[0]{name});
}

# The long form shows what passes, too.
sub show {
    my $text = "\n$_[0]";
    $form eq 'full' ? Test::More::note($text) : diag($text);
}
