# The transport against a server that says what Redis says only on bad days, and
# what Redis never says. For each scenario: what the request is told, when, over
# how many connections, and that it is right again as soon as the server is.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( tally told wait_for );
use t::FakeRedis;

use File::Temp ();
use Time::HiRes qw( sleep time );

# Where a request must not wait it could wait long; where it has to wait, for
# 300 ms. The rest is for a busy machine.
use constant { LONG => '10s', SHORT => '300ms' };

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $LOADED = "\$40\r\n" . 'a' x 40 . "\r\n";

my $flags = File::Temp->newdir;
my (@scenarios, %of);

# name; answer => what EVALSHA gets until the scenario's flag is set (loads =>
# SCRIPT LOAD too); slots => the same for CLUSTER SLOTS, in a cluster; told =>
# $ratelimit_status; connections => 1: the same all the time, 2: new ones;
# log => what the log says of the port (or of logged_port); first, then =>
# further tests, behind the first request and behind all; password => 1: the
# gateway logs in; stays => 1: a connection that had such an answer gets them to
# its end.
#
# Twenty requests at once open the breaker where they fail: it is right again
# as soon as a probe has been answered.
sub scenario {
    my ($name, %s) = @_;
    my $self = { name => $name, told => 'DEGRADED', timeout => LONG,
                 connections => 1, then => sub {}, %s };
    my $flag = "$flags/" . @scenarios;
    my $port = t::Gateway::free_port();
    my %had;
    $self->{port} = $port;
    $self->{flag} = $flag;
    $self->{fake} = t::FakeRedis->new(sub {
        my $good = -e $flag && !$had{$t::FakeRedis::CONNECTION};
        if ($_[0] eq 'CLUSTER') {
            return !$good && $s{slots} ? $s{slots}->($port)
                                       : slots([0, 16383, '127.0.0.1', $port]);
        }
        return "+OK\r\n" if $_[0] eq 'ASKING' || $_[0] eq 'AUTH';
        return $LOADED if $_[0] eq 'SCRIPT' && ($good || !$s{loads});
        $had{$t::FakeRedis::CONNECTION} = $s{stays} if !$good;
        return $good ? $GOOD : $s{answer}->($port, @_);
    }, port => $port, load => 1,
       greeting => sub { -e $flag ? '' : $s{greeting} // '' });
    push @scenarios, $self;
    return $of{$name} = $self;
}

sub cluster {
    my ($name, %s) = @_;
    return scenario($name, slots => sub {
        slots([0, 16383, '127.0.0.1', $_[0]])
    }, %s);
}

# CLUSTER SLOTS' answer of [first, last, host, port]
sub slots {
    return '*' . @_ . "\r\n" . join '', map {
        my ($first, $last, $host, $port) = @$_;
        "*3\r\n:$first\r\n:$last\r\n*4\r\n"
        . (defined $host ? '$' . length($host) . "\r\n$host\r\n" : "\$-1\r\n")
        . ":$port\r\n\$2\r\nid\r\n*0\r\n";
    } @_;
}

# How often a fake heard a word.
sub calls {
    my ($fake, $word) = @_;
    return scalar grep { $_->[2] eq $word } $fake->heard;
}

# errors: the call fails at once, the connection stays
for my $error ('ERR rl:{5} secret', 'WRONGTYPE x', 'OOM x', 'LOADING x',
               'BUSY x', 'MISCONF x', 'NOREPLICAS x', 'NOPERM x',
               'READONLY x', 'MASTERDOWN x', 'CLUSTERDOWN x',
               'MOVED 1 127.0.0.1:1', 'ASK 1 127.0.0.1:1', '', ' x')
{
    my ($word) = $error =~ /^(\w*)/;
    scenario("-$error", answer => sub { "-$error\r\n" }, first => sub {
        is(calls($_[0]{fake}, 'EVALSHA'), 1, "-$error: not asked again");
    }, log => 'answered a check with ' . ($word || 'something unexpected'));
}

# the connection is not who it was
scenario('-NOAUTH x', answer => sub { "-NOAUTH x\r\n" }, connections => 2,
         password => 1, log => 'answered a check with NOAUTH', first => sub {
    my $fake = $_[0]{fake};
    ok(wait_for(sub { calls($fake, 'AUTH') >= 2 }), '-NOAUTH: it logs in anew');
    is(calls($fake, 'EVALSHA'), 1, '-NOAUTH: not asked again');
});

# what a command of the script was told: by Redis up to 6.2, by later ones
{
    my $sha = 'a1' x 20;
    my $running = "ERR Error running script (call to f_$sha): ";
    for (['OOM', "$running\@user_script:58: \@user_script: 58: -OOM command not"
                 . " allowed when used memory > 'maxmemory'."],
         ['MISCONF', "$running\@user_script:5: \@user_script: 5: -MISCONF Redis"],
         ['READONLY', "$running\@user_script:5: -READONLY You can't write"],
         ['WRONGTYPE', "$running\@user_script:5: WRONGTYPE Operation against"],
         ['NOPERM', "$running\@user_script:5: \@user_script: 5: The user executing"
                    . " the script can't run this command or subcommand"],
         ['NOPERM', "ERR The user executing the script can't run this command"
                    . " or subcommand script: $sha, on \@user_script:5."],
         ['NOPERM', "ERR ACL failure in script: User x has no permissions to"
                    . " run the 'hset' command script: $sha, on \@user_script:5."],
         ['NOPERM', "ERR ACL failure in script: User x has no permissions to"
                    . " access the 'rl:{5}' key script: $sha, on \@user_script:5."],
         ['ERR', "$running\@user_script:5: SECRET is no word"],
         ['ERR', "$running\@user_script:5: attempt to index a nil value"],
         ['ERR', "$running\@user_script:5: "],
         ['ERR', 'ERR Error running script (call OOM'])
    {
        my ($word, $error) = @$_;
        scenario("inside the script: $word: " . length $error,
                 answer => sub { "-$error\r\n" },
                 log => "answered a check with $word");
    }
}

for (['an empty array', "*0\r\n"],
     ['too few values', "*3\r\n:1\r\n:9\r\n:1\r\n"],
     ['a granted token of another bucket', "*4\r\n:11\r\n:0\r\n:0\r\n:0\r\n"])
{
    my ($name, $bytes) = @$_;
    scenario($name, answer => sub { $bytes });
}

# what no check is answered with: calls and replies are out of step
for (['a status', "+OK\r\n"], ['an integer', ":5\r\n"], ['nil', "\$-1\r\n"],
     ['no array', "*-1\r\n"], ['a string', "\$3\r\nfoo\r\n"],
     ['a string among the values', "*4\r\n:1\r\n\$1\r\n9\r\n:1\r\n:0\r\n"],
     ['an array among them', "*4\r\n:1\r\n*1\r\n:9\r\n:1\r\n:0\r\n"],
     ['64 arrays of 64', "*64\r\n" . ("*64\r\n" . ":1\r\n" x 64) x 64])
{
    my ($name, $bytes) = @$_;
    scenario($name, answer => sub { $bytes }, connections => 2,
             log => 'a reply of another call');
}

# no protocol, or too much of it: the connection ends
for (['HTTP', "HTTP/1.1 400 Bad Request\r\n\r\n"],
     ['65 values', "*65\r\n" . ":1\r\n" x 65],
     ['2147483647 values', "*2147483647\r\n:1\r\n"],
     ['4294967295 values', "*4294967295\r\n:1\r\n"],
     ['-2 values', "*-2\r\n:1\r\n"],
     ['an integer of 2^63', "*4\r\n:9223372036854775808\r\n" . ":1\r\n" x 3],
     ['an integer that is none', "*4\r\n:1x\r\n" . ":1\r\n" x 3],
     ['a bulk of 10 MB', "\$10485760\r\n" . 'x' x 10485760 . "\r\n"],
     ['a bulk of -2', "\$-2\r\n"],
     ['a line of 1 MB', '+' . 'x' x 1048576],
     ['200000 arrays in each other', "*1\r\n" x 200000],
     ['zeros', "\0" x 100])
{
    my ($name, $bytes) = @$_;
    scenario($name, answer => sub { $bytes }, connections => 2,
             log => 'a broken or too large reply');
}

scenario('the connection closed', answer => sub { undef }, connections => 2,
         log => 'closed by the server');
scenario('closed in the middle', connections => 2,
         log => 'closed by the server',
         answer => sub { [substr($GOOD, 0, 9), undef] });

# what nobody asked for
scenario('a reply at the begin', greeting => $GOOD, told => '',
         connections => 2, answer => sub { $GOOD },
         log => 'a reply to no call');
scenario('one reply too many', told => 'PASSED', connections => 2, stays => 1,
         answer => sub { $GOOD . $GOOD =~ s/9/8/r },
         log => 'a reply to no call');

# slow
scenario('a reply in single bytes', told => 'PASSED',
         answer => sub { [split //, $GOOD] });
scenario('silence', timeout => SHORT, connections => 2,
         answer => sub { '' }, log => 'the oldest call has no reply');
{
    my $had = 0;
    scenario('half a reply, then silence', timeout => SHORT, connections => 2,
             answer => sub { $had++ ? '' : substr $GOOD, 0, 9 },
             log => '(?:a broken|the oldest call)');
}

# the script is gone
{
    my $had = 0;
    scenario('NOSCRIPT once', told => 'PASSED',
             answer => sub { $had++ ? $GOOD : "-NOSCRIPT x\r\n" },
             then => sub {
        my @words = map { $_->[2] } $_[0]{fake}->heard;
        is("@words[0 .. 3]", 'SCRIPT EVALSHA SCRIPT EVALSHA',
           'NOSCRIPT once: loaded before the call is sent again');
    });
}

scenario('NOSCRIPT for ever', answer => sub { "-NOSCRIPT x\r\n" },
         then => sub {
    my $loads = calls($_[0]{fake}, 'SCRIPT');
    my $calls = calls($_[0]{fake}, 'EVALSHA');
    # of 21 requests the 20th that fails opens the breaker, maybe before the
    # last one makes a call
    cmp_ok($loads, '<=', 22, "NOSCRIPT for ever: $loads scripts loaded");
    cmp_ok($calls, '>=', 40, "NOSCRIPT for ever: $calls calls: each twice");
});

# cluster: a slot that moves
my $other = cluster('MOVED\'s target', answer => sub { $GOOD },
                    told => 'PASSED');

for my $host ('127.0.0.1', '') {
    cluster("MOVED to \"$host\"", told => 'PASSED',
            answer => sub { "-MOVED 5 $host:$other->{port}\r\n" });
}

for my $text ('MOVED', 'MOVED 5', 'MOVED 5 ', 'MOVED 5 x',
              'MOVED x 127.0.0.1:1', 'MOVED 5 127.0.0.1:',
              'MOVED 5 127.0.0.1:0', 'MOVED 5 127.0.0.1:65536',
              'MOVED 16384 127.0.0.1:1',
              'MOVED 5 ' . 'x' x 600 . ':1', 'ASK 5 :')
{
    cluster('cluster: -' . substr($text, 0, 30),
            answer => sub { "-$text\r\n" });
}

# the slot may have another owner now
for my $word (qw( READONLY MASTERDOWN CLUSTERDOWN )) {
    cluster("cluster: $word", answer => sub { "-$word x\r\n" }, first => sub {
        my ($fake, $maps) = @{$_[0]}{qw( fake maps )};
        is(calls($fake, 'EVALSHA'), 1, "cluster: $word: not asked again");
        ok(wait_for(sub {
            calls($fake, 'CLUSTER') > $maps
        }), "cluster: $word: the map is");
    });
}

for my $word (qw( OOM LOADING WRONGTYPE )) {
    cluster("cluster: $word", answer => sub { "-$word x\r\n" }, first => sub {
        my ($s) = @_;
        # one is asked for at most once a second; that of each minute comes
        # once, and not behind the next request, too
        t::Clock::pass(1.3);
        if (calls($s->{fake}, 'CLUSTER') != $s->{maps}) {
            $s->{maps} = calls($s->{fake}, 'CLUSTER');
            $s->{again}->();
            t::Clock::pass(1.3);
        }
        is(calls($s->{fake}, 'CLUSTER'), $s->{maps},
           "cluster: $word: the map stays as it is");
    });
}

cluster('MOVED to a name', answer => sub { "-MOVED 5 redis.example:6379\r\n" },
        logged_port => 6379, log => 'its host is a name, expected a "resolver"');
cluster('MOVED to nobody', answer => sub { "-MOVED 5 127.0.0.1:1\r\n" },
        logged_port => 1, log => 'connect\(\) failed');

cluster('MOVED to itself', answer => sub { "-MOVED 5 127.0.0.1:$_[0]\r\n" },
        first => sub {
    is(calls($_[0]{fake}, 'EVALSHA'), 6, 'MOVED to itself: five times');
});

{
    my $one = t::Gateway::free_port();
    my $two = cluster('MOVED between two',
                      answer => sub { "-MOVED 5 127.0.0.1:$one\r\n" },
                      connections => 0);
    my $fake = t::FakeRedis->new(
        sub { "-MOVED 5 127.0.0.1:$two->{port}\r\n" }, port => $one);
    $two->{first} = sub {
        is(calls($two->{fake}, 'EVALSHA') + calls($fake, 'EVALSHA'), 6,
           'MOVED between two: five times');
    };
    $two->{other} = $fake;
}

# ASKING stands right before each call that was sent on, and nowhere else
{
    my $scripts = 0;
    my $target = t::FakeRedis->new(sub {
        $_[0] eq 'ASKING' ? "+OK\r\n"
        : $_[0] eq 'SCRIPT' ? $LOADED
        : $scripts++ ? $GOOD : "-NOSCRIPT x\r\n"
    }, load => 1);
    cluster('ASK', told => 'PASSED', target => $target,
            answer => sub { "-ASK 5 127.0.0.1:$target->{port}\r\n" },
            then => sub {
        my @words = map { $_->[2] } $target->heard;
        my $words = join ' ', @words;
        is(calls($target, 'ASKING'), calls($target, 'EVALSHA'),
           'ASK: one ASKING a call');
        like($words, qr/^SCRIPT(?: ASKING EVALSHA| SCRIPT)+$/,
             'ASK: right before it');
        is(calls($target, 'EVALSHA'), 22, 'ASK: NOSCRIPT there is healed');
        is($target->seen->{connections}, 1, 'ASK: one connection there');
    });
}

cluster('ASK to itself', answer => sub { "-ASK 5 127.0.0.1:$_[0]\r\n" },
        first => sub {
    is(calls($_[0]{fake}, 'EVALSHA'), 6, 'ASK to itself: five times');
    is(calls($_[0]{fake}, 'ASKING'), 5, 'ASK to itself: with ASKING');
});

{
    my $had = 0;
    cluster('TRYAGAIN', told => 'PASSED',
            answer => sub { $had++ < 4 ? "-TRYAGAIN x\r\n" : $GOOD },
            first => sub {
        is(calls($_[0]{fake}, 'EVALSHA'), 5, 'TRYAGAIN: asked again');
    });
}

cluster('TRYAGAIN for ever', timeout => SHORT,
        answer => sub { "-TRYAGAIN x\r\n" }, first => sub {
    my $n = calls($_[0]{fake}, 'EVALSHA');
    cmp_ok($n, '<=', 62, "TRYAGAIN for ever: once in 5 ms ($n)");
});

# the map
for my $host (undef, '') {
    cluster('slots of host ' . ($host // 'nil'), told => 'PASSED',
            slots => sub { slots([0, 16383, $host, $_[0]]) },
            answer => sub { $GOOD });
}

cluster('16384 ranges', told => 'PASSED', answer => sub { $GOOD },
        slots => sub {
    my $port = shift;
    slots(map { [$_, $_, '127.0.0.1', $port] } 0 .. 16383);
});
cluster('overlapping ranges', told => 'PASSED', answer => sub { $GOOD },
        slots => sub { slots([0, 16383, '127.0.0.1', 1],
                             [0, 16383, '127.0.0.1', $_[0]]) });
cluster('broken ranges beside a good one', told => 'PASSED',
        answer => sub { $GOOD },
        slots => sub { slots([5, 3, '127.0.0.1', 1], [-1, 9, '127.0.0.1', 1],
                             [0, 16384, '127.0.0.1', 1],
                             [0, 16383, '127.0.0.1', $_[0]],
                             [0, 16383, '127.0.0.1', 65536]) });
cluster('no slots', slots => sub { "*0\r\n" }, timeout => SHORT,
        answer => sub { '' });
cluster('an error instead of slots', slots => sub { "-ERR x\r\n" },
        timeout => SHORT, answer => sub { '' },
        log => 'answered CLUSTER SLOTS with ERR');
cluster('a name instead of an address', answer => sub { '' },
        slots => sub { slots([0, 16383, 'redis.example', $_[0]]) },
        connections => 0, log => 'its host is a name, expected a "resolver"');
cluster('slots of nobody', timeout => LONG, answer => sub { '' },
        slots => sub { slots([0, 16383, '127.0.0.1', 1]) }, connections => 0);
cluster('slots nested too deeply', slots => sub { "*1\r\n" x 200000 },
        timeout => SHORT, connections => 2, answer => sub { '' },
        log => 'a broken or too large reply');
cluster('silence instead of slots', slots => sub { '' }, timeout => SHORT,
        connections => 2, answer => sub { '' });

# the end at any byte of what comes first
{
    my @at = (0, 3, 20, 47);
    scenario('SCRIPT LOAD ends anywhere', loads => 1, told => '',
             connections => 2, answer => sub {
        return $GOOD if $_[1] ne 'SCRIPT';
        return @at ? [substr($LOADED, 0, shift @at), undef] : $LOADED;
    });
}

# one gateway for all of them: each has its own location and its own client
my ($redis, $locations) = ('', '');

open my $password, '>', "$flags/password" or die;
print $password "correct-horse\n";
close $password;

for my $i (0 .. $#scenarios) {
    my $s = $scenarios[$i];
    my $directive = $s->{slots} ? 'cluster' : 'server';
    my $login = $s->{password} ? "password_file $flags/password;" : '';
    $redis .= "ratelimit_redis r$i { $directive 127.0.0.1:$s->{port}; "
              . "timeout $s->{timeout}; $login }\n"
              . "ratelimit_zone \$arg_k zone=z$i:64k rate=10r/h redis=r$i sync=strict;\n";
    $locations .= "location /$i { ratelimit zone=z$i; empty_gif; }\n";
}

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    $redis
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        add_header X-Status \$ratelimit_status always;
        $locations
    }
CONF

sub recovers {
    my ($name, $path) = @_;
    # a breaker that has opened readmits calls little by little
    ok(t::Clock::wait_for(sub {
        5 == grep { told($_) eq '200 PASSED 9' }
             $gateway->burst(5, $path)
    }), "$name: it recovers");
    is(join(' ', map { told($_) } $gateway->burst(5, $path)),
       join(' ', ('200 PASSED 9') x 5), "$name: for good");
}

sub play {
    my ($s, $path) = @_;
    my $name = $s->{name};
    my %told = (DEGRADED => '200 DEGRADED -1', PASSED => '200 PASSED 9');
    # what follows is not about the time that connecting takes
    wait_for(sub { $s->{fake}->seen->{connections} });
    $s->{maps} = calls($s->{fake}, 'CLUSTER');
    $s->{again} = sub { $gateway->get($path) };
    my ($begin, $before) = (t::Clock::now(), $s->{fake}->seen->{connections});
    my $answer = $gateway->get($path);
    is(told($answer), $told{$s->{told}}, "$name: $s->{told}") if $s->{told};
    is($answer->{status}, 200, "$name: answered");
    $s->{first}->($s) if $s->{first};
    my @answers = $gateway->burst(20, $path);
    is(tally(@answers), '20 x 200', "$name: twenty at once");
    if ($s->{told} && $s->{connections} == 1) {
        is(scalar(grep { told($_) ne $told{$s->{told}} } @answers),
           0, "$name: all are told the same");
    }
    $s->{then}->($s);
    open my $flag, '>', $s->{flag} or die;
    recovers($name, $path);
    my $n = $s->{fake}->seen->{connections};
    if ($s->{connections} == 1) {
        # by a clock that hurries, a fake without a processor is dead
        my $dead = () = $gateway->log
                        =~ /:$s->{port}: the oldest call has no reply/g;
        is($n, 1 + $dead, "$name: over one connection");
    } elsif ($s->{connections} == 2) {
        cmp_ok($n, '>=', 2, "$name: over a new connection");
        # half of the least pauses: 0, 25, 50, 100, 200, 400, then 500 ms
        my $most = 7 + 2 * (t::Clock::now() - $begin);
        cmp_ok($n - $before, '<=', $most, "$name: but not over too many");
    }
    if ($s->{log}) {
        my $port = $s->{logged_port} // $s->{port};
        ok(scalar(grep { /:$port\b.*$s->{log}/ } split /^/, $gateway->log),
           "$name: the log: $s->{log}");
    }
}

play($scenarios[$_], "/$_?k=a") for 0 .. $#scenarios;

unlike($gateway->log, qr/rl:\{|secret/, 'no key of Redis, no reply in the log');

$gateway->stop;
$_->{fake}->stop for @scenarios;

# the end at any byte of a reply; two whole ones after each, so that the next
# connection comes soon and the breaker stays closed
{
    my $n = 0;
    my $fake = t::FakeRedis->new(sub {
        my ($at, $whole) = (int $n / 3, $n % 3);
        $n = ($n + 1) % (3 * (length($GOOD) + 1));
        return $whole ? $GOOD : [substr($GOOD, 0, $at), undef];
    });
    my $gateway = t::Gateway->limited(
        redis => $fake->{port}, timeout => '10s',
        zone => 'rate=10r/h sync=strict');
    my %told;
    for my $at (0 .. length $GOOD) {
        $told{told($gateway->get('/?k=a'))}++;
        # the next one is for the next connection
        t::Clock::wait_for(sub { $fake->seen->{connections} == $at + 2 });
        $told{told($gateway->get('/?k=a'))}++ for 1, 2;
    }
    is(join(' ', sort keys %told), '200 DEGRADED -1 200 PASSED 9',
       'the end at any byte: every request is answered');
    is($told{'200 PASSED 9'}, 2 * (length($GOOD) + 1) + 1,
       'and only a whole reply counts');
    $gateway->stop;
    $fake->stop;
}

# the end at any byte of CLUSTER SLOTS: of twenty clients, so that none of them
# comes to wait for long
{
    my $n = 0;
    my $port = t::Gateway::free_port();
    my $slots = slots([0, 16383, '127.0.0.1', $port]);
    my $fake = t::FakeRedis->new(sub {
        return $GOOD if $_[0] ne 'CLUSTER';
        return $n < length $slots ? [substr($slots, 0, $n++), undef] : $slots;
    }, port => $port);
    my $redis = join '', map {
        "ratelimit_redis r$_ { cluster 127.0.0.1:$port; timeout 10s; }
         ratelimit_zone \$arg_k zone=z$_:64k rate=10r/h redis=r$_ sync=strict;\n"
    } 1 .. 20;
    my $locations = join '', map {
        "location /$_ { ratelimit zone=z$_; empty_gif; }\n"
    } 1 .. 20;
    my $gateway = t::Gateway->new(http => <<"CONF")->start;
    $redis
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        $locations
    }
CONF
    ok(wait_for(sub {
        20 == grep { told($gateway->get("/$_?k=a"))
                     eq '200 PASSED 9' } 1 .. 20
    }), 'CLUSTER SLOTS ends anywhere: all recover');
    # that is all there is to cut: a whole map came only behind each byte
    cmp_ok($fake->seen->{connections}, '<=', 20 + length $slots,
           'CLUSTER SLOTS ends anywhere: a connection each at most');
    $gateway->stop;
    $fake->stop;
}

# a server that takes the script and breaks at the first check is no server
# that is back: the next connection waits longer and longer
{
    my $flag = "$flags/back";
    my $fake = t::FakeRedis->new(sub {
        t::FakeRedis::is_beat(@_) ? "-ERR x\r\n" : -e $flag ? $GOOD : undef
    }, beats => 1);
    my $gateway = t::Gateway->limited(
        redis => $fake->{port}, timeout => '10s',
        zone => 'rate=10r/h sync=strict');
    my $told = sub { told($gateway->get('/?k=a')) };
    my $notices = sub {
        my @lines = $gateway->log =~ /connected to \S+ again/g;
        return scalar @lines;
    };
    wait_for(sub { $fake->seen->{connections} });
    t::Clock::stop();
    my $begin = t::Clock::now();
    my (%told, @scripts);
    for (1 .. 1000) {
        $told{$told->()}++;
        advance(0.005);
        @scripts = map { $_->[0] } grep { $_->[2] eq 'SCRIPT' } $fake->heard;
        last if @scripts >= 6;
    }
    is(scalar @scripts, 6, 'broken at each check: it connects again');
    # at once or after 25 ms, then 50, 100, 200 and 400 ms apart at the least
    my $passed = $scripts[-1] - $begin;
    cmp_ok($passed, '>=', 0.75, "broken at each check: later and later");
    t::Clock::go();
    is(join(' ', keys %told), '200 DEGRADED -1',
       'broken at each check: nobody waits');
    is($notices->(), 0, 'broken at each check: the log does not call it back');
    # without a check, by staying connected
    ok(t::Clock::wait_for($notices), 'left alone: it is back');
    advance(1.1);    # one line a second
    open my $file, '>', $flag or die;
    my $connections = $fake->seen->{connections};
    ok(wait_for(sub { $told->() eq '200 PASSED 9' }),
       'left alone: a good reply');
    is($fake->seen->{connections}, $connections,
       'left alone: over that connection');
    is($notices->(), 1, 'left alone: said once');
    # by the first good reply
    unlink $flag;
    is($told->(), '200 DEGRADED -1', 'broken once');
    open $file, '>', $flag or die;
    ok(wait_for(sub { $told->() eq '200 PASSED 9' }),
       'broken once: a good reply');
    is($notices->(), 2, 'broken once: the log says at once that it is back');
    is($told->(), '200 PASSED 9', 'broken once: and stays');
    is($notices->(), 2, 'broken once: said once');
    $gateway->stop;
    $fake->stop;
}

# a seed that knows no cluster delays the map by no more than another question
{
    my $bad = t::FakeRedis->new(
        sub { "-ERR This instance has cluster support disabled\r\n" });
    my $good;
    my $port = t::Gateway::free_port();
    $good = t::FakeRedis->new(sub {
        $_[0] eq 'CLUSTER' ? slots([0, 16383, '127.0.0.1', $port]) : $GOOD
    }, port => $port);
    my $gateway = t::Gateway->limited(
        redis => "cluster 127.0.0.1:$bad->{port} 127.0.0.1:$port",
        timeout => '10s', zone => 'rate=10r/h sync=strict');
    t::Clock::stop();
    my $begun = $gateway->begin(1, '/?k=a');
    ok(wait_for(sub {
        $gateway->log =~ /:$bad->{port} answered CLUSTER SLOTS with ERR/
    }), 'a bad seed: its answer is none');
    advance(0.5);
    ok(wait_for(sub { t::Gateway::answered($begun) }),
       'a bad seed: the other one is asked within half a second');
    t::Clock::go();
    is(told(t::Gateway::finish($begun)), '200 PASSED 9',
       'a bad seed: and has the map');
    $gateway->stop;
    $_->stop for $bad, $good;
}

# ASKING's reply comes while the rest of its call is still to be written: the
# worker, stopped at the full socket, finds both when it goes on
{
    my $pids = File::Temp->new;
    my $slept = 0;
    my $target = t::FakeRedis->new(sub {
        if (!$slept++) {
            open my $file, '<', "$pids" or die;
            my ($pid) = <$file>;
            sleep 0.5;
            kill STOP => $pid;
            if (!fork) {
                sleep 1;
                kill CONT => $pid;
                POSIX::_exit(0);
            }
        }
        return $_[0] eq 'ASKING' ? "+OK\r\n" : $GOOD;
    }, narrow => 1);
    my $port = t::Gateway::free_port();
    my $source = t::FakeRedis->new(sub {
        $_[0] eq 'CLUSTER' ? slots([0, 16383, '127.0.0.1', $port])
                           : "-ASK 5 127.0.0.1:$target->{port}\r\n"
    }, port => $port);
    my $rules = join '', map {
        "ratelimit_rule r$_ zone=z rate=10r/h key=\$arg_k-$_;\n"
    } 1 .. 16;
    my $gateway = t::Gateway->limited(
        redis => "cluster 127.0.0.1:$port", timeout => '10s', http => $rules);
    print $pids $gateway->workers, "\n";
    $pids->flush;
    my @answers = $gateway->burst(200, '/?k=a');
    is(scalar(grep { told($_) ne '200 PASSED 9' } @answers), 0,
       'ASK into a full socket: nobody goes without a check');
    is($target->seen->{connections}, 1, 'ASK into a full socket: it stays');
    is(calls($target, 'EVALSHA'), 3200, 'ASK into a full socket: all sent');
    $gateway->stop;
    $_->stop for $source, $target;
}

# a call that was not written yet when its connection ended: ASKING goes before
# it on the next one, too. The worker, stopped, finds ASK and the end together.
{
    my $pids = File::Temp->new;
    my $checks = 0;
    my $says = sub { $_[0] eq 'ASKING' ? "+OK\r\n" : $GOOD };
    my $target = t::FakeRedis->new($says);
    my $port = t::Gateway::free_port();
    my $source = t::FakeRedis->new(sub {
        return slots([0, 16383, '127.0.0.1', $port]) if $_[0] eq 'CLUSTER';
        if (++$checks == 2) {
            open my $file, '<', "$pids" or die;
            my ($pid) = <$file>;
            kill STOP => $pid;
        }
        return "-ASK 5 127.0.0.1:$target->{port}\r\n";
    }, port => $port);
    my $gateway = t::Gateway->limited(
        redis => "cluster 127.0.0.1:$port", timeout => '10s',
        zone => { 'z:64k' => 'rate=10r/h sync=strict redis=r' });
    my ($worker) = $gateway->workers;
    print $pids "$worker\n";
    $pids->flush;
    is(told($gateway->get('/?k=a')), '200 PASSED 9', 'ASK and the end: before');
    advance(0.1);    # a connection that ends sooner is made later
    my $begun = $gateway->begin(1, '/?k=a');
    ok(wait_for(sub { $source->seen->{commands} == 2 }),
       'ASK and the end: ASK is sent');
    $target->stop;
    $target = t::FakeRedis->new($says, port => $target->{port});
    kill CONT => $worker;
    is(told(t::Gateway::finish($begun)), '200 PASSED 9', 'ASK and the end');
    # on a busy machine a question for the slot map comes between
    is(join(' ', grep { $_ ne 'CLUSTER' } map { $_->[2] } $target->heard),
       'SCRIPT ASKING EVALSHA', 'ASK and the end: once more, with ASKING');
    $gateway->stop;
    $_->stop for $source, $target;
}
