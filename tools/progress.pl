#!/usr/bin/perl
#
# Runs a command and says how far it is: on a terminal in one line, which is
# written again and again; in a log at the begin and after each quarter. The
# result is the command's.
#
#   tools/progress.pl <name> <steps> <line of a step> <command>...
#
# <line of a step>: a regex for a line of the command's output; what is in its
# parentheses is shown beside the number of steps. Lines that match are not
# shown; all others are. With "+" before it, they are shown, too. A line
# "progress: 3 of 24, what is done now" of the command says all of it; with 0
# <steps>, only that does.

use strict;
use warnings;

use IO::Handle;
use IO::Select;

my ($name, $steps, $is_step, @command) = @ARGV;

@command or die "progress.pl: no command\n";

my $shown = $is_step =~ s/^\+//;
my $terminal = -t STDERR;
my ($done, $doing, $said, $told, $begin) = (0, '', -1, 0, time);

$ENV{RATELIMIT_PROGRESS} = 1;
$SIG{$_} = sub { } for qw( INT TERM );      # the command ends, and then this

my $pid = open my $out, '-|', @command or die "progress.pl: $command[0]: $!\n";
my $select = IO::Select->new($out);
my $rest = '';

STDOUT->autoflush(1);
say_it();

while (1) {
    if (!$select->can_read(1)) {
        say_it() if $terminal;
        next;
    }

    my $n = sysread $out, $rest, 65536, length $rest;

    next if !defined $n && $!{EINTR};
    last if !$n;

    while ($rest =~ s/^(.*\n)//) {
        line($1);
        say_it();
    }
}

line("$rest\n") if $rest ne '';
close $out;
clear();
exit($? & 127 ? 128 + ($? & 127) : $? >> 8);


sub line {
    my $line = shift;

    if ($line =~ /^(?:# )?progress: (\d+) of (\d+), (.*)/) {
        ($done, $steps, $doing, $told) = ($1, $2, $3, 1);

    } elsif ($line !~ $is_step) {
        show($line);

    } else {
        ($done, $doing) = ($done + 1, $1 // '') if $steps && !$told;
        show($line) if $shown;
    }
}


sub show { clear(); print $_[0] }

sub clear { print STDERR "\r\e[K" if $terminal }


sub say_it {
    my $quarter = $steps ? int(4 * $done / $steps) : 0;
    my $text = "$name: " . ($steps ? "$done of $steps, " : '')
               . (time - $begin) . ' s';

    if ($terminal) {
        my $more = $doing ne '' ? ": $doing" : '';

        # a line that is too long would not be written again
        printf STDERR "\r%.79s\e[K", $text . $more;

    } elsif ($quarter > $said) {
        print STDERR "$text\n";
        $said = $quarter;
    }
}
