# Rules for one tier, and what names a request's tier.

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->limited(
    zone => { map { $_ => '' } qw( plan text one inherits ) },
    rules => ['gold zone=plan tier=gold rate=5r/h group=plan',
              'free zone=plan tier=free rate=1r/h group=plan',
              'rest zone=plan rate=2r/h group=plan priority=-1',
              'r zone=text "tier=gold plan" rate=1r/h',
              'r zone=one tier=gold rate=1r/h',
              'gold zone=inherits tier=gold rate=5r/h',
              'free zone=inherits tier=free rate=1r/h'],
    http => "map \$arg_k \$plan { ~^g gold; ~^f free; default ''; }",
    locations => {
        '/plan' => 'ratelimit zone=plan; ratelimit_tier $plan;',
        '/text' => 'ratelimit zone=text; ratelimit_tier "gold$arg_t";',
        '/same' => 'ratelimit zone=text; ratelimit_tier "gold plan";',
        '/case' => 'ratelimit zone=text; ratelimit_tier "Gold plan";',
        '/one' => 'ratelimit zone=one;',
        '/one/rule' => 'ratelimit zone=one rule=r;',
        '/inherits' => <<'CONF' });
            ratelimit_tier gold;
            ratelimit zone=inherits;
            location /inherits/free { ratelimit_tier free; empty_gif; }
CONF

is($gateway->shown('X-Rule Remaining',
                   map { "/plan?k=$_" } qw( g1 f1 f1 x1 g1 )),
   '200/gold/4 200/free/0 429/free/0 200/rest/1 200/gold/3',
   'a rule for each tier, one for the rest');
is($gateway->shown('X-Status', map { "$_=a" } '/text?k', '/text?t=x&k',
                   '/case?k', '/same?k'),
   '200/BYPASSED 200/BYPASSED 200/BYPASSED 200/PASSED',
   'the whole text counts, its case too');
is($gateway->shown('X-Status', '/one?k=a', '/one/rule?k=a'),
   '200/BYPASSED 200/BYPASSED', 'without a tier its rules do not apply');
is($gateway->shown('X-Rule', '/inherits?k=a', '/inherits/free?k=a'),
   '200/gold 200/free', "the tier is inherited, and one level's own replaces it");
$gateway->stop;
