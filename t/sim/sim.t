# What leases do to exactness: a small part of the simulator's cells. The
# simulator's time is virtual and its chance comes from a seed, so nothing here
# depends on the machine.
#
# The goals: without a fault no overage and less than 0.1 % excess denials;
# through one fault at most 5 % overage; a call for 100 checks of a counter with
# 1,000 requests a second and node; enforced in 500 ms. Where a bound here is
# wider, docs/leases.md names what misses its goal.

use strict;
use warnings;

use Test::More;

my $SIM = 'build/sim/sim' . ($ENV{SAN} ? '-' . $ENV{SAN} =~ tr/,/-/r : '');

# columns of the simulator, and what a group of cells may have of them at most
my @COLUMNS = qw( overage worst denials calls waited p99 max enforced
                  unanswered lag );

my $ALL = 'algorithm=token_bucket,fixed_window,sliding_window';

my @GROUPS = (
    [ 'exact, far from the limit and far beyond',
      "$ALL limit=100,1000 load=0.5,1.5,5 nodes=3,10 skew=even,90,one "
      . 'seconds=240',
      { overage => 0, worst => 0, denials => 0.1, max => 20,
        enforced => 500 } ],
    [ 'at the limit',
      "$ALL limit=1000 load=0.95,1,1.05 skew=even,one",
      { overage => 0, worst => 0, denials => 0.3, max => 20,
        enforced => 500 } ],
    [ 'a hot counter costs few calls',
      "$ALL limit=100000 rate=3000 nodes=3 seconds=30",
      { overage => 0, worst => 0, denials => 0, calls => 0.01,
        waited => 0.5 } ],
    [ 'a spent one, too',
      "$ALL limit=1000,10000 rate=10000 nodes=10 seconds=30",
      { overage => 0, worst => 0, denials => 0.1, calls => 0.012,
        waited => 3, enforced => 500 } ],
    [ 'slow counters, and a busy one for others',
      "$ALL limit=1000 load=3 nodes=10 keys=100 seconds=30",
      { overage => 0, worst => 0, denials => 0.1, calls => 1.01,
        enforced => 500 } ],
    [ 'bursts', "$ALL limit=1000 load=1.5 arrivals=onoff,batch nodes=5",
      { overage => 0, worst => 0, denials => 0.1, enforced => 500 } ],
    [ 'a leaky bucket is a bucket',
      'algorithm=leaky_bucket limit=1000 load=0.5,1.5,5 seconds=240',
      { overage => 0, worst => 0, denials => 0.1, enforced => 0 } ],
    [ 'two workers', "$ALL limit=1000 load=0.9,2 workers=2",
      { overage => 0, worst => 0, denials => 0.2, enforced => 500 } ],
    [ 'a fault that loses no data',
      "$ALL limit=1000 load=3 nodes=5 "
      . 'fault=break,flaky,slow,away,crash,join,leave,lower',
      { overage => 0, worst => 5, denials => 0.5, max => 101 } ],
    [ 'a failover', "$ALL limit=1000 load=1,3 nodes=5 fault=failover",
      { overage => 5, worst => 10, denials => 0.2 } ],
    [ 'async', "$ALL limit=1000 load=2 nodes=3 sync=async",
      { overage => 2, worst => 3, denials => 0.5, waited => 0 } ],
    (map { [ "regions $_ ms apart",
             "$ALL limit=6000 window=60 load=2 nodes=3,5 sync=async timeout=1 "
             . 'seconds=120 interval=0.5 rtt=' . $_ / 1000,
             { overage => $_ > 80 ? 1.5 : 0.5, worst => $_ > 80 ? 2 : 0.6,
               denials => 0.5, waited => 0, lag => 500 + $_ } ] } 20, 80, 250),
    [ 'async, many gateways', "$ALL limit=1000 load=2 nodes=10,100 sync=async",
      { overage => 3, worst => 11, denials => 0.5, calls => 0.9, waited => 0 } ],
    [ 'peers', 'limit=100 window=60 seconds=600 nodes=2,10,50 load=0.5,3,30 '
      . 'sync=peers',
      { overage => 0.1, worst => 7, denials => 0.1, waited => 0 } ],
    [ 'peers, a fixed window', 'algorithm=fixed_window limit=100 window=60 '
      . 'seconds=600 nodes=2,10,50 load=0.5,3,30 sync=peers',
      { overage => 0.7, worst => 5, denials => 0.1, enforced => 130 } ],
    [ 'peers, a fault', 'algorithm=token_bucket,fixed_window limit=1000 '
      . 'window=60 seconds=600 nodes=10 load=3 at=100 sync=peers '
      . 'fault=slow,loss,crash,join,leave',
      { overage => 0.1, worst => 1, denials => 0.1 } ],
    [ 'peers, the network is cut for ten seconds', 'limit=1000 window=60 '
      . 'seconds=600 nodes=10 load=3 at=100 sync=peers fault=cut',
      { overage => 2, worst => 18, denials => 0.1 } ],
);

sub cells {
    my ($cells) = @_;
    open my $pipe, '-|', $SIM, split ' ', $cells or die "$SIM: $!";
    my @lines = grep { /\|/ && !/overage%/ } <$pipe>;
    close $pipe or die "$SIM: failed";
    return @lines;
}

# What is above its bound: a line for each.
sub above {
    my ($bounds, @lines) = @_;
    my @above;
    for my $line (@lines) {
        my ($numbers, $cell) = split / \| /, $line;
        my %got;
        @got{@COLUMNS} = split ' ', $numbers;
        chomp $cell;
        push @above, map { "$_ $got{$_} is above $bounds->{$_}: $cell" }
                     grep { $got{$_} > $bounds->{$_} } sort keys %$bounds;
    }
    return @above;
}

system('make', '-s', '-C', 't/sim', 'SAN=' . ($ENV{SAN} // '')) == 0
    or die 'the simulator does not build';

for (@GROUPS) {
    my ($name, $cells, $bounds) = @$_;
    my @lines = cells($cells);
    my @above = above($bounds, @lines);
    ok(@lines && !@above, $name . ': ' . @lines . ' cells')
        or diag(join "\n", @above);
}

is(join('', cells('seed=7')), join('', cells('seed=7')),
   'the same seed, the same answer');
isnt((cells('seed=7'))[0] =~ s/seed.*//r, (cells('seed=8'))[0] =~ s/seed.*//r,
     'another seed, another one');

done_testing();
