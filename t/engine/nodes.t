# The nodes of a fleet know how many they are: one worker of each tells Redis
# each second that its node lives, whatever becomes of workers, gateways and
# Redis; and what comes of that touches no request, no breaker and no count.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( told wait_for );
use t::FakeRedis;

use File::Temp ();
use IO::Socket::INET;
use Time::HiRes qw( sleep );

t::Clock::hurry();

my $SET = '726c2d6e6f646573';
my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $SEVEN = "*4\r\n:1\r\n:1073741817\r\n:0\r\n:0\r\n";

my $flags = File::Temp->newdir;

# Blocks r, which a zone uses, and others, which none does.
sub gateway {
    my ($lines, %options) = @_;
    return t::Gateway->new(workers => 2, %options, http => <<"CONF")->start;
    ratelimit_redis r { $lines }
    @{[$options{others} // '']}
    ratelimit_zone \$arg_k zone=z:1m rate=10r/h redis=r;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z; empty_gif; }
        location /metrics { ratelimit_metrics; }
    }
CONF
}

# The sum of a metric's series, of r unless told otherwise.
sub metric {
    my ($gateway, $name, $redis) = @_;
    $redis //= 'r';
    my $sum = 0;
    $sum += $_ for $gateway->get('/metrics')->{body}
                   =~ /^ratelimit_(?:redis_)?$name\{redis="$redis".*\} (\d+)$/mg;
    return $sum;
}

sub nodes { return metric($_[0], 'gateways', $_[1]) }

# Until each of the gateways says that so many nodes live.
sub become {
    my ($n, $what, @gateways) = @_;
    ok(wait_for(sub { !grep { nodes($_) != $n } @gateways }), "$what: $n");
}

