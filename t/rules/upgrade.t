# A binary is upgraded: the new master reads the state file, and the old master's
# workers take no changes from then on. If the upgrade is given up, they go on with
# what the new one has written. No change that was accepted is lost.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::Api;
use t::Rules;

my $gateway = t::Gateway->limited(
    start => 0, api => 1, zone => 'state=%%DIR%%/rules.state');

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
    wait_for(sub {
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
    ok(wait_for(sub { !kill 0, $pid }), "$name ends");
    delete $masters{$pid};
}

is(system($gateway->command), 0, 'it starts');

my $old = started('nginx.pid');
my $api = t::Api->new($gateway);
my %accepted;

# A change, once more until it is accepted: who has a connection is by chance, and
# the old workers refuse. Returns how often they did.
sub change {
    my $limit = shift;
    my $refused = 0;
    ok(wait_for(sub {
        my $etag = $api->get('/document')->{etag};
        my $answer = $api->put('/document', t::Rules::rules($limit),
                               "If-Match: $etag");
        if ($answer->{status} == 503) {
            like($answer->{json}{detail}, qr/nginx is being upgraded, nothing is changed/,
                 'the old workers say why they refuse') if !$refused++;
            return;
        }
        return if $answer->{status} == 412 || $answer->{status} == 0;
        like($answer->{status}, qr/^20[01]$/, "a change to $limit");
        push @{ $accepted{$answer->{json}{version}} }, $limit;
        return 1;
    }), "it is accepted");
    return $refused;
}

# The workers that answer: which version each goes by.
sub going_by {
    my %said;
    for (map { t::Api::answer($_) } $gateway->burst(20, '/rl/status')) {
        next if $_->{status} != 200;
        $said{$_->{json}{gateway}{worker}} = $_->{json}{in_use};
    }
    delete @said{grep { !kill 0, $_ } keys %said};
    return %said;
}

# Until all workers of a master go by the last version.
sub followed {
    my ($pid) = @_;
    my ($last) = sort { $b <=> $a } keys %accepted;
    return wait_for(sub {
        my %said = going_by();
        my @workers = grep { exists $said{$_} } t::Gateway::workers({ pid => $pid });
        return @workers && !grep { $said{$_} != $last } @workers;
    });
}

sub passes {
    my $key = shift;
    return scalar grep { $_->{status} == 200 } $gateway->burst(30, "/?k=$key");
}

change($_) for 1, 2;

sub upgrade {
    kill USR2 => $old;
    return started('nginx.pid', $old);
}

my $new = upgrade();

ok(followed($_), 'all workers go by the last version') for $old, $new;

my $refused = 0;

$refused += change($_) for 11 .. 30;
ok($refused, 'the old workers have refused');
ok(followed($new), 'the new ones go by the last version');

is_deeply([grep { @{ $accepted{$_} } != 1 } keys %accepted], [],
          'each version is one change');
is_deeply([sort { $a <=> $b } keys %accepted], [1 .. 22], 'and none is missing');

my %said = going_by();
my ($was) = grep { exists $said{$_} } t::Gateway::workers({ pid => $old });

is($said{$was}, 2, 'the old workers still go by theirs') if $was;
cmp_ok(passes('a'), '<=', 32, 'and limit');

# it is given up: the old workers have what the new ones accepted
ends($new, 'the new master');
ok(wait_for(sub { (master('nginx.pid') // 0) == $old }),
   'the old master is the only one');
change(31);
is_deeply([grep { @{ $accepted{$_} } != 1 } keys %accepted], [],
          'its workers take changes again, of what the new ones accepted');
ok(followed($old), 'and go by the last version');

# once more, to the end
$new = upgrade();
change(32);
ends($old, 'the old master');
ok(followed($new), 'the new one has the last version');

my %limits = map {
    ($_ => $api->get("/versions/$_")->{json}{rules}[0]{params}{limit})
} keys %accepted;

is_deeply(\%limits, { map { ($_ => $accepted{$_}[0]) } keys %accepted },
          'and all of them in its history');

change(40);
ok(followed($new), 'and goes on');

ends($new, 'the new master');
$gateway->log_ok;
