# The slot map is the node's: one worker asks, all use it, once a second at
# most whatever fails; a reload keeps it; a worker that dies while it has the
# right to ask is replaced; a node is one connection, whatever it is called.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally wait_for );
use t::FakeRedis;

use File::Temp ();

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

# Two questions are never closer than this: a second, and two steps of load().
use constant SECOND => 0.8;

my $flags = File::Temp->newdir;

# CLUSTER SLOTS' answer of [first, last, host, port]
sub slots {
    return '*' . @_ . "\r\n" . join '', map {
        my ($first, $last, $host, $port) = @$_;
        "*3\r\n:$first\r\n:$last\r\n*4\r\n"
        . '$' . length($host) . "\r\n$host\r\n"
        . ":$port\r\n\$2\r\nid\r\n*0\r\n";
    } @_;
}

# A node. slots => what CLUSTER SLOTS gets, eval => what a check gets.
sub node {
    my ($port, %answers) = @_;
    return t::FakeRedis->new(sub {
        my $answer = $answers{$_[0] eq 'CLUSTER' ? 'slots' : 'eval'} // $GOOD;
        return ref $answer eq 'CODE' ? $answer->() : $answer;
    }, port => $port);
}

sub gateway {
    my ($seeds, %options) = @_;
    return t::Gateway->limited(
        workers => $options{workers} // 4, start => 0,
        redis => "cluster $seeds", timeout => $options{timeout} // '10s',
        zone => 'rate=10r/h');
}

sub told { return t::Gateway::told($_[0]->get('/?k=a')) }

# When any of the nodes was asked, in order.
sub asked {
    my @at = sort { $a <=> $b }
             map { map { $_->[0] } grep { $_->[2] eq 'CLUSTER' } $_->heard } @_;
    return @at;
}

sub never_twice {
    my ($name, @at) = @_;
    my @early = map { sprintf '%.3f', $at[$_] - $at[$_ - 1] }
                grep { $at[$_] - $at[$_ - 1] < SECOND } 1 .. $#at;
    is("@early", '', "$name: never two within a second, of " . @at);
}

# A busy node may hear the first of two questions late: they are counted.
sub at_most {
    my ($name, $since, $more, @nodes) = @_;
    cmp_ok(scalar(asked(@nodes)), '<=', $more + t::Clock::now() - $since,
           "$name: never two within a second");
}

# Requests all the time, for so many seconds; they pass, each step when the nodes
# have read what there was.
sub load {
    my ($gateway, $seconds, $name, @nodes) = @_;
    my %tally;
    my $end = t::Clock::now() + $seconds;
    t::Clock::stop();
    while (t::Clock::now() < $end) {
        my $begun = $gateway->begin(20, '/?k=' . rand);
        wait_for(sub {
            return !grep { t::Gateway::unread($_->{port}) } @nodes;
        });
        wait_for(sub {
            advance(0.1);
            return t::Gateway::answered($begun) == 20;
        });
        $tally{tally(t::Gateway::finish($begun))} = 1;
    }
    t::Clock::go();
    is(join(', ', keys %tally), '20 x 200', "$name: all pass");
}

# Requests until each worker has answered one.
sub all_workers {
    my ($gateway) = @_;
    my %seen;
    ok(wait_for(sub {
        $seen{header($_, 'X-Pid')} = 1
            for $gateway->burst(40, '/?k=' . rand);
        return !grep { !$seen{$_} } $gateway->workers;
    }), 'all workers have answered');
}

sub flag {
    open my $file, '>', "$flags/$_[0]" or die;
}

# How many connections the gateway's workers have to a port: {pid => n}
sub connections {
    my ($gateway, $port) = @_;
    return { map { $_ => scalar t::Gateway::connections($_, $port) }
                 $gateway->workers };
}

# one question serves four workers; none asks again while all is well
{
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => slots([0, 16383, '127.0.0.1', $port]));
    my $gateway = gateway("127.0.0.1:$port")->start;
    all_workers($gateway);
    is(told($gateway), '200 PASSED 9', 'four workers: the map is there');
    advance(1.5);
    all_workers($gateway);
    is(scalar(asked($node)), 1, 'four workers: one question');
    # a reload: the new workers have it at once
    my @old = $gateway->reload;
    all_workers($gateway);
    is(told($gateway), '200 PASSED 9', 'a reload: the map is there');
    is(scalar(asked($node)), 1, 'a reload: no question');
    $gateway->stop;
    $node->stop;
}