# When a fake heard a heartbeat, and over which connection: those since then.
sub beats {
    my ($fake, $since) = @_;
    return grep { $_->[0] > ($since // 0) }
           map { [$_->[0], $_->[1]] }
           grep { $_->[2] eq 'EVALSHA' } $fake->heard;
}

sub beats_on {
    my ($fake, $what, $n) = @_;
    my $since = t::Clock::now();
    ok(wait_for(sub { beats($fake, $since) >= $n }), "$what: the heart beats");
}

# In a fake's process: until the test's clock is so much further.
sub later {
    my $end = t::Clock::now() + shift;
    sleep 0.005 while t::Clock::now() < $end;
}

# A server that answers a heartbeat as told, and any other check well.
sub fake {
    my ($answer, %options) = @_;
    return t::FakeRedis->new(sub {
        return "+OK\r\n" if $_[0] ne 'EVALSHA';
        return t::FakeRedis::is_beat(@_) ? $answer->() : $GOOD;
    }, beats => 1, %options);
}

# a fleet of two, over all that may happen to it
{
    my $port = redis_start();
    my $idle = "ratelimit_redis idle { server 127.0.0.1:$port; prefix i; }";
    my @fleet = map { gateway("server 127.0.0.1:$port;", others => $idle) }
                1, 2;
    my $members = sub {
        return join ' ', sort split /\n/,
               redis_cli($port, 'zrange', "rl:{0}:$SET", 0, -1);
    };
    become(2, 'two gateways', @fleet);
    ok(wait_for(sub { nodes($fleet[0], 'idle') == 2 }),
       'a block that no zone uses counts too');
    is(redis_cli($port, '--scan', '--pattern', 'rl:*'), "rl:{0}:$SET",
       'one key stands in Redis');
    cmp_ok(redis_cli($port, 'pttl', "rl:{0}:$SET"), '>', 0, 'for a while');
    is(redis_cli($port, 'zcard', "rl:{0}:$SET"), 2, 'with a name for each');
    # a reload leaves the node who it was
    my $before = $members->();
    $fleet[0]->reload;
    is(nodes($fleet[0]), 2, 'reloaded: the number is known at once');
    t::Clock::pass(1.5);
    is($members->(), $before, 'reloaded: the same two');
    is(nodes($fleet[1]), 2, 'reloaded: the other sees no third');
    # each worker killed in turn: one of them was at it
    for my $gateway (@fleet) {
        for my $worker ($gateway->workers) {
            kill KILL => $worker;
            ok(wait_for(sub {
                my @workers = $gateway->workers;
                return @workers == 2 && !grep { $_ == $worker } @workers;
            }), 'killed worker: there is another');
        }
    }
    t::Clock::pass(3.5);    # who does not beat is forgotten by then
    ok(wait_for(sub { $members->() eq $before }),
       'killed workers: the same two');
    become(2, 'killed workers', @fleet);
    # Redis goes, and comes back empty
    redis_stop($port);
    t::Clock::pass(1.5);
    is(nodes($fleet[0]), 2, 'without Redis: as it was');
    redis_start(port => $port);
    ok(wait_for(sub { $members->() eq $before }),
       'restarted empty: both are there again');
    become(2, 'restarted empty', @fleet);
    # a node dies
    $fleet[0]->kill;
    become(1, 'a killed gateway', $fleet[1]);
    # another one comes
    my $new = gateway("server 127.0.0.1:$port;");
    become(2, 'a new gateway', $fleet[1], $new);
    $new->stop;
    become(1, 'it has left', $fleet[1]);
    unlike($fleet[1]->log, qr/are not counted/, 'the log says nothing of it');
    $fleet[1]->stop(undef, qr/signal 9|exited on signal/);
    redis_stop($port);
}

# in a cluster the nodes are on one shard
{
    my $cluster = join ' ', map { "127.0.0.1:$_" } cluster_ports();
    my $prefix = key_prefix();
    my @fleet = map { gateway("cluster $cluster; prefix $prefix;") } 1 .. 3;
    become(3, 'a cluster', @fleet);
    $_->stop for @fleet;
}

# one worker at a time, no matter which; one that is stopped is stood in for
{
    my $fake = fake(sub { $SEVEN });
    my $begin = t::Clock::now();
    my $gateway = gateway("server 127.0.0.1:$fake->{port};", workers => 4);
    become(7, 'four workers', $gateway);
    beats_on($fake, 'four workers', 4);
    my $n = beats($fake);
    cmp_ok($n, '<=', 2 + t::Clock::now() - $begin, "four workers: one a second ($n)");
    for my $worker ($gateway->workers) {
        kill STOP => $worker;
        beats_on($fake, 'a worker stopped', 2);
        kill CONT => $worker;
    }
    is(metric($gateway, 'calls_total'), 0, 'it counts as no call');
    $gateway->stop;
    $fake->stop;
}

# a worker that drains leaves it to the new ones
{
    my $fake = fake(sub { $SEVEN });
    my $gateway = gateway("server 127.0.0.1:$fake->{port};", workers => 1);
    become(7, 'before the reload', $gateway);
    my $slow = $gateway->connect_to;
    print $slow "GET / HTTP/1.0\r\n";
    $slow->flush;
    # it is accepted before who comes later
    is(nodes($gateway), 7, 'draining: a request under way');
    $gateway->signal('HUP');
    ok(wait_for(sub { $fake->seen->{connections} == 2 }),
       'draining: a new worker');
    ok(wait_for(sub {
        my ($last) = reverse beats($fake);
        return $last->[1] == 2;
    }), 'draining: it takes over');
    my $since = t::Clock::now();
    beats_on($fake, 'draining', 4);
    is(join(' ', map { $_->[1] } grep { $_->[1] != 2 } beats($fake, $since)),
       '', 'draining: the old worker is quiet');
    is(scalar(my @workers = $gateway->workers), 2, 'draining: and still there');
    print $slow "\r\n";
    close $slow;
    $gateway->stop;
    $fake->stop;
}

# an answer behind the timeout is as good
{
    my $fake = fake(sub { later(0.5); $SEVEN });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}; timeout 50ms;");
    become(7, 'late answers', $gateway);
    beats_on($fake, 'late answers', 2);
    is(metric($gateway, 'calls_total'), 0, 'late answers: no calls');
    is(metric($gateway, 'breaker_opened_total'), 0,
       'late answers: no breaker knows of them');
    $gateway->stop;
    $fake->stop;
}

# whatever comes instead, in time or late, there is a next one
{
    my @answers = (
        ['the end of the connection', undef], ['NOSCRIPT', "-NOSCRIPT x\r\n"],
        ['TRYAGAIN', "-TRYAGAIN x\r\n"], ['MOVED', "-MOVED 5 127.0.0.1:1\r\n"],
        ['LOADING', "-LOADING x\r\n"], ['a status', "+OK\r\n"],
        ['too few values', "*3\r\n:1\r\n:1\r\n:1\r\n"],
        ['too many nodes', "*4\r\n:1\r\n:-1\r\n:0\r\n:0\r\n"],
        ['no node', "*4\r\n:1\r\n:1073741824\r\n:0\r\n:0\r\n"],
        ['silence', '']);
    my (@cases, $others);
    for my $answer (@answers) {
        for my $pause (0, 0.2) {
            my ($name, $bytes) = @$answer;
            my $flag = "$flags/" . @cases;
            my $fake = fake(sub {
                return $SEVEN if -e $flag;
                later($pause);
                return $bytes;
            });
            $others .= 'ratelimit_redis r' . @cases . " { "
                       . "server 127.0.0.1:$fake->{port}; timeout 100ms; }\n";
            push @cases, { name => $name . ($pause ? ', late' : ''),
                           flag => $flag, fake => $fake };
        }
    }
    my $gateway = gateway('server 127.0.0.1:1;', workers => 1,
                          others => $others);
    for my $i (0 .. $#cases) {
        my ($what, $flag, $fake) = @{ $cases[$i] }{qw( name flag fake )};
        ok(wait_for(sub { beats($fake) >= 2 }), "$what: the heart beats on");
        is(nodes($gateway, "r$i"), 1, "$what: one node, as long as not known");
        is(metric($gateway, 'calls_total', "r$i")
           + metric($gateway, 'error_replies_total', "r$i"), 0,
           "$what: no count");
        open my $file, '>', $flag or die;
    }
    for my $i (0 .. $#cases) {
        ok(wait_for(sub { nodes($gateway, "r$i") == 7 }),
           "$cases[$i]{name}: then an answer");
    }
    unlike($gateway->log, qr/are not counted/, 'all of these go by');
    $gateway->stop;
    $_->{fake}->stop for @cases;
}

# what somebody must mend is said, once a minute
{
    my $fake = fake(sub { "-NOPERM x\r\n" });
    my $gateway = gateway("server 127.0.0.1:$fake->{port};");
    beats_on($fake, 'NOPERM', 4);
    my @lines = grep { /\[(?:warn|error)\]/ } split /^/, $gateway->log;
    is(scalar @lines, 1, 'NOPERM: one line');
    like($lines[0], qr/\[error\] .*ratelimit redis "r": the gateways are not counted: "noperm"/,
         'NOPERM: which one');
    $gateway->stop;
    $fake->stop;
}

# while a breaker is open no heartbeat is sent, and what is known stays
{
    my $flag = "$flags/oom";
    my $beaten = "$flags/beaten";
    my $fake = t::FakeRedis->new(sub {
        return -e $flag ? "-OOM x\r\n" : $GOOD if !t::FakeRedis::is_beat(@_);
        open my $file, '>', $beaten or die;
        return $SEVEN;
    }, beats => 1);
    my $gateway = gateway("server 127.0.0.1:$fake->{port};", workers => 1);
    become(7, 'breaker: closed', $gateway);
    open my $file, '>', $flag or die;
    t::Clock::stop();    # it opens by what fails in one second
    ok(wait_for(sub {
        $gateway->get('/?k=a') for 1 .. 30;    # one call each
        return metric($gateway, 'breaker_opened_total');
    }), 'breaker: open');
    t::Clock::go();
    t::Clock::pass(1.2);    # what was under way
    unlink $beaten;
    t::Clock::pass(3);
    ok(!-e $beaten, 'breaker: no heartbeat');
    is(nodes($gateway), 7, 'breaker: the number stays');
    unlink $flag;
    ok(wait_for(sub {
        told($gateway->get('/?k=a')) eq '200 PASSED 9'
    }), 'breaker: closed');
    beats_on($fake, 'breaker: closed', 2);
    $gateway->stop;
    $fake->stop;
}

# nobody waits for it: not a worker that exits, however long the timeout is
{
    my $fake = fake(sub { '' });
    my $gateway = gateway("server 127.0.0.1:$fake->{port}; timeout 10s;");
    ok(wait_for(sub { beats($fake) }), 'exit: one is under way');
    $gateway->stop;
    $fake->stop;
}
