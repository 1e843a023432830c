# The breaker: when Redis has failed often enough, nobody waits for it, in no
# worker, until a probe finds that it is back.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally wait_for );
use t::FakeRedis;

use File::Temp ();
use Time::HiRes ();

# what a request waits for, unless it is answered while the clock stands
use constant { TIMEOUT => '1s', TIMEOUT_SECONDS => 1 };

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $LOADED = "\$40\r\n" . 'a' x 40 . "\r\n";

my $flags = File::Temp->newdir;
my $flag = 0;

# A fake that answers what bad gives, to all, while its flag is set.
sub fake {
    my ($bad, %options) = @_;
    my $file = "$flags/" . $flag++;
    my $fake = t::FakeRedis->new(sub {
        return $bad->(@_) if -e $file && ($_[0] ne 'SCRIPT' || $options{all});
        return $LOADED if $_[0] eq 'SCRIPT';
        return $options{good} ? $options{good}->(@_) : $GOOD;
    }, load => 1, $options{port} ? (port => $options{port}) : ());
    $fake->{flag} = $file;
    return $fake;
}

sub bad { open my $file, '>', $_[0]{flag} or die }
sub good { unlink $_[0]{flag} }

sub gateway {
    my ($line, %options) = @_;
    return t::Gateway->limited(
        workers => $options{workers} // 1, events => $options{events} // '',
        redis => $line, timeout => $options{timeout} // TIMEOUT,
        zone => 'rate=10r/h sync=strict', listen => 'reuseport',
        http => "log_format rl '\$request_time';\n",
        server => 'add_header X-Worker $pid always;'
                  . 'access_log %%DIR%%/access.log rl;');
}