# even where no node says anything of the map any more
{
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => sub {
        -e "$flags/deaf" ? '' : slots([0, 16383, '127.0.0.1', $port])
    });
    my $gateway = gateway("127.0.0.1:$port")->start;
    is(told($gateway), '200 PASSED 9', 'before the nodes fall silent');
    flag('deaf');
    $gateway->reload;
    is(told($gateway), '200 PASSED 9', 'the map outlives a reload');
    # another set of seeds is another fleet: nothing is taken over
    my $other = t::Gateway::free_port();
    my $second = node($other, slots => slots([0, 16383, '127.0.0.1', $other]));
    $gateway->configure(http => gateway("127.0.0.1:$other")->{http});
    $gateway->reload;
    is(told($gateway), '200 PASSED 9', 'other seeds: another map');
    cmp_ok(scalar(grep { $_->[2] eq 'EVALSHA' } $second->heard), '>=', 1,
           'other seeds: another node');
    $gateway->stop;
    $_->stop for $node, $second;
}

# everything fails: still one question a second, of all workers together
for (['MOVED to nowhere', "-MOVED 5 127.0.0.1:1\r\n"],
     ['CLUSTERDOWN', "-CLUSTERDOWN x\r\n"],
     ['READONLY', "-READONLY x\r\n"],
     ['the end of the connection', undef])
{
    my ($name, $eval) = @$_;
    my ($one, $two) = (t::Gateway::free_port(), t::Gateway::free_port());
    my $slots = slots([0, 8191, '127.0.0.1', $one],
                      [8192, 16383, '127.0.0.1', $two]);
    my @nodes = map { node($_, slots => $slots, eval => sub { $eval }) }
                    $one, $two;
    my $gateway = gateway("127.0.0.1:$one", timeout => '300ms')->start;
    load($gateway, 3, $name, @nodes);
    my @at = asked(@nodes);
    never_twice($name, @at);
    cmp_ok(scalar @at, '>=', 2, "$name: asked again and again");
    cmp_ok(scalar @at, '<=', 5, "$name: once a second");
    cmp_ok(scalar(grep { asked($_) } @nodes), '==', 2,
           "$name: both nodes in turn") if defined $eval;
    $gateway->stop;
    $_->stop for @nodes;
}

# before there is a map: more often, but not once a worker; and nobody connects
# without end
{
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => sub {
        -e "$flags/first" ? slots([0, 16383, '127.0.0.1', $port])
                          : "-ERR x\r\n"
    });
    my $gateway = gateway("127.0.0.1:$port", timeout => '50ms')->start;
    load($gateway, 2, 'no map', $node);
    my $n = asked($node);
    cmp_ok($n, '<=', 23, "no map: $n questions in 2 s");
    cmp_ok($n, '>=', 5, 'no map: asked again and again');
    cmp_ok($node->seen->{connections}, '<=', 4,
           'no map: a connection a worker');
    flag('first');
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       'no map: then there is one');
    $gateway->stop;
    $node->stop;
}

# the worker that has the right to ask is stopped, then killed
{
    my $port = t::Gateway::free_port();
    my $node = node($port, eval => "-CLUSTERDOWN x\r\n", slots => sub {
        if (-e "$flags/kill") {
            rename "$flags/kill", "$flags/killed";
            return '';
        }
        return slots([0, 16383, '127.0.0.1', $port]);
    });
    my $gateway = gateway("127.0.0.1:$port", timeout => '300ms')->start;
    all_workers($gateway);
    my ($first, $since);
    for my $signal ('KILL', 'STOP') {
        my @begun;
        unlink "$flags/killed";
        flag('kill');
        # While the clock stands, nobody gives up waiting for that answer. The
        # question comes after some seconds of that clock: a busy machine needs
        # longer for so many turns.
        t::Clock::stop();
        $since //= t::Clock::now();
        $first //= asked($node);
        ok(wait_for(sub {
            return 1 if -e "$flags/killed";
            return 0 if t::Gateway::unread($port);
            advance(0.1);
            push @begun, $gateway->begin(5, '/?k=' . rand);
            return 0;
        }, 90), "$signal: a question has no answer");
        my @heard = grep { $_->[2] eq 'CLUSTER' } $node->heard;
        my ($at, $number) = @{ $heard[-1] };
        my $pid = worker($gateway, $node, $number);
        ok($pid, "$signal: the worker that asked");
        kill $signal => $pid;
        ok(wait_for(sub {
            return 1 if grep { $_->[2] eq 'CLUSTER' && $_->[0] > $at
                               && $_->[1] != $number } $node->heard;
            return 0 if t::Gateway::unread($port);
            advance(0.1);
            push @begun, $gateway->begin(5, '/?k=' . rand);
            return 0;
        }, 90), "$signal: another worker asks");
        kill CONT => $pid if $signal eq 'STOP';
    }
    at_most('a worker dies', $since, 1 + $first, $node);
    t::Clock::go();
    $gateway->stop('QUIT', qr/exited on signal 9/);
    $node->stop;
}

