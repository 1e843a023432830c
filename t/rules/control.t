# The connections that documents and messages have beside those of checks: one
# that falls silent is found and made anew, a node's redirections are followed, a
# master that moved is listened to, documents of a megabyte pass in both
# directions, and who may not listen polls.

use t::RateLimit 'no_plan';
use t::Api;
use t::Clock;
use t::FakeRedis;
use t::Gateway qw( wait_for );
use t::Rules;

use Digest::SHA qw( sha256_hex );

t::Clock::hurry();

my $CHANNEL = 'rl:rules:z';
my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";
my $NONE = "*3\r\n\$1\r\n0\r\n\$1\r\n0\r\n\$1\r\n0\r\n";
my $LISTENS = "*3\r\n\$9\r\nsubscribe\r\n\$10\r\n$CHANNEL\r\n:1\r\n";
my $PONG = "*2\r\n\$4\r\npong\r\n\$0\r\n\r\n";

sub gateway {
    my ($redis, %options) = @_;
    return t::Gateway->limited(start => 0, timeout => '2s', api => 1, %options,
                               redis => "$redis prefix rl",
                               zone => 'state=rules.state');
}

# Those of a word that a server has heard: [time, connection] each.
sub heard {
    my ($fake, $word) = @_;
    return map { [@$_[0, 1]] } grep { $_->[2] eq $word } $fake->heard;
}

# What stands in for a server; other words by their answers.
sub fake {
    my (%answers) = @_;
    return t::FakeRedis->new(sub {
        my $answer = $answers{$_[0]};
        return ref $answer ? $answer->(@_) : $answer if defined $answer;
        return $NONE if $_[0] eq 'EVAL';
        return $LISTENS if $_[0] eq 'SUBSCRIBE';
        return $PONG if $_[0] eq 'PING';
        return $GOOD;
    });
}

# silence: one server answers what is asked every 5 s, the other one nothing
{
    my $well = fake();
    my $dead = fake(PING => '');
    my @gateways = map { gateway("server 127.0.0.1:$_->{port};")->start } $well, $dead;
    ok(wait_for(sub { heard($dead, 'SUBSCRIBE') == 2 }, 30),
       'silence: listens anew');
    my @at = map { $_->[0] } heard($dead, 'SUBSCRIBE');
    cmp_ok($at[1] - $at[0], '>', 9.5, 'silence: not before 10 s');
    is(scalar(heard($well, 'SUBSCRIBE')), 1, 'no silence: listens on');
    cmp_ok(scalar(heard($well, 'PING')), '>=', 1, 'and asks for a word');
    like($gateways[1]->log, qr/the oldest call has no reply/, 'silence: the log');
    my @polls = heard($well, 'EVAL');
    isnt($polls[0][1], (heard($well, 'SUBSCRIBE'))[0][1],
         'a connection of its own listens');
    $_->stop for @gateways;
    $_->stop for $well, $dead;
}

# a slot that is elsewhere: MOVED, then ASK
{
    my $there = fake();
    my $here = t::Gateway::free_port();
    my $n = 0;
    my $redirect = sub {
        my $word = $n++ % 2 ? 'ASK' : 'MOVED';
        return "-$word 9 127.0.0.1:$there->{port}\r\n";
    };
    my $map = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n\$0\r\n\r\n:$here\r\n";
    my $fake = t::FakeRedis->new(sub {
        return $map if $_[0] eq 'CLUSTER';
        return $redirect->() if $_[0] eq 'EVAL';
        return $LISTENS if $_[0] eq 'SUBSCRIBE';
        return $PONG if $_[0] eq 'PING';
        return $GOOD;
    }, port => $here);
    my $gateway = gateway("cluster 127.0.0.1:$here;")->start;
    ok(wait_for(sub { heard($there, 'EVAL') >= 1 }, 20), 'MOVED: asked there');
    ok(wait_for(sub { heard($there, 'ASKING') >= 1 }, 30), 'ASK: asked there');
    $gateway->stop;
    $_->stop for $fake, $there;
}

# no right to listen: asked for again a minute later
{
    my $fake = fake(SUBSCRIBE => "-NOPERM x\r\n");
    my $gateway = gateway("server 127.0.0.1:$fake->{port};")->start;
    ok(wait_for(sub { heard($fake, 'SUBSCRIBE') == 1 }), 'NOPERM: asked once');
    t::Clock::advance(50);
    ok(wait_for(sub { heard($fake, 'SUBSCRIBE') == 2 }, 30), 'NOPERM: again');
    my @at = map { $_->[0] } heard($fake, 'SUBSCRIBE');
    cmp_ok($at[1] - $at[0], '>', 59.5, 'NOPERM: not in the first minute');
    $gateway->stop;
    $fake->stop;
}

