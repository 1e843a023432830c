# "ratelimit_response": the problem of RFC 9457, JSON, nginx's own page; of a
# HEAD, with an error_page, of several rules; and rejections in odd places.

use JSON::PP ();

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header wait_for );

my $NODE = 'ratelimit zone=node rule=node;';

my $gateway = t::Gateway->limited(
    redis => redis_port(),
    zone => { (map { $_ => '' } qw( unit flight )), node => 'rate=1r/m',
              fleet => 'rate=1r/h redis=r', dry => 'rate=1r/m',
              cost => 'rate=2r/h cost=3' },
    rules => [
        'minute zone=node rate=2r/m key=$arg_k$arg_u',
        'hour.x zone=node rate=1r/h',
        'day zone=fleet rate=1r/d key=$arg_k',
        'tenant zone=fleet rate=9r/d key=$arg_t',
        'hour.x zone=fleet rate=1r/d key=$arg_x',
        'month zone=unit match=/unit/month'
        . ' algorithm=fixed_window limit=1 window=calendar:month',
        'day zone=unit match=/unit/day cost=2'
        . ' algorithm=fixed_window limit=3 window=calendar:day',
        'arg zone=unit match=/unit/arg limit=2 window=90s cost=$arg_c',
        'header zone=unit match=/unit/header rate=1r/2h cost_header=X-Cost',
        'leaky zone=unit match=/unit/leaky rate=2r/h algorithm=leaky_bucket',
        'status zone=unit match=/unit/status limit=1 window=7d'
        . ' count_status=200',
        'slots zone=flight algorithm=concurrency limit=1',
        'try zone=dry rate=1r/h dry_run',
    ],
    server => 'default_type text/plain;',
    locations => {
        '/unit/' => 'ratelimit zone=unit;',
        '/flight/problem' => 'ratelimit zone=flight; limit_rate 100;'
                             . 'ratelimit_response problem;',
        '/flight/json' => 'ratelimit zone=flight; limit_rate 100;',
        '/dry' => 'ratelimit zone=dry; ratelimit_response problem;',
        '/cost/problem' => 'ratelimit zone=cost; ratelimit_response problem;',
        '/cost/json' => 'ratelimit zone=cost;',
        '/problem' => 'ratelimit zone=node; ratelimit_response problem;',
        '/problem-503' => "$NODE ratelimit_response problem;"
                          . 'ratelimit_status 503;',
        '/fleet' => 'ratelimit zone=fleet; ratelimit_response problem;',
        '/twins' => 'ratelimit zone=node; ratelimit zone=fleet rule=hour.x;'
                    . 'ratelimit_response problem;',
        '/json' => "$NODE ratelimit_response json;",
        '/off' => "$NODE ratelimit_response off;",
        '/off-503' => "$NODE ratelimit_response off; ratelimit_status 503;",
        '/off-any' => "$NODE ratelimit_response off; ratelimit_status 403;"
                      . 'satisfy any; allow all;',
        (map { ("/page/$_" => "$NODE ratelimit_response $_;"
                              . 'error_page 429 /slow;') }
         qw( json problem off )),
        '= /slow' => 'return 200 "slow\n";',
        '/closed' => "$NODE ratelimit_status 444;",
        '/plain' => $NODE,
        '/after-error' => 'root /nonexistent; error_page 404 = /limited?$args;',
        # nginx takes no second error page where the first forbids it
        '= /limited' => "$NODE recursive_error_pages on; error_page 429 /slow;",
    });

# the second of two requests
sub second {
    my ($path, @headers) = @_;
    $gateway->get($path, @headers);
    return $gateway->get($path, @headers);
}

sub problem { return JSON::PP::decode_json(shift->{body}) }

sub violated { return join ' ', @{ shift->{'violated-policies'} } }

sub in_short {
    my $answer = shift;
    return join ' ', $answer->{status}, header($answer, 'Content-Type');
}

# a problem
my $answer = second('/problem-503?k=a');

is(in_short($answer), '503 application/problem+json', 'a problem');
is_deeply(problem($answer), {
    type => 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title => 'Quota Exceeded',
    status => 503,
    detail => 'Rate limit of 1 request in 1 minute exceeded',
    'violated-policies' => ['node'],
}, 'its members');
is(header($answer, 'Content-Length'), length $answer->{body}, 'its length');
isnt(header($answer, 'Retry-After'), '', 'its Retry-After');

# all rules that have denied, in their order, and no other
$answer = second('/problem?k=b');

is(in_short($answer), '429 application/problem+json', 'of three rules');

my $problem = problem($answer);

is(violated($problem), 'node hour.x', 'two have denied');
is($problem->{detail}, 'Rate limit of 1 request in 1 hour exceeded',
   'the detail tells of the strictest');

$answer = second('/fleet?k=c&t=t');
$problem = problem($answer);

is(violated($problem), 'fleet day', 'in Redis too');

$problem = problem(second('/twins?k=tw&x=x'));

is(violated($problem), 'node node/hour.x fleet/hour.x',
   'rules of one id are named with their zones, as in the headers');

