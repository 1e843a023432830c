# What a response says of the request's cost: cost_header= and count_status=,
# in shared memory and in Redis.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();
my $up = t::Gateway::free_port();

# that owe: name, limit, and by how many seconds the wait grows by a debt of 100
my @limits = (
    ['owe-bucket', 'rate=100r/h', 3600],
    ['owe-leaky', 'algorithm=leaky_bucket rate=100r/h burst=99 nodelay', 3600],
    ['owe-fixed', 'algorithm=fixed_window limit=100 window=1h', 3600],
    ['owe-day', 'algorithm=fixed_window limit=100 window=calendar:day', 86400],
    ['owe-sliding', 'algorithm=sliding_window limit=100 window=1h', 1782],
    ['owe-strict', 'rate=100r/h sync=strict', 3600],
    ['owe-strict-fixed', 'algorithm=fixed_window limit=100 window=1h sync=strict', 3600],
    ['owe-async', 'rate=100r/h sync=async', 3600],
    ['owe-here', 'rate=100r/h fail_mode=local', 3600],
    ['owe-log', 'algorithm=sliding_log limit=100 window=1h', 0],
);
my %limits = (local => [grep { $_->[1] !~ /sync|fail_mode/ } @limits],
              fleet => \@limits);

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_redis r { server 127.0.0.1:$redis; prefix $prefix; timeout 5s; }

    ratelimit_zone \$arg_k zone=local:1m;
    ratelimit_zone \$arg_k zone=fleet:1m redis=r;

    ratelimit_rule tokens zone=local rate=100r/h cost_header=X-Cost;
    ratelimit_rule reserve zone=local rate=100r/h cost=10 cost_header=X-Cost;
    ratelimit_rule dry zone=local rate=2r/h cost_header=X-Cost dry_run;
    ratelimit_rule other zone=local rate=100r/h match=/other cost_header=X-Other;
    ratelimit_rule window zone=local limit=100 window=1h
                   algorithm=fixed_window cost=10 cost_header=X-Cost;
    ratelimit_rule logins zone=local rate=3r/h count_status=401,403;
    ratelimit_rule costly zone=local rate=9r/h cost=3 count_status=401;

    ratelimit_rule tokens zone=fleet sync=strict rate=100r/h cost=10 cost_header=X-Cost;
    ratelimit_rule logins zone=fleet rate=3r/h count_status=401,403;
    ratelimit_rule quick zone=fleet sync=strict rate=1r/s cost_header=X-Cost;
    @{[map { my $zone = $_; map { <<"RULE" } @{$limits{$zone}} } qw( local fleet )]}
    ratelimit_rule $_->[0] zone=$zone $_->[1] cost_header=X-Cost;
