# The tables of docs/scaling.md are what bench/scaling.pl computes from
# bench/figures, and that computes what the page says.

use t::RateLimit 'no_plan';

my $TOOL = 'bench/scaling.pl';
my $PAGE = 'docs/scaling.md';

sub slurp {
    my $name = shift;
    open my $file, '<', $name or die "$name: $!";
    local $/;
    return <$file>;
}

# What it prints, and whether it has ended well.
sub computed {
    my $text = `perl $TOOL @_ 2>&1`;
    return $text, $? == 0;
}

# The cells of a row of the first table, without its name.
sub row {
    my ($name, $text) = @_;
    my ($cells) = $text =~ /^\| \Q$name\E \| (.*) \|$/m;
    return join ' ', split / \| /, $cells // 'no such row';
}

# As of two clients: the first has two thirds of the traffic.
sub calls_of {
    my %calls = map { /^calls@(\d+)\s+([\d.]+)/ ? ($1, $2) : () }
                split /\n/, slurp('bench/figures');
    my $sum = 0;
    $sum += $_ * $calls{$_} for @_;
    return sprintf '%.0f', $sum;
}

sub page {
    my ($text, $ok) = computed();
    my @tables = split /\n\n/, $text;
    my $page = slurp($PAGE);
    ok($ok, 'computes') or diag($text);
    is(scalar @tables, 7, 'seven tables');
    for (@tables) {
        my ($head) = /\A\|(.*)\n/;
        chomp;
        like($page, qr/^\Q$_\E\n(?!\|)/m, "the page has the table of $head");
    }
    my $of_page = () = $page =~ /^\|(?:---\|)+$/mg;
    is($of_page, 7, 'and no other');
}

sub formulas {
    my ($text) = computed(qw( checks=1000000 redis_us=5 load_most=0.5
                              gateway_cores=10 request_us=98.59
                              strict_us=1.41 clients=1000000 counter_bytes=30
                              spare=2 call_in=150 call_out=25
                              call_replica=100 conn_kb=25 ));
    like(row('calls to Redis a second', $text), qr/^1,000,000 /,
         'strict: a call for each check');
    like(row('primaries', $text), qr/^10 /, 'primaries: 100,000 calls each');
    like(row('memory of counters, MB', $text), qr/^60 /, 'memory');
    like(row('in each primary, MB', $text), qr/^6 /, 'memory of a primary');
    like(row('to and from Redis, Mbit/s', $text), qr/^1,400 /, 'network');
    like(row('to replicas, Mbit/s', $text), qr/^800 /, 'network of replicas');
    like(row('gateways', $text), qr/^20 /, 'gateways: 50,000 requests each');
    like(row('connections to each primary', $text), qr/^200 /, 'connections');
    like(row('their memory in each primary, MB', $text), qr/^5 /,
         'memory of connections');
    ($text) = computed(qw( checks=30 clients=2 ));
    my $lease = calls_of(20, 10);
    is(row('calls to Redis a second', $text), "30 $lease $lease",
       'leases: each client as its rate says');
    ($text) = computed(qw( checks=1500 clients=1 gateway_cores=1
                           request_us=1000 ));
    is(row('gateways', $text), '4 4 4', 'four gateways');
    is(row('calls a second of the busiest client', $text),
       join(' ', '1,500', map { sprintf '%.0f', 1500 * curve(1500 / $_) }
                              4, 1),
       'the busiest client, on all gateways and on one');
}

# Calls a check between two points of bench/figures.
sub curve {
    my $rate = shift;
    my @points = sort { $a->[0] <=> $b->[0] }
                 map { /^calls@(\d+)\s+([\d.]+)/ ? [$1, $2] : () }
                 split /\n/, slurp('bench/figures');
    my ($low) = grep { $_->[0] <= $rate } reverse @points;
    my ($high) = grep { $_->[0] > $rate } @points;
    return exp(log($low->[1]) + log($high->[1] / $low->[1])
               * log($rate / $low->[0]) / log($high->[0] / $low->[0]));
}

sub refusals {
    for (qw( nothing=1 checks=0 checks=many load_most=2 )) {
        my ($text, $ok) = computed($_);
        ok(!$ok, "$_: is refused");
        like($text, qr/^scaling: /, "$_: says why");
    }
}

page();
formulas();
refusals();
