# Documents in Redis: how a change gets to every worker of every gateway, and
# what becomes of it where messages, workers, gateways or Redis' data are lost.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( wait_for );
use t::Rules;

use Time::HiRes qw( sleep time );

my $port = redis_start();
my $prefix = key_prefix();
my $version = 0;

sub gateway {
    my (%self) = @_;
    return t::Gateway->limited(
        workers => 2, start => 0, timeout => '2s', api => 1,
        redis => "server 127.0.0.1:$port", %self,
        zone => 'state=rules.state ' . ($self{zone} // ''));
}

# Strict: two of a burst may find a lease spent whose rest another worker has.
sub rules {
    my ($limit) = @_;
    return t::Rules::rules($limit, sync => 'strict');
}

# The next version, with another limit; returns its record.
sub change {
    my ($limit, %how) = @_;
    my $record = t::Rules::record($version + 1, rules($limit),
                                  %{ $how{head} // {} });
    my $got = t::Rules::put($port, $prefix, 'z', $version, $record, %how);
    $version++ if $got;
    ok($got, "Redis takes version $version") if !$how{silent};
    return $record;
}

# Until all of these go by the current version.
sub follow {
    my ($what, @gateways) = @_;
    for my $gateway (@gateways) {
        ok(t::Rules::follows($gateway, $version), "$what: $gateway->{name}");
    }
}

# who leads, by the log
sub leader {
    my $gateway = shift;
    my @leaders = $gateway->log
                  =~ /(\d+)#\d+: .*"z": this worker follows the rules/g;
    return $leaders[-1];
}

sub passes {
    my ($gateway, $key) = @_;
    return scalar grep { $_->{status} == 200 } $gateway->burst(40, "/?k=$key");
}

sub reachable {
    my $gateway = shift;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_rules_reachable\{zone="z"\} (\d)$/m ? $1 : undef;
}

my @fleet = map { gateway()->start } 1, 2;

follow('no document', @fleet);
is(passes($fleet[0], 'none'), 40, 'no document: no limit');

# A poll comes each 5 s, and finds one version. Changes that are followed one
# after the other get ahead of the polls only by messages.
my ($begin, $ahead) = (t::Clock::now());

for my $n (1 .. 40) {
    change(11 + $n % 5, silent => 1);
    t::Rules::follows($_, $version) or last for @fleet;
    $ahead = $n - (t::Clock::now() - $begin) / 5;
    last if $ahead > 3 && $n % 5 == 0;
}

follow('changes', @fleet);
cmp_ok($ahead, '>', 3, 'changes: the gateways were told');
t::Clock::hurry();
is(passes($fleet[0], 'told') + passes($fleet[1], 'told'), 11,
   'changes: the last one counts, over the fleet');

# the same number from another node's past
for my $gateway (@fleet) {
    wait_for(sub {
        $gateway->read('rules.state') =~ /"version":$version,/
    });
    is(() = $gateway->read('rules.state') =~ /^\{"/mg, 2 * $version,
       'the state file has all versions');
}

# nobody is told
change(20, quiet => 1);
follow('no message', @fleet);

# a connection that listens is cut: what was said meanwhile is asked for
sub listens {
    return wait_for(sub {
        t::Rules::redis($port, 'PUBSUB', 'NUMSUB', "$prefix:rules:z")->[1] == 2
    });
}

ok(listens(), 'each gateway listens');
cmp_ok(t::Rules::redis($port, 'CLIENT', 'KILL', 'TYPE', 'pubsub'), '>=', 2,
       'a cut connection');
change(21);
follow('a cut connection', @fleet);
ok(listens(), 'one worker of each gateway listens');

# the worker that does it dies
for my $gateway (@fleet) {
    my $pid = leader($gateway);
    kill KILL => $pid;
    wait_for(sub { leader($gateway) != $pid });
    isnt(leader($gateway), $pid, 'another worker leads');
}

change(22);
follow('a leader was killed', @fleet);

# a reload under load
{
    my @answers;
    for my $limit (23 .. 28) {
        $_->signal('HUP') for @fleet;
        change($limit, silent => 1);
        push @answers, map { $_->burst(50, "/?k=load$limit$_->{name}") } @fleet;
    }
    is(scalar(grep { $_->{status} !~ /^(?:200|429)$/ } @answers), 0,
       'reloads: no request is lost');
    wait_for(sub { $_->workers == 2 }) for @fleet;
    follow('reloads', @fleet);
}

# Redis is gone: all goes on
my $since = time;
redis_stop($port);
ok(wait_for(sub { !reachable($fleet[0]) }), 'Redis is down');
is(scalar(grep { $_->{status} == 200 } $fleet[0]->burst(20, '/?k=down')), 20,
   'requests are answered');
follow('Redis is down', @fleet);
like($fleet[0]->log, qr/\[error\] .*zone "z": its rules are not asked for: "/,
     'and the log says so');

# a gateway that starts now has its rules, from its file
my $kept = $fleet[1]->read('rules.state');
my $third = gateway(workers => 1);
$third->write('rules.state', $kept);
$third->start;
follow('a start without Redis', $third);

# Redis comes back without data: the gateways put it back
redis_start(port => $port);
ok(wait_for(sub {
    t::Rules::current($port, $prefix, 'z') == $version
}), 'Redis without data: is given it back');
ok(wait_for(sub { reachable($fleet[0]) }), 'and reachable');
change(30);
follow('Redis without data', @fleet, $third);

# Redis has lost its last writes
my $old = t::Rules::record($version - 2, rules(31));
my $key = t::Rules::key($prefix, 'z');
t::Rules::redis($port, 'HSET', $key, version => $version - 2,
                id => t::Rules::id($old), record => $old);
t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
ok(wait_for(sub {
    t::Rules::current($port, $prefix, 'z') == $version
}), 'a lower version in Redis: the higher one is put back');
follow('a lower version', @fleet);

# another document of the same number: that of Redis counts
my $other = t::Rules::record($version, rules(32));
t::Rules::redis($port, 'HSET', $key, version => $version,
                id => t::Rules::id($other), record => $other);
t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
ok(wait_for(sub {
    passes($fleet[0], 'same' . time) == 32
}), 'another of the same number: that of Redis');

# what nobody can use
sub refused_version {
    return $fleet[0]->get('/metrics')->{body}
               =~ /^ratelimit_rules_refused_version\{zone="z"\} (\d+)$/m ? $1 : 'none';
}

sub refuse {
    my ($what, $record, $why, %hash) = @_;
    my %all = (version => $version + 1, id => t::Rules::id($record),
               record => $record, %hash);
    t::Rules::redis($port, 'HSET', $key, %all);
    t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x') for 1 .. 3;
    ok(wait_for(sub { $fleet[0]->log =~ /$why/ }), "$what: the log says it");
    t::Clock::pass(1);
    t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
    t::Clock::pass(0.5);
    is(() = $fleet[0]->log =~ /$why/g, 1, "$what: once");
    is(refused_version(), $version + 1, "$what: so do the metrics");
    ok(t::Rules::follows($fleet[0], $version), "$what: the rules stay");
    is(passes($fleet[0], "refuse$what"), 32, "$what: and count");
}

my $next = $version + 1;
my $not = qr/\[error\] .*version $next of its rules is not used/;
sub good { return t::Rules::record($next, rules(33)) }

refuse('digest', good() =~ s/"params"/"parans"/r, qr/$not: its digest does not fit/);
refuse('cut', substr(good(), 0, -5), qr/$not: it is cut/);
refuse('head', "x" . good(), qr/$not: its head is no JSON/);
refuse('other', t::Rules::record($next + 1, rules(33)),
       qr/$not: its head names another version/);
refuse('behind', good() . "x", qr/$not: something follows it/);
refuse('record', t::Rules::record($next, rules(33), format => '2.0'),
       qr/$not: its format/);
refuse('document', t::Rules::record($next,
                       { %{ rules(33) }, format => '2.0' }),
       qr{$not: /format });
refuse('broken', t::Rules::record($next, { rules => { id => "a\nb" } }),
       qr{$not: /rules expected an array});

# a newer minor format is kept as it is
my $newer = t::Rules::record($next,
    { %{ rules(34) }, format => '1.9', later => { than => 'this' } });
t::Rules::redis($port, 'HSET', $key, version => $next,
                id => t::Rules::id($newer), record => $newer);
t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
$version = $next;
follow('a newer minor format', @fleet);
is(passes($fleet[1], 'newer'), 34, 'a newer minor format: counts');
is(refused_version(), 0, 'a newer minor format: nothing is refused');
ok(wait_for(sub {
    index($fleet[0]->read('rules.state'), $newer) == 0
}), 'a newer minor format: is kept, whole');

# an empty Redis that has no room is given it back, but not again and again
my $full = redis_start();
t::Rules::redis($full, 'CONFIG', 'SET', 'maxmemory', 1);

my $fourth = gateway(redis => "server 127.0.0.1:$full;", workers => 1);
$fourth->write('rules.state', t::Rules::record(3, rules(40)));
$fourth->start;
ok(wait_for(sub { $fourth->log =~ /puts back version 3/ }),
   'a full Redis: is given it back');
t::Clock::pass(5);
is(() = $fourth->log =~ /puts back version 3/g, 1,
   'a full Redis: which the log says once');
is(passes($fourth, 'full'), 40, 'a full Redis: the rules count');
t::Rules::redis($full, 'CONFIG', 'SET', 'maxmemory', 0);
ok(wait_for(sub { t::Rules::current($full, $prefix, 'z') == 3 }),
   'a Redis with room: has it');
$fourth->stop;
redis_stop($full);

# a user who may not listen, nor publish, is late, and no more
t::Rules::redis($port, 'ACL', 'SETUSER', 'few', 'on', '>few', '~*', '+@all',
                'resetchannels');
my $few = gateway(redis => "server 127.0.0.1:$port; username few; password_file few;");
$few->write('few', "few\n");
$few->start;
change(35);
follow('a user without channels', $few);

$few->stop;
$third->stop;
$_->stop('QUIT', qr/exited on signal 9$/) for @fleet;
