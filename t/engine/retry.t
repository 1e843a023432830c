# A client that waits as long as it was told passes at that moment: with every
# algorithm, however its counter is followed, whatever it costs and owes.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header );

use Time::HiRes qw( sleep );

my %ALGORITHMS = (
    bucket => 'rate=10r/7s',
    leaky => 'rate=10r/7s algorithm=leaky_bucket burst=9 nodelay',
    fixed => 'algorithm=fixed_window limit=10 window=7s',
    day => 'algorithm=fixed_window limit=10 window=calendar:day',
    tokyo => 'algorithm=fixed_window limit=10 window=calendar:day tz=Asia/Tokyo',
    sliding => 'algorithm=sliding_window limit=10 window=7s',
    log => 'algorithm=sliding_log limit=10 window=7s',
);
my @rules = grep { !/log_(?:lease|async)/ }
            map { my $how = $_; map { "${_}_$how" } sort keys %ALGORITHMS }
            qw( here strict lease async );

# what a client has spent, what its response told, and the costs of its requests:
# of two, the first is rejected before
my @CASES = map { [split /:/] }
            qw( 1::1,10 10::1 10::10 10::1,4 10::1,10
                10:13:1 10:13:10 10:13:1,4 10:13:1,10 10:20:1 10:20:10 10:25:1,4 );

my $redis = redis_start();
my $up = t::Gateway::free_port();
my $gateway = t::Gateway->limited(
    redis => $redis,
    zone => { here => '', r => 'redis=r' },
    http => "server { listen 127.0.0.1:$up;"
            . ' location / { add_header X-Cost $arg_more; return 200; } }',
    rules => [map {
        my ($algorithm, $how) = split /_/;
        "$_ cost=\$arg_cost cost_header=X-Cost $ALGORITHMS{$algorithm} "
        . ($how eq 'here' ? 'zone=here' : "zone=r sync=$how");
    } @rules],
    locations => { map {
        ("/$_" => 'ratelimit zone=' . (/_here/ ? 'here' : 'r') . " rule=$_;"
                  . " proxy_pass http://127.0.0.1:$up;");
    } @rules },
);

t::Clock::stop();

# 0.4 seconds behind one of these the moments are named: at the edge of a
# millisecond before a second is over, and within one
for my $phase (0.599, 3.123) {
    my @waits;
    t::Clock::align(7, $phase);
    for my $rule (@rules) {
        for my $case (@CASES) {
            my ($spent, $more, $costs) = @$case;
            my $path = "/$rule?k=" . join '.', $phase, @$case;
            $gateway->get("$path&cost=$spent&more=$more");
            push @waits, { path => $path, costs => [split /,/, $costs] };
        }
    }
    # sweeps debit what is owed
    for (1 .. 4) {
        sleep 0.1;
        advance(0.1);
    }
    sleep 0.2;
    for my $wait (@waits) {
        for my $cost (@{ $wait->{costs} }) {
            my $answer = $gateway->get("$wait->{path}&cost=$cost");
            @$wait{qw( cost after )} = ($cost, header($answer, 'Retry-After'));
            $wait->{at} = t::Clock::now() + ($wait->{after} || 0);
        }
    }
    @waits = grep { $_->{after} } @waits;
    cmp_ok(@waits, '>', @rules * (@CASES - 1), 'nearly all are rejected');
    for my $wait (sort { $a->{at} <=> $b->{at} } @waits) {
        my $ms = sprintf '%.0f', 1000 * ($wait->{at} - t::Clock::now());
        advance($ms / 1000) if $ms > 0;
        cmp_ok(($wait->{at} + ($1 eq 'tokyo' ? 9 * 3600 : 0)) % 86400, '<=', 1,
               "$wait->{path}&cost=$wait->{cost}: to the first moment of a day")
            if $wait->{path} =~ m{^/(day|tokyo)};
        is($gateway->get("$wait->{path}&cost=$wait->{cost}")->{status}, 200,
           "$wait->{path}&cost=$wait->{cost}: after $wait->{after} s");
    }
}

# of two that wait for one call each is told its own moment
my $both = '/sliding_lease?k=both&cost=';

$gateway->get($both . 9);
kill STOP => redis_pid($redis);

my @both = map { $gateway->connect_to } 2, 10;

for my $i (0, 1) {
    syswrite $both[$i], "GET $both" . (2, 10)[$i] . " HTTP/1.0\r\n\r\n";
    $gateway->get('/metrics');    # the worker has read what was sent before
}

kill CONT => redis_pid($redis);

my ($two, $all) = map { join('', readline $_) =~ /^Retry-After: (\d+)/m } @both;

cmp_ok($two, '<', $all, "two at once: 2 waits for $two s, 10 for $all s");
advance($all);
is($gateway->get($both . 10)->{status}, 200, "two at once: 10 after $all s");

t::Clock::go();
$gateway->stop;
