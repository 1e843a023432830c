# lua/rules.lua on a real Redis, as it is embedded: one writer wins, a lost
# answer may be asked for again, what is kept of the history, and what a Redis
# that is full or refuses to publish still does.

use File::Temp ();
use IO::Socket::INET;

use t::RateLimit 'no_plan';

my $KEY = 'rl:{rules:z}';
my $CHANNEL = 'rl:rules:z';
my $MIB = 1 << 20;

my $port = redis_start();
my $script = embedded();
my @login;

alarm 120;

# The text that the module sends.
sub embedded {
    my $c = `sh tools/embed-lua.sh rules lua/rules.lua`;
    my $text = join '', map { "$_\n" } $c =~ /^    "(.*)\\n"$/mg;
    $text =~ s/\\(["\\])/$1/g;
    return $text;
}

sub cli {
    return redis_cli($port, @login, @_);
}

# What the script answers, each text on a line; long arguments from a file.
sub rules {
    my @args = @_;
    my $file = File::Temp->new;
    my $command = join '', map { '$' . length($_) . "\r\n$_\r\n" }
        'EVAL', $script, 2, $KEY, "$KEY:history", @args;
    print $file map({ '*' . @$_ . "\r\n" . join '', map { '$' . length($_) . "\r\n$_\r\n" } @$_ }
                    (@login ? ['AUTH', @login[1, 3]] : ())),
                '*' . (@args + 5) . "\r\n$command";
    close $file;
    my @texts = read_reply($file);
    # one text has all heads
    return $args[0] eq 'list' ? split /\n/, $texts[0] : @texts;
}

sub read_reply {
    my $file = shift;
    my $socket = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or die;
    open my $in, '<', "$file" or die;
    local $/;
    print $socket scalar <$in>;
    $socket->flush;
    $/ = "\r\n";
    my $line = <$socket>;
    $line = <$socket> if @login;
    chomp $line;
    return $line if $line !~ /^\*(\d+)$/;
    return map { bulk($socket) } 1 .. $1;
}

sub bulk {
    my $socket = shift;
    local $/ = "\r\n";
    my $len = <$socket>;
    return undef if $len =~ /^\$-1/;
    $len =~ /^\$(\d+)/ or die $len;
    read $socket, my $text, $1 + 2;
    return substr $text, 0, $1;
}

sub record {
    my ($version, $len) = @_;
    return qq({"format":"1.0","version":$version,"author":"\\"version\\":7"}\n)
           . 'x' x ($len || 10) . "\n";
}

# Ids are "a" unless they are given: that of the expected one, too.
sub put {
    my ($expected, $version, $id, $len, $expected_id) = @_;
    return join ' ', rules('put', $expected,
                           $expected_id // ($expected ? 'a' : '0'), $version,
                           $id // 'a', record($version, $len));
}

# How often Redis has run a command.
sub ran {
    my $command = shift;
    return cli('info', 'commandstats') =~ /^cmdstat_$command:calls=(\d+)/m
           ? $1 : 0;
}

sub got { return join ' ', map { $_ // '-' } @_ }

# nothing there
is(got(rules('get', 0, 0)), '0 0 0', 'no document');
is(got(rules('get', 3, 'x')), '0 0 0', 'nor one for who has one');
is(got(rules('list')), '', 'no heads');
is(got(rules('version', 1)), '', 'no version');
like(got(rules('frobnicate')), qr/^-ERR ratelimit: malformed argument/,
     'no such operation');

# compare and set
is(put(0, 1), '1 1 a', 'the first');
is(put(0, 1, 'b'), '0 1 a', 'not by another writer');
is(put(0, 1), '1 1 a', 'the same once more');
is(put(0, 2), '0 1 a', 'expected is what is current');
is(put(1, 2, 'a', 10, 'b'), '0 1 a', 'nor another one of that number');
is(put(1, 2), '1 2 a', 'the second');
is(got(rules('get', 2, 'a')), '2 a 0', 'known');
is(got(rules('get', 2, 'b')), '2 a 0 ' . record(2), 'another of that number');
is(got(rules('get', 1, 'a')), '2 a 0 ' . record(2), 'a newer one');
is(got(rules('version', 1)), record(1), 'the first is kept');
is(got(rules('version', 2)), record(2), 'so is the current one');
is(got(rules('version', 7)), '', 'what an author may write is no version');
is(cli('llen', "$KEY:history"), 1, 'a retry leaves nothing');
is(cli('ttl', $KEY), -1, 'never expires');

# who puts back what was lost names its own number
is(put(2, 9, 'c'), '1 9 c', 'a number ahead');
is(got(rules('list')), join(' ', map { record($_) =~ /^(.*)\n/ } 9, 2, 1),
   'heads, the current one first');

# resets are named by the microsecond, by more where that one was named before
sub now {
    my ($s, $us) = split /\n/, cli('time');
    return $s * 1000000 + $us;
}

my $before = now();
my @resets = map { got(rules('reset')) } 1, 2;

like($_, qr/^\d{16}$/, 'a reset, in whole microseconds') for @resets;
cmp_ok($resets[0], '>=', $before, 'of now');
cmp_ok($resets[1], '<=', now(), 'of now, at most');
cmp_ok($resets[1], '>', $resets[0], 'never the same twice');
is(got(rules('get', 9, 'c')), "9 c $resets[1]", 'told');

cli('hset', $KEY, 'resets', 7);
cmp_ok(got(rules('reset')), '>', $resets[1],
       'a count of gateways of before goes on');
cli('hset', $KEY, 'resets', '4000000000000000');
is(got(rules('reset')), '4000000000000001',
   'so does what a clock was that was set back');
cli('hincrby', $KEY, 'resets', 1);
is(got(rules('get', 9, 'c')), '9 c 4000000000000002',
   'and gateways of before count on');
cli('hdel', $KEY, 'resets');
cmp_ok(got(rules('reset')), '>', $resets[1],
       'what is lost is not counted again');

# subscribers hear of it
my $listener = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or die;
print $listener "SUBSCRIBE $CHANNEL\r\n";
$listener->flush;
{ local $/ = "\r\n"; <$listener> for 1 .. 6; }
put(9, 10, 'a', 10, 'c');
rules('reset');
{
    local $/ = "\r\n";
    is(join('', map { scalar <$listener> } 1 .. 14) =~ s/\r\n/ /gr,
       "*3 \$7 message \$10 $CHANNEL \$2 10 *3 \$7 message \$10 $CHANNEL \$5 reset ",
       'messages');
}

# the history is at most 50 records
put($_ - 1, $_) for 11 .. 70;
is(cli('llen', "$KEY:history"), 50, '50 records');
is(got(rules('version', 20)), record(20), 'the oldest');
is(got(rules('version', 19)), '', 'and none before it');
is(scalar(rules('list')), 51, 'as many heads and the current one');
is(cli('hget', $KEY, 'bytes'), 50 * length(record(20)), 'bytes of all');

# a list reads no document, and a version one
sub reads {
    my @before = map { ran($_) } qw( hget lindex );
    my $got = got(rules(@_));
    my @after = map { ran($_) } qw( hget lindex );
    return ($got, join ' ', map { $after[$_] - $before[$_] } 0, 1);
}

my $heads = join ' ', map { record($_) =~ /^(.*)\n/ } reverse 20 .. 70;

is_deeply([reads('list')], [$heads, '0 0'], 'a list: of the heads alone');
is_deeply([reads('version', 33)], [record(33), '0 1'], 'a version: one record');
is_deeply([reads('version', 70)], [record(70), '1 0'], 'so the current one');
is_deeply([reads('version', 20)], [record(20), '0 1'], 'so the oldest');

# a gateway that keeps no heads has written; the first list mends it
sub before {
    my $version = shift;
    redis_cli($port, 'lpush', "$KEY:history", cli('hget', $KEY, 'record') . "\n");
    redis_cli($port, 'rpop', "$KEY:history");
    redis_cli($port, 'hset', $KEY, 'version', $version, 'id', 'a', 'record',
              record($version));
}

before(71);
$heads = join ' ', map { record($_) =~ /^(.*)\n/ } reverse 21 .. 71;
is((reads('version', 21))[0], record(21), 'heads of before: a version');
cli('hdel', $KEY, 'heads');
is((reads('list'))[0], $heads, 'heads of before: the list');
is_deeply([reads('list')], [$heads, '0 0'], 'heads of before: read once');
before(72);
put(72, 73);
is_deeply([reads('list')],
          [join(' ', map { record($_) =~ /^(.*)\n/ } reverse 23 .. 73), '0 0'],
          'heads of before: a change mends them, too');
cli('rpop', "$KEY:history");
is((reads('list'))[0], join(' ', map { record($_) =~ /^(.*)\n/ } reverse 24 .. 73),
   'somebody took one away');
cli('del', $KEY, "$KEY:history");
put($_ - 1, $_) for 1;
put(1, 20);
put($_ - 1, $_) for 21 .. 70;

# and 32 MiB
put($_ - 1, $_, 'a', 9 * $MIB) for 71 .. 76;
is(cli('llen', "$KEY:history"), 3, 'three of 9 MiB');
is(cli('hget', $KEY, 'bytes'), 3 * length(record(75, 9 * $MIB)), 'bytes');

# of a record that is larger than what gateways take, the head
my ($head) = record(75, 9 * $MIB) =~ /^(.*\n)/;

is_deeply([rules('version', 75)], [$head], 'a large one');
($head) = record(76, 9 * $MIB) =~ /^(.*\n)/;
is((rules('get', 0, 0))[3], $head, 'so is the current one');
is(got(rules('version', 72)), '', 'the rest is gone');

# others took something away
cli('hdel', $KEY, 'bytes');
put(76, 77);
is(cli('llen', "$KEY:history"), 3, 'counted anew');
cli('del', "$KEY:history");
put(77, 78);
is(cli('hget', $KEY, 'bytes'), length record(77), 'an empty history');
cli('hset', $KEY, 'bytes', 90 * $MIB);
put(78, 79);
put(79, 80);
is(cli('hget', $KEY, 'bytes'), length record(79), 'a wrong number mends');
cli('del', $KEY);
is(got(rules('get', 80, 'a')), '0 0 0', 'the current one is lost');
is(got(rules('list')), (split /\n/, record(79))[0], 'not the history');
is(put(0, 80), '1 80 a', 'put back');
is(cli('llen', "$KEY:history"), 1, 'nothing came before');

# full: writes are refused whole, reads go on
cli('config', 'set', 'maxmemory', 1);
like(put(80, 81), qr/OOM/, 'full: no put');
like(got(rules('reset')), qr/OOM/, 'no reset');
is(got(rules('get', 1, 'a')), '80 a 0 ' . record(80), 'get');
is(scalar(rules('list')), 2, 'list');
is(got(rules('version', 79)), record(79), 'version');
is(cli('llen', "$KEY:history"), 1, 'nothing was written');
cli('config', 'set', 'maxmemory', 0);

# refused in the middle: nothing is changed, however often it is said, and when
# it is allowed nothing is there twice
for my $denied (qw( lpush lindex rpop hset )) {
    cli('del', $KEY, "$KEY:history");
    put($_ - 1, $_) for 1 .. 52;
    my $heads = got(rules('list'));
    cli('acl', 'setuser', "no$denied", 'reset', 'on', '>pw', '~rl:*', '&*',
        '+@all', "-$denied");
    @login = ('--user', "no$denied", '--pass', 'pw', '--no-auth-warning');
    like(put(52, 53), qr/^-.*(?:can't run|has no permissions)/, "no $denied: refused")
        for 1, 2;
    @login = ();
    is(got(rules('get', 52, 'a')), '52 a 0', "no $denied: not changed");
    is(got(rules('version', $_)), record($_), "no $denied: version $_")
        for 52, 51, 30, 3;
    is(put(52, 53), '1 53 a', "no $denied: allowed again");
    is(got(rules('list')), join(' ', (record(53) =~ /^(.*)\n/)[0],
                                (split / /, $heads)[0 .. 49]),
       "no $denied: once each");
    is(cli('hget', $KEY, 'bytes'), length(join '', map { record($_) } 3 .. 52),
       "no $denied: bytes");
}

put(53, 80);

# a user who may not publish
cli('acl', 'setuser', 'mute', 'on', '>pw', '~rl:*', 'resetchannels', '+@all');
@login = ('--user', 'mute', '--pass', 'pw', '--no-auth-warning');
like(put(80, 81), qr/^1 81 a .*(?:NOPERM|can't|permission)/,
     'written, though nobody is told');
like(got(rules('reset')), qr/^\d{16} .*(?:NOPERM|can't|permission)/, 'reset, too');
