# "algorithm=concurrency" is limit_conn's drop-in: with the same limit it says
# the same of the same requests, at whatever time they begin and end.
#
# First both look at each request, in a dry run. Then a location of the one and
# a location of the other get the same schedule and reject. Both are random: the
# seed is printed; RATELIMIT_SEED=n repeats one.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );

use IO::Select;
use IO::Socket::UNIX;

my $seed = $ENV{RATELIMIT_SEED} // int rand 2 ** 31;
srand $seed;
Test::More::note("seed $seed");

my $PROXY = 'proxy_pass http://unix:%%DIR%%/api.sock;';

my $gateway = t::Gateway->limited(
    start => 0,
    zone => { map { $_ => 'algorithm=concurrency limit=3' } qw( r rb ) },
    http => <<'CONF',
    log_format both '$uri $limit_conn_status $ratelimit_status $status $arg_n';
    access_log %%DIR%%/access.log both;
    limit_conn_zone $arg_k zone=q:1m;
    limit_conn_zone $arg_k zone=qb:1m;
CONF
    server => 'proxy_buffering off;',
    locations => {
        '/both' => 'limit_conn qb 3; limit_conn_dry_run on;'
                   . "ratelimit zone=rb; ratelimit_dry_run on; $PROXY",
        '/limit_conn' => "limit_conn q 3; limit_conn_status 429; $PROXY",
        '/ratelimit' => "ratelimit zone=r; $PROXY",
    });
my $api = IO::Socket::UNIX->new(Local => "$gateway->{dir}/api.sock",
                                Listen => 100) or die "api.sock: $!";
$gateway->start;

# A request: what it sent, and its end at the API's side, undef when it was
# answered without that.
sub begin {
    my ($path) = @_;
    my $client = $gateway->connect_to;
    syswrite $client, "GET $path HTTP/1.0\r\nHost: a\r\n\r\n";
    my ($first) = IO::Select->new($client, $api)->can_read($t::Gateway::PATIENCE)
        or die 'no answer';
    my $held = $first == $api ? $api->accept : undef;
    return { client => $client, held => $held, path => $path };
}

# Its end: the API answers, the API fails, or the client leaves.
sub end {
    my ($one, $how) = @_;
    my ($client, $held) = @$one{qw( client held )};
    if (!$held) {
        close $client;
        return;
    }
    if ($how eq 'leaves') {
        close $client;
    } elsif ($how eq 'answers') {
        sysread $held, my $head, 4096;
        syswrite $held, "HTTP/1.0 200 OK\r\n\r\nx";
        close $held;
    } else {
        close $held;
    }
    # the slot is free when the connections have ended
    local $/;
    $how eq 'leaves' ? <$held> : <$client>;
}

my @ends = qw( answers fails leaves );

# the same request
my (@running, $n);

for (1 .. 1500) {
    if (@running < 12 && rand() < 0.55) {
        push @running, begin('/both?k=' . int(rand 2) . '&n=' . $n++);
    } elsif (@running) {
        end(splice(@running, int rand @running, 1), $ends[rand @ends]);
    }
}

end($_, 'answers') for @running;

my @lines;
wait_for(sub {
    @lines = split /\n/, $gateway->read('access.log');
    @lines == $n;
});
is(scalar @lines, $n, 'all are logged');

my (%seen, @differ);

for (@lines) {
    my ($uri, $one, $two) = split / /;
    $seen{$one}++;
    push @differ, $_ if $one ne $two;
}

is(join("\n", @differ), '', "$n requests: they agree")
    or diag("RATELIMIT_SEED=$seed");
cmp_ok($seen{$_} // 0, '>', 20, "many were $_")
    for qw( PASSED REJECTED_DRY_RUN );

# the same schedule
@running = ();
@differ = ();
my %held;

for (1 .. 1500) {
    if (@running < 12 && rand() < 0.55) {
        my $key = int rand 2;
        my @pair = map { begin("/$_?k=$key") } qw( limit_conn ratelimit );
        my @said = map { $_->{held} ? 'held' : 'rejected' } @pair;
        push @differ, "@said" if $said[0] ne $said[1];
        $held{$said[1]}++;
        push @running, \@pair;
    } elsif (@running) {
        my $how = $ends[rand @ends];
        end($_, $how) for @{ splice @running, int rand @running, 1 };
    }
}

is("@differ", '', 'two locations: they agree') or diag("RATELIMIT_SEED=$seed");
cmp_ok($held{$_} // 0, '>', 20, "two locations: many were $_")
    for qw( held rejected );

for (map { @$_ } @running) {
    end($_, 'answers');
}

wait_for(sub {
    (() = $gateway->read('access.log') =~ /^\/ratelimit /mg)
        == $held{held} + $held{rejected}
});

my ($log, %status) = $gateway->read('access.log');
$status{$1}{$2}++ while $log =~ m{^/(ratelimit|limit_conn) \S+ \S+ (\d+)}mg;
is($status{ratelimit}{429}, $status{limit_conn}{429}, 'as many 429');
is(join(' ', sort keys %{ $status{ratelimit} }), '200 429 499 502',
   'and all ways to end');

like($log, qr{^/ratelimit - REJECTED 429 }m, 'a rejection is logged as such');

$gateway->stop;
