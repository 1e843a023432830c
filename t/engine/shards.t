# shards=: a strict counter in several slots admits its limit, no more and no
# less, and costs few calls when it is spent.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );

use Time::HiRes 'sleep';

my @ports = cluster_ports();
my $port = redis_start();
my $prefix = key_prefix();

sub gateway {
    my ($redis) = @_;
    my $day = 'algorithm=fixed_window window=calendar:day';
    return t::Gateway->limited(
        workers => 2, redis => $redis, timeout => '10s',
        rules => ["window $day limit=100 match=/window sync=strict shards=6",
                  'bucket rate=100r/d match=/bucket sync=strict shards=7',
                  'sliding algorithm=sliding_window limit=100 window=1d'
                  . ' match=/sliding sync=strict shards=6',
                  "many $day limit=128 match=/many sync=strict shards=64",
                  "cost $day limit=10 cost=3 match=/cost sync=strict shards=3",
                  'quick rate=10r/s capacity=4 match=/quick sync=strict shards=2',
                  "tried $day limit=4 match=/tried sync=strict shards=2 dry_run",
                  "wide $day limit=20 match=/both sync=strict shards=4",
                  "few $day limit=3 key=\$arg_b match=/both sync=strict",
                  "each $day limit=8 match=/each/window sync=strict shards=8",
                  'all rate=8r/30d match=/each/bucket sync=strict shards=8',
                  'any algorithm=sliding_window limit=8 window=1d'
                  . ' match=/each/sliding sync=strict shards=8',
                  "none $day limit=1 key=\$arg_b match=/each/** sync=strict"
                  . ' cost_header=X-Cost']);
}

