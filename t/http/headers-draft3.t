# "ratelimit_headers draft3": RateLimit-Limit, -Remaining and -Reset, in seconds
# from now; and several sets on one response.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->new(http => <<'CONF')->start;
    ratelimit_zone $arg_k zone=minute:1m rate=6r/m capacity=3;
    ratelimit_zone $arg_k zone=hour:1m rate=1r/h;
    ratelimit_zone $arg_k zone=small:1m rate=2r/m;
    ratelimit_redis gone { server 127.0.0.1:1; timeout 200ms; }
    ratelimit_zone $arg_k zone=lost:1m rate=5r/h redis=gone;

    ratelimit_rule try zone=small rate=1r/h dry_run;
    ratelimit_rule slots zone=small algorithm=concurrency limit=2;

    server {
        listen 127.0.0.1:%%PORT%%;
        ratelimit_headers draft3;

        location /minute { ratelimit zone=minute; empty_gif; }
        location /hour { ratelimit zone=hour; empty_gif; }
        location /two {
            ratelimit zone=minute;
            ratelimit zone=small rule=small;
            empty_gif;
        }
        location /try { ratelimit zone=small rule=try; empty_gif; }
        location /try-small {
            ratelimit zone=small rule=try;
            ratelimit zone=small rule=small;
            empty_gif;
        }
        location /slots { ratelimit zone=small rule=slots; empty_gif; }
        location /lost { ratelimit zone=minute; ratelimit zone=lost; empty_gif; }

        location /all {
            ratelimit zone=hour;
            ratelimit_headers ietf draft3 x;
            empty_gif;
        }
        location /pair {
            ratelimit zone=hour;
            ratelimit_headers x draft3;
            empty_gif;
        }
        location /off {
            ratelimit zone=hour;
            ratelimit_headers off;
            empty_gif;
        }

        location /via {
            ratelimit zone=hour;
            proxy_pass http://127.0.0.1:%%PORT%%/origin;
        }
        location /via-off {
            ratelimit zone=hour;
            ratelimit_headers off;
            proxy_pass http://127.0.0.1:%%PORT%%/origin;
        }
        location /origin {
            add_header RateLimit-Limit 77;
            add_header ratelimit-remaining 76;
            add_header RATELIMIT-RESET 75;
            add_header RateLimit theirs;
            add_header RateLimit-Policy theirs;
            add_header X-RateLimit-Limit 74;
            add_header Retry-After 73;
            return 200 "origin\n";
        }
    }
CONF

# the headers of an answer that tell of limits: "name=value name=value"
sub limits {
    my $answer = shift;

    return join ' ', map { "$_=" . t::Gateway::header($answer, $_) }
                     grep { /ratelimit|retry-after/ }
                     sort keys %{ $answer->{headers} };
}

sub told { return limits($gateway->get(@_)) }

# a second may pass between two requests
sub about {
    my ($got, $seconds) = @_;

    $got =~ s/(?<!w)=($seconds|@{[$seconds - 1]}|@{[$seconds - 2]})
              (?=[ ;]|$)/=~$seconds/gx;

    return $got;
}

# the numbers

is(about(told('/minute?k=a'), 10),
   'ratelimit-limit=3, 3;w=30 ratelimit-remaining=2 ratelimit-reset=~10',
   'the first of three: full again in ten seconds');
is(about(told('/hour?k=a'), 3600),
   'ratelimit-limit=1, 1;w=3600 ratelimit-remaining=0 ratelimit-reset=~3600',
   'seconds, and no instant');

my $answer = $gateway->get('/hour?k=a');

is($answer->{status}, 429, 'a rejection');
is(about(limits($answer), 3600), 'ratelimit-limit=1, 1;w=3600 ratelimit-remaining=0 '
   . 'ratelimit-reset=~3600 retry-after=~3600', 'it has Retry-After too');
is(t::Gateway::header($answer, 'RateLimit-Reset'),
   t::Gateway::header($answer, 'Retry-After'), 'of the same point in time');

# full in thirty seconds, and the next token in ten: what is told is the wait

$gateway->burst(2, '/minute?k=b');
is(about(told('/minute?k=b'), 10), 'ratelimit-limit=3, 3;w=30 ratelimit-remaining=0 '
   . 'ratelimit-reset=~10', 'just spent: the next token');
is(about(told('/minute?k=b'), 10), 'ratelimit-limit=3, 3;w=30 ratelimit-remaining=0 '
   . 'ratelimit-reset=~10 retry-after=~10', 'spent: the next token');

# the strictest of several

is(about(told('/two?k=c'), 30),
   'ratelimit-limit=2, 2;w=60 ratelimit-remaining=1 ratelimit-reset=~30',
   'of two rules the strictest');
$gateway->get('/two?k=c');
is(about(told('/two?k=c'), 30), 'ratelimit-limit=2, 2;w=60 ratelimit-remaining=0 '
   . 'ratelimit-reset=~30 retry-after=~30', 'of two rules the one that denies');

# a dry run is not shown; requests in flight have no reset

$gateway->get('/try-small?k=j');
$answer = $gateway->get('/try-small?k=j');
is("$answer->{status} " . about(limits($answer), 30), '200 ratelimit-limit=2, 2;w=60 '
   . 'ratelimit-remaining=0 ratelimit-reset=~30',
   'a dry run denies: the headers are of the other rule');
is(told('/try?k=k'), '', 'a dry run alone: none');
is(told('/slots?k=l'), 'ratelimit-limit=2 ratelimit-remaining=1',
   'requests in flight');

# nobody knows what is left where Redis does not answer

is(told('/lost?k=d'), 'ratelimit-limit=5, 5;w=3600', 'degraded: the limit alone');

# several sets

my $x = qr/x-ratelimit-limit=1 x-ratelimit-remaining=0 x-ratelimit-reset=\d{10}/;
my $draft3 = 'ratelimit-remaining=0 ratelimit-reset=~3600';
my $pk = qr/;pk=:[\w+\/]{12}:/;
my $all = qr/ratelimit="hour";r=0;t=~3600$pk ratelimit-limit=1, 1;w=3600 ratelimit-policy="hour";q=1;w=3600$pk $draft3/;

like(about(told('/all?k=e'), 3600), qr/^$all $x$/, 'three sets');
like(about(told('/all?k=e'), 3600), qr/^$all retry-after=~3600 $x$/,
     'three sets of a rejection, and one Retry-After');
like(about(told('/pair?k=f'), 3600), qr/^ratelimit-limit=1, 1;w=3600 $draft3 $x$/,
     'two sets');

$gateway->get('/off?k=g');
$answer = $gateway->get('/off?k=g');
is("$answer->{status} [" . limits($answer) . ']', '429 []',
   'off: a rejection without any');

# an upstream's: those that are written go, others stay

is(about(told('/via?k=h'), 3600), 'ratelimit=theirs ratelimit-limit=1, 1;w=3600 '
   . 'ratelimit-policy=theirs ratelimit-remaining=0 ratelimit-reset=~3600 '
   . 'retry-after=73 x-ratelimit-limit=74', 'an upstream');
is(told('/via-off?k=i'), 'ratelimit=theirs ratelimit-limit=77 '
   . 'ratelimit-policy=theirs ratelimit-remaining=76 ratelimit-reset=75 '
   . 'retry-after=73 x-ratelimit-limit=74', 'an upstream, with off');

$gateway->stop;
