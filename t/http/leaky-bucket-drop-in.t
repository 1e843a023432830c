# A leaky bucket is limit_req's drop-in: with the same parameters it says the
# same of the same requests.
#
# First both look at each request, in a dry run: they must agree on each of
# thousands, at random. The seed is printed; RATELIMIT_SEED=n repeats one.
#
# Then the same schedule goes to a location of the one and a location of the
# other, where they do delay and reject. The clock stands, but for the schedule.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( wait_for );

my $seed = $ENV{RATELIMIT_SEED} // int rand 2 ** 31;
srand $seed;

# [rate, the other parameters of limit_req and of a leaky bucket]. In limit_req
# a rate is a whole number of thousandths of a request a second; these are.
my @limits = map {
    my $rate = $_;
    map { [$rate, $_] } '', 'burst=1', 'burst=5', 'burst=5 nodelay',
        'burst=5 delay=2', 'burst=12 delay=11', 'burst=20 nodelay',
        'burst=20 delay=3', 'burst=3 delay=3';
} qw( 1r/s 3r/s 7r/s 40r/s 333r/s 1000r/s 60r/m 420r/m );

# what does delay and reject
my @real = ('burst=4', 'burst=4 nodelay', 'burst=4 delay=2', '');

# a zone of each for the same parameters
sub zones {
    my ($name, $i, $rate, $more) = @_;
    return "limit_req_zone \$arg_k zone=q$name$i:32k rate=$rate;"
           . "ratelimit_zone \$arg_k zone=r$name$i:64k rate=$rate "
           . "algorithm=leaky_bucket $more;\n";
}