# Calls that gateways made, however they ended. Redis also counts those of other
# files, which share the Cluster.
sub calls {
    my $calls = 0;
    for (map { $_->get('/metrics')->{body} } @_) {
        $calls += $1 while /^ratelimit_redis_calls_total\{\S* (\d+)/mg;
    }
    return $calls;
}

sub told {
    return header($_[0], 'X-RateLimit-Remaining');
}

# {port => [keys]} of those buckets that were not there
my %known;

sub keys_new {
    my %new;
    for my $node (@_) {
        for (split /\n/, redis_cli($node, '--scan', '--pattern', "$prefix:*")) {
            next unless /^\Q$prefix\E:\{\d+\}$/ && !$known{"$node $_"}++;
            push @{ $new{$node} }, $_;
        }
    }
    return \%new;
}

for (['a Cluster', "cluster 127.0.0.1:$ports[0]", @ports],
     ['one server', "server 127.0.0.1:$port", $port])
{
    my ($name, $redis, @nodes) = @$_;
    my @fleet = map { gateway($redis) } 1 .. 2;
    my @primaries = grep {
        redis_cli($_, 'INFO', 'replication') =~ /role:master/
    } @nodes;
    wait_for(sub { $_->get('/bucket?k=0')->{status} == 200 }) for @fleet;
    # exact under parallel load
    for my $path (qw( /window /bucket /sliding /many )) {
        keys_new(@primaries);
        my $limit = $path eq '/many' ? 128 : 100;
        my @answers = t::Gateway::send_all(
            [map { [$fleet[$_ % 2], "$path?k=load"] } 1 .. 300]);
        is(tally(@answers),
           "$limit x 200, " . (300 - $limit) . ' x 429',
           "$name: $path admits its limit");
        is(scalar(grep { told($_) < 0 || told($_) >= $limit } @answers), 0,
           "$name: $path tells of no more, and of nothing below 0");
        is(scalar(grep { $_->{status} == 429
                         && !(header($_, 'Retry-After') > 0) }
                  @answers), 0, "$name: $path: when to come again");
        # spread over as many slots, evenly over the nodes
        my $new = keys_new(@primaries);
        my %slots = map { redis_cli($primaries[0], 'CLUSTER', 'KEYSLOT', $_)
                          => 1 } map { @$_ } values %$new
            if @nodes > 1;
        my $shards = { '/bucket' => 7, '/many' => 64 }->{$path} // 6;
        is(scalar(map { @$_ } values %$new), $shards,
           "$name: $path: a key for each shard");
        if (@nodes > 1) {
            is(scalar(keys %slots), $shards, "$name: $path: a slot for each");
            is(scalar(grep { abs(@{ $new->{$_} // [] } - $shards / 3)
                              > ($shards < 16 ? 1 : 3) }
                      @primaries), 0, "$name: $path: on all nodes alike");
        }
        # what is spent is remembered; it is asked once more
        $_->burst(64, "$path?k=load") for @fleet;
        sleep 0.2;
        $_->burst(64, "$path?k=load") for @fleet;
        my $calls = calls(@fleet);
        @answers = map { $_->burst(100, "$path?k=load") } @fleet;
        is(tally(@answers), '200 x 429', "$name: $path is spent");
        is(calls(@fleet), $calls, "$name: $path: which costs no call");
        is(header($answers[-1], 'X-Source'), 'memory',
           "$name: $path: since this node knows");
    }
    # of one gateway, one after the other: each is told the truth
    my @rest = map { told($fleet[0]->get('/window?k=told')) } 1 .. 100;
    is("@rest", join(' ', reverse 0 .. 99), "$name: the rest goes down by one");
    # of two, it never rises
    for my $n (1 .. 50) {
        my $gateway = $fleet[$n % 2];
        push @{ $gateway->{rest} }, told($gateway->get('/window?k=both'));
    }
    for (@fleet) {
        my @sorted = sort { $b <=> $a } @{ $_->{rest} };
        is("@{ $_->{rest} }", "@sorted", "$name: the rest never rises");
    }
    # costs: each part pays once
    my @answers = map { $fleet[0]->get('/cost?k=a') } 1 .. 6;
    is(join(' ', map { $_->{status} } @answers), '200 200 200 429 429 429',
       "$name: a cost is paid by one part");
    is(told($answers[2]), 1, "$name: what is left of all parts is told");
    is(told($answers[3]), 1, "$name: and where it is not enough");
    # a bucket fills again: the moment that it names is one that pays
    my ($denied) = grep { $_->{status} == 429 }
                   $fleet[0]->burst(100, '/quick?k=a');
    ok($denied, "$name: a bucket is spent");
    sleep header($denied, 'Retry-After');
    is($fleet[0]->get('/quick?k=a')->{status}, 200,
       "$name: and has a token again at the moment that was named");
    # dry run
    is(tally(map { $fleet[0]->get('/tried?k=a') } 1 .. 6),
       '6 x 200', "$name: a dry run denies nobody");
    # all or nothing: what another rule denies comes back
    @answers = map { $fleet[0]->get('/both?k=a&b=a') } 1 .. 30;
    is(tally(@answers), '3 x 200, 27 x 429', "$name: another rule denies");
    my $passed = 0;
    # no request waits for what the one before gives back
    for my $n (1 .. 17) {
        $passed++ if wait_for(sub {
            $fleet[1]->get("/both?k=a&b=b$n")->{status} == 200
        });
    }
    is($passed, 17, "$name: and the parts get back what they had granted");
    is($fleet[1]->get('/both?k=a&b=c')->{status}, 429, "$name: to the limit");
    # each part has granted its only token, and got it back
    for my $path (qw( /each/window /each/bucket /each/sliding )) {
        @answers = map { $fleet[$_ % 2]->get("$path?k=a&b=$path") } 1 .. 80;
        is(tally(@answers), '1 x 200, 79 x 429', "$name: $path: another rule");
        @answers = map {
            my ($gateway, $query) = ($fleet[$_ % 2], "$path?k=a&b=$path$_");
            wait_for(sub { $gateway->get($query)->{status} == 200 });
        } 1 .. 7;
        is(scalar(grep { $_ } @answers), 7, "$name: $path: all come back");
        is($fleet[0]->get("$path?k=a&b=c")->{status}, 429, "$name: $path: no more");
    }
    for (@fleet) {
        $_->stop;
        $_->log_ok;
    }
}
