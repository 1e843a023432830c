# The pictures of docs/algorithms.md can be drawn anew: from a tenth of the
# schedule, each algorithm's has a curve that keeps to the algorithm's bound.
# And the tool leaves nothing behind, however it ends.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );

my $TOOL = 'tools/plots.pl';

# The most that may be admitted in a window of 20: a bucket's capacity and what
# the rate gives in that time; what a window admits on both sides of its edge.
# The delayed are counted when they are answered, which may be late.
my %BOUND = (token_bucket => 40, leaky_bucket => 40,
             leaky_bucket_nodelay => 31, fixed_window => 40,
             sliding_window => 40, sliding_log => 20, concurrency => 8);

$ENV{QUICK} = 1;
$ENV{OUT} = t::Gateway::dir('plots');
$ENV{NGINX} = $ENV{TEST_NGINX_BINARY};
$ENV{MODULE} = $ENV{TEST_NGINX_LOAD_MODULES} // '';

sub slurp {
    my $name = shift;
    open my $file, '<', $name or return '';
    local $/;
    return <$file> // '';
}

# What it writes stands below this, while it runs.
sub folder { return "build/plots/$_[0]" }

sub start {
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        open STDERR, '>', "$ENV{OUT}/errors";
        exec $TOOL or POSIX::_exit(127);
    }
    return $pid;
}

# What it has said, and whether it has ended well.
sub finish {
    my $pid = shift;
    waitpid $pid, 0;
    return slurp("$ENV{OUT}/errors"), $? == 0;
}

# Its nginx is the only one whose arguments have its folder.
sub left_nothing {
    my ($pid, $name) = @_;
    my $dir = folder($pid);
    my @processes = grep { slurp($_) =~ m{/\Q$dir\E/} } glob '/proc/*/cmdline';
    ok(!-e $dir && !@processes, "$name: no file and no process is left");
}

# Every element is closed, in its order.
sub well_formed {
    my $svg = shift;
    my @open;
    while ($svg =~ m{<(/?)(\w+)[^<>]*?(/?)>}g) {
        my ($end, $name, $empty) = ($1, $2, $3);
        return 0 if $end && (pop @open // '') ne $name;
        push @open, $name if !$end && !$empty;
    }
    return !@open && $svg =~ /\A<svg / && $svg =~ m{</svg>\n\z};
}

sub draws {
    my $pid = start();
    my ($said, $ok) = finish($pid);
    ok($ok && $said eq '', 'draws') or diag($said);
    left_nothing($pid, 'draws');
    my $overview = slurp("$ENV{OUT}/overview.svg");
    ok(well_formed($overview), 'overview: is XML');
    my @most = $overview =~ />most in [^:<]*: (\d+)</g;
    is(@most, keys %BOUND, 'overview: has all');
    my $leases = slurp("$ENV{OUT}/leases.svg");
    ok(well_formed($leases), 'leases: is XML');
    is(scalar(() = $leases =~ /<path class="calls"/g), 3, 'leases: curves');
    for (sort keys %BOUND) {
        my $svg = slurp("$ENV{OUT}/$_.svg");
        ok(well_formed($svg), "$_: is XML");
        my ($path) = $svg =~ /<path class="curve" d="([^"]+)"/;
        my $steps = () = ($path // '') =~ /V/g;
        my ($peak) = $svg =~ m{class="name">(\d+)</text>};
        cmp_ok($steps, '>', 20, "$_: a curve");
        cmp_ok($peak // 0, '>', 0, "$_: some are admitted");
        cmp_ok($peak // 999, '<=', $BOUND{$_}, "$_: within its bound");
    }
}

# A drawing of nothing would be worse than none.
sub fails {
    local $ENV{MODULE} = "$ENV{OUT}/none.so";
    my $pid = start();
    my ($said, $ok) = finish($pid);
    ok(!$ok, 'without a module: fails');
    like($said, qr/no .*none\.so/, 'without a module: says why');
    left_nothing($pid, 'without a module');
}

sub stops {
    my $pid = start();
    my $log = folder($pid) . '/access.log';
    ok(wait_for(sub { -s $log }), 'stopped: it was under way');
    kill TERM => $pid;
    my ($said, $ok) = finish($pid);
    ok(!$ok, 'stopped: fails');
    like($said, qr/stopped by a signal/, 'stopped: says why');
    left_nothing($pid, 'stopped');
}

draws();
fails();
stops();
