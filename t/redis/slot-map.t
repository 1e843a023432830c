# What a Cluster's nodes say of the slot map, where that is of little use: the
# log says so.

use t::RateLimit 'no_plan';
use t::Gateway qw( told );
use t::FakeRedis;

my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

# A node's array: its host, as Redis says it, and maybe an address behind it.
sub node {
    my ($host, $port, $ip) = @_;
    my @more = $ip ? ('ip', $ip) : ();
    return "*4\r\n" . bulk($host) . ":$port\r\n" . bulk('id') . '*' . @more
           . "\r\n" . join '', map { bulk($_) } @more;
}

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }

sub slots {
    return '*' . @_ . "\r\n" . join '', map {
        "*3\r\n:$_->[0]\r\n:$_->[1]\r\n" . node(@$_[2 .. $#$_])
    } @_;
}

# A fake that answers CLUSTER SLOTS with what the function gives for its port.
sub seed {
    my $slots = shift;
    my $port = t::Gateway::free_port();
    return t::FakeRedis->new(sub {
        return $slots->($port) if $_[0] eq 'CLUSTER';
        return $_[0] eq 'EVALSHA' ? $GOOD : "+OK\r\n";
    }, port => $port);
}

sub gateway {
    my $fake = shift;
    return t::Gateway->limited(redis => "cluster 127.0.0.1:$fake->{port}",
                               timeout => '1s', zone => 'rate=10r/h sync=strict');
}

for (['no slots', sub { "*0\r\n" }, '0 ranges, host ""'],
     ['a node without a name', sub { slots([0, 16383, '?', $_[0]]) },
      '1 ranges, host "\?"'])
{
    my ($name, $slots, $why) = @$_;
    my $fake = seed($slots);
    my $gateway = gateway($fake);
    $gateway->log_has(qr/$fake->{port} answered CLUSTER SLOTS without a usable range: $why/,
                      "$name: the log");
    is(told($gateway->get('/?k=a')), '200 DEGRADED -1', "$name: degraded");
    $gateway->stop;
    $fake->stop;
}

{
    my $fake = seed(sub { slots([0, 16383, '?', $_[0], '127.0.0.1']) });
    my $gateway = gateway($fake);
    is(told($gateway->get('/?k=a')), '200 PASSED 9',
       'a node without a name: its address is told');
    $gateway->stop;
    $fake->stop;
}

{
    my $fake = seed(sub { slots([0, 100, '127.0.0.1', $_[0]]) });
    my $gateway = gateway($fake);
    $gateway->log_has(qr/\[error\] .*: 16283 hash slots have no node/,
                      'slots without a node: the log');
    $gateway->stop;
    $fake->stop;
}
