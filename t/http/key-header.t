# A key that is one "$http_name" is read by the module itself: it is the first
# header of that name that is not empty, without the blanks around it, whatever a
# request has of such headers. What another module makes of the name is kept.

use t::RateLimit 'no_plan';
use t::Gateway qw( header told );

my @NAMES = qw( x_key x_long_name_of_a_key k _x x_ cookie host user_agent
                x_forwarded_for referer authorization x_set x_map );

my %locations = (
    '/set' => 'set $http_x_set set; ratelimit zone=x_set;',
    '/read' => 'set $copy $http_x_key; ratelimit zone=x_key;',
    '/moved' => 'rewrite ^ /limited/x_key last;',
    '/named' => 'try_files /none @named;',
    '@named' => 'ratelimit zone=x_key;',
    '/document' => 'ratelimit zone=x_key;',
    map { ("/plain/$_" => "add_header X-Got [\$http_$_] always;",
           "/limited/$_" => "ratelimit zone=$_;"
                            . "add_header X-Got [\$http_$_] always;") } @NAMES
);
my %servers = (
    default => '',
    allowed => 'underscores_in_headers on;',
    kept => 'ignore_invalid_headers off;',
);

# of each name what follows "X-Key" and the like; "~" stands for the name
my @CASES = (
    ['~: a'], ['~: b'], [], ['~:'], ['~: a'], ['~: B'],
    ['~: a', '~: b'], ['~: a, b'], ['~: b', '~: a'], ['~: a', '~: a'],
    ['~: a', '~:'], ['~:', '~: a'], ['~:', '~:'], ['~: a', 'X-Other: c', '~: d'],
    ['X-Other: c', '~: c', 'X-Another: d'],
    ["~: \x80\xff"], ['~:  e  '], ["~: f\tg"], ["~:\te"], ["~: e\t\t"],
    ["~: \t", '~: e'], ['_: h', '~: i'], ['~: h', '_: i'],
    map { my $header = $_; map { my $n = $_; [map { $header } 1 .. $n] } 1, 2 }
        '~: ' . 'l' x 3000, map { "$_: u" } qw( ^ _ % ? ! )
);

# The name as a case says: "~" with dashes, "^" in capitals, "_" with
# underscores, "%" with both, "?" and "!" others that are as long.
sub named {
    my ($name, $header) = @_;
    my $dashes = $name =~ tr/_/-/r;
    my %as = ('~' => ucfirst $dashes, '^' => uc $dashes, '_' => $name,
              '%' => $dashes =~ s/-/_/r, '?' => 'q' . substr($dashes, 1),
              '!' => substr($dashes, 0, 1)
                     . 'q' x (length($name) > 2 ? length($name) - 2 : 0) . substr($dashes, -1));
    return $header =~ s/^([~^_%?!]):/$as{$1}:/r;
}

# nginx has variables of its own for these, or another module here
my %MADE = map { $_ => 1 } qw( cookie host user_agent x_forwarded_for referer x_set x_map );

sub value {
    my ($server, $name, $plain, @headers) = @_;
    return $plain =~ s/^[ \t]+|[ \t]+\z//gr if $MADE{$name};
    for (@headers) {
        my ($other, $value) = /^([^:]*):[ \t]*(.*?)[ \t]*\z/s;
        next if $server eq 'default' && $other =~ /_/;
        return $value if lc($other) =~ tr/-/_/r eq $name && $value ne '';
    }
    return '';
}

for my $server (sort keys %servers) {
    my $gateway = t::Gateway->limited(server => $servers{$server},
        locations => \%locations,
        http => 'map $arg_m $http_x_map { default "m$arg_m"; }',
        zone => { map { ($_ => "key=\$http_$_ rate=1r/h") } @NAMES });
    for my $name (@NAMES) {
        my (%seen, @got, @expected);
        for my $case (@CASES) {
            my @headers = map { named($name, $_) } @$case;
            # nginx has the answer for what it refuses
            my $plain = $gateway->get("/plain/$name", @headers);
            my $value = value($server, $name, header($plain, 'X-Got') =~ s/^\[|\]\z//gr,
                              @headers);
            my $status = $plain->{status} != 200 ? $plain->{status}
                         : $value eq '' ? 200
                         : $seen{$value}++ ? 429 : 200;
            push @expected, "$status $value";
            my $limited = $gateway->get("/limited/$name", @headers);
            push @got, "$limited->{status} $value";
        }
        is_deeply(\@got, \@expected, "$server: \$http_$name");
    }
    $gateway->stop and next if $server ne 'default';
    # a variable of that name that another module makes, or has set
    is($gateway->statuses(['/set', 'X-Set: 1'], ['/set', 'X-Set: 2'],
                          ['/limited/x_set', 'X-Set: set'],
                          ['/limited/x_set', 'X-Set: 3']),
       '200 429 429 200', '"set" has its value');
    is($gateway->statuses(['/limited/x_map?m=1', 'X-Map: 1'],
                          ['/limited/x_map?m=2', 'X-Map: 1'],
                          ['/limited/x_map?m=2', 'X-Map: 2']),
       '200 200 429', '"map" has its value');
    # the same value, however the request came to its location
    is($gateway->statuses(map { [$_, 'X-Key: way'] }
                          qw( /read /moved /named /limited/x_key /document )),
       '200 429 429 429 429', 'after internal redirects');
    $gateway->stop;
}
