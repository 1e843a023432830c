# Limits of one gateway, kept in shared memory: what counts, by what, and how
# far.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( told );

my $gateway = t::Gateway->limited(
    zone => {
        count => 'rate=3r/h', keys => 'rate=1r/h', strict => 'rate=10r/h',
        two => 'rate=3r/h', a => 'key=$arg_a rate=10r/h',
        b => 'key=$arg_b rate=1r/h', match => '', one => 'rate=1r/h',
        below => 'rate=2r/h', own => 'rate=10r/h',
        text => 'key=$arg_a:$arg_b rate=1r/h', plan => 'rate=$rate',
        rate => 'rate=${arg_n}r/h', capacity => '', full => 'rate=100r/h',
    },
    rules => [
        'small zone=strict rate=2r/h match=/strict/small',
        'other zone=two rate=100r/h',
        'user zone=match rate=1r/h "match=/users/{id}/**"',
        'exact zone=match rate=1r/h match=~^/Exact$',
        'any zone=match rate=1r/h match=~*^/any',
        'write zone=match rate=1r/h methods=PUT,DELETE match=/write',
        'big zone=one rate=5r/h',
        'tenant zone=own rate=2r/h key=$arg_t',
        'above zone=capacity rate=1r/h capacity=3 match=/capacity/above',
        'below zone=capacity rate=100r/h capacity=1 match=/capacity/below',
        map { "r$_ zone=full rate=9r/h" } 1 .. 16,
    ],
    http => "map \$arg_plan \$rate { gold 5r/h; free 1r/h; default ''; }",
    locations => {
        '/' => 'ratelimit zone=match;',
        (map { ("/$_" => "ratelimit zone=$_;") }
         qw( count keys strict two one own text plan rate capacity full )),
        '/two/other' => 'ratelimit zone=two rule=other;',
        '/zones' => 'ratelimit zone=a;',
        '/zones/b' => 'ratelimit zone=a; ratelimit zone=b;',
        '/one/big' => 'ratelimit zone=one rule=big;',
        '/one/b' => 'ratelimit zone=below;',
        '/one/inherits' => <<'CONF',
            ratelimit zone=one;
            location /one/inherits/b { ratelimit zone=below; empty_gif; }
            location /one/inherits/off {
                ratelimit off;
                location /one/inherits/off/b { ratelimit zone=below; empty_gif; }
                location /one/inherits/off/deep { empty_gif; }
                empty_gif;
            }
            location /one/inherits/deep { empty_gif; }
CONF
        '/none' => '' });

t::Clock::stop();

sub limits_are {
    my ($name, $expected, @requests) = @_;
    is($gateway->shown('Limit Remaining', @requests), $expected, $name);
}

sub statuses_are {
    my ($name, $expected, @requests) = @_;
    is($gateway->statuses(@requests), $expected, $name);
}

is($gateway->shown('Limit Remaining Retry-After', ('/count?k=a') x 5),
   '200/3/2/- 200/3/1/- 200/3/0/- 429/3/0/1200 429/3/0/1200',
   'exactly the limit passes, and each answer counts down');
statuses_are('keys count apart', '200 429 200 200 429 429',
             map { "/keys?k=$_" } qw( a a b aa b a ));
is($gateway->shown('X-Status Limit Remaining', '/keys', '/keys', '/keys?k=',
                   '/keys?k=c'),
   '200/BYPASSED/-/- 200/BYPASSED/-/- 200/BYPASSED/-/- 200/PASSED/1/0',
   'an empty key is not limited');
limits_are('the strictest answers, and a rejection costs the others nothing',
           '200/2/1 200/2/0 429/2/0 429/2/0 429/2/0 200/10/7',
           ('/strict/small?k=a') x 5, '/strict/large?k=a');
is($gateway->shown('X-Rule Limit Remaining', '/two?k=a',
                   ('/two/other?k=a') x 2),
   '200/two/3/2 200/other/100/98 200/other/100/97',
   'of two that pass, the one with fewer tokens left answers');
limits_are('zones stack, and a rejection in one gives back in the other',
           '200/1/0 429/1/0 429/1/0 429/1/0 200/1/0 200/10/7',
           ('/zones/b?a=1&b=1') x 4, '/zones/b?a=1&b=2', '/zones?a=1');
statuses_are('a path template', '200 429 429 200 200 200 429 429 429',
             map { "$_?k=a" } '/users/1', '/users/2/', '/users/3/mail/9',
             '/users', '/users//', '/other/users/1', '/%75sers/1', '//users/1',
             '/x/../users/1');
statuses_are('a regular expression, with and without case',
             '200 429 200 200 200 429 200',
             map { "$_?k=a" } '/Exact', '/Exact', '/exact', '/Exact1', '/any',
             '/ANY1', '/many');
statuses_are('methods', '200 405 200 429 429 405',
             map { "$_ /write?k=a" } qw( GET PUT GET DELETE PUT POST ));
limits_are('rule= takes one rule of a zone',
           '200/5/4 200/5/3 200/5/2 200/1/0 429/1/0',
           ('/one/big?k=a') x 3, ('/one?k=a') x 2);
limits_are('inherited where a location says nothing, replaced where it does',
           '200/1/0 429/1/0 200/2/1 200/-/- 200/-/- 200/2/0 429/2/0',
           map { "/one/inherits$_?k=b" } '', '/deep', '/b', '/off', '/off/deep',
           '/off/b', '/b');
limits_are("a rule's own key", '200/2/1 200/2/0 429/2/0 200/2/1 200/10/7',
           map { "/own?$_" } 'k=a&t=x', 'k=b&t=x', 'k=c&t=x', 'k=a&t=y', 'k=a');
statuses_are('a key of several variables and text', '200 429 200 200 200',
             map { "/text?$_" } 'a=1&b=2', 'a=1&b=2', 'a=1&b=3', 'a=12', '');
limits_are('the rate comes from a map; an empty one limits nothing',
           '200/1/0 429/1/0 200/5/4 200/5/3 200/-/- 200/-/-',
           map { "/plan?k=$_" } ('a&plan=free') x 2, ('b&plan=gold') x 2,
           ('c&plan=') x 2);
is(told($gateway, '/rate?k=a&n=many'), '200 BYPASSED ',
   'a rate of nonsense is not applied');
$gateway->log_has(qr/\Q$_\E/, "the log says: $_")
    for 'ratelimit rule "rate" of zone "rate" has a limit of "manyr/h", expected '
        . 'a number of requests from 0 to 1073741824; it is not applied';
limits_are('a spent bucket stays spent when the rate changes',
           '200/2/1 200/2/0 429/2/0 429/100/0 200/4/3 200/4/2 200/100/49',
           (map { "/rate?k=b&n=$_" } 2, 2, 2, 100),
           map { "/rate?k=c&n=$_" } 4, 4, 100);
is($gateway->shown('Limit Remaining Retry-After', ('/capacity/above?k=a') x 4,
                   ('/capacity/below?k=a') x 2),
   '200/3/2/- 200/3/1/- 200/3/0/- 429/3/0/3600 200/1/0/- 429/1/0/36',
   'a capacity above and below the rate');
is($gateway->shown('X-Status Limit', ('/none?k=a') x 2), '200/-/- 200/-/-',
   'without a ratelimit nothing happens');
$gateway->get('/full?k=a');
$gateway->log_has(qr/\Q$_\E/, "the log says: $_")
    for 'more than 16 ratelimit rules match one request, rule "r16" of zone '
        . '"full" is not counted, nor is any after it';
$gateway->stop;