# Which worker is the other end of a fake's connection.
sub worker {
    my ($gateway, $node, $number) = @_;
    my ($port) = map { $_->[3] } grep { $_->[1] == $number } $node->heard;
    return if !$port;
    for my $pid ($gateway->workers) {
        return $pid if t::Gateway::connections($pid, $node->{port}, $port);
    }
    return;
}

# a node that does not answer is left for another
{
    my ($one, $two) = (t::Gateway::free_port(), t::Gateway::free_port());
    my $slots = slots([0, 8191, '127.0.0.1', $one],
                      [8192, 16383, '127.0.0.1', $two]);
    my $deaf = node($one, eval => "-CLUSTERDOWN x\r\n", slots => sub {
        -e "$flags/one" ? '' : $slots
    });
    my $good = node($two, eval => sub {
        -e "$flags/moved" ? $GOOD : "-CLUSTERDOWN x\r\n"
    }, slots => sub {
        -e "$flags/moved" ? slots([0, 16383, '127.0.0.1', $two]) : $slots
    });
    my $since = t::Clock::now();
    my $gateway = gateway("127.0.0.1:$one", timeout => '300ms')->start;
    all_workers($gateway);
    flag('one');
    flag('moved');
    ok(wait_for(sub {
        told($gateway) eq '200 PASSED 9'
    }), 'a deaf node: the other one has the new map');
    ok(wait_for(sub {
        my @answers = $gateway->burst(40, '/?k=' . rand);
        40 == grep { t::Gateway::told($_) eq '200 PASSED 9' } @answers;
    }), 'a deaf node: all workers take it over');
    at_most('a deaf node', $since, 1, $deaf, $good);
    # what owns nothing any more is closed, by whoever has had a call since
    all_workers($gateway);
    ok(wait_for(sub {
        !grep { $_ } values %{ connections($gateway, $one) }
    }), 'a deaf node: let go');
    $gateway->stop;
    $_->stop for $deaf, $good;
}

# all connections are lost, and with them all that is known: the seeds know
{
    my ($seed, $old, $new) = map { t::Gateway::free_port() } 1 .. 3;
    my $entry = node($seed, slots => sub {
        slots([0, 16383, '127.0.0.1', -e "$flags/new" ? $new : $old])
    });
    my $first = node($old);
    my $since = t::Clock::now();
    my $gateway = gateway("127.0.0.1:$seed", timeout => '2s')->start;
    all_workers($gateway);
    ok(wait_for(sub {
        advance(0.2);
        # by a worker that has a call
        $gateway->burst(8, '/?k=' . rand);
        return !grep { $_ } values %{ connections($gateway, $seed) };
    }), 'a seed that owns nothing is let go');
    my $second = node($new);
    flag('new');
    $first->stop;
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       'all lost: the seeds are asked again');
    all_workers($gateway);
    # the first two are of the time without a map and of that with one
    at_most('all lost', $since, 2, $entry);
    $gateway->stop;
    $_->stop for $entry, $second;
}

# a node is one connection a worker, also where a seed has another name for it
{
    my $seed = 'localhost';
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => slots([0, 16383, '127.0.0.1', $port]));
    my $gateway = gateway("$seed:$port")->start;
    all_workers($gateway);
    is(told($gateway), '200 PASSED 9', "$seed: it limits");
    my $n = connections($gateway, $port);
    is(join(' ', map { $n->{$_} } sort keys %$n), '1 1 1 1',
       "$seed: one connection a worker");
    is($node->seen->{connections}, 4, "$seed: from the begin");
    $gateway->stop;
    $node->stop;
}

# names that nodes announce: those that the configuration knows have addresses
{
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => slots([0, 16383, 'LOCALHOST', $port]));
    my $gateway = gateway("localhost:$port")->start;
    all_workers($gateway);
    is(told($gateway), '200 PASSED 9', 'a name that the configuration knows');
    is($node->seen->{connections}, 4, 'a name: one connection a worker');
    $gateway->reload;
    all_workers($gateway);
    is(told($gateway), '200 PASSED 9', 'a name: after a reload');
    is(scalar(asked($node)), 1, 'a name: no question');
    $gateway->stop;
    $node->stop;
}

