# The endpoint on a Redis Cluster and behind Sentinels: rules that are put at
# one gateway are followed by the other, a counter's state and its reset, of
# every algorithm, on whatever shard; also where a slot has moved and where
# another server has become the master.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Api;

use Time::HiRes qw( sleep );

my $prefix = key_prefix();
# all spent by 6 requests
my %RULES = (
    token_bucket => 'rate=6r/d',
    fixed_window => 'algorithm=fixed_window limit=6 window=calendar:month',
    sliding_window => 'algorithm=sliding_window limit=6 window=1d',
    sliding_log => 'algorithm=sliding_log limit=6 window=1d',
    strict => 'rate=6r/d sync=strict',
    async => 'rate=6r/d sync=async',
    shards => 'rate=6r/d sync=strict shards=6',
    shards_window => 'algorithm=fixed_window limit=6 window=calendar:month '
                     . 'sync=strict shards=5',
    shards_sliding => 'algorithm=sliding_window limit=6 window=1d sync=strict '
                      . 'shards=4',
);

sub gateway {
    my ($servers) = @_;
    return t::Gateway->limited(workers => 2, redis => $servers, api => 1,
        zone => 'key=$ratelimit_api_key',
        rules => [map { "$_ match=/$_ $RULES{$_}" } sort keys %RULES]);
}

sub take {
    my ($gateway, $rule, $key) = @_;
    return $gateway->get("/$rule", "X-API-Key: $key")->{status};
}

sub counter { return "/counters?rule=$_[0]&key=$_[1]" }

