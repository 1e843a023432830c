# Windows of a calendar in a time zone: days of 23 and 25 hours, weeks, billing
# months. In shared memory, and in Redis by each way to count there.

use Time::Local qw( timegm );
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header passed );
use t::Api;
use t::Rules;

my $DAY = 86400;
my %RULES = (
    day => 'window=calendar:day tz=Europe/Berlin',
    week => 'window=calendar:week tz=Europe/Berlin',
    bill => 'window=calendar:month tz=Europe/Berlin month_day=31',
    utc => 'window=calendar:week',
    variable => 'window=calendar:day tz=Europe/Berlin',
);
my %SYNC = (local => '', lease => '', strict => 'sync=strict',
            async => 'sync=async', split => 'sync=strict shards=2');

my $gateway = t::Gateway->limited(
    zone => { map { $_ => $_ eq 'local' ? '' : 'redis=r' }
              keys %SYNC },
    rules => [ map { my $zone = $_;
                     map { "${zone}_$_ zone=$zone algorithm=fixed_window"
                           . ' limit=' . (/variable/ ? '$arg_n' : 4)
                           . " $RULES{$_} $SYNC{$zone}" }
                     grep { !/variable/ || $zone !~ /split/ } keys %RULES }
               keys %SYNC ],
    redis => redis_port(),
    locations => { map { my $zone = $_;
                         map {; "/$zone/$_" => "ratelimit zone=$zone"
                                               . " rule=${zone}_$_;" }
                         grep { !/variable/ || $zone !~ /split/ } keys %RULES }
                   keys %SYNC },
);

my $probes = 0;

# A window ends at a whole second, however the clocks that know of it differ.
for my $zone (sort keys %SYNC) {
    my %ends = map { header($gateway->get("/$zone/utc?k=r$_"), 'X-RateLimit-Reset')
                     % $DAY => 1 } 1 .. 40;
    is(join(' ', keys %ends), 0, "$zone: X-RateLimit-Reset is midnight");
}

t::Clock::stop();

# On to that instant, which lies ahead. What was under way with Redis has timed
# out then: goes on when Redis answers again.
sub reach {
    advance($_[0] - t::Clock::now());
    t::Clock::wait_for(\&answers) or die 'Redis does not answer';
}

sub answers {
    my $answer = $gateway->get('/strict/utc?k=probe' . $probes++);
    return header($answer, 'X-Source') eq 'redis';
}

# The last Sunday of a month with 31 days, 1:00 UTC.
sub change {
    my ($year, $month) = @_;
    my $last = timegm(0, 0, 1, 31, $month - 1, $year);
    return $last - (gmtime $last)[6] * $DAY;
}

# The client spends its limit, and is told when the window ends; then it has the
# limit again.
sub window {
    my ($rule, $begin, $end, $what) = @_;
    for my $zone (sort keys %SYNC) {
        next if $rule eq 'variable' && $zone eq 'split';
        my $path = "/$zone/$rule?k=$begin&n=4";
        is(passed(map { $gateway->get($path) } 1 .. 5), 4,
           "$zone: $what: the limit");
        my $answer = $gateway->get($path);
        my $wait = $end - t::Clock::now();
        # milliseconds of Redis' answer are rounded up
        cmp_ok(abs(header($answer, 'Retry-After') - $wait), '<=', 1,
               "$zone: $what: Retry-After, $wait s");
        cmp_ok(abs(header($answer, 'X-RateLimit-Reset') - $end), '<=', 1,
               "$zone: $what: X-RateLimit-Reset");
        like(header($answer, 'X-RateLimit-Policy') . header($answer, 'RateLimit-Policy'),
             qr/^[^;]*(?:;w=(?:86400|604800|2678400))?$/, "$zone: $what: its length");
    }
    reach($end - 2);
    is($gateway->get("/$_/$rule?k=$begin&n=4")->{status}, 429,
       "$_: $what: until it ends")
        for grep { $rule ne 'variable' || $_ ne 'split' } sort keys %SYNC;
    reach($end + 1);
    is($gateway->get("/$_/$rule?k=$begin&n=4")->{status}, 200,
       "$_: $what: and not longer")
        for grep { $rule ne 'variable' || $_ ne 'split' } sort keys %SYNC;
}

my $year = 1 + (gmtime t::Clock::now())[5] + 1900;
my $leap = $year % 4 == 0;

# a billing month, 31 January until the last day of February
my $january = timegm(0, 0, 0, 31, 0, $year) - 3600;
my $february = timegm(0, 0, 0, $leap ? 29 : 28, 1, $year) - 3600;
my $march = timegm(0, 0, 0, 31, 2, $year) - 7200;
my $april = timegm(0, 0, 0, 30, 3, $year) - 7200;

reach($january + 100);
window('bill', $january, $february, 'from 31 January on');
window('bill', $february, $march, 'from the end of February on');

# the night of the change to summer time, 0:30
my $spring = change($year + 1, 3);
my $begin = $spring - 2 * 3600;