for my $host ('redis.example', '?', "a\nb", 'x' x 255) {
    my $port = t::Gateway::free_port();
    my $node = node($port, slots => slots(
                        [0, 16383, '127.0.0.1', $port],
                        [0, 9000, $host, 6379]));
    my $gateway = gateway("127.0.0.1:$port", timeout => '10s')->start;
    my $name = substr $host, 0, 9;
    $name =~ s/\n/ /;
    my $begun = t::Gateway::begin_all(
        [map { [$gateway, "/?k=$_"] } (rand) x 40, 1 .. 40]);
    ok(wait_for(sub {
           t::Gateway::answered($begun);
           return grep { t::Gateway::told($_) eq '200 PASSED 9' } @{ $begun->{answers} };
       }), "host $name: the slots of others are not concerned");
    t::Clock::wait_for(sub { t::Gateway::answered($begun) == 80 });
    is(tally(t::Gateway::finish($begun)), '80 x 200', "host $name: all pass");
    unlike($gateway->log, qr/^b/m, "host $name: no line of its own");
    $gateway->stop;
    $node->stop;
}

# a connection that is down tries again at once when a new map names its owner
{
    my ($one, $two) = (t::Gateway::free_port(), t::Gateway::free_port());
    my $slots = slots([0, 8191, '127.0.0.1', $one],
                      [8192, 16383, '127.0.0.1', $two]);
    my $good = node($one, slots => $slots);
    my $since = t::Clock::now();
    my $gateway = gateway("127.0.0.1:$one", workers => 1)->start;
    # the other one is not there for long: the backoff is at its greatest
    for (1 .. 10) {
        $gateway->get("/?k=$_") for 1 .. 20;
        advance(0.5);
    }
    my $node = node($two, slots => $slots);
    ok(wait_for(sub {
        20 == grep { t::Gateway::told($_) eq '200 PASSED 9' }
                   map { $gateway->get("/?k=$_") } 1 .. 20;
    }), 'an owner that was away');
    at_most('an owner that was away', $since, 1, $good, $node);
    $gateway->stop;
    $_->stop for $good, $node;
}

# MOVED holds at once, and no longer than until the next map: the node was wrong
{
    my $slot = 13907;    # of the one bucket, {0}
    my $port = t::Gateway::free_port();
    my $nobody = t::Gateway::free_port();
    my $node = node($port, slots => slots([0, 16383, '127.0.0.1', $port]),
                    eval => sub {
        rename("$flags/wrong", "$flags/right")
            ? "-MOVED $slot 127.0.0.1:$nobody\r\n" : $GOOD
    });
    my $gateway = gateway("127.0.0.1:$port; buckets 1", workers => 1)->start;
    is(told($gateway), '200 PASSED 9', 'before MOVED');
    flag('wrong');
    is(told($gateway), '200 DEGRADED -1', 'MOVED: followed');
    ok(-e "$flags/right", 'MOVED: once');
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       'MOVED: until the next map, which is no other one');
    $gateway->stop;
    $node->stop;
}

# a map of 24 MB: a range for each hash slot, with names and replicas; its nodes
# take long to send it
{
    my $port = t::Gateway::free_port();
    my $name = 'h' x 250;
    my $replica = "*4\r\n\$250\r\n$name\r\n:1\r\n\$40\r\n" . '1' x 40 . "\r\n"
                  . "*2\r\n\$8\r\nhostname\r\n\$250\r\n$name\r\n";
    my $map = "*16384\r\n" . join '', map {
        "*5\r\n:$_\r\n:$_\r\n*3\r\n\$9\r\n127.0.0.1\r\n:$port\r\n\$2\r\nid\r\n"
        . $replica x 2
    } 0 .. 16383;
    my $third = int(length($map) / 3);
    my $slots = [map { (substr($map, $_ * $third, $third), ('') x 60) } 0 .. 3];
    cmp_ok(length $map, '>', 20_000_000, 'a large map: its size');
    my $node = node($port, slots => $slots);
    # one worker's calls wait until the fake has sent the map to the other one
    my $gateway = gateway("127.0.0.1:$port", workers => 2,
                          timeout => '10s')->start;
    ok(wait_for(sub { told($gateway) eq '200 PASSED 9' }),
       'a large map: it is used') or diag($gateway->log);
    unlike($gateway->log, qr/\[error\] .*(?:too large|no reply)/,
           'a large map: no connection breaks');
    # a worker whose map comes late asks once more, but not for ever
    ok(wait_for(sub {
           my $asked = asked($node);
           t::Clock::pass(5);
           return asked($node) == $asked;
       }), 'a large map: it is not asked for again and again');
    $gateway->stop;
    $node->stop;
}