sub left { return $_[0]->get(counter($_[1], $_[2]))->{json}{remaining} // -1 }

# A counter that is spent, and reset at the first of the gateways.
sub resets {
    my ($name, $gateways, $rule, $key) = @_;
    my @api = map { t::Api->new($_) } @$gateways;
    my $what = "$name, $rule of $key";
    is(left($api[1], $rule, $key), 6, "$what: fresh");
    take($gateways->[1], $rule, $key) for 1 .. 8;
    ok(wait_for(sub {
           left($api[0], $rule, $key) == 0
           && take($gateways->[0], $rule, $key) == 429
       }), "$what: spent");
    my $answer = $api[0]->delete(counter($rule, $key));
    is($answer->{status}, 200, "$what: reset") or diag($answer->{body});
    is(take($gateways->[0], $rule, $key), 200, "$what: this gateway allows");
    ok(wait_for(sub { take($gateways->[1], $rule, $key) == 200 }),
       "$what: the other one, too");
}

# Rules that are put at one gateway are followed by the other.
sub follows {
    my ($name, $gateways, $limit, $version) = @_;
    my ($api, $other) = map { t::Api->new($_) } @$gateways;
    my $put = $api->change('PUT', '/rules/live', {
        match => { route => '/live' }, algorithm => 'fixed_window',
        params => { limit => $limit, window => 'calendar:month' } });
    like($put->{status}, qr/^20[01]$/, "$name: a rule is put")
        or diag($put->{body});
    ok(wait_for(sub {
        my $answer = $gateways->[1]->get('/live', 'X-API-Key: a');
        return (header($answer, 'X-RateLimit-Limit') // '') eq $limit;
    }), "$name: the other gateway follows");
    is($other->get('/rules/live')->{version}, $version, "$name: its version");
    is(scalar @{ $other->get('/versions')->{json}{versions} // [] }, $version,
       "$name: the history");
}

# a Cluster: keys on all shards; a seed that has not the slot
my @ports = cluster_start();
my @fleet = map { gateway("cluster 127.0.0.1:$_") } @ports[0, 1];

follows('Cluster', \@fleet, 50, 1);
resets('Cluster', \@fleet, $_, 'a') for sort keys %RULES;
resets('Cluster', \@fleet, 'token_bucket', "k$_") for 1 .. 8;

# one key, one tag, for the document and its history
my %on = map { $_ => 1 } map { split /\n/, redis_cli($_, '--scan', '--pattern',
                                     "$prefix:{rules:z}*") } @ports;
is(join(' ', sort keys %on), "$prefix:{rules:z}", 'the document is one key');

# a slot that moves, with its bucket; MOVED is followed by a reset, too
sub nodes {
    return map { /^(\w+) \S+?:(\d+)@\S* (\S+) (\S+) .*?connected ?(.*)$/
                 ? { id => $1, port => $2, flags => $3, of => $4, slots => $5 }
                 : () }
           split /\n/, redis_cli($ports[0], 'cluster', 'nodes');
}

sub owner {
    my $slot = shift;
    for my $node (nodes()) {
        for (split ' ', $node->{slots}) {
            return $node if /^(\d+)(?:-(\d+))?$/ && $slot >= $1
                            && $slot <= ($2 // $1);
        }
    }
    die "nobody has slot $slot";
}

# meanwhile: what is done when the keys have gone and the slot has not; slowly:
# the slot follows half a second later, while who called goes on
sub move {
    my ($key, $to, $meanwhile, $slowly) = @_;
    my $slot = redis_cli($ports[0], 'cluster', 'keyslot', $key);
    my $from = owner($slot);
    redis_cli($to->{port}, 'cluster', 'setslot', $slot, 'importing', $from->{id});
    redis_cli($from->{port}, 'cluster', 'setslot', $slot, 'migrating', $to->{id});
    for (split /\n/, redis_cli($from->{port}, 'cluster', 'getkeysinslot', $slot,
                               100))
    {
        redis_cli($from->{port}, 'migrate', '127.0.0.1', $to->{port}, $_, 0,
                  5000);
    }
    my $arrive = sub {
        sleep 0.5 if $slowly;
        redis_cli($_->{port}, 'cluster', 'setslot', $slot, 'node', $to->{id})
            for $to, $from;
    };
    my $pid = $slowly ? t::Gateway::beside($arrive) : 0;
    $meanwhile->() if $meanwhile;
    $slowly ? waitpid $pid, 0 : $arrive->();
    return wait_for(sub { owner($slot)->{port} == $to->{port} });
}

# The bucket whose content changes with a request.
sub bucket_of {
    my ($rule, $key) = @_;
    my $before = buckets();
    take($fleet[0], $rule, $key);
    my $after = buckets();
    return grep { ($before->{$_} // '') ne $after->{$_} } sort keys %$after;
}

sub buckets {
    my %buckets;
    for my $node (grep { $_->{slots} ne '' } nodes()) {
        for (split /\n/, redis_cli($node->{port}, '--scan', '--pattern',
                                   "$prefix:{[0-9]*}"))
        {
            $buckets{$_} = redis_cli($node->{port}, '--no-raw', 'hgetall', $_);
        }
    }
    return \%buckets;
}

my $document = "$prefix:{rules:z}";
my $home = owner(redis_cli($ports[0], 'cluster', 'keyslot', $document));
my ($away) = grep { $_->{port} != $home->{port} && $_->{slots} ne '' } nodes();

# it has no history yet: of one key here and one there Redis tells nothing
ok(move($document, $away, sub {
       is(t::Api->new($fleet[0])->delete(counter('token_bucket', 'n'))->{status},
          200, 'a reset waits for the slot of the document');
   }, 'slowly'), 'the slot of the document moves');
resets('the document has moved', \@fleet, 'token_bucket', 'm');
follows('the document has moved', \@fleet, 60, 2);
ok(move($document, $home), 'and back');
resets('the document is back', \@fleet, 'fixed_window', 'm');

# all buckets of a few clients, wherever they are, on their way
for my $key ('o', 'p') {
    resets('before its bucket moves', \@fleet, 'fixed_window', $key);
    my ($bucket) = bucket_of('strict', $key);
    defined $bucket or die 'no bucket has changed';
    my $from = owner(redis_cli($ports[0], 'cluster', 'keyslot', $bucket));
    my ($to) = grep { $_->{port} != $from->{port} && $_->{slots} ne '' } nodes();
    ok(move($bucket, $to, sub {
           resets('its bucket has gone ahead', \@fleet, 'token_bucket', $key);
       }), "$bucket moves");
    resets('its bucket has moved', \@fleet, 'sliding_window', $key);
    ok(move($bucket, $from), "$bucket is back");
}

# a replica takes over from the primary that has the document
$home = owner(redis_cli($ports[0], 'cluster', 'keyslot', $document));
my ($replica) = grep { $_->{of} eq $home->{id} } nodes();

ok(wait_for(sub {
       redis_try($replica->{port}, 'info', 'replication')
           =~ /master_link_status:up/
   }), 'a replica has what its primary has');
redis_cli($replica->{port}, 'cluster', 'failover');
ok(wait_for(sub {
       owner(redis_cli($ports[0], 'cluster', 'keyslot', $document))->{port}
           == $replica->{port}
   }), 'it is the primary');
resets('behind a failover', \@fleet, 'token_bucket', 'f');
resets('behind a failover', \@fleet, 'shards', 'f');
follows('behind a failover', \@fleet, 70, 3);

$_->stop for @fleet;

# Sentinels: a master, its replica, and a switch
my ($one, $two) = (redis_start(), redis_start());
redis_cli($two, 'replicaof', '127.0.0.1', $one);

my @sentinels = map { redis_start(sentinel => <<"CONF") } 1 .. 3;
sentinel monitor m 127.0.0.1 $one 2
sentinel down-after-milliseconds m 1000
sentinel failover-timeout m 3000
CONF

sub master {
    return (split /\n/, redis_cli($sentinels[0], 'sentinel',
                                  'get-master-addr-by-name', 'm'))[1] // '';
}

sub ready {
    return wait_for(sub {
        my $links = grep {
            redis_try($_, 'info', 'replication') =~ /master_link_status:up/
        } $one, $two;
        $links == 1 && !grep {
            redis_try($_, 'info', 'sentinel')
                !~ /status=ok,address=\S+,slaves=1,sentinels=3/
        } @sentinels;
    }, 60);
}

ok(ready(), 'three sentinels know each other');

@fleet = map {
    gateway('sentinel m ' . join ' ', map { "127.0.0.1:$_" } @sentinels)
} 1, 2;

follows('Sentinel', \@fleet, 50, 1);
resets('Sentinel', \@fleet, $_, 'a') for sort keys %RULES;

my $was = master();

is(redis_cli($sentinels[0], 'sentinel', 'failover', 'm'), 'OK', 'a switch');
ok(wait_for(sub { master() ne $was }, 60), 'another master');

# until then a worker may find nobody, a replica, or him who was the master
ok(ready(), 'he that was the master is a replica');
ok($_->becomes('PASSED', '/strict', 'X-API-Key: %s'),
   "behind the switch: each worker of $_->{name} finds the master") for @fleet;
resets('behind the switch', \@fleet, $_, 's') for 'token_bucket', 'strict',
                                                  'shards';
follows('behind the switch', \@fleet, 60, 2);

$_->stop for @fleet;
redis_stop($_) for @sentinels, $one, $two;
