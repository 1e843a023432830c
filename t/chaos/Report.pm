# What a run has shown, as a table.

package t::chaos::Report;

use strict;
use warnings;

sub table {
    my @rows = @_;
    my @lines = (
        ['fault', 'requests', '5xx, lost', 'closed', 'wrong', 'longest ms',
         'late', 'stall ms', 'overage %', 'DEGRADED', 'waited', 'limited again ms'],
        map { [$_->{name}, $_->{requests}, $_->{failed}, $_->{closed},
               scalar @{ $_->{wrong} },
               sprintf('%.0f', 1000 * $_->{longest}), $_->{late},
               sprintf('%.0f', 1000 * $_->{stall}),
               sprintf('%.2f', $_->{right} ? 100 * $_->{over} / $_->{right}
                                           : 0),
               $_->{degraded}, $_->{waited},
               sprintf('%.0f', 1000 * $_->{recovered})] }
            @rows);
    return lay(@lines);
}

# The rows of t/chaos/Single.pm.
sub figures {
    return lay(['fault', 'wanted, at most', 'measured'],
               map { [@$_{qw( name wanted figure )}] } @_);
}

sub lay {
    my @lines = @_;
    my @width;
    for my $line (@lines) {
        for (0 .. $#$line) {
            my $n = length $line->[$_];
            $width[$_] = $n if $n > ($width[$_] // 0);
        }
    }
    my $format = "| %-$width[0]s | "
                 . join(' | ', map { "%${_}s" } @width[1 .. $#width]) . " |\n";
    my $rule = join '|', '', '-' x ($width[0] + 2),
               map({ '-' x ($_ + 1) . ':' } @width[1 .. $#width]), "\n";
    my $head = shift @lines;
    return sprintf($format, @$head) . $rule
           . join '', map { sprintf $format, @$_ } @lines;
}

1;