# A metric of the block: with all its labels but the block's name, or the sum.
sub metric {
    my ($gateway, $name, $labels) = @_;
    my $sum = 0;
    for ($gateway->get('/metrics')->{body}
         =~ /^(ratelimit_redis_$name\{.*)$/mg)
    {
        my ($found, $value) = /\{redis="r",?(.*)\} (\d+)$/ or next;
        $sum += $value if !defined $labels || $labels eq $found;
    }
    return $sum;
}

sub told { return t::Gateway::told($_[0]->get('/?k=' . ($_[1] // 'a'))) }

sub lines {
    my ($gateway, $what) = @_;
    my @lines = $gateway->log =~ /(breaker of .* $what\b.*)/g;
    return scalar @lines;
}

# It is closed: a busy machine may have had it open once more.
sub each_once {
    my ($gateway, $name) = @_;
    is(lines($gateway, 'closes'), lines($gateway, 'opens'),
       "$name: one line for all");
}

# When the fake heard of checks.
sub checks {
    return map { $_->[0] } grep { $_->[2] eq 'EVALSHA' } $_[0]->heard;
}

sub recovers {
    my ($gateway, $name) = @_;
    ok(wait_for(sub {
        advance(0.1);
        return told($gateway, rand) eq '200 PASSED 9';
    }), "$name: it is asked again");
    ok(wait_for(sub { lines($gateway, 'closes') }), "$name: the log says so");
}

# Requests until it opens; all of them are in vain.
sub open_by_silence {
    my ($gateway, $name) = @_;
    my %told;
    # one at a time in each of four
    ok(wait_for(sub {
        $told{t::Gateway::told($_)}++ for $gateway->burst(4, '/?k=a');
        return lines($gateway, 'opens');
    }), "$name: it opens");
    is(join(', ', keys %told), '200 DEGRADED -1', "$name: all pass degraded");
    is(lines($gateway, 'opens'), 1, "$name: one line says so");
}

sub nobody_waits {
    my ($gateway, $name, $n) = @_;
    t::Clock::stop();
    my @answers = map { $gateway->burst(20, '/?k=a') } 1 .. $n // 3;
    t::Clock::go();
    is(scalar(grep { t::Gateway::told($_) ne '200 DEGRADED -1' } @answers), 0,
       "$name: while it is open all pass degraded, and nobody waits");
}

# Each worker answers something: before the next answer its timers have fired.
sub timers_fire {
    my $gateway = shift;
    my %seen;
    wait_for(sub {
        $seen{header($_, 'X-Worker')} = 1
            for $gateway->burst(2 * $gateway->{workers}, '/metrics');
        return keys %seen == $gateway->{workers};
    });
}

# a real server that is stopped; four workers, one request after the other: the
# third full wait opens it for all of them
{
    my $port = redis_start();
    my $gateway = gateway("server 127.0.0.1:$port", workers => 4);
    ok(wait_for(sub {
        tally($gateway->burst(30, '/?k=' . rand))
            eq '10 x 200, 20 x 429'
    }), 'stopped: it limits before');
    kill STOP => redis_pid($port);
    t::Clock::stop();
    my $begun = $gateway->begin(2, '/?k=a');
    advance(TIMEOUT_SECONDS - 0.01);
    is(t::Gateway::answered($begun), 0, 'stopped: the first two wait');
    ok(wait_for(sub {
        advance(0.01);
        return t::Gateway::answered($begun) == 2;
    }), 'stopped: for the whole timeout');
    t::Clock::go();
    is(lines($gateway, 'opens'), 0, 'stopped: two do not open it');
    advance(1.1);     # they count on, however far apart
    open_by_silence($gateway, 'stopped');
    nobody_waits($gateway, 'stopped', 5);
    like($gateway->log, qr/\[error\] .*ratelimit redis "r": breaker of 127\.0\.0\.1:$port opens, calls end with "timeout"/,
         'stopped: the log tells why');
    advance(3);
    nobody_waits($gateway, 'stopped for long', 5);
    is(lines($gateway, 'opens'), 1, 'stopped for long: one line for all');
    kill CONT => redis_pid($port);
    recovers($gateway, 'goes on');
    ok(wait_for(sub {
        tally($gateway->burst(30, '/?k=' . rand))
            eq '10 x 200, 20 x 429'
    }), 'goes on: it limits again');
    each_once($gateway, 'goes on');
    like($gateway->log, qr/\[notice\] .*ratelimit redis "r": breaker of 127\.0\.0\.1:$port closes/,
         'goes on: the log');
    $gateway->stop;
    redis_stop($port);
}

# who waits in another worker, or for a later deadline, is let go: three full
# waits, and one more in each other worker at most
{
    my $fake = fake(sub { '' }, all => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", workers => 4);
    is(told($gateway), '200 PASSED 9', 'let go: good before');
    bad($fake);
    # a request every 50 ms, as they are answered or not; a worker looks at its
    # sockets once more, so a full wait ends a millisecond behind the timeout
    t::Clock::stop();
    my @begun;
    my $before = checks($fake);
    for my $n (1 .. 40) {
        my $begun = $gateway->begin(1, '/?k=a');
        wait_for(sub {
            t::Gateway::answered($begun) || checks($fake) == $before + $n
        });
        push @begun, $begun;
        advance(0.05);
        if (grep { !t::Gateway::answered($_) } @begun) {
            timers_fire($gateway);
            advance(0.001);
            timers_fire($gateway);
        }
    }
    my @answers = map { t::Gateway::finish($_) } @begun;
    t::Clock::go();
    is(scalar(grep { t::Gateway::told($_) eq '200 DEGRADED -1' } @answers), 40,
       'let go: all are answered');
    my $full = grep { $_ >= TIMEOUT_SECONDS }
                    split /\n/, $gateway->read('access.log');
    cmp_ok($full, '>=', 3, "let go: $full full waits");
    cmp_ok($full, '<=', 3 + 3, 'let go: three, and one a worker at most');
    is(lines($gateway, 'opens'), 1, 'let go: one line for all');
    good($fake);
    recovers($gateway, 'let go');
    $gateway->stop;
    $fake->stop;
}

# the probes: without any request, and few however many requests there are
{
    my $fake = fake(sub { '' }, all => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", workers => 2,
                          timeout => '200ms');
    t::Clock::stop();
    is(told($gateway), '200 PASSED 9', 'probes: good before');
    t::Clock::go();
    bad($fake);
    ok(wait_for(sub {
        $gateway->burst(3, '/?k=a');
        return lines($gateway, 'opens');
    }), 'probes: it opens');
    my $before = checks($fake);
    ok(wait_for(sub { checks($fake) >= $before + 3 }),
       'probes: no request is needed');
    $before = checks($fake);
    my @answers = map { $gateway->burst(100, '/?k=a') } 1 .. 10;
    is(scalar(grep { t::Gateway::told($_) ne '200 DEGRADED -1' } @answers), 0,
       'probes: all requests are degraded');
    cmp_ok(checks($fake) - $before, '<', 100, 'probes: none of them is one');
    is(lines($gateway, 'opens'), 1, 'probes: one line');
    is(lines($gateway, 'closes'), 0, 'probes: and none that it closes');
    # the outage ends without traffic
    good($fake);
    ok(wait_for(sub { lines($gateway, 'closes') }),
       'probes: it closes without a request');
    each_once($gateway, 'probes');
    $gateway->stop;
    $fake->stop;
}

# a late reply closes it: no request is needed, and no probe
{
    my $port = redis_start();
    my $gateway = gateway("server 127.0.0.1:$port", timeout => '100ms');
    for (1 .. 3) {
        ok(wait_for(sub {
            told($gateway, rand) eq '200 PASSED 9'
        }), 'late reply: good before');
        my $before = lines($gateway, 'opens');
        kill STOP => redis_pid($port);
        ok(wait_for(sub {
            $gateway->burst(5, '/?k=a');
            lines($gateway, 'opens') > $before;
        }), 'late reply: it opens');
        kill CONT => redis_pid($port);
        ok(wait_for(sub {
            metric($gateway, 'breaker_state',
                   "node=\"127.0.0.1:$port\"") == 0
        }), 'late reply: it closes');
        is(told($gateway, rand), '200 PASSED 9', 'late reply: at once');
        # the lines are limited
        advance(1);
    }
    $gateway->stop;
    redis_stop($port);
}

# one worker's connection is silent, the others' are not: nothing opens, no other
# worker is touched, and that worker gets a new connection
{
    my $fake;
    $fake = fake(sub { $t::FakeRedis::CONNECTION == 1 ? '' : $GOOD }, all => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", workers => 2,
                          timeout => '2s');
    ok(wait_for(sub { $fake->seen->{connections} == 2 }),
       'one connection: each worker has one');
    is(told($gateway), '200 PASSED 9', 'one connection: good before');
    bad($fake);
    # requests all the time, so that each worker hears something
    my @loads = map { t::Gateway::beside(sub {
        $gateway->get('/?k=load') while getppid != 1;
    }) } 1 .. 8;
    my (%told, %again);
    wait_for(sub {
        my ($answer) = $gateway->get('/?k=a');
        my $worker = header($answer, 'X-Worker');
        my $told = t::Gateway::told($answer);
        $told{$worker}{$told}++;
        $again{$worker} = 1 if $told eq '200 PASSED 9'
                               && $told{$worker}{'200 DEGRADED -1'};
        return %again && $gateway->log =~ /it alone has no replies/;
    });
    kill TERM => @loads;
    waitpid $_, 0 for @loads;
    is(scalar(grep { $told{$_}{'200 DEGRADED -1'} } keys %told), 1,
       'one connection: one worker is degraded');
    is(scalar(keys %again), 1, 'one connection: for a while');
    is(lines($gateway, 'opens'), 0, 'one connection: nothing opens');
    like($gateway->log, qr/no connection to .*: it alone has no replies/,
         'one connection: the log');
    $gateway->stop;
    $fake->stop;
}

# workers that were stopped: what has arrived meanwhile is in time
for my $events ('', 'accept_mutex on;') {
    my $port = redis_start();
    my $gateway = gateway("server 127.0.0.1:$port", workers => 2,
                          events => $events);
    ok(wait_for(sub { told($gateway, rand) eq '200 PASSED 9' }),
       "stopped worker, $events: good before");
    t::Clock::stop();
    for my $n (1 .. 3) {
        my @workers = $gateway->workers;
        kill STOP => redis_pid($port);
        my @begun = map { $gateway->begin(1, "/?k=$n-$_") } 1 .. 12;
        wait_for(sub { t::Gateway::unread($port) });
        kill STOP => @workers;
        kill CONT => redis_pid($port);
        wait_for(sub { !t::Gateway::unread($port) });
        # Redis answers in the order of its connections
        redis_cli($port, 'ping') for 1, 2;
        advance(1.5);
        kill CONT => @workers;
        is(scalar(grep { t::Gateway::told($_) eq '200 PASSED 9' }
                       map { t::Gateway::finish($_) } @begun), 12,
           "stopped worker, $events: all are answered");
        # each worker has its timers fire before the next
        advance(0.01);
        timers_fire($gateway);
    }
    t::Clock::go();
    is(lines($gateway, 'opens'), 0, "stopped worker, $events: nothing opens");
    $gateway->stop;
    redis_stop($port);
}

# half of twenty calls fail at once; when a probe finds it well, a share of the
# calls is readmitted
{
    my $fake = fake(sub { "-OOM x\r\n" });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", timeout => '10s');
    is(told($gateway), '200 PASSED 9', 'failing: good before');
    bad($fake);
    # two a second at most, since no second has twenty
    for (1 .. 12) {
        is(told($gateway), '200 DEGRADED -1', 'failing: few, degraded')
            if $_ <= 2;
        told($gateway);
        advance(0.1);
    }
    is(lines($gateway, 'opens'), 0, 'failing: few do not open it');
    $gateway->burst(30, '/?k=a');
    is(lines($gateway, 'opens'), 1, 'failing: many do');
    like($gateway->log, qr/breaker of 127\.0\.0\.1:$fake->{port} opens, calls end with "oom"/,
         'failing: the log tells with what');
    my $before = checks($fake);
    my @answers = map { $gateway->burst(20, '/?k=a') } 1 .. 5;
    is(tally(@answers), '100 x 200', 'failing: all pass');
    cmp_ok(checks($fake) - $before, '<=', 20, 'failing: it is not asked');
    good($fake);
    ok(wait_for(sub { lines($gateway, 'readmits') }),
       'failing: a probe finds it well');
    my %told;
    ok(wait_for(sub {
        advance(0.1);
        $told{t::Gateway::told($_)}++ for $gateway->burst(16, '/?k=a');
        return lines($gateway, 'closes');
    }), 'failing: it closes when all are readmitted');
    is(join(' ', sort keys %told), '200 DEGRADED -1 200 PASSED 9',
       'failing: some are let through before, some not');
    is(metric($gateway, 'breaker_opened_total'), 1, 'failing: opened once');
    is(metric($gateway, 'calls_total'),
       1 + 2 + 12 + 30 + 100 + $told{'200 DEGRADED -1'}
       + $told{'200 PASSED 9'}, 'failing: each call ended once');
    is($fake->seen->{connections}, 1, 'failing: over one connection');
    $gateway->stop;
    $fake->stop;
}

# each call ends in one way, also one whose reply comes when nobody waits for it
{
    my $fake = fake(sub { [('') x 60, $GOOD] });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", timeout => '100ms');
    my $node = "node=\"127.0.0.1:$fake->{port}\"";
    t::Clock::stop();
    is(told($gateway), '200 PASSED 9', 'late: good before');
    t::Clock::go();
    bad($fake);
    # the fake takes 0.3 s for each
    my @answers = map { $gateway->burst(2, '/?k=a') } 1 .. 4;
    is(scalar(grep { t::Gateway::told($_) ne '200 DEGRADED -1' } @answers), 0,
       'late: degraded');
    is(metric($gateway, 'breaker_state', $node), 1, 'late: it is open');
    good($fake);
    my $n = 1 + @answers;
    ok(wait_for(sub {
        $n++;
        return told($gateway, rand) eq '200 PASSED 9';
    }), 'late: it is asked again');
    is(metric($gateway, 'breaker_state', $node), 0, 'late: it is closed');
    is(metric($gateway, 'breaker_opened_total'), 1, 'late: it opened once');
    is(metric($gateway, 'calls_total'), $n, 'late: each call ended once');
    is(metric($gateway, 'calls_total', 'result="ok"'), 2,
       'late: a late reply is none');
    my $timeouts = metric($gateway, 'calls_total', 'result="timeout"');
    cmp_ok($timeouts, '>=', 3, "late: $timeouts timeouts");
    is(metric($gateway, 'calls_total', 'result="breaker_open"'), $n - 2 - $timeouts,
       'late: and the rest was not sent');
    $gateway->stop;
    $fake->stop;
}

# what tells of one key, or of one slot, does not count
for my $error ('WRONGTYPE x', 'MOVED 1 127.0.0.1:1', 'TRYAGAIN x') {
    my $fake = fake(sub { "-$error\r\n" });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}");
    bad($fake);
    $gateway->burst(50, '/?k=a') for 1, 2;
    is(lines($gateway, 'opens'), 0, "$error does not open it");
    good($fake);
    is(told($gateway), '200 PASSED 9', "$error: asked at once");
    $gateway->stop;
    $fake->stop;
}

# nobody listens: what is told at once counts too, and the log stays short
{
    my $port = t::Gateway::free_port();
    my $gateway = gateway("server 127.0.0.1:$port", workers => 4);
    for (1 .. 5) {
        nobody_waits($gateway, "nobody listens: $_", 1);
        advance(0.6);
    }
    is(lines($gateway, 'opens'), 1, 'nobody listens: one line');
    like($gateway->log, qr/opens, calls end with "unreachable"/,
         'nobody listens: why');
    my @lines = $gateway->log =~ /(\[error\].*)/g;
    cmp_ok(scalar @lines, '<=', 4,
           'nobody listens: few lines of four workers: ' . @lines);
    redis_start(port => $port);
    recovers($gateway, 'a server comes');
    my @answers = map { $gateway->burst(50, '/?k=' . rand) } 1 .. 4;
    is(scalar(grep { header($_, 'X-Status') eq 'DEGRADED' }
              @answers), 0, 'a server comes: every worker asks it at once');
    is(lines($gateway, 'opens'), 1, 'a server comes: it stays closed');
    $gateway->stop;
    redis_stop($port);
}

# one node of a cluster is silent, the other is not touched; requests for both
# in one turn
{
    my @ports = (t::Gateway::free_port(), t::Gateway::free_port());
    my $slots = "*2\r\n" . join '', map {
        my $first = 8192 * $_;
        my $last = $first + 8191;
        "*3\r\n:$first\r\n:$last\r\n*3\r\n\$9\r\n127.0.0.1\r\n"
        . ":$ports[$_]\r\n\$2\r\nid\r\n";
    } 0, 1;
    my @fakes = map {
        fake(sub { $_[0] eq 'CLUSTER' ? $slots : '' },
             good => sub { $_[0] eq 'CLUSTER' ? $slots : $GOOD },
             port => $_)
    } @ports;
    my $gateway = gateway("cluster 127.0.0.1:$ports[0] 127.0.0.1:$ports[1]");
    # a key of each
    my @keys;
    for my $k (1 .. 200) {
        my @before = map { scalar checks($_) } @fakes;
        is(told($gateway, $k), '200 PASSED 9', 'nodes: good before')
            if $k == 1;
        told($gateway, $k) if $k > 1;
        sleep 0.02;
        for my $i (0, 1) {
            $keys[$i] //= $k if checks($fakes[$i]) > $before[$i];
        }
        last if defined $keys[0] && defined $keys[1];
    }
    bad($fakes[0]);
    $gateway->burst(4, "/?k=$keys[0]");
    is(lines($gateway, 'opens'), 1, 'nodes: one opens');
    like($gateway->log, qr/breaker of 127\.0\.0\.1:$ports[0] opens/,
         'nodes: that one');
    t::Clock::stop();
    my @answers = t::Gateway::send_all([map {
        [$gateway, "/?k=$keys[$_ % 2]"]
    } 0 .. 99]);
    t::Clock::go();
    is(join(' ', tally(@answers),
            scalar(grep { t::Gateway::told($_) eq '200 PASSED 9' } @answers),
            scalar(grep { t::Gateway::told($_) eq '200 DEGRADED -1' }
                   @answers)),
       '100 x 200 50 50', 'nodes: the other one is asked, and nobody waits');
    good($fakes[0]);
    ok(wait_for(sub {
        advance(0.1);
        return told($gateway, $keys[0]) eq '200 PASSED 9'
    }), 'nodes: it is asked again');
    $gateway->stop;
    $_->stop for @fakes;
}

# no node of a cluster is there: who waits for the first map waits no longer
# than others
{
    my $port = t::Gateway::free_port();
    my $fake;
    my $gateway = gateway("cluster 127.0.0.1:$port", workers => 2);
    open_by_silence($gateway, 'no map');
    like($gateway->log, qr/breaker of slot map opens/, 'no map: the log');
    nobody_waits($gateway, 'no map', 5);
    $fake = t::FakeRedis->new(sub {
        return $GOOD if $_[0] ne 'CLUSTER';
        return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n\$9\r\n127.0.0.1\r\n"
               . ":$port\r\n\$2\r\nid\r\n";
    }, port => $port);
    recovers($gateway, 'a map comes');
    like($gateway->log, qr/breaker of slot map closes/, 'a map comes: the log');
    $gateway->stop;
    $fake->stop;
}

# a reload keeps it open; workers that die with a probe are replaced
{
    my $fake = fake(sub { '' }, all => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", workers => 2);
    is(told($gateway), '200 PASSED 9', 'reload: good before');
    bad($fake);
    open_by_silence($gateway, 'reload');
    $gateway->reload;
    nobody_waits($gateway, 'reload');
    is(lines($gateway, 'opens'), 1, 'reload: it was open all the time');
    # the next check that the fake hears is a probe, of one of them
    my $before = checks($fake);
    my @old = $gateway->workers;
    ok(wait_for(sub { checks($fake) > $before }), 'killed: there is a probe');
    kill KILL => @old;
    good($fake);
    ok(wait_for(sub {
        my @new = $gateway->workers;
        my %new = map { $_ => 1 } @new;
        return @new == 2 && !grep { $new{$_} } @old;
    }), 'killed: other workers');
    recovers($gateway, 'killed');
    $gateway->stop('QUIT', qr/exited on signal 9/);
    $fake->stop;
}

# what nobody waits for opens nothing, though all of it fails; while it is open
# it is not sent
{
    my $file = "$flags/told";
    my $up = t::Gateway::free_port();
    # a check costs 1; the response's cost is charged by a call that costs 0
    my $fake = t::FakeRedis->new(sub {
        return "-OOM x\r\n" if -e $file || $_[6] eq '0';
        return $GOOD;
    });
    my $gateway = t::Gateway->limited(
        redis => $fake->{port}, timeout => '10s',
        rules => ['a rate=10r/h cost_header=X-Cost'],
        http => <<"CONF",
    server {
        listen 127.0.0.1:$up backlog=1024;
        location / { add_header X-Cost 3; return 200; }
    }
CONF
        locations => {
            '/' => "ratelimit zone=z; proxy_pass http://127.0.0.1:$up;" });
    my @answers = map { $gateway->burst(30, '/?k=a') } 1, 2;
    is(scalar(grep { header($_, 'X-Status') ne 'PASSED' }
              @answers), 0, 'nobody waits: all checks pass');
    ok(wait_for(sub { checks($fake) == 120 }),
       'nobody waits: as many calls were to charge');
    is(lines($gateway, 'opens'), 0, 'nobody waits: they open nothing');
    $gateway->stop;
    $fake->stop;
}

# Redis takes longer than the timeout, and requests come one by one: three wait,
# and then nobody, though each of them is answered late
{
    my $fake = fake(sub {
        Time::HiRes::sleep(0.12);
        return $_[0] eq 'SCRIPT' ? $LOADED : $GOOD;
    }, all => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port}", workers => 2,
                          timeout => '50ms');
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }), 'slow: good before');
    my $before = metric($gateway, 'calls_total', 'result="timeout"');
    bad($fake);
    for (1 .. 10) {
        told($gateway);
        Time::HiRes::sleep(0.15);      # until its reply has come
    }
    cmp_ok(metric($gateway, 'calls_total', 'result="timeout"') - $before, '<=', 5,
       'slow: three requests wait, on a busy machine a few more');
    is(metric($gateway, 'breaker_state'), 1, 'slow: it stays open');
    is(metric($gateway, 'connected'), 1, 'slow: and the gateway connected');
    good($fake);
    recovers($gateway, 'slow');
    $gateway->stop;
    $fake->stop;
}

# Redis is gone, and nobody asks it: that is told at once, and seldom repeated
{
    my $port = redis_start();
    my $gateway = gateway("server 127.0.0.1:$port", workers => 2);
    is(told($gateway), '200 PASSED 9', 'gone: good before');
    is(metric($gateway, 'connected'), 1, 'gone: connected');
    redis_stop($port);
    ok(wait_for(sub { metric($gateway, 'breaker_state') == 1 }),
       'gone: the breaker opens');
    is(metric($gateway, 'connected'), 0, 'gone: not connected');
    is(told($gateway), '200 DEGRADED -1', 'gone: degraded');
    for (1 .. 60) {
        advance(1);
        timers_fire($gateway);
    }
    is(metric($gateway, 'breaker_state'), 1, 'gone: it stays open');
    is(lines($gateway, 'opens'), 1, 'gone: one line says so');
    my @lines = $gateway->log =~ /(no connection to .*)/g;
    cmp_ok(scalar @lines, '<=', 10, 'gone: few lines repeat it');
    redis_start(port => $port);
    recovers($gateway, 'gone');
    ok(wait_for(sub { metric($gateway, 'connected') == 1 }),
       'gone: connected again');
    $gateway->stop;
}
