# A reload while changes are on their way: a worker that drains finishes what it
# was sent, also where it has to connect to Redis for that.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally wait_for );
use t::Rules;

use IO::Socket::INET;

my $port = redis_start();

# A change whose body is not whole yet.
sub begin {
    my ($gateway, $key) = @_;
    my $socket = $gateway->connect_to;
    print $socket join "\r\n", "PUT /rl/tier_of/$key HTTP/1.0", 'Host: localhost',
                  $t::Gateway::TOKEN,
                  'Content-Type: application/json', 'If-Match: *',
                  'Content-Length: 14', '', '{"tier"';
    $socket->flush;
    return $socket;
}

sub finish {
    my ($socket) = @_;
    my ($answer, $in) = ({ status => 0, headers => {} }, '');
    print $socket ':"pro"}';
    $socket->flush;
    1 while sysread $socket, $in, 65536, length $in;
    t::Gateway::parse($answer, $in);
    return $answer;
}

sub drained {
    my ($what, $redis, $uses, $workers) = @_;
    my $gateway = t::Gateway->limited(
        workers => $workers, api => 1, redis => $redis,
        zone => { z => "state=rules.state $uses" });
    ok(t::Rules::follows($gateway, 0), "$what: begins");
    my @old = $gateway->workers;
    my @sockets = map { begin($gateway, "k$_") } 1 .. 8;
    # the requests are there when others are answered
    ok(t::Rules::follows($gateway, 0), "$what: eight changes have begun");
    $gateway->signal('HUP');
    my %old = map { $_ => 1 } @old;
    ok(wait_for(sub {
        $gateway->log =~ /gracefully shutting down/
        && grep({ !$old{$_} } $gateway->workers) == $workers
    }), "$what: new workers serve");
    is(tally(map { finish($_) } @sockets), '8 x 201', "$what: all are taken");
    ok(wait_for(sub { !grep { $old{$_} } $gateway->workers }),
       "$what: the old workers end");
    ok(t::Rules::follows($gateway, 8), "$what: the new ones follow");
    ok(wait_for(sub {
        $gateway->read('rules.state') =~ /^\S+"version":8,/
    }), "$what: the file, too");
    $gateway->stop;
}

drained('Redis', { one => "server 127.0.0.1:$port; timeout 2s" }, 'redis=one', 4);
drained('no Redis', {}, '', 4);

{
    my ($seed) = cluster_ports();
    drained('a Cluster', { one => "cluster 127.0.0.1:$seed; timeout 2s" },
            'redis=one', 4);
}