# a master that moved: it is listened to there
{
    my @masters = (fake(), fake());
    my $now = t::Gateway->new(http => '');    # a folder for the file
    $now->write('master', '0');
    my $sentinel = t::FakeRedis->new(sub {
        my $port = $masters[$now->read('master')]{port};
        return "*2\r\n\$9\r\n127.0.0.1\r\n\$" . length($port) . "\r\n$port\r\n";
    });
    my $gateway = gateway("sentinel m 127.0.0.1:$sentinel->{port};")->start;
    ok(wait_for(sub { heard($masters[0], 'SUBSCRIBE') == 1 }, 20),
       'Sentinel: the master');
    $now->write('master', '1');
    ok(wait_for(sub { heard($masters[1], 'SUBSCRIBE') == 1 }, 20),
       'Sentinel: the new master');
    ok(wait_for(sub { heard($masters[1], 'EVAL') >= 1 }, 20),
       'Sentinel: and asked');
    $gateway->stop;
    $_->stop for $sentinel, @masters;
}

# a megabyte, with and without TLS: one gateway gives Redis what its file has, the
# other one gets it from there
sub tls {
    my $dir = shift;
    system("cd $dir && openssl req -x509 -newkey rsa:2048 -nodes -days 2 "
           . '-subj /CN=redis -addext subjectAltName=IP:127.0.0.1 '
           . '-keyout tls.key -out tls.crt >/dev/null 2>&1') == 0 or die 'openssl';
}

for my $tls (0, 1) {
    my $what = $tls ? 'TLS' : 'plain';
    my $folder = t::Gateway->new(http => '');
    my $dir = $folder->{dir};
    my $redis;
    my $port = t::Gateway::free_port();
    if ($tls) {
        tls($dir);
        my $plain = redis_start(args => ['--tls-port', $port,
            '--tls-cert-file', "$dir/tls.crt", '--tls-key-file', "$dir/tls.key",
            '--tls-ca-cert-file', "$dir/tls.crt", '--tls-auth-clients', 'no']);
        $redis = "server 127.0.0.1:$port; tls on; tls_ca $dir/tls.crt;";
        $port = $plain;
    } else {
        $port = redis_start();
        $redis = "server 127.0.0.1:$port;";
    }
    my $rules = t::Rules::rules(7);
    $rules->{tier_of}{keys} = { map { ('sha256:' . sha256_hex($_) => 'pro') } 1 .. 10_000 };
    $rules->{allow} = [map { sprintf '%0100d*', $_ } 1 .. 2_300];
    my $record = t::Rules::record(1, $rules);
    cmp_ok(length $record, '>', 1_000_000, "$what: a megabyte");
    my @gateways = map { gateway($redis) } 1, 2;
    $gateways[0]->write('rules.state', $record);
    $gateways[0]->start;
    ok(wait_for(sub {
        t::Rules::current($port, 'rl', 'z') == 1
    }, 60), "$what: given to Redis");
    ok(t::Rules::redis($port, 'HGET', 'rl:{rules:z}', 'record') eq $record,
       "$what: byte for byte");
    $gateways[1]->start;
    ok(t::Rules::follows($gateways[1], 1), "$what: got from there");
    ok(wait_for(sub {
        -f "$gateways[1]{dir}/rules.state"
            && $gateways[1]->read('rules.state') eq $record
    }, 60), "$what: byte for byte in its file");
    $_->stop for @gateways;
    redis_stop($port);
}

# who may not listen is told so once, and polls
{
    my $port = redis_start();
    redis_cli($port, qw( acl setuser rl on >pw ~* +@all resetchannels ));
    my $gateway = gateway("server 127.0.0.1:$port; username rl; password_file pw;");
    $gateway->write('pw', "pw\n");
    $gateway->start;
    my $record = t::Rules::record(1, t::Rules::rules(5));
    ok(t::Rules::put($port, 'rl', 'z', 0, $record), 'no right to listen');
    ok(t::Rules::follows($gateway, 1), 'no right to listen: it polls');
    is(() = $gateway->log =~ /\[error\] .*refuses messages of changed rules: NOPERM/g,
       1, 'no right to listen: the log');
    $gateway->stop;
}

# a change that other gateways do not hear of is told
{
    my $port = redis_start();
    redis_cli($port, qw( acl setuser rl on >pw ~* &* +@all -publish ));
    my $mute = t::Gateway->limited(
        redis => "server 127.0.0.1:$port; username rl; password_file pw",
        files => { pw => "pw\n" }, api => 1, zone => 'rate=2r/h sync=strict');
    my $api = t::Api->new($mute);
    is($api->change(PUT => '/document', { rules => [] })->{status}, 201,
       'no right to publish: a change');
    $mute->get('/?k=a');
    is($api->delete('/counters?rule=z&key=a')->{status}, 200,
       'no right to publish: a reset');
    is(() = $mute->log =~ /\[error\] .* zone "z": a change was not announced, (?x:
                           )other gateways poll for it: ".*(?:NOPERM|can't|perm)/g, 2,
       'no right to publish: the log');
    $mute->stop('QUIT', qr/not announced/);
}
