# "ratelimit_response": the problem of RFC 9457, JSON, nginx's own page; of a
# HEAD, with an error_page, of several rules.

use strict;
use warnings;

use JSON::PP ();

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $gateway = t::Gateway->new(http => <<"CONF")->start;
    ratelimit_zone \$arg_k zone=node:1m rate=1r/m;
    ratelimit_rule minute zone=node rate=2r/m key=\$arg_k\$arg_u;
    ratelimit_rule hour.x zone=node rate=1r/h;

    ratelimit_redis r {
        server 127.0.0.1:$redis; prefix $prefix; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=fleet:1m rate=1r/h redis=r;
    ratelimit_rule day zone=fleet rate=1r/d key=\$arg_k;
    ratelimit_rule tenant zone=fleet rate=9r/d key=\$arg_t;

    ratelimit_rule hour.x zone=fleet rate=1r/d key=\$arg_x;

    ratelimit_zone \$arg_k zone=unit:1m;
    ratelimit_rule month zone=unit algorithm=fixed_window limit=1
                   window=calendar:month match=/unit/month;
    ratelimit_rule day zone=unit algorithm=fixed_window limit=3
                   window=calendar:day cost=2 match=/unit/day;
    ratelimit_rule arg zone=unit limit=2 window=90s cost=\$arg_c
                   match=/unit/arg;
    ratelimit_rule header zone=unit rate=1r/2h cost_header=X-Cost
                   match=/unit/header;
    ratelimit_rule status zone=unit limit=1 window=7d count_status=200
                   match=/unit/status;
    ratelimit_zone \$arg_k zone=flight:1m;
    ratelimit_rule slots zone=flight algorithm=concurrency limit=1;
    ratelimit_zone \$arg_k zone=dry:1m rate=1r/m;
    ratelimit_rule try zone=dry rate=1r/h dry_run;
    ratelimit_zone \$arg_k zone=cost:1m rate=2r/h cost=3;

    server {
        listen 127.0.0.1:%%PORT%%;
        default_type text/plain;

        location /flight {
            ratelimit zone=flight;
            limit_rate 100;
            location /flight/problem { ratelimit_response problem; empty_gif; }
            location /flight/json { ratelimit_response json; empty_gif; }
        }
        location /dry {
            ratelimit zone=dry;
            ratelimit_response problem;
            empty_gif;
        }
        location /cost {
            ratelimit zone=cost;
            location /cost/problem { ratelimit_response problem; empty_gif; }
            location /cost/json { ratelimit_response json; empty_gif; }
        }

        location /unit/ {
            ratelimit zone=unit;
            location ~ . { empty_gif; }
        }
        location /problem {
            ratelimit zone=node;
            ratelimit_response problem;
            empty_gif;
        }
        location /problem-503 {
            ratelimit zone=node rule=node;
            ratelimit_response problem;
            ratelimit_status 503;
            empty_gif;
        }
        location /fleet {
            ratelimit zone=fleet;
            ratelimit_response problem;
            empty_gif;
        }
        location /twins {
            ratelimit zone=node;
            ratelimit zone=fleet rule=hour.x;
            ratelimit_response problem;
            empty_gif;
        }
        location /json {
            ratelimit zone=node rule=node;
            ratelimit_response json;
            empty_gif;
        }
        location /off {
            ratelimit zone=node rule=node;
            ratelimit_response off;
            empty_gif;
        }
        location /off-503 {
            ratelimit zone=node rule=node;
            ratelimit_response off;
            ratelimit_status 503;
            empty_gif;
        }
        location /off-any {
            ratelimit zone=node rule=node;
            ratelimit_response off;
            ratelimit_status 403;
            satisfy any;
            allow all;
            empty_gif;
        }

        location /page {
            error_page 429 /slow;
            ratelimit zone=node rule=node;

            location /page/json { ratelimit_response json; empty_gif; }
            location /page/problem { ratelimit_response problem; empty_gif; }
            location /page/off { ratelimit_response off; empty_gif; }
        }
        location = /slow { return 200 "slow\\n"; }
    }
CONF

# the second of two requests
sub second {
    my ($path, @headers) = @_;

    $gateway->get($path, @headers);

    return $gateway->get($path, @headers);
}

sub in_short {
    my $answer = shift;

    return join ' ', $answer->{status},
                     t::Gateway::header($answer, 'Content-Type');
}

# a problem

my $answer = second('/problem-503?k=a');

is(in_short($answer), '503 application/problem+json', 'a problem');
is_deeply(JSON::PP::decode_json($answer->{body}), {
    type => 'https://iana.org/assignments/http-problem-types#quota-exceeded',
    title => 'Quota Exceeded',
    status => 503,
    detail => 'Rate limit of 1 request in 1 minute exceeded',
    'violated-policies' => ['node'],
}, 'its members');
is(t::Gateway::header($answer, 'Content-Length'), length $answer->{body},
   'its length');
isnt(t::Gateway::header($answer, 'Retry-After'), '', 'its Retry-After');

# all rules that have denied, in their order, and no other

$answer = second('/problem?k=b');

is(in_short($answer), '429 application/problem+json', 'of three rules');

my $problem = JSON::PP::decode_json($answer->{body});

is(join(' ', @{ $problem->{'violated-policies'} }), 'node hour.x',
   'two have denied');
is($problem->{detail}, 'Rate limit of 1 request in 1 hour exceeded',
   'the detail tells of the strictest');

$answer = second('/fleet?k=c&t=t');
$problem = JSON::PP::decode_json($answer->{body});

is(join(' ', @{ $problem->{'violated-policies'} }), 'fleet day',
   'in Redis too');

$problem = JSON::PP::decode_json(second('/twins?k=tw&x=x')->{body});

is(join(' ', @{ $problem->{'violated-policies'} }), 'node node/hour.x fleet/hour.x',
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
isnt(t::Gateway::header($answer, 'Retry-After'), '', 'off: with the headers');

$answer = second('/off-503?k=f');
is(in_short($answer), '503 text/html', 'off: another status');
like($answer->{body}, qr/<title>503 Service Temporarily Unavailable</,
     'off: its page');

is(in_short(second('/off-any?k=g')), '403 text/html',
   'off: a rejection is no vote under "satisfy any"');

# a dry run violates nothing

$answer = second('/dry?k=h');
$problem = JSON::PP::decode_json($answer->{body});

is("@{ $problem->{'violated-policies'} }", 'dry', 'a dry run is not named');
is($problem->{detail}, 'Rate limit of 1 request in 1 minute exceeded',
   'nor what is shown, though its wait is longer');

# requests in flight: no window, no reset

sub denied {
    my ($denied) = grep { $_->{status} == 429 } @_;

    return JSON::PP::decode_json($denied->{body});
}

my $text = 'Limit of 1 concurrent request exceeded';

$problem = denied($gateway->burst(2, '/flight/problem?k=i'));
is("$problem->{detail} @{ $problem->{'violated-policies'} }", "$text slots",
   'requests in flight: a problem');
is_deeply(denied($gateway->burst(2, '/flight/json?k=j')), { error => {
    code => 'RATE_LIMIT_EXCEEDED',
    message => $text,
    details => { limit => 1, unit => 'concurrent-requests',
                 retry_after_seconds => 1 },
} }, 'requests in flight: JSON');

# what a limit is a number of, and its window, in words

for (['month', 'Rate limit of 1 request in 1 month exceeded', 'requests'],
     ['day', 'Rate limit of 3 tokens in 1 day exceeded', 'tokens'],
     ['arg', 'Rate limit of 2 tokens in 90 seconds exceeded', 'tokens'],
     ['header', 'Rate limit of 1 token in 2 hours exceeded', 'tokens'],
     ['status', 'Rate limit of 1 request in 7 days exceeded', 'requests'])
{
    my ($rule, $message, $unit) = @$_;

    my $error = JSON::PP::decode_json(second("/unit/$rule?k=a&c=2")->{body})
                ->{error};
    is("$error->{message}, $error->{details}{unit}", "$message, $unit", $rule);
}

# a cost that can never be paid

$answer = $gateway->get('/cost/problem?k=l');
$problem = JSON::PP::decode_json($answer->{body});
is("$answer->{status} @{ $problem->{'violated-policies'} }", '429 cost',
   'more than the limit: a problem');

$answer = $gateway->get('/cost/json?k=l');
like($answer->{body}, qr/"retry_after_seconds":null,/,
     'more than the limit: JSON');
is(t::Gateway::header($answer, 'Retry-After'), '', 'and no Retry-After');

# an error page answers in place of each

for my $kind (qw( json problem off )) {
    $answer = second("/page/$kind?k=$kind");

    is("$answer->{status} $answer->{body}", "429 slow\n",
       "$kind: error_page wins");
    isnt(t::Gateway::header($answer, 'Retry-After'), '',
         "$kind: the headers stay");
}

# a HEAD is told the type and the length, and gets no body

for (['/problem', 'problem+json'], ['/json', 'json']) {
    my ($path, $type) = @$_;

    $answer = second("HEAD $path?k=head$path");
    is(in_short($answer), "429 application/$type", "HEAD $path");
    is($answer->{body}, '', "HEAD $path: no body");
    cmp_ok(t::Gateway::header($answer, 'Content-Length'), '>', 100,
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

$gateway->stop;
