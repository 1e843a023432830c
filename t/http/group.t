# Rules in one group replace each other: the first that applies, by priority,
# then in the order of definition.

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->limited(
    redis => { r => redis_port() },
    zone => {
        stack => 'rate=50r/h', last => 'rate=1r/h group=g priority=-1000000',
        fleet => 'redis=r',
        map { $_ => '' } qw( order next nonsense y z named long plan try ) },
    rules => [
        map({ s/\A(\S+)/$1 zone=stack/r } 'first rate=9r/h group=g',
            'second rate=2r/h group=g', 'other rate=20r/h group=h'),
        'low zone=order rate=1r/h group=g priority=-1',
        'middle zone=order rate=2r/h group=g match=/order/a/**',
        'high zone=order rate=3r/h group=g priority=10 match=/order/a/b',
        'writes zone=last rate=2r/h group=g methods=POST',
        'tenant zone=next rate=2r/h group=g key=$arg_t',
        'plan zone=next limit=$arg_plan window=1h group=g',
        'rest zone=next rate=5r/h group=g',
        'plan zone=nonsense limit=$arg_plan window=1h group=g',
        'rest zone=nonsense rate=5r/h group=g',
        'r zone=y rate=3r/h group=g', 'r zone=z rate=2r/h group=g',
        'first zone=named rate=3r/h group=g',
        'second zone=named rate=2r/h group=g',
        map({ "r$_ zone=long rate=9r/h group=g priority=$_ methods=POST" }
            1 .. 200),
        'last zone=long rate=5r/h group=g',
        'never zone=long rate=4r/h group=g priority=-1',
        'first zone=fleet rate=9r/h group=g methods=POST',
        'second zone=fleet rate=2r/h group=g',
        'third zone=fleet rate=1r/h group=g',
        'plan zone=plan rate=2r/h group=plan',
        'next zone=plan rate=1r/h group=plan priority=1 dry_run',
        'late zone=plan rate=1r/h group=plan priority=-1 dry_run',
        'first zone=try rate=9r/h group=g', 'second zone=try rate=1r/h group=g',
    ],
    locations => {
        (map { ("/$_" => "ratelimit zone=$_;") }
         qw( stack order last next nonsense y z long fleet plan )),
        (map { ("/stack/$_->[0]" => "ratelimit zone=stack rule=$_->[1];") }
         ['one', 'second'], ['zone', 'stack'], ['other', 'other']),
        '/both' => 'ratelimit zone=y; ratelimit zone=z;',
        '/named' => 'ratelimit zone=named rule=first;'
                    . 'ratelimit zone=named rule=second;',
        '/try' => 'ratelimit zone=try; ratelimit_dry_run on;' });

sub rules_are {
    my ($name, $names, $expected, @requests) = @_;
    is($gateway->shown($names, @requests), $expected, $name);
}

rules_are('of one group one rule, those without a group stack',
          'Limit Remaining', '200/9/8 200/9/7 200/9/6 200/2/1 200/50/46 '
          . '200/20/16', ('/stack?k=a') x 3,
          map { "/stack/$_?k=a" } qw( one zone other ));
rules_are('the higher priority first, the default 0 above a negative one',
          'X-Rule', '200/high 200/middle 200/low',
          map { "/order/$_?k=a" } qw( a/b a/c d ));
rules_are("the zone's own rule is the last resort of its group", 'X-Rule',
          '200/last 405/writes', '/last?k=a', 'POST /last?k=a');
rules_are('what does not apply leaves its group to the next: no key, no limit',
          'X-Rule Limit', '200/tenant/2 200/plan/7 200/rest/5',
          map { "/next?k=a$_" } '&t=x&plan=7', '&plan=7', '');
rules_are('nor does a limit of nonsense apply', 'X-Rule', '200/rest',
          '/nonsense?k=a&plan=free');
$gateway->log_has(qr/\Q$_\E/, "the log says: $_")
    for 'ratelimit rule "plan" of zone "nonsense" has a limit of "free", '
        . 'expected a number from 0 to 1073741824, or "unlimited"; it is not '
        . 'applied';
rules_are('groups of two zones are two', 'Remaining', '200/1 200/1 200/0',
          '/both?k=a', '/y?k=a', '/z?k=a');
rules_are('rules that a location names alone are not of their group there',
          'Limit', '200/2', '/named?k=a');
rules_are('with more rules for a path than the stack has room for', 'X-Rule',
          '200/last 405/r200', '/long?k=a', 'POST /long?k=a');
rules_are("the fleet's", 'X-Rule', '200/second 200/second 429/second',
          ('/fleet?k=a') x 3);
rules_are('a dry run neither takes the place of a rule of its group nor needs it',
          'Limit Remaining X-Rule', '200/2/1/next 200/2/0/next 429/2/0/plan',
          ('/plan?k=a') x 3);
rules_are('a location that tries all has one rule of a group', 'X-Rule',
          '200/first 200/first', ('/try?k=a') x 2);
$gateway->stop;