reach($begin + 1800);
window('day', $begin, $begin + 23 * 3600, 'a day of 23 hours');

my $autumn = change($year + 1, 10);

$begin = $autumn - 3 * 3600;
reach($begin - 6 * $DAY + 1800);
window('week', $begin - 6 * $DAY, $begin + 25 * 3600, 'a week of 169 hours');

$autumn = change($year + 2, 10);
$begin = $autumn - 3 * 3600;
reach($begin + 1800);
window('variable', $begin, $begin + 25 * 3600, 'a day of 25 hours');

my $week = int((t::Clock::now() + 3 * $DAY) / (7 * $DAY)) * 7 * $DAY - 3 * $DAY;

window('utc', $week, $week + 7 * $DAY, 'a week in UTC');

$gateway->stop;
t::Clock::go();

# a zone that is none: refused by nginx -t and by the endpoint, skipped where
# a document has it
my %day = (algorithm => 'fixed_window',
           params => { limit => 3, window => 'calendar:day',
                       tz => 'Europe/Berln' });

$gateway = t::Gateway->limited(
    zone => 'state=%%DIR%%/rules.state', api => 1, start => 0,
    files => { 'rules.state' => t::Rules::record(1, { rules => [
        { id => 'none', match => { route => '/none' }, %day },
        { id => 'some', match => { route => '/some' }, %day,
          params => { limit => 3, window => 'calendar:day', tz => 'Europe/Berlin' } } ] }) });

my ($ok, $said) = $gateway->check;
ok($ok, 'nginx -t accepts the document');
like($said, qr/\[warn\] .*"none" is skipped: \/rules\/0\/params\/tz expected a time zone that is known here/,
     'and names the rule that it skips');

$gateway->start;

my $api = t::Api->new($gateway);

ok($api->follows(1), 'the document counts');
is(passed($gateway->burst(5, '/none?k=a')), 5, 'but for that rule');
is(passed($gateway->burst(5, '/some?k=a')), 3, 'the other one counts');
t::Api::problem_ok($api->put('/rules/new', \%day, 'If-None-Match: *'),
    '422 invalid: ' . join('; ', map { "/rules/$_/params/tz expected a time zone that"
        . ' is known here, in /usr/share/zoneinfo (package tzdata)' } 0, 2),
    'a rule that is sent');
$gateway->stop;

# a debt counts in the next window, whether a client comes then or not
my $up = t::Gateway::free_port();

t::Clock::stop();
$gateway = t::Gateway->limited(
    redis => redis_port(),
    zone => { here => '', strict => 'redis=r' },
    http => "server { listen 127.0.0.1:$up;"
            . ' location / { add_header X-Cost $arg_cost; return 200; } }',
    rules => [ map { my $zone = $_;
                     map { "${zone}_$_ zone=$zone algorithm=fixed_window"
                           . " limit=10 cost_header=X-Cost $RULES{$_}"
                           . ($zone eq 'strict' ? ' sync=strict' : '') }
                     qw( day bill ) } qw( here strict ) ],
    locations => { map { my $zone = $_;
                         map {; "/$zone/$_" => "ratelimit zone=$zone"
                                               . " rule=${zone}_$_;"
                                               . " proxy_pass http://127.0.0.1:$up;" }
                         qw( day bill ) } qw( here strict ) },
);

# midnight in Berlin in winter
$year = (gmtime t::Clock::now())[5] + 1901;

my @ends = (bill => [timegm(0, 0, 23, 30, 11, $year),
                     timegm(0, 0, 23, 1, 2, $year + 1) - 2 * $DAY],
            day => [map { timegm(0, 0, 23, $_, 10, $year + 1) } 10, 12]);

while (my ($rule, $ends) = splice @ends, 0, 2) {
    my ($begin, $over) = @$ends;
    advance($begin + 60 - t::Clock::now());
    for my $zone (qw( here strict )) {
        t::Clock::wait_for(sub {
            $gateway->get("/$zone/$rule?k=probe" . $probes++ . '&cost=1')
                    ->{headers}{'x-ratelimit-remaining'}[0] eq '9';
        });
        $gateway->get("/$zone/$rule?k=silent$rule&cost=18");
        $gateway->get("/$zone/$rule?k=all$rule&cost=20");
        t::Clock::wait_for(sub {
            $gateway->get("/$zone/$rule?k=all$rule&cost=1")->{status} == 429;
        });
        my $answer = $gateway->get("/$zone/$rule?k=all$rule&cost=1");
        is(t::Clock::now() + header($answer, 'Retry-After'), $over,
           "$zone: $rule: all is owed");
    }
    advance($over + 60 - t::Clock::now());
    for my $zone (qw( here strict )) {
        my $left;
        t::Clock::wait_for(sub {
            $left = header($gateway->get("/$zone/$rule?k=silent$rule&cost=0"),
                           'X-RateLimit-Remaining');
            $left > -1;
        });
        cmp_ok($left, '>=', 9, "$zone: $rule: nobody came, nothing is owed");
    }
}

$gateway->stop;
