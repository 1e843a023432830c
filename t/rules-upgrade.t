# A binary is upgraded: the old master's workers and the new one's have memory of
# their own, and the state file in common. No change that either has accepted is
# lost, and all go by the last one.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Api;
use t::Rules;

my $gateway = t::Gateway->new(workers => 1, http => <<"CONF");
    ratelimit_zone \$arg_k zone=z:1m state=%%DIR%%/rules.state;

    server {
        listen 127.0.0.1:%%PORT%%;
        ${\ t::Rules::location() }
        location / { ratelimit zone=z; empty_gif; }
    }
CONF

# a master that is nobody's child takes USR2

$gateway->write('nginx.conf', $gateway->read('nginx.conf')
                              =~ s/daemon off;/daemon on;/r);

sub master {
    my $file = "$gateway->{dir}/" . shift;

    open my $in, '<', $file or return;
    my $pid = <$in> // return;
    chomp $pid;

    return $pid =~ /^\d+$/ && kill(0, $pid) ? $pid : undef;
}

my %masters;
END { kill KILL => map { (t::Gateway::workers({ pid => $_ }), $_) } keys %masters }

sub started {
    my ($file, $before) = @_;

    my $pid;

    t::Gateway::wait_for(sub {
        $pid = master($file);
        return $pid && $pid != ($before // 0)
               && t::Gateway::workers({ pid => $pid });
    }) or die "no master: " . $gateway->log;

    $masters{$pid} = 1;

    return $pid;
}

sub ends {
    my ($pid, $name) = @_;

    kill QUIT => $pid;
    ok(t::Gateway::wait_for(sub { !kill 0, $pid }), "$name ends");
    delete $masters{$pid};
}

is(system($gateway->command), 0, 'it starts');

my $old = started('nginx.pid');
my $api = t::Api->new($gateway);
my %accepted;

# A change of whatever version answers, until one is accepted.
sub change {
    my $limit = shift;

    return t::Gateway::wait_for(sub {
        my $etag = $api->get('/rules')->{etag};
        my $answer = $api->put('/rules', t::Rules::rules($limit),
                               "If-Match: $etag");

        return if $answer->{status} == 412 || $answer->{status} == 0;

        like($answer->{status}, qr/^20[01]$/, "a change to $limit");
        push @{ $accepted{$answer->{json}{version}} }, $limit;

        return 1;
    });
}

# Until all workers there are, and as many as there should be, go by the last.
sub followed {
    my $n = shift;
    my ($last) = sort { $b <=> $a } keys %accepted;
    my %said;

    return t::Gateway::wait_for(sub {
        for (map { t::Api::answer($_) } $gateway->burst(10, '/rl/status')) {
            next if $_->{status} != 200;
            $said{$_->{json}{node}{worker}} = $_->{json}{compiled};
        }
        delete @said{grep { !kill 0, $_ } keys %said};
        return keys %said >= $n && !grep { $_ != $last } values %said;
    });
}

change($_) for 1, 2;

kill USR2 => $old;

my $new = started('nginx.pid', $old);

ok(followed(2), 'the new workers begin with the rules of the old ones');

# both answer: who has a connection is by chance

change($_) for 11 .. 30;

is_deeply([grep { @{ $accepted{$_} } != 1 } keys %accepted], [],
          'each version is one change');
is_deeply([sort { $a <=> $b } keys %accepted], [1 .. 22], 'and none is missing');
ok(followed(2), 'all workers go by the last one');

# changes of one version at once, to whichever

for my $round (1 .. 8) {
    followed(2);

    my $etag = $api->get('/rules')->{etag};
    my $n = 100 * $round;

    for ($api->send_all(map {
             ['PUT', '/rules', t::Rules::rules($_), "If-Match: $etag"]
         } $n + 1 .. $n + 6)) {
        next if $_->{status} != 200;
        push @{ $accepted{$_->{json}{version}} },
             $_->{json}{rules}[0]{params}{limit};
    }
}

is_deeply([grep { @{ $accepted{$_} } != 1 } keys %accepted], [],
          'one of many at once is accepted');
is(scalar keys %accepted, 30, 'each time');
ok(followed(2), 'and all workers go by that');

ends($old, 'the old master');
ok(followed(1), 'the new one has it');

my %limits = map {
    ($_ => $api->get("/versions/$_")->{json}{rules}[0]{params}{limit})
} keys %accepted;

is_deeply(\%limits, { map { ($_ => $accepted{$_}[0]) } keys %accepted },
          'and all of them in its history');

change(40);
ok(followed(1), 'and goes on');

ends($new, 'the new master');
$gateway->log_ok;