# JSON, and none of ours
$answer = second('/json?k=d');
is(in_short($answer), '429 application/json', 'json');
like($answer->{body}, qr/^\{"error":\{"code":"RATE_LIMIT_EXCEEDED"/,
     'json: the body');

$answer = second('/off?k=e');
is(in_short($answer), '429 text/html', 'off');
like($answer->{body}, qr/<title>429 Too Many Requests<.*nginx/s,
     'off: nginx\'s own page');
isnt(header($answer, 'Retry-After'), '', 'off: with the headers');

$answer = second('/off-503?k=f');
is(in_short($answer), '503 text/html', 'off: another status');
like($answer->{body}, qr/<title>503 Service Temporarily Unavailable</,
     'off: its page');

is(in_short(second('/off-any?k=g')), '403 text/html',
   'off: a rejection is no vote under "satisfy any"');

# a dry run violates nothing
$answer = second('/dry?k=h');
$problem = problem($answer);

is(violated($problem), 'dry', 'a dry run is not named');
is($problem->{detail}, 'Rate limit of 1 request in 1 minute exceeded',
   'nor what is shown, though its wait is longer');

# requests in flight: no window, no reset

# the rejected one of two at once, with a response that takes a while
sub denied {
    my $begun = $gateway->begin(2, shift);
    wait_for(sub { $gateway->waiting == 2 });
    advance(60);
    my ($denied) = grep { $_->{status} == 429 } t::Gateway::finish($begun);
    return problem($denied);
}

t::Clock::stop();

my $text = 'Limit of 1 concurrent request exceeded';

$problem = denied('/flight/problem?k=i');
is("$problem->{detail} " . violated($problem), "$text slots",
   'requests in flight: a problem');
is_deeply(denied('/flight/json?k=j'), { error => {
    code => 'RATE_LIMIT_EXCEEDED',
    message => $text,
    details => { rule => 'slots', limit => 1, unit => 'concurrent-requests',
                 retry_after_seconds => 1 },
} }, 'requests in flight: JSON');

# what a limit is a number of, and its window, in words
for (['month', 'Rate limit of 1 request in 1 month exceeded', 'requests'],
     ['day', 'Rate limit of 3 tokens in 1 day exceeded', 'tokens'],
     ['arg', 'Rate limit of 2 tokens in 90 seconds exceeded', 'tokens'],
     ['header', 'Rate limit of 1 token in 2 hours exceeded', 'tokens'],
     ['leaky', 'Rate limit of 2 requests in 1 hour exceeded', 'requests'],
     ['status', 'Rate limit of 1 request in 7 days exceeded', 'requests'])
{
    my ($rule, $message, $unit) = @$_;
    my $error = problem(second("/unit/$rule?k=a&c=2"))->{error};
    is("$error->{message}, $error->{details}{unit}", "$message, $unit", $rule);
}

# a cost that can never be paid
$answer = $gateway->get('/cost/problem?k=l');
$problem = problem($answer);
is("$answer->{status} " . violated($problem), '429 cost',
   'more than the limit: a problem');

$answer = $gateway->get('/cost/json?k=l');
like($answer->{body}, qr/"retry_after_seconds":null,/,
     'more than the limit: JSON');
is(header($answer, 'Retry-After'), '', 'and no Retry-After');

# an error page answers in place of each
for my $kind (qw( json problem off )) {
    $answer = second("/page/$kind?k=$kind");
    is("$answer->{status} $answer->{body}", "429 slow\n",
       "$kind: error_page wins");
    isnt(header($answer, 'Retry-After'), '', "$kind: the headers stay");
}

# a HEAD is told the type and the length, and gets no body
for (['/problem', 'problem+json'], ['/json', 'json']) {
    my ($path, $type) = @$_;
    $answer = second("HEAD $path?k=head$path");
    is(in_short($answer), "429 application/$type", "HEAD $path");
    is($answer->{body}, '', "HEAD $path: no body");
    cmp_ok(header($answer, 'Content-Length'), '>', 100,
           "HEAD $path: the length");
}

$answer = second('HEAD /off?k=head');
is(in_short($answer) . $answer->{body}, '429 text/html', 'HEAD /off: no body');

# nothing that a client has sent comes back
for my $path (qw( /problem /json /off )) {
    $answer = second("$path?k=evil%22%7d%3cscript%3e",
                     'Evil: evil', 'User-Agent: evil', 'X-API-Key: evil');
    is($answer->{status}, 429, "$path: rejected");
    unlike(join("\n", $answer->{body}, %{ $answer->{headers} },
                map { @$_ } values %{ $answer->{headers} }), qr/evil|script/i,
           "$path: not what the client has sent");
}

# a rejection in odd places: after another error, where an error page may not
# follow; without any answer; of a client that asks whether to send its body
$answer = second('/after-error?k=m');
is($answer->{status}, 429, 'after an error');
is(problem($answer)->{error}{code}, 'RATE_LIMIT_EXCEEDED',
   'after an error: with our body');
is(second('/limited?k=n')->{body}, "slow\n",
   'with the error page, where there is one');
is($gateway->statuses(('/closed?k=o') x 2), '200 0', '444: no answer at all');

$gateway->get('/plain?k=p');
like($gateway->raw("POST /plain?k=p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                   . "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
                   qr/EXCEEDED/),
     qr/^HTTP\/1\.1 429 .*RATE_LIMIT_EXCEEDED/s,
     'a body is not asked for and then refused');

$gateway->stop;
