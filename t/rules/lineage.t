# Which fleet a document is of: a gateway puts back into Redis what the fleet had
# there, and nothing else. A file of another fleet, or of a gateway before
# lineages, changes nothing where Redis has rules.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( wait_for );
use t::Api;
use t::Rules;

t::Clock::hurry();

my $OTHER = '00000000000000f2';

my $port = redis_start();
my $prefix = key_prefix();
my $key = t::Rules::key($prefix, 'z');

sub gateway {
    my (%self) = @_;
    return t::Gateway->limited(redis => $self{port} // $port, timeout => '2s',
        zone => 'state=rules.state', api => 1,
        files => { $self{file} ? ('rules.state' => join '', @{ $self{file} })
                               : () });
}

sub denies {
    my ($deny) = @_;
    return { rules => [], deny => ['sha256:' . ($deny x 64)] };
}

# The record that Redis has, once it has that version.
sub has {
    my ($version, $name, $seconds) = @_;
    ok(wait_for(sub {
           t::Rules::current($port, $prefix, 'z') == $version
       }, $seconds), $name);
    return t::Rules::redis($port, 'HGET', $key, 'record');
}

sub lineage { return ($_[0] // '') =~ /"lineage":"(\w{16})"/ ? $1 : 'none' }

sub dropped {
    my ($gateway, $name) = @_;
    ok(wait_for(sub {
           $gateway->log =~ /\[warn\] .*zone "z": version 15 of its rules is dropped: it is of another lineage than version \d+, which Redis has/
       }), "$name: the log says so");
}

# one lineage from the first version on
my $first = gateway();
my $api = t::Api->new($first);

is($api->change('PUT', '/document', denies('a'))->{status}, 201, 'the first version');

my $one = has(1, 'is in Redis');
my $lineage = lineage($one);

isnt($lineage, 'none', 'it has a lineage');

# files of others: Redis has version 1
for my $what (['of another fleet', $OTHER], ['without a lineage', undef]) {
    my ($name, $of) = @$what;
    my $stale = gateway(file => [map {
        t::Rules::record($_, denies('b'), lineage => $of) } 15, 14]);
    ok(t::Rules::follows($stale, 1), "a file $name: it follows the fleet");
    dropped($stale, "a file $name");
    is(has(1, "a file $name: the fleet's version stays"), $one,
       "a file $name: Redis has what it had");
    ok(t::Rules::follows($first, 1), "a file $name: so does the fleet");
    ok(wait_for(sub { $stale->read('rules.state') eq $one }),
       "a file $name: nothing of it is left in the history");
    $stale->stop;
}

# Redis is emptied: the fleet is faster than a file, even one that comes at once
ok(wait_for(sub {
       $first->get('/rl/status')->{body} =~ /"reachable":true/
   }), 'the gateway asks Redis');
t::Clock::pass(6);    # it has asked since it made the version
t::Rules::redis($port, 'FLUSHALL');

my $stale;

{
    # real time: the clock must not run away from a fleet without a processor
    local $t::Gateway::BETWEEN = sub { };
    $stale = gateway(file => [t::Rules::record(15, denies('b'),
                                               lineage => $OTHER)]);
    ok(t::Rules::follows($stale, 1, 'z', 40),
       'Redis emptied: the fleet puts it back');
}

is(has(1, 'Redis emptied: version 1'), $one, 'Redis emptied: the same record');
ok(t::Rules::follows($first, 1), 'Redis emptied: the fleet has it');
$stale->stop;

# Redis has lost its last versions
is($api->change('PUT', '/document', denies('c'))->{version}, 2, 'a second version');

my $two = has(2, 'is in Redis');

is(lineage($two), $lineage, 'of the same lineage');
ok(t::Rules::follows($first, 2), 'which is followed');

sub lose {
    my $record = shift;
    t::Rules::redis($port, 'HSET', $key, version => t::Rules::version($record),
                    id => t::Rules::id($record), record => $record);
    t::Rules::redis($port, 'PUBLISH', "$prefix:rules:z", 'x');
}

lose($one);
is(has(2, 'the last version is lost: it is put back'), $two, 'as it was');

# one that this gateway does not know, of the same lineage: its own is newer
lose(t::Rules::record(1, denies('d'), lineage => $lineage));
is(has(2, 'another first version of this lineage: put back'), $two, 'as it was');

# an older one is wanted
is($api->post('/versions/1/restore', undef, 'If-Match: *')->{version}, 3,
   'the way back to version 1');
is(lineage(has(3, 'is a new one')), $lineage, 'of the same lineage');
ok(t::Rules::follows($first, 3), 'which is followed');

# of two changes of one version Redis has lost the one: the other counts
my $other = t::Rules::record(3, denies('9'), lineage => $lineage);

lose($other);
ok(wait_for(sub { $first->read('rules.state') =~ /\A\Q$other\E/ }),
   'another version 3 of this lineage: it is followed');
is(has(3, 'and Redis'), $other, 'has it as it was');
is(() = $first->read('rules.state') =~ /"version":3,/g, 1,
   'the version 3 that lost is no history');

# gateways before this one: a change of theirs has no lineage, the next has one
my @old = map { t::Rules::record($_, denies('e'), lineage => undef) } 4, 5;

t::Rules::put($port, $prefix, 'z', 3, $old[0]);
ok(t::Rules::follows($first, 4), 'without a lineage, the next version: followed');
t::Rules::put($port, $prefix, 'z', 4, $old[1]);
ok(t::Rules::follows($first, 5), 'and one more');

# two changes of one version, both without a lineage: that of Redis counts
my $twin = t::Rules::record(5, denies('8'), lineage => undef);

lose($twin);
ok(wait_for(sub { $first->read('rules.state') =~ /\A\Q$twin\E/ }),
   'another version 5 without a lineage: it is followed');
lose($old[0]);
is(has(5, 'the last of them is lost: it is put back'), $twin, 'as it was');
unlike($first->log, qr/is dropped/, 'nothing was dropped');
lose(t::Rules::record(4, denies('f'), lineage => undef));
ok(t::Rules::follows($first, 4), 'one that nobody knows: that of Redis counts');
is($api->change('PUT', '/document', denies('0'))->{version}, 5, 'a change of it');
isnt(lineage(has(5, 'has')), 'none', 'a lineage');

# two fleets that become one by mistake, and two again
my $second = redis_start();
my $apart = gateway(port => $second);

t::Api->new($apart)->change('PUT', '/document', denies("$_")) for 1 .. 8;
ok(t::Rules::follows($apart, 8), 'another fleet');
$apart->configure(http => $apart->{http} =~ s/127.0.0.1:$second/127.0.0.1:$port/r);
$apart->reload;
ok(t::Rules::follows($apart, 5), 'with the same Redis: it follows the other one');
has(5, 'which stays as it is');
$apart->configure(http => $apart->{http} =~ s/127.0.0.1:$port/127.0.0.1:$second/r);
$apart->reload;
ok(t::Rules::follows($apart, 8), 'on its own: it has its own rules again');
$apart->stop;
redis_stop($second);
$first->stop;

# a file, and a Redis that is new
my $new = t::Rules::record(7, denies('1'));
my @before = map { t::Rules::record($_->[0], denies('7'), lineage => $_->[1]) }
    [6, '00000000000000f1'], [5, $OTHER], [4, undef];

t::Rules::redis($port, 'FLUSHALL');

my $begins = gateway(file => [$new, @before]);

is(has(7, 'a first start: Redis gets what the file has', 40), $new, 'as it was');
ok(t::Rules::follows($begins, 7), 'which is followed');
is(t::Api->new($begins)->change('PUT', '/document', denies('5'))->{version}, 8,
   'a change of it');

my $eight = has(8, 'is in Redis');

ok(wait_for(sub {
       $begins->read('rules.state') eq join '', $eight, $new, @before[0, 2]
   }), 'the file keeps what is of this fleet, or of none')
    or diag $begins->read('rules.state');
$begins->stop;

# a version that no change made leaves no number for the next one
my $forged = t::Rules::record(9007199254740992, denies('2'));

t::Rules::redis($port, 'FLUSHALL');

my $steady = gateway();
my $its = t::Api->new($steady);

is($its->change('PUT', '/document', denies('3'))->{status}, 201, 'a fleet');
has(1, 'with a version');
ok(t::Rules::put($port, $prefix, 'z', 1, $forged), 'another user of its Redis writes one');
has(1, 'the gateway puts back its own');
ok(t::Rules::follows($steady, 1), 'which it went on with');
is($its->change('PUT', '/document', denies('4'))->{status}, 200, 'changes go on');
$steady->stop;

t::Rules::redis($port, 'FLUSHALL');
ok(t::Rules::put($port, $prefix, 'z', 0, $forged), 'before a gateway starts');

my $later = gateway();

$later->log_has(qr/version 9007199254740992 of its rules is not used: its version is that of no change/,
                'it is refused');
ok(t::Rules::follows($later, 0), 'and not followed');
$later->stop;
