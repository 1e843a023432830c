# A document whose slot of a Cluster moves to another node: it is read all the
# time, and a change waits while one of its keys is here and the other one there.

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Rules;

use Time::HiRes qw( sleep );

my @ports = cluster_start();
my $prefix = key_prefix();
my $key = t::Rules::key($prefix, 'z');
my $slot = redis_cli($ports[0], 'cluster', 'keyslot', $key) + 0;
my (%id, $from, $to);

for (split /\n/, redis_cli($ports[0], 'cluster', 'nodes')) {
    my ($id, $port, $slots) =
        /^(\w+) \S+?:(\d+)@\S* \S+ \S+ \S+ \S+ \S+ \S+ ?(.*)$/ or next;
    $id{$port} = $id;
    next if $slots !~ /\d/;
    if (grep { /^(\d+)(?:-(\d+))?$/ && $slot >= $1 && $slot <= ($2 // $1) }
            split ' ', $slots)
    {
        $from = $port;
    } else {
        $to = $port;
    }
}

sub gateway {
    return t::Gateway->limited(workers => 2, timeout => '2s', api => 1,
                               redis => "cluster 127.0.0.1:$ports[0]");
}

sub opens {
    my ($from, $to) = @_;
    redis_cli($to, 'cluster', 'setslot', $slot, 'importing', $id{$from});
    redis_cli($from, 'cluster', 'setslot', $slot, 'migrating', $id{$to});
}

sub moves {
    my ($from, $to, $what) = @_;
    redis_cli($from, 'migrate', '127.0.0.1', $to, $what, 0, 5000);
}

sub ends {
    my ($to, @others) = @_;
    redis_cli($_, 'cluster', 'setslot', $slot, 'node', $id{$to}) for $to, @others;
}

my $one = gateway();
my $version = 0;

sub change {
    my ($what) = @_;
    my $answer = t::Rules::change($one, $version, t::Rules::rules(10 + $version));
    like($answer->{status}, qr/^20[01]$/, "$what: a change")
        or return diag($answer->{body});
    $version++;
}

change('before');

# one that has no history yet
opens($from, $to);

my $two = gateway();

ok(t::Rules::follows($two, 1), 'no history, a slot that leaves: it is read');
moves($from, $to, $key);

my $three = gateway();

ok(t::Rules::follows($three, 1), 'no history, a key that has left: it is read');
$three->stop;

# a change names the history, which is nowhere: it waits for the end
my $end = t::Gateway::beside(sub {
    sleep 0.5;
    ends($to, $from);
});

change('no history, a slot on its way');
waitpid $end, 0;
change('no history, it has moved');

# with one: half of it is there
opens($to, $from);
change('a slot that leaves');
moves($to, $from, $key);

my $later = t::Gateway::beside(sub {
    sleep 0.5;
    moves($to, $from, "$key:history");
});

change('half of it has left');
waitpid $later, 0;
change('all of it has left');
ends($from, $to);
change('it has moved back');
ok(t::Rules::follows($_, $version), 'all follow') for $one, $two;

$_->stop for $one, $two;
