# Draws docs/plots/leases.svg: what t/sim says of calls to Redis, by load.
#
#     PlotsLeases::draw($root)    the SVG; the simulator is built if need be

package PlotsLeases;

use strict;
use warnings;

use PlotsSVG;

my @ALGORITHMS = ([ token_bucket => '#0969da' ],
                  [ fixed_window => '#1a7f37' ],
                  [ sliding_window => '#cf222e' ]);

my @LOADS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10);

my ($LEFT, $RIGHT, $TOP, $BOTTOM) = (70, 790, 84, 330);


sub draw {
    my ($root) = @_;

    system('make', '-s', '-C', "$root/t/sim") == 0
        or die "plots: the simulator does not build\n";

    my %calls;

    open my $pipe, '-|', "$root/build/sim/sim",
         'algorithm=' . join(',', map { $_->[0] } @ALGORITHMS),
         'load=' . join(',', @LOADS), 'limit=10000', 'nodes=3'
        or die "plots: sim: $!\n";

    while (<$pipe>) {
        my ($numbers, $name, $load)
            = /^(.*) \| algorithm=(\w+) load=([\d.]+)/ or next;

        $calls{$name}{$load} = (split ' ', $numbers)[3];
    }

    close $pipe or die "plots: sim failed\n";

    return svg(\%calls);
}


sub svg {
    my $calls = shift;

    my $title = 'Calls to Redis for each check, 10,000 requests in 10 s, '
                . '3 nodes';
    my $svg = PlotsSVG::head(390, $title)
              . PlotsSVG::text(16, 26, $title, 'title');

    for my $y (map { 10 ** -$_ } 0 .. 3) {
        my $at = at_calls($y);

        $svg .= PlotsSVG::line($LEFT, $at, $RIGHT, $at, '#d0d7de')
                . PlotsSVG::text($LEFT - 8, $at + 5, $y, 'faint end');
    }

    for my $load (0.1, 0.5, 1, 2, 5, 10) {
        my $at = at_load($load);

        $svg .= PlotsSVG::line($at, $TOP, $at, $BOTTOM, '#d0d7de',
                               $load == 1 ? '' : '2 4')
                . PlotsSVG::text($at, $BOTTOM + 20, $load, 'faint mid');
    }

    $svg .= PlotsSVG::text(($LEFT + $RIGHT) / 2, $BOTTOM + 44,
                           'requests sent, as a multiple of the limit',
                           'faint mid');

    for my $i (0 .. $#ALGORITHMS) {
        my ($name, $color) = @{ $ALGORITHMS[$i] };

        my $path = join 'L', map { sprintf '%.1f %.1f', at_load($_),
                                 at_calls($calls->{$name}{$_}) } @LOADS;

        $svg .= PlotsSVG::rect(16 + 160 * $i, 42, 11, 11, $color)
                . PlotsSVG::text(33 + 160 * $i, 52, $name, 'faint')
                . qq{<path class="calls" d="M$path" fill="none" }
                . qq{stroke="$color" stroke-width="2"/>\n};
    }

    return $svg . "</svg>\n";
}


# Both axes are logarithmic.
sub at_load {
    return $LEFT + ($RIGHT - $LEFT) * log($_[0] * 10) / log 100;
}


sub at_calls {
    return $TOP - ($BOTTOM - $TOP) * log($_[0]) / log(1000);
}


1;
