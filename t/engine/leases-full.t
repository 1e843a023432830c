# A lease table without a free place: limits hold all the same, and what is
# rejected stays so without a call for each request.

use t::RateLimit 'no_plan';
use t::Gateway qw( header passed wait_for );

my $port = redis_start();
my $prefix = key_prefix();

my @ALGORITHMS = (
    ['bucket', 'limit=3 window=366d'],
    ['leaky', 'algorithm=leaky_bucket rate=1r/d burst=2 nodelay'],
    ['fixed', 'algorithm=fixed_window limit=3 window=366d'],
    ['sliding', 'algorithm=sliding_window limit=3 window=366d'],
);

# 64k have about 400 places
sub gateway {
    my ($workers, $zone, $async, $rules) = @_;
    return t::Gateway->new(workers => $workers, http => <<"CONF")->start;
    ratelimit_redis one { server 127.0.0.1:$port; prefix $prefix; timeout 10s; }
    ratelimit_zone \$arg_k zone=z:$zone redis=one;
    ratelimit_rule fill zone=z limit=1 window=366d match=/fill;
    ratelimit_rule split zone=z algorithm=fixed_window limit=8 window=366d
                   match=/split sync=strict shards=8;
    ratelimit_rule few zone=z algorithm=fixed_window limit=1 window=366d
                   key=\$arg_few match=/cost sync=strict;
    ratelimit_rule wide zone=z algorithm=fixed_window limit=100 window=366d
                   match=/wide sync=$async;
    $rules
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        ratelimit_headers x;
        add_header X-Source \$ratelimit_source always;
        location / { ratelimit zone=z; empty_gif; }
        location /cost { ratelimit zone=z;
                         proxy_pass http://127.0.0.1:%%PORT%%/echo?x=\$arg_x; }
        location /echo { add_header X-Cost \$arg_x; return 200; }
    }
CONF
}

sub rules {
    my ($cost, %sync) = @_;
    return "ratelimit_rule cost zone=z algorithm=fixed_window limit=5 "
           . "window=366d match=/cost sync=$cost cost=\$arg_c "
           . "cost_header=X-Cost;\n"
           . join '', map {
               my ($name, $limit) = @$_;
               map { "ratelimit_rule $name-$_ zone=z $limit match=/$name/$_ "
                     . "sync=$sync{$_};\n" } sort keys %sync;
           } @ALGORITHMS;
}

my @full = map {
    gateway($_, '64k', 'async', rules('async', async => 'async', lease => 'lease'))
} 1 .. 2;
my $strict = gateway(1, '1m', 'strict', rules('strict', async => 'strict', lease => 'strict'));

sub source { return header($_[0], 'X-Source') }

# what Redis says is left, as a request that asks it is told
sub left {
    my $path = shift;
    return header($strict->get($path), 'X-RateLimit-Remaining');
}

# what Redis has denied for long is remembered for as long
for my $from (map { 100 * $_ } 0 .. 14) {
    my @keys = $from + 1 .. $from + 100;
    for my $gateway ($strict, @full) {
        t::Gateway::send_all([map { [$gateway, "/fill?k=$_"] } @keys]);
    }
}

# no more than the limit, whatever the algorithm
my %sources;

for (@ALGORITHMS) {
    my ($name) = @$_;
    for my $key (1 .. 8) {
        my @answers = map { $full[1]->burst(10, "/$name/async?k=$key") } 1 .. 3;
        is(passed(@answers), 3, "$name: async: no more than the limit");
        is(scalar(grep { source($_) !~ /^(?:local|lease)$/ } @answers), 0,
           "$name: async: no request waits");
        $sources{source($_)}++ for @answers;
        @answers = map { $full[1]->burst(10, "/$name/lease?k=$key") } 1 .. 3;
        is(passed(@answers), 3, "$name: lease: the limit");
    }
    # Redis is told, and so are the others by Redis
    is($full[1]->get("/$name/async?k=told")->{status}, 200, "$name: one passes");
    my $looks = 0;
    ok(wait_for(sub {
        return left("/$name/async?k=told") + ++$looks == 2;
    }, 5), "$name: Redis is told");
}

cmp_ok($sources{local}, '>', $sources{lease} // 0, 'the lease table is full');

# what the others have spent counts here, too
$strict->burst(100, '/wide?k=a');

my $passed = 0;

wait_for(sub {
    return $full[1]->get('/wide?k=a')->{status} == 429 || ++$passed == 100;
});
cmp_ok($passed, '<', 100, 'what others have spent is learned');

# what comes back comes back here, too: 3 + 3 would be more than 5. With one
# worker, since what another one has asked meanwhile may take it away again
my @answers = map { $full[0]->get("/cost?k=a&few=a$_") }
              '1&c=3&x=1', '2&c=3&x=3', '3&c=1&x=1', '4&c=1&x=1';

is(join(' ', map { $_->{status} } @answers), '200 200 200 429',
   'a response that cost less is charged less');

@answers = $full[0]->burst(20, '/cost?k=b&c=1&x=1&few=b');
is(passed(@answers), 1, 'another rule rejects');
@answers = map { $full[0]->get("/cost?k=b&c=1&x=1&few=c$_") } 1 .. 5;
is(join(' ', map { $_->{status} } @answers), '200 200 200 200 429',
   'which costs this one nothing');

# a charge beyond the cost: 1 and 3 more
@answers = map { $full[0]->get("/cost?k=c&few=d$_") }
           '1&c=1&x=4', '2&c=1&x=1', '3&c=1&x=1';
is(join(' ', map { $_->{status} } @answers), '200 200 429',
   'a response that cost more is charged more');

# a split counter that is spent costs no call, let alone one for each part
is(passed($full[0]->burst(30, '/split?k=a')), 8, 'shards: the limit');

@answers = map { $full[0]->burst(25, '/split?k=a') } 1 .. 4;

is(passed(@answers), 0, 'shards: it is spent');
is(join(' ', map { source($_) } @answers), join(' ', ('memory') x 100),
   'shards: which costs no call');
cmp_ok(header($answers[-1], 'Retry-After'), '>', 0,
       'shards: and when to come again');

$_->stop for @full, $strict;
