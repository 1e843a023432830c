# What `make run` prints is true: each command that it shows is run, in its
# order, and gives what stands below it.

use strict;
use warnings;

use File::Path qw( make_path remove_tree );
use File::Spec;
use Test::More;
use t::Ports qw( free_ports );

plan skip_all => 'the gateway loads the module' if $ENV{RATELIMIT_STATIC};

my $port = free_ports(12);
my $redis = free_ports(6);
my $logs = ($ENV{RATELIMIT_LOGS} // 'build/t') . "/$$";
my $dir = File::Spec->rel2abs("$logs/run");

make_path($dir);

$ENV{RUN_DIR} = $dir;
$ENV{RUN_PORT} = $port;
$ENV{RUN_REDIS_PORT} = $redis;

END {
    local $?;
    qx(tools/run.sh stop 2>&1);
    remove_tree($logs) if Test::More->builder->is_passing;
}

# The commands of a text: of two blanks, to where the shell has all of it.
sub commands {
    my ($command, @commands) = ('');
    for (split /^/, shift) {
        next if $command eq '' && !/^  \S/;
        $command .= $_;
        next if /\\$/ || !complete($command);
        push @commands, $command;
        $command = '';
    }
    return @commands;
}

sub complete {
    my $command = shift;
    return system('bash', '-c', 'bash -n -c "$1" 2>/dev/null', 'bash',
                  $command) == 0;
}

sub output {
    open my $out, '-|', 'bash', '-c', "($_[0]\n) 2>/dev/null" or die;
    local $/;
    return <$out> // '';
}

sub shows {
    my ($commands, @rows) = @_;
    is(@$commands, @rows, 'as many commands as are known');
    for my $i (0 .. $#rows) {
        my ($begin, $expected, $name) = @{ $rows[$i] };
        like($commands->[$i] // '', $begin, "$name: the command");
        my $got = output($commands->[$i]);
        # the limit gives a request back each 6 s, for a busy machine to take
        for (1 .. 5) {
            last if $got =~ $expected || $name ne 'rejected';
            $got = output($commands->[$i]);
        }
        like($got, $expected, $name);
    }
}

# The pages whose addresses are printed.
sub shows_pages {
    my ($text, @ports) = @_;
    is(join(' ', $text =~ m{(http://\S+/ratelimit/)(?:\s|$)}g),
       join(' ', map { "http://127.0.0.1:$_/ratelimit/" } @ports),
       'the addresses of the status pages');
    my ($token) = $text =~ /this token: (\S+)$/m;
    for (@ports) {
        my $url = "http://127.0.0.1:$_/ratelimit";
        like(qx(curl -s -H 'Accept: text/html' $url/),
             qr/^<!DOCTYPE html>/, "a page at port $_");
        like(qx(curl -s -H 'Authorization: Bearer $token' $url/status),
             qr/"write":true/, "with the token: all of it");
    }
}

sub statuses {
    my ($path, $key, $n) = @_;
    return join ' ', map {
        qx(curl -s -o /dev/null -w '%{http_code}' -H 'X-API-Key: $key' http://127.0.0.1:$port$path)
    } 1 .. $n;
}

sub is_rule {
    my $name = shift;
    my $seen = '';
    for (1 .. 100) {
        $seen = statuses('/v1/orders', 'k' . rand, 3);
        last if $seen eq '200 200 429';
        select undef, undef, undef, 0.1;
    }
    is($seen, '200 200 429', "$name: the new rule holds");
}

my @FIRST = (
    [qr/alice/, qr{^HTTP/1.1 200 .*^X-RateLimit-Remaining: 9\r$}ms, 'the first'],
    [qr/seq/, qr/^(?:200 )+429 (?:200 |429 )*$/, 'until the limit'],
    [qr/alice/, qr{^HTTP/1.1 429 .*^Retry-After: \d+\r$}ms, 'rejected'],
    [qr/curl -i http/, qr{^HTTP/1.1 200 (?!.*X-RateLimit)}s, 'without a key'],
    [qr/PUT/, qr/"id":"orders"/, 'a new rule'],
);

# one gateway
my $text = qx(tools/run.sh start 2>&1);

is($?, 0, 'one gateway starts') or diag($text);
like($text, qr/^run: starting a gateway on 127\.0\.0\.1:$port/m, 'it says so');
like($text, qr/^Requests without an API key are not limited\.$/m,
     'and who is not limited');
shows([commands($text)], @FIRST);
shows_pages($text, $port + 2);
is_rule('one gateway');

# a fleet
$text = qx(tools/run.sh start cluster 2>&1);

is($?, 0, 'a fleet starts') or diag($text);
is(join(' ', $text =~ /^run: starting (\w+ \w+) .*?127\.0\.0\.1:(\d+)/mg),
   "six Redis $redis a gateway $port a gateway @{[$port + 1]}",
   'it says what it does');
like($text, qr/^Requests without an API key are not limited\.$/m,
     'a fleet: and who is not limited');

shows_pages($text, $port + 2, $port + 3);

my @commands = commands($text);
my $back = pop @commands;
my $kill = pop @commands;

shows(\@commands, @FIRST,
      [qr/feed/, qr/^$/, 'many requests'],
      [qr/awk/, qr/ lease$/m, 'who decided'],
      [qr/metrics/, qr/^ratelimit_redis_calls_total/m, 'metrics']);
is_rule('a fleet');

like($kill, qr/^  kill -STOP/, 'a command takes Redis away');
system('bash', '-c', $kill);
is($?, 0, 'and finds it');

sub is_bob {
    my ($wanted, $name) = @_;
    my $bob = '';
    for (1 .. 100) {
        $bob = qx(curl -si -H 'X-API-Key: bob' http://127.0.0.1:$port/v1/users);
        last if $bob =~ $wanted;
        select undef, undef, undef, 0.1;
    }
    like($bob, $wanted, $name);
}

is_bob(qr{^HTTP/1.1 200 .*^X-RateLimit-Policy: degraded\r$}ms, 'requests pass');

like($back, qr/^  kill -CONT/, 'the last one brings it back');
system('bash', '-c', $back);
is($?, 0, 'and finds it, too');
is_bob(qr{^HTTP/1.1 429 }m, 'limits hold');
is_rule('after it');

system('bash', '-c', $kill);

qx(tools/run.sh stop 2>&1);
is($?, 0, 'it stops');
ok(!-e $dir, 'and leaves nothing');

done_testing();
