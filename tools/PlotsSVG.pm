# Draws what tools/plots.pl has recorded, as SVG in plain text. A request is
# {sent, done, admitted}; times are in tenths of the window.
#
#     overview($frame, @plots)    all of them, a row for each
#     figure($frame, $plot)       one of them, and what its limit bounds

package PlotsSVG;

use strict;
use warnings;

use List::Util qw( max );

# GitHub shows pictures about this wide; text is then as large as the page's
my $WIDTH = 820;
my $LEFT = 52;
my $RIGHT = 804;

my %COLOR = (back => '#ffffff', frame => '#d0d7de', text => '#1f2328',
             faint => '#59636e', sent => '#d5dae0', admitted => '#0969da',
             area => '#ddf0ff', limit => '#cf222e', edge => '#8c959f');

# nginx's clocks count milliseconds, each on its own: a window measured by one
# of them may be so much shorter
my $SLACK = 0.002;


sub overview {
    my ($frame, @plots) = @_;

    my ($top, $row, $chart) = (58, 110, 70);
    my $height = $top + $row * @plots + 40;
    my $bottom = $top + $row * @plots - 4;
    my $svg = head($height, 'The same requests, seven limits');

    $svg .= text(16, 26, 'The same requests, seven limits', 'title')
            . key(16, 46)
            . text($RIGHT, 46, sprintf('two bursts of %d, then %g a second; '
                       . '%s in %s is the limit', $frame->{burst},
                       4 / $frame->{unit}, $frame->{limit},
                       seconds($frame, 10)), 'faint end');

    for my $i (0 .. $#plots) {
        my $plot = $plots[$i];
        my $base = $top + $row * $i + $row - 12;

        $svg .= edges($frame, $plot, $base - $chart, $base)
                . bars($frame, $plot, $base, $chart)
                . text($LEFT, $base - $chart - 8, name($plot), 'name')
                . text($RIGHT, $base - $chart - 8, most($frame, $plot),
                       'most end');
    }

    return $svg . axis($frame, $bottom) . "</svg>\n";
}


sub figure {
    my ($frame, $plot) = @_;

    my $svg = head(400, name($plot));

    $svg .= text(16, 26, name($plot), 'title') . key(16, 46)
            . edges($frame, $plot, 62, 352)
            . bars($frame, $plot, 196, 112) . labels($frame, $plot, 196, 112)
            . bound($frame, $plot, 352, 106)
            . axis($frame, 358);

    return $svg . "</svg>\n";
}


sub head {
    my ($height, $title) = @_;

    return <<"SVG";
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $WIDTH $height"
     width="$WIDTH" height="$height" role="img" aria-label="$title">
<style>
text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
       fill: $COLOR{text} }
.title { font-size: 18px; font-weight: 600 }
.name { font-weight: 600 }
.most, .limit { fill: $COLOR{limit} }
.faint { fill: $COLOR{faint} }
.end { text-anchor: end }
.mid { text-anchor: middle }
</style>
<rect x="0.5" y="0.5" width="@{[ $WIDTH - 1 ]}" height="@{[ $height - 1 ]}"
      rx="6" fill="$COLOR{back}" stroke="$COLOR{frame}"/>
SVG
}


sub text {
    my ($x, $y, $text, $class) = @_;

    return sprintf qq{<text x="%.1f" y="%.1f" class="%s">%s</text>\n},
                   $x, $y, $class, $text;
}