RULE

    server {
        listen 127.0.0.1:$up;
        location / { add_header X-Cost \$arg_cost;
                     add_header X-Cost \$arg_more;
                     add_header X-Other \$arg_other;
                     return 200 "cost\\n"; }
        location /accel { add_header X-Cost \$arg_cost;
                          add_header X-Accel-Redirect /file;
                          return 200; }
        location /intercepted { add_header X-Cost \$arg_cost always;
                                return 404; }
        location /401 { return 401; }
        location /403 { return 403; }
    }

    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location /tokens { ratelimit zone=local rule=tokens;
                           proxy_pass http://127.0.0.1:$up; }
        location /reserve { ratelimit zone=local rule=reserve;
                            proxy_pass http://127.0.0.1:$up; }
        location /dry { ratelimit zone=local rule=dry;
                        proxy_pass http://127.0.0.1:$up; }
        location /window { ratelimit zone=local rule=window;
                           proxy_pass http://127.0.0.1:$up; }
        location /both { ratelimit zone=local rule=tokens;
                         ratelimit zone=local rule=other;
                         proxy_pass http://127.0.0.1:$up; }
        location /page { ratelimit zone=local rule=tokens;
                         proxy_pass http://127.0.0.1:$up;
                         proxy_intercept_errors on; error_page 404 /tokens; }
        location /hidden { ratelimit zone=local rule=tokens;
                           proxy_hide_header X-Cost;
                           proxy_pass http://127.0.0.1:$up; }
        location /accel { ratelimit zone=local rule=tokens;
                          proxy_pass http://127.0.0.1:$up; }
        location /file { internal; return 200 "file\\n"; }
        location /intercepted { ratelimit zone=local rule=tokens;
                                proxy_intercept_errors on;
                                error_page 404 /file;
                                proxy_pass http://127.0.0.1:$up; }
        location /logins { ratelimit zone=local rule=logins;
                           proxy_pass http://127.0.0.1:$up/\$arg_to; }
        location /costly { ratelimit zone=local rule=costly;
                           proxy_pass http://127.0.0.1:$up/\$arg_to; }
        location /gone { ratelimit zone=local rule=tokens;
                         proxy_pass http://127.0.0.1:1; }
        location /fleet-tokens { ratelimit zone=fleet rule=tokens;
                                 proxy_pass http://127.0.0.1:$up; }
        location /fleet-quick { ratelimit zone=fleet rule=quick;
                                proxy_pass http://127.0.0.1:$up; }
        @{[map { my $zone = $_; map { <<"LOCATION" } @{$limits{$zone}} } qw( local fleet )]}
        location /$zone/$_->[0] { ratelimit zone=$zone rule=$_->[0];
                                  proxy_pass http://127.0.0.1:$up/; }
LOCATION
        location /fleet-logins { ratelimit zone=fleet rule=logins;
                                 proxy_pass http://127.0.0.1:$up/\$arg_to; }
    }
CONF

sub told {
    return join ' ', t::Gateway::told($gateway->get(@_));
}

sub header {
    my ($path, $name) = @_;

    return t::Gateway::header($gateway->get($path), $name);
}

# a charge in Redis is nobody's to wait for
sub then_told {
    $gateway->settled($redis);

    return told(@_);
}

# more than the request took

is(told('/tokens?k=a&cost=30'), '200 PASSED 70', 'charged, and told at once');
is(told('/tokens?k=a&cost=1'), '200 PASSED 69', 'what it took already');
is(told('/tokens?k=a'), '200 PASSED 68', 'no header: the cost it has');
is(told('/gone?k=a'), '502 PASSED 67', 'no upstream: the same');

is(header('/tokens?k=a2&cost=30&more=5', 'X-Cost'), '',
   'the header is hidden, each of that name');
is(told('/tokens?k=a2'), '200 PASSED 69', 'and its first counts');
is(header('/tokens?k=a2&other=5', 'X-Other'), 5,
   'another rule\'s is not hidden');
is(header('/both?k=a2&other=5', 'X-Other'), '',
   'also where its rule does not apply');

# what the client does not get, it still costs

is(told('/hidden?k=h&cost=30'), '200 PASSED 70', 'hidden by nginx');
is(told('/accel?k=h&cost=30'), '200 PASSED 40', 'behind X-Accel-Redirect');
is(told('/intercepted?k=h&cost=30'), '404 PASSED 10', 'behind an error page');
is(header('/accel?k=h2&cost=30', 'X-Cost'), '', 'and is not shown');

# more than is left: the rest is owed, so it is not free for ever

is(told('/tokens?k=b&cost=40'), '200 PASSED 60', 'forty');
is(told('/tokens?k=b&cost=40'), '200 PASSED 20', 'forty again');
is(told('/tokens?k=b&cost=40'), '200 PASSED 0', 'and forty of twenty');
is(header('/tokens?k=b', 'Retry-After'), 36 * 21, 'the next waits for that');
is(told('/tokens?k=b'), '429 REJECTED 0', 'and pays nothing');

sub wait_of {
    my ($path, $cost) = @_;

    # sync=async goes by what Redis has said

    if ($path =~ /async/) {
        is(told("$path&cost=1"), '200 PASSED 99', "$path: one is spent");
        $gateway->settled($redis);
        $cost--;
    }

    like(told("$path&cost=$cost"),
         $path =~ /local/ ? qr/^200 PASSED 0$/ : qr/^200 PASSED (99|98|0)$/,
         "$path: $cost are spent");
    $gateway->settled($redis) if $path =~ /fleet/;

    return header($path, 'Retry-After') || 0;
}

t::Clock::stop();

for my $zone (qw( local fleet )) {
    for (@{$limits{$zone}}) {
        my ($name, undef, $longer) = @$_;
        my ($spent, $owed) = (wait_of("/$zone/$name?k=spent", 100),
                              wait_of("/$zone/$name?k=owed", 1000));

        # what sync=async goes by may be a request behind, of 36 s
        my $off = abs($owed - $spent - $longer);

        ok($spent && $off <= ($name =~ /async/ ? 36 : 1),
           "$zone, $name: what is owed is waited for: $spent s, $owed s");
    }
}

t::Clock::go();

# less than it took

is(told('/reserve?k=c&cost=4'), '200 PASSED 96', 'given back');
is(told('/reserve?k=c&cost=0'), '200 PASSED 96', 'all of it');
is(told('/reserve?k=c&cost=10'), '200 PASSED 86', 'or nothing');
is(told('/window?k=c&cost=4'), '200 PASSED 96', 'of a window too');
is(told('/window?k=c&cost=40'), '200 PASSED 56', 'and charged to it');

# what is no cost

for my $cost ('x', '-1', '1.5', '1073741825', '99999999999999999999', '1+') {
    my $before = told("/tokens?k=d&cost=$cost");
    $before =~ s/(\d+)$/$1 - 1/e;
    is(told("/tokens?k=d&cost=1"), $before, "\"$cost\" is not counted");
}

ok(index($gateway->log, 'ratelimit rule "tokens" has a cost of "x" in the '
             . 'response\'s "x-cost", expected a number from 0 to 1073741824; '
             . 'it is not counted') > 0, 'and says so');

# a dry run counts what it would have admitted

is(told('/dry?k=e&cost=2'), '200 PASSED ', 'admitted');
is(told('/dry?k=e&cost=2'), '200 REJECTED_DRY_RUN ', 'would be rejected');

# failed logins

is(told('/logins?k=f'), '200 PASSED 3', 'success does not count');
is(told('/logins?k=f&to=401'), '401 PASSED 2', 'a failure does');
is(told('/logins?k=f&to=403'), '403 PASSED 1', 'of each status named');
is(told('/logins?k=f&to=404'), '200 PASSED 1', 'no other');
is(told('/logins?k=f&to=401'), '401 PASSED 0', 'the last');
is(told('/logins?k=f'), '429 REJECTED 0', 'then all are denied');

is(told('/costly?k=f&to=401'), '401 PASSED 6', 'at its cost');

# in Redis

is(told('/fleet-tokens?k=a&cost=30'), '200 PASSED 90', 'taken');
is(then_told('/fleet-tokens?k=a&cost=4'), '200 PASSED 60', 'charged behind it');
is(then_told('/fleet-tokens?k=a'), '200 PASSED 56', 'given back behind it');
is(told('/fleet-tokens?k=b&cost=1000'), '200 PASSED 90', 'taken');
is(then_told('/fleet-tokens?k=b'), '429 REJECTED 0', 'the next pays for it');

# a bucket that fills within the timeout

is(told('/fleet-quick?k=c&cost=0'), '200 PASSED 0', 'taken');
is(then_told('/fleet-quick?k=c&cost=0'), '200 PASSED 0', 'was given back');

is(told('/fleet-logins?k=f&to=401'), '401 PASSED 3', 'a failed login');
is(then_told('/fleet-logins?k=f&to=403'), '403 PASSED 2', 'another');
is(then_told('/fleet-logins?k=f&to=401'), '401 PASSED 1', 'the last');
is(then_told('/fleet-logins?k=f'), '429 REJECTED 0', 'then all are denied');

$gateway->stop;
