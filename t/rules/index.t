# A zone of a thousand rules: those that match a request, and no others, count
# it, whichever way they are found. Each has a capacity of its own, so that the
# limit of an answer tells which was the strictest of those that counted.
#
# RULES_SEED=<n> chooses the random paths.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );

my $seed = $ENV{RULES_SEED} // time;
srand $seed;

# id => [template or expression, methods, capacity]
my (%rules, @lines);

sub rule {
    my ($match, $methods, $capacity) = @_;
    my $n = 1 + keys %rules;
    $capacity //= 10 + ($n * 617) % 1009;   # all different
    $rules{"r$n"} = [$match, $methods, $capacity];
    push @lines, "ratelimit_rule r$n zone=z rate=1r/h capacity=$capacity"
                 . (defined $match ? " \"match=$match\"" : '')
                 . (defined $methods ? " methods=$methods" : '') . ';';
}

for my $i (1 .. 166) {
    rule("/t$i/{id}");
    rule("/t$i/*/", 'POST');
    rule("/t$i/**");
    rule("/t$i/x");
    rule("/{any}/y$i");
    rule("/{any}/{id}/z$i", 'GET');
}

rule(undef, undef, 1101);
rule(undef, 'POST', 1100);
rule('~^/t1\d\d/', undef, 1099);
rule('~/Y\d*$', 'GET', 9);

my $gateway = t::Gateway->limited(
    zone => { 'z:4m' => '' }, http => "@lines",
    locations => { '/' => 'ratelimit zone=z; error_page 405 =200 /ok;',
                   '/ok' => '' });

# of the readings of a path, the rule with the least capacity that matches one
sub strictest {
    my ($method, @paths) = @_;
    my @found;
    for my $id (keys %rules) {
        my ($match, $methods, $capacity) = @{ $rules{$id} };
        next if defined $methods && $methods ne $method;
        push @found, $id
            if !defined $match || grep { $_ =~ expression($match) } @paths;
    }
    my ($least) = sort { $rules{$a}[2] <=> $rules{$b}[2] } @found;
    return $least;
}

sub expression {
    my $match = shift;
    return qr/$1/ if $match =~ /^~(.*)/;
    $match =~ s{/$}{};
    $match =~ s{/(?:\{\w+\}|\*)(?=/|$)}{/[^/]+}g;
    $match =~ s{/\*\*$}{(?:/.*)?};
    return qr{^$match$};
}

# the same path, written in another way
sub disguised {
    my $path = shift;
    my @way = ('//', '/./', '/;v/', '/q/../', '/q/..;/', '%2F', ';v/');
    $path =~ s{(?<=.)/}{rand() < .3 ? $way[rand @way] : '/'}ge;
    return $path . ('', '', '/', ';v')[rand 4];
}

# how a server reads it that knows no parameters behind ";"
sub plain {
    my $path = shift;
    $path =~ s/%2F/\//g;
    1 while $path =~ s{/(?:\.?|q/\.\.)/}{/};
    return $path =~ s{/$}{}r;
}

my ($wrong, %met) = ('');

for my $k (1 .. 600) {
    my $i = 1 + int rand 180;
    my $path = join '/', '', ("t$i", 'other')[rand 1.2],
                         map { ('x', "y$i", "z$i", 'Y', 7)[rand 5] }
                             1 .. rand 4;
    my $method = rand() < .5 ? 'GET' : 'POST';
    # an expression sees what the client wrote
    my $asked = $path =~ m{^/t1\d\d|/Y} ? $path : disguised($path);
    my $answer = $gateway->get("$method $asked?k=$k", 'Content-Length: 0');
    my $got = header($answer, 'X-Rule');
    my $expected = strictest($method, $path, plain($asked));
    my $limit = header($answer, 'X-RateLimit-Limit');
    $met{$got =~ /^r(\d+)$/ && $1 <= 996 ? ($1 - 1) % 6 : $got}++;
    $wrong .= "$method $asked: $got ($limit), expected $expected "
              . "($rules{$expected}[2])\n"
        if $got ne $expected || $limit ne $rules{$expected}[2];
}

is($wrong, '', "the rules that match, RULES_SEED=$seed");
is(keys %met, 10, 'rules of each kind');

$gateway->stop;