sub rect {
    my ($x, $y, $width, $height, $color) = @_;

    return sprintf qq{<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" }
                   . qq{fill="%s"/>\n}, $x, $y, $width, $height, $color;
}


sub line {
    my ($x1, $y1, $x2, $y2, $color, $dash) = @_;

    return sprintf qq{<path d="M%.1f %.1fL%.1f %.1f" stroke="%s"%s/>\n},
                   $x1, $y1, $x2, $y2, $color,
                   $dash ? qq{ stroke-dasharray="$dash"} : '';
}


sub name {
    my $plot = shift;

    return "$plot->{name} $plot->{says}"
           . ($plot->{note} ? ", $plot->{note}" : '');
}


# What the colours are: words in them.
sub key {
    my ($x, $y) = @_;

    return rect($x, $y - 10, 11, 11, $COLOR{sent})
           . text($x + 17, $y, 'sent', 'faint')
           . rect($x + 58, $y - 10, 11, 11, $COLOR{admitted})
           . text($x + 75, $y, 'admitted', 'faint');
}


# A time on the x axis.
sub x {
    my ($frame, $at) = @_;

    return $LEFT + ($RIGHT - $LEFT) * $at / $frame->{end};
}


sub axis {
    my ($frame, $y) = @_;

    my $svg = '';

    for (my $at = 0; $at <= $frame->{end}; $at += 5) {
        $svg .= line(x($frame, $at), $y, x($frame, $at), $y + 5, $COLOR{edge})
                . text(x($frame, $at), $y + 20, seconds($frame, $at),
                       'faint mid');
    }

    return line($LEFT, $y, $RIGHT, $y, $COLOR{edge}) . $svg;
}


sub seconds {
    my ($frame, $units) = @_;

    return sprintf '%g s', int($units * $frame->{unit} * 10 + 0.5) / 10;
}


# Where windows end, for the algorithms that have such places.
sub edges {
    my ($frame, $plot, $from, $to) = @_;

    return '' if !$plot->{clock};

    my $svg = '';

    for (my $at = $frame->{edge}; $at < $frame->{end}; $at += 10) {
        $svg .= line(x($frame, $at), $from, x($frame, $at), $to,
                     $COLOR{edge}, '3 3');
    }

    # the second stands where nothing is sent
    return $svg . text(x($frame, $frame->{edge} + 10) - 6, $from + 11,
                       'window ends', 'faint end');
}


# Requests a unit of time, sent and admitted, from $base up. A burst is a bar
# that begins a little before it.
sub bars {
    my ($frame, $plot, $base, $height) = @_;

    my (@sent, @admitted);

    for (@{ $plot->{requests} }) {
        $sent[bin($_->{sent})]++;
        $admitted[bin(admitted_at($plot, $_))]++ if $_->{admitted};
    }

    my $scale = $height / $frame->{burst};
    my $width = x($frame, 1) - x($frame, 0) - 2;
    my $svg = '';

    for my $i (0 .. max($#sent, $#admitted)) {
        for ([$sent[$i], $COLOR{sent}], [$admitted[$i], $COLOR{admitted}]) {
            my ($n, $color) = @$_;

            $svg .= rect(x($frame, $i), $base - $n * $scale, $width,
                         $n * $scale, $color) if $n;
        }
    }

    return $svg . line($LEFT, $base, $RIGHT, $base, $COLOR{edge});
}


sub bin { return int($_[0] + 0.1) }


# A delayed request is admitted when it is answered; one that holds a slot is
# answered long after.
sub admitted_at {
    my ($plot, $request) = @_;

    return $plot->{held} ? $request->{sent} : $request->{done};
}


# Beside each burst, and above the overload: how many came through.
sub labels {
    my ($frame, $plot, $base, $height) = @_;

    my @groups = ([], [], []);

    for (@{ $plot->{requests} }) {
        push @{ $groups[$_->{sent} < 6 ? 0 : $_->{sent} < 16 ? 1 : 2] }, $_;
    }

    my $svg = '';

    for my $i (0, 1) {
        my $x = x($frame, $i ? 8 : 3) + ($i ? 4 : -6);
        my $class = $i ? 'faint' : 'faint end';
        my $y = $base - $height + 28;

        for (told($frame, $plot, $groups[$i])) {
            $svg .= text($x, $y, $_, $class);
            $y += 18;
        }
    }

    my ($sent, $admitted) = told($frame, $plot, $groups[2]);

    return $svg
           . text(x($frame, 17), $base - 48,
                  sprintf('%g a second: ', 4 / $frame->{unit}) . $sent,
                  'faint')
           . text(x($frame, 17), $base - 30, $admitted, 'faint');
}


sub told {
    my ($frame, $plot, $requests) = @_;

    my @admitted = grep { $_->{admitted} } @$requests;
    my $last = max(0, map { admitted_at($plot, $_) - $_->{sent} } @admitted);

    return @$requests . ' sent', @admitted . ' admitted',
           $last >= 0.4 ? 'within ' . seconds($frame, $last) : ();
}


# What the limit bounds, as steps [time, number]: the requests in flight, or
# those admitted in the last window.
sub steps {
    my ($frame, $plot) = @_;

    my (%change, @steps);
    my $window = 10 - $SLACK / $frame->{unit};

    for (grep { $_->{admitted} } @{ $plot->{requests} }) {
        my $at = admitted_at($plot, $_);

        $change{sprintf '%.4f', $at}++;
        $change{sprintf '%.4f', $plot->{held} ? $_->{done} : $at + $window}--;
    }

    my $n = 0;

    for (sort { $a <=> $b } keys %change) {
        push @steps, [$_, $n += $change{$_}];
    }

    return @steps;
}


sub most {
    my ($frame, $plot) = @_;

    my $most = max(map { $_->[1] } steps($frame, $plot));

    return ($plot->{held} ? 'most in flight'
                          : "most in any $frame->{window} s") . ": $most";
}


sub bound {
    my ($frame, $plot, $base, $height) = @_;

    my ($limit, $top, $what) = $plot->{held}
        ? ($frame->{slots}, $frame->{slots} * 2.6, 'in flight')
        : ($frame->{limit}, $frame->{limit} * 2.6,
           "admitted in the last $frame->{window} s");
    my $scale = $height / $top;
    my @steps = grep { $_->[0] < $frame->{end} } steps($frame, $plot);
    my $path = sprintf 'M%.1f %.1f', $LEFT, $base;

    for (@steps) {
        $path .= sprintf 'H%.1fV%.1f', x($frame, $_->[0]),
                                       $base - $_->[1] * $scale;
    }

    $path .= sprintf 'H%.1f', $RIGHT;

    my $y = $base - $limit * $scale;
    my ($peak) = sort { $b->[1] <=> $a->[1] || $a->[0] <=> $b->[0] } @steps;

    return qq{<path d="${path}V${base}H${LEFT}" fill="$COLOR{area}"/>\n}
           . qq{<path class="curve" d="$path" fill="none" }
           . qq{stroke="$COLOR{admitted}" stroke-width="2"/>\n}
           . line($LEFT, $y, $RIGHT, $y, $COLOR{limit}, '6 4')
           . text($LEFT + 2, $y - 6, "limit $limit", 'limit')
           . text(x($frame, $peak->[0]) + 4,
                  $base - $peak->[1] * $scale - 6, $peak->[1], 'name')
           . text($LEFT, $base - $height - 8, $what, 'name');
}


1;
