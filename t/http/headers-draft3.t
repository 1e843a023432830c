# "ratelimit_headers draft3": RateLimit-Limit, -Remaining and -Reset, in seconds
# from now; and several sets on one response.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header );

my $gateway = t::Gateway->limited(
    redis => { gone => 'server 127.0.0.1:1; timeout 200ms' },
    zone => { minute => 'rate=6r/m capacity=3', hour => 'rate=1r/h',
              small => 'rate=2r/m', lost => 'rate=5r/h redis=gone' },
    rules => ['try zone=small rate=1r/h dry_run',
              'slots zone=small algorithm=concurrency limit=2'],
    server => 'ratelimit_headers draft3;',
    locations => {
        '/minute' => 'ratelimit zone=minute;',
        '/hour' => 'ratelimit zone=hour;',
        '/two' => 'ratelimit zone=minute; ratelimit zone=small rule=small;',
        '/try' => 'ratelimit zone=small rule=try;',
        '/try-small' => 'ratelimit zone=small rule=try;'
                        . 'ratelimit zone=small rule=small;',
        '/slots' => 'ratelimit zone=small rule=slots;',
        '/lost' => 'ratelimit zone=minute; ratelimit zone=lost;',
        '/all' => 'ratelimit zone=hour; ratelimit_headers ietf draft3 x;',
        '/pair' => 'ratelimit zone=hour; ratelimit_headers x draft3;',
        '/off' => 'ratelimit zone=hour; ratelimit_headers off;',
        '/via' => 'ratelimit zone=hour;'
                  . 'proxy_pass http://127.0.0.1:%%PORT%%/origin;',
        '/via-off' => 'ratelimit zone=hour; ratelimit_headers off;'
                      . 'proxy_pass http://127.0.0.1:%%PORT%%/origin;',
        '/origin' => <<'CONF',
            add_header RateLimit-Limit 77;
            add_header ratelimit-remaining 76;
            add_header RATELIMIT-RESET 75;
            add_header RateLimit theirs;
            add_header RateLimit-Policy theirs;
            add_header X-RateLimit-Limit 74;
            add_header Retry-After 73;
            return 200 "origin\n";
CONF
    });

t::Clock::stop();

# the headers of an answer that tell of limits: "name=value name=value"
sub limits {
    my $answer = shift;
    return join ' ', map { "$_=" . header($answer, $_) }
                     grep { /ratelimit|retry-after/ }
                     sort keys %{ $answer->{headers} };
}

sub shown { return limits($gateway->get(@_)) }

# the numbers
is(shown('/minute?k=a'),
   'ratelimit-limit=3, 3;w=30 ratelimit-remaining=2 ratelimit-reset=10',
   'the first of three: full again in ten seconds');
is(shown('/hour?k=a'),
   'ratelimit-limit=1, 1;w=3600 ratelimit-remaining=0 ratelimit-reset=3600',
   'seconds, and no instant');

my $answer = $gateway->get('/hour?k=a');

is($answer->{status}, 429, 'a rejection');
is(limits($answer), 'ratelimit-limit=1, 1;w=3600 ratelimit-remaining=0 '
   . 'ratelimit-reset=3600 retry-after=3600', 'it has Retry-After too');
is(header($answer, 'RateLimit-Reset'),
   header($answer, 'Retry-After'), 'of the same point in time');

# full in thirty seconds, and the next token in ten: what is told is the wait
$gateway->burst(2, '/minute?k=b');
is(shown('/minute?k=b'), 'ratelimit-limit=3, 3;w=30 ratelimit-remaining=0 '
   . 'ratelimit-reset=10', 'just spent: the next token');
is(shown('/minute?k=b'), 'ratelimit-limit=3, 3;w=30 ratelimit-remaining=0 '
   . 'ratelimit-reset=10 retry-after=10', 'spent: the next token');

# the strictest of several
is(shown('/two?k=c'),
   'ratelimit-limit=2, 2;w=60 ratelimit-remaining=1 ratelimit-reset=30',
   'of two rules the strictest');
$gateway->get('/two?k=c');
is(shown('/two?k=c'), 'ratelimit-limit=2, 2;w=60 ratelimit-remaining=0 '
   . 'ratelimit-reset=30 retry-after=30', 'of two rules the one that denies');

# a dry run is not shown; requests in flight have no reset
$gateway->get('/try-small?k=j');
$answer = $gateway->get('/try-small?k=j');
is("$answer->{status} " . limits($answer), '200 ratelimit-limit=2, 2;w=60 '
   . 'ratelimit-remaining=0 ratelimit-reset=30',
   'a dry run denies: the headers are of the other rule');
is(shown('/try?k=k'), '', 'a dry run alone: none');
is(shown('/slots?k=l'), 'ratelimit-limit=2 ratelimit-remaining=1',
   'requests in flight');

# nobody knows what is left where Redis does not answer
is(shown('/lost?k=d'), 'ratelimit-limit=5, 5;w=3600', 'degraded: the limit alone');

# several sets
my $x = qr/x-ratelimit-limit=1 x-ratelimit-remaining=0 x-ratelimit-reset=\d{10}/;
my $draft3 = 'ratelimit-remaining=0 ratelimit-reset=3600';
my $pk = qr/;pk=:[\w+\/]{12}:/;
my $all = qr/ratelimit="hour";r=0;t=3600$pk ratelimit-limit=1, 1;w=3600 ratelimit-policy="hour";q=1;w=3600$pk $draft3/;

like(shown('/all?k=e'), qr/^$all $x$/, 'three sets');
like(shown('/all?k=e'), qr/^$all retry-after=3600 $x$/,
     'three sets of a rejection, and one Retry-After');
like(shown('/pair?k=f'), qr/^ratelimit-limit=1, 1;w=3600 $draft3 $x$/,
     'two sets');

$gateway->get('/off?k=g');
$answer = $gateway->get('/off?k=g');
is("$answer->{status} [" . limits($answer) . ']', '429 []',
   'off: a rejection without any');

# an upstream's: those of a limit go, others stay
is(shown('/via?k=h'), 'ratelimit-limit=1, 1;w=3600 ratelimit-remaining=0 '
   . 'ratelimit-reset=3600 retry-after=73', 'an upstream');
is(shown('/via-off?k=i'), 'ratelimit=theirs ratelimit-limit=77 '
   . 'ratelimit-policy=theirs ratelimit-remaining=76 ratelimit-reset=75 '
   . 'retry-after=73 x-ratelimit-limit=74', 'an upstream, with off');

$gateway->stop;