my $gateway = t::Gateway->limited(
    zone => {},
    http => join('', <<'CONF', map({ zones('', $_, @{ $limits[$_] }) }
    log_format both '$uri $arg_k $limit_req_status $ratelimit_status '
                    '[$ratelimit_delay] $status $arg_n';
    access_log %%DIR%%/access.log both;
CONF
                                   0 .. $#limits),
                 map { zones('real', $_, '2r/s', $real[$_]) } 0 .. $#real),
    locations => {
        (map { ("/both/$_/" => "limit_req zone=q$_ $limits[$_][1];
                 limit_req_dry_run on; ratelimit zone=r$_; ratelimit_dry_run on;") }
         0 .. $#limits),
        map { ("/limit_req/$_/" => "limit_req zone=qreal$_ $real[$_];
               limit_req_status 429;",
               "/ratelimit/$_/" => "ratelimit zone=rreal$_;") } 0 .. $#real,
    });

t::Clock::stop();

# the same request
my $sent = 0;

while ($sent < 4000) {
    my $limit = int rand @limits;
    my $key = int rand 2;
    my ($burst) = $limits[$limit][1] =~ /burst=(\d+)/;
    my $n = 1 + int rand(1.5 * ($burst // 0) + 3);
    # some more at once than a limit takes, often the same one again
    for (1 .. 1 + int rand 6) {
        $sent += $n;
        $gateway->burst($n, "/both/$limit/?k=$key");
        advance(rand() ** 4 / 10);
    }
}

my @lines;
ok(wait_for(sub {
    @lines = split /\n/, $gateway->read('access.log');
    @lines == $sent;
}), 'all are logged');

my (%seen, @differ);

for (@lines) {
    my ($uri, $key, $one, $two) = split / /;
    $seen{$one}++;
    push @differ, "$_ (@{ $limits[$1] })" if $one ne $two && $uri =~ /(\d+)/;
}

is(join("\n", @differ), '', "$sent requests: they agree")
    or diag("RATELIMIT_SEED=$seed");

# else it would have been no test
cmp_ok($seen{$_} // 0, '>', 50, "many were $_")
    for qw( PASSED DELAYED_DRY_RUN REJECTED_DRY_RUN );

Test::More::note("seed $seed: ", join ', ', map { "$seen{$_} $_" } sort keys %seen);

# one schedule, two locations: a token each 500 ms
my @waves = ([0, 8], [1.25, 4], [2, 1], [3.75, 6]);
my ($now, $all, @begun, %told) = (0, 0);

for my $wave (@waves) {
    my ($at, $n) = @$wave;
    advance($at - $now);
    $now = $at;
    push @begun, t::Gateway::begin_all([map {
        my $i = $_;
        map { my $name = $_;
              map { [$gateway, "/$name/$i/?k=a&n=$at"] } 1 .. $n
        } qw( limit_req ratelimit )
    } 0 .. $#real]);
    $all += 2 * @real * $n;
    ok(wait_for(sub {
        my $there = $gateway->waiting;
        $there += t::Gateway::answered($_) for @begun;
        return $there == $all;
    }), "at $at s: all are answered or delayed");
}

advance(10);
t::Gateway::finish($_) for @begun;
$all += $sent;

ok(wait_for(sub {
    @lines = split /\n/, $gateway->read('access.log');
    @lines == $all;
}), 'all of the schedule are logged');

for (@lines[$sent .. $#lines]) {
    my ($name, $i, $one, $two, $delay, $status, $n) =
        m{^/(\w+)/(\d)/ a (\S+) (\S+) \[(\S+)\] (\d+) (\S+)$} or die $_;
    my $said = $name eq 'limit_req' ? $one : $two;
    push @{ $told{$name}{$i}{$n} }, [$said, $status, $delay];
}

# The delays of a wave, of two requests a second. limit_req's log says by how
# many a request is above the rate; "delay=2" delays none of the first two.
sub delays_of_limit_req {
    my ($i, $at) = @_;
    return map { sprintf '%.3f', ($_ - ($real[$i] =~ /delay=(\d)/ ? $1 : 0)) / 2 }
           $gateway->log =~ /delaying\ request,\ excess:\ ([\d.]+),
                             .*"qreal$i".*[&]n=\Q$at\E\ HTTP/xg;
}

sub outcome {
    my ($name, $i, $at) = @_;
    my %n;
    $n{"$_->[1] $_->[0]"}++ for @{ $told{$name}{$i}{$at} };
    return join ', ', map { "$n{$_} x $_" } sort keys %n;
}

is(outcome('ratelimit', 0, 0),
   '4 x 200 DELAYED, 1 x 200 PASSED, 3 x 429 REJECTED',
   'burst: the first, then so many, then none');
is(outcome('ratelimit', 1, 0), '5 x 200 PASSED, 3 x 429 REJECTED', 'nodelay');
is(outcome('ratelimit', 2, 0),
   '2 x 200 DELAYED, 3 x 200 PASSED, 3 x 429 REJECTED', 'delay');
is(outcome('ratelimit', 3, 0), '1 x 200 PASSED, 7 x 429 REJECTED',
   'without a burst');

for my $i (0 .. $#real) {
    for my $wave (@waves) {
        my $at = $wave->[0];
        is(outcome('ratelimit', $i, $at), outcome('limit_req', $i, $at),
           "\"$real[$i]\" at $at s: the same statuses");
        is(join(' ', sort map { $_->[2] } grep { $_->[0] eq 'DELAYED' }
                              @{ $told{ratelimit}{$i}{$at} }),
           join(' ', sort(delays_of_limit_req($i, $at))),
           "\"$real[$i]\" at $at s: delayed as long");
    }
}

$gateway->stop;

# limit_req and limit_conn together: the two configurations of the page for
# those who have them, and what it says of 40 requests at once to a fast API
my ($theirs, $ours) = do {
    local $/;
    open my $in, '<', 'docs/from-limit-req.md' or die "docs: $!";
    <$in> =~ /^With\ nginx's\ own\ modules:\n\n```nginx\ http\n(.*?)^```\n
              \nWith\ this\ one:\n\n```nginx\ http\n(.*?)^```$/msx;
};

sub of_40 {
    my $http = shift =~ s/listen [^;]+;/listen 127.0.0.1:%%PORT%%;/r
                     =~ s/proxy_pass [^;]+;/empty_gif;/r;
    my $pair = t::Gateway->new(http => $http);
    $pair->start;
    my $begun = $pair->begin(40, '/');
    # those that are delayed have no answer while the clock stands
    wait_for(sub { t::Gateway::answered($begun) == 25
                   || t::Gateway::answered($begun) == 36 });
    t::Clock::advance(0.1) for 1 .. 20;
    my $tally = t::Gateway::tally(t::Gateway::finish($begun));
    $pair->stop;
    return $tally;
}

is(of_40($theirs), '21 x 200, 19 x 429', 'limit_req and limit_conn');
is(of_40($ours), '21 x 200, 19 x 429', 'the same here');
is(of_40($ours =~ s/limit=19/limit=4/r), '10 x 200, 30 x 429',
   'not if those that are delayed hold the permits');
