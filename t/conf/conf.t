# What nginx -t says: each mistake is refused with a message that names the
# directive, the value and what was expected; what is right is accepted.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->new(http => '');

$gateway->write('pw', "secret\n");
$gateway->write('crlf', "secret\r\nmore\n");
$gateway->write('empty', "\n");
$gateway->write('long', 'x' x 1024);

my $ZONE = 'ratelimit_zone $arg_k zone=z:1m rate=10r/s;';
my $REDIS = 'server 127.0.0.1:6379;';
my $NAME = '1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"';
my $LONG = 'n' x 65;
my @LIMIT = ('algorithm=', 'rate=', 'limit=', 'window=', 'capacity=', 'burst=',
             'nodelay', 'delay=', 'sync=', 'shards=', 'fail_mode=', 'emergency=', 'dry_run',
             'cost=', 'cost_header=',
             'count_status=', 'group=', 'priority=', 'percent=');
my $RULE_PARAMETERS = 'one each of ' . join ', ', map { "\"$_\"" }
    'zone=', @LIMIT, 'key=', 'match=', 'methods=', 'tier=', 'host=', 'api_key=',
    'tiers=';
my $ZONE_PARAMETERS = 'one each of ' . join ', ', map { "\"$_\"" }
    'zone=', 'redis=', 'state=', 'keys_in_clear=', @LIMIT;
my $RATE = '"r/" and a period after the number of requests, as in "100r/m"';
my $NO_LIMIT = 'expected "rate", or "limit" and "window"';


sub check {
    my $http = shift;

    $gateway->configure(http => $http);

    my ($ok, $text) = $gateway->check;

    return $ok ? 'accepted' : $text =~ /\[emerg\] (.*) in \S+:\d+$/m ? $1
                                                                    : $text;
}


# What is accepted, with these warnings, and no others.
sub warned {
    my ($http, @messages) = @_;

    $gateway->configure(http => $http);

    my ($ok, $text) = $gateway->check;

    ok($ok, "accepted: $http");
    is_deeply([$text =~ /\[warn\] (.*) in \S+:\d+$/mg], \@messages,
              @messages ? $messages[0] : 'no warning');
    is(() = $text =~ /\[warn\]/g, @messages, 'and no other');
}


# The message, whole but for the place in the file.
sub refused {
    my ($http, $message) = @_;

    is(check($http), $message, $http);
}


sub accepted {
    my $http = shift;

    is(check($http), 'accepted', $http);
}


sub in_server { return "$ZONE server { $_[0] }" }
sub in_redis { return "ratelimit_redis r { $_[0] }" }
sub with_rate { return "ratelimit_zone \$arg_k zone=z:1m rate=$_[0];" }
sub with_rule { return "$ZONE ratelimit_rule r zone=z $_[0];" }


# ratelimit_zone

refused('ratelimit_zone $arg_k;',
        'invalid number of arguments in "ratelimit_zone" directive');
refused('ratelimit_zone "" zone=z:1m rate=1r/s;',
        '"ratelimit_zone" has an empty key, expected a value with variables');
accepted("ratelimit_zone \$arg_k zone=z:1m $_;")
    for 'state=a.state', 'state=a.state keys_in_clear=on rate=1r/s',
        'keys_in_clear=off state=a.state';
refused("ratelimit_zone \$arg_k zone=z:1m rate=1r/s $_->[0];",
        '"ratelimit_zone" has an invalid "' . $_->[0]
        . "\", expected $_->[1]")
    for ['state=', 'a file'], ['redis=', 'the name of a "ratelimit_redis"'],
        (map { ["keys_in_clear=$_", '"off" or "on"'] } '', 'yes', 'onn');
refused("ratelimit_zone \$arg_k zone=z:1m rate=1r/s $_ $_;",
        "\"ratelimit_zone\" has \"$_\", expected one \"" . s/=.*/=/r . '"')
    for 'state=a', 'keys_in_clear=on', 'redis=a', 'rate=1r/s';
refused('ratelimit_zone $arg_k zone=y:1m state=s; '
        . 'ratelimit_zone $arg_k zone=z:1m state=s;',
        '"ratelimit_zone" "z" has "state=' . "$gateway->{dir}/s"
        . '", expected another file than that of zone "y"');
refused('ratelimit_zone $arg_k rate=1r/s;',
        '"ratelimit_zone" has no zone, expected "zone=<name>:<size>"');
refused("ratelimit_zone $_ rate=1r/s;",
        "\"ratelimit_zone\" has no key before \"$_\"")
    for 'zone=z:1m', 'rate=1r/s', 'redis=a', 'algorithm=token_bucket',
        'keys_in_clear=on';
refused('ratelimit_zone key= zone=z:1m rate=1r/s;',
        '"ratelimit_zone" has an empty key, expected a value with variables');
refused("$ZONE ratelimit_rule zone=z rate=1r/s;",
        '"ratelimit_rule" has no name before "zone=z"');
refused('ratelimit_zone $arg_k zone=z rate=1r/s;',
        '"ratelimit_zone" has an invalid "zone=z", '
        . 'expected "zone=<name>:<size>"');
refused("ratelimit_zone \$arg_k zone=$_:1m rate=1r/s;",
        "\"ratelimit_zone\" has an invalid name \"$_\", expected $NAME")
    for '', 'a/b', $LONG;
refused("ratelimit_zone \$arg_k zone=z:$_ rate=1r/s;",
        "\"ratelimit_zone\" \"z\" has an invalid size \"$_\", "
        . 'expected 64k or more, as in "10m"')
    for '', '63k', 'big', '-1m', '10mb';
refused("ratelimit_zone \$arg_k zone=z:1m $_;",
        "\"ratelimit_zone\" has an unknown parameter \"$_\", "
        . "expected $ZONE_PARAMETERS")
    for 'memory=1m', '=', 'x';
refused('ratelimit_zone $arg_k zone=z:1m zone=y:1m;',
        '"ratelimit_zone" has "zone=y:1m", expected one "zone="');
refused("ratelimit_zone \$arg_k zone=z:1m rate=1r/s $_;",
        "\"ratelimit_zone\" has \"$_\", but \"" . s/=.*/=/r
        . '" is a parameter of "ratelimit_rule"')
    for 'match=/a', 'tier=a', 'host=a', 'api_key=a', 'tiers=a:1r/s',
        'methods=GET', 'key=$arg_a';

# a name that is written wrongly: letters that are missing, too many, others,
# swapped; its beginning alone; with a value, or without

for (['bust=5', 'burst='], ['burrst=5', 'burst='], ['brust=5', 'burst='],
     ['birst=5', 'burst='], ['algo=token_bucket', 'algorithm='],
     ['Rate=1r/s', 'rate='], ['nodelay=1', 'nodelay'], ['no_delay', 'nodelay'],
     ['dry_run=on', 'dry_run'], ['dryrun', 'dry_run'], ['rates=1r/s', 'rate='],
     ['failmode=open', 'fail_mode='], ['rate', 'rate='])
{
    refused("ratelimit_zone \$arg_k zone=z:1m $_->[0];",
            "\"ratelimit_zone\" has an unknown parameter \"$_->[0]\", "
            . "did you mean \"$_->[1]\"?");
}
refused('ratelimit_zone $arg_k zone=z:1m rate=1r/s rate=2r/s;',
        '"ratelimit_zone" has "rate=2r/s", expected one "rate="');
refused("ratelimit_zone \$arg_k zone=z:1m $_;",
        "\"ratelimit_zone\" \"z\" has no limit, $NO_LIMIT")
    for 'capacity=5', 'sync=strict', 'window=1m',
        'algorithm=leaky_bucket burst=5';
like(check("\n$ZONE\n\n$ZONE"),
     qr{^"ratelimit_zone" "z" is defined twice, first in \S+:\d+, and again$},
     'a zone that is defined twice');
refused("limit_req_zone \$arg_k zone=z:1m rate=1r/s; $ZONE",
        'the shared memory zone "z" is already declared for a different use');
refused('ratelimit_zone $arg_k zone=z:1m;',
        '"ratelimit_zone" "z" has no rule, expected "rate=" or a '
        . '"ratelimit_rule"');
refused('ratelimit_zone $arg_k zone=z:1m rate=1r/s redis=gone;',
        '"ratelimit_zone" "z" has an unknown "redis=gone", there is none');
refused('ratelimit_zone $arg_k zone=z:1m rate=1r/s redis=gone; '
        . "ratelimit_redis $_->[0] { $REDIS }",
        "\"ratelimit_zone\" \"z\" has an unknown \"redis=gone\", $_->[1]")
    for ['other', 'expected "other"'], ['gnoe', 'did you mean "gnoe"?'];
refused("server { $ZONE }",
        '"ratelimit_zone" directive is not allowed here');

# rates and capacities

for my $n ('', '0', '-1', '1073741825', '99999999999999999999') {
    refused(with_rate("${n}r/s"),
            "\"ratelimit_zone\" has an invalid \"rate=${n}r/s\", expected a "
            . 'number of requests from 1 to 1073741824');
}

refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . "expected $RATE")
    for '5', '100', '5/s', '5q/s', '5r';
refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . 'expected a whole number of requests, as in "1r/2s" for one in two '
        . 'seconds')
    for '0.5r/s', '1.5r/s', '.5r/s';
refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . 'expected a period of s, m, h or d, or a number of them, as in '
        . '"100r/m"')
    for '5r/', '5r/w', '5r/5', '5r/S';
refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . 'expected a period from 1s to 366d')
    for '5r/0s', '5r/-1s', '5r/367d', '5r/31622401s',
        '5r/99999999999999999999d';
refused(with_rate("1r/s capacity=$_"),
        "\"ratelimit_zone\" has an invalid \"capacity=$_\", "
        . 'expected a whole number from 1 to 1073741824')
    for '', '0', 'x', '1073741825';
refused(with_rate('1r/366d capacity=100'),
        '"ratelimit_zone" "z" has "capacity=100", '
        . 'expected a capacity that the rate fills within 35 years');
refused(with_rate("1r/s sync=$_"),
        "\"ratelimit_zone\" has an invalid \"sync=$_\", "
        . 'expected "lease", "strict" or "async"')
    for '', 'local', 'leases', 'Strict', '$arg_s';
refused(with_rate("1r/s sync=$_"),
        "rule \"z\" has \"sync=$_\", expected a zone with \"redis=\"")
    for 'lease', 'strict', 'async';
refused(with_rate('1r/s fail_mode=open sync=lease'),
        'rule "z" has "sync=lease", expected a zone with "redis="');
refused(with_rate("10r/s shards=$_"),
        "\"ratelimit_zone\" has an invalid \"shards=$_\", "
        . 'expected a whole number from 2 to 64')
    for '', '0', '1', '65', '-2', '2.5', 'x', '$arg_n';

# algorithms, limits and windows

refused(with_rule("rate=1r/s algorithm=$_"),
        "\"ratelimit_rule\" has an invalid \"algorithm=$_\", expected "
        . '"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", '
        . '"sliding_log" or "concurrency"')
    for '', 'bucket', 'token_bucket2', 'Token_bucket';
refused(with_rule("limit=$_ window=1m"),
        "\"ratelimit_rule\" has an invalid \"limit=$_\", expected a whole number "
        . 'from 1 to 1073741824, or a text with variables')
    for '', '0', '-1', '1073741825', '5r/s', '1.5';
refused(with_rule("limit=1 window=$_"),
        "\"ratelimit_rule\" has an invalid \"window=$_\", expected a time from "
        . '1s to 366d in whole seconds, "calendar:day" or "calendar:month"')
    for 'calendar:', 'calendar:days', 'calendar:week', '', '0', '500ms', '1.5s', '367d', '-1s', 'x', 'calendar',
        '99999999999999999999d';

for my $name ('burst', 'delay') {
    refused(with_rule("algorithm=leaky_bucket rate=1r/s $name=$_"),
            "\"ratelimit_rule\" has an invalid \"$name=$_\", expected a whole "
            . 'number from 0 to 1073741823')
        for '', '-1', 'x', '1073741824';
}

# what goes together

for (['capacity=5', 'leaky_bucket', 'token_bucket'],
     ['capacity=5', 'fixed_window', 'token_bucket'],
     ['burst=5', 'token_bucket', 'leaky_bucket'],
     ['burst=5', 'sliding_log', 'leaky_bucket'],
     ['nodelay', 'token_bucket', 'leaky_bucket'],
     ['delay=1', 'sliding_window', 'leaky_bucket'],
     ['rate=1r/s', 'concurrency', 'another'],
     ['limit=1 window=1m', 'concurrency', 'another'],
     ['limit=1 cost=2', 'concurrency', 'another'],
     ['limit=1 cost_header=a', 'concurrency', 'another'],
     ['limit=1 count_status=401', 'concurrency', 'another'],
     (map { ["limit=1 window=calendar:$_->[0]", $_->[1], 'fixed_window'] }
      ['day', 'token_bucket'], ['month', 'sliding_window'],
      ['day', 'sliding_log']))
{
    my ($parameters, $algorithm, $expected) = @$_;
    my ($bad) = $parameters =~ /(\S+)$/;
    my $more = $parameters =~ /^(?:rate|limit)=/ ? '' : 'rate=1r/s ';

    refused(with_rule("$more$parameters algorithm=$algorithm"),
            "\"ratelimit_rule\" \"r\" has \"$bad\" with algorithm $algorithm, "
            . ($expected eq 'another' ? 'expected another algorithm'
               : $expected eq 'fixed_window'
               ? 'expected a time as in "60s", or algorithm fixed_window'
               : "expected algorithm $expected"));
}

for my $sync ('lease', 'async') {
    refused(with_rule("limit=5 algorithm=$_ sync=$sync"),
            "\"ratelimit_rule\" \"r\" has \"sync=$sync\" with algorithm "
            . ($_ =~ s/ .*//r) . ', expected "sync=strict"')
        for 'concurrency', 'sliding_log window=1m';
}

refused(with_rule("rate=10r/s sync=strict shards=2 algorithm=$_"),
        "\"ratelimit_rule\" \"r\" has \"shards=2\" with algorithm $_, "
        . 'expected another algorithm')
    for 'leaky_bucket', 'sliding_log';
refused(with_rule('limit=10 sync=strict shards=2 algorithm=concurrency'),
        '"ratelimit_rule" "r" has "shards=2" with algorithm concurrency, '
        . 'expected another algorithm');

refused(with_rate('1r/s burst=5'),
        '"ratelimit_zone" "z" has "burst=5" with algorithm token_bucket, '
        . 'expected algorithm leaky_bucket');

for (['limit=5', 'rate', 'rate=1r/s', 'one of them'],
     ['limit=$arg_l', 'rate', 'rate=$arg_r', 'one of them'],
     ['window=1m', 'rate', 'rate=1r/s', '"limit" with the window'],
     ['window=calendar:day', 'rate', 'rate=1r/d algorithm=fixed_window',
      '"limit" with the window'],
     ['delay=1', 'nodelay', 'nodelay rate=1r/s algorithm=leaky_bucket', 'one of them'],
     ['count_status=401', 'cost_header', 'cost_header=X-Cost rate=1r/s',
      'one of them'],
     (map { ["sync=$_", 'count_status', 'count_status=401 rate=1r/s',
             '"sync=strict"'] }
      'lease', 'async'),
     (map { ["fail_mode=$_", 'emergency', 'emergency=1r/s rate=1r/s',
             '"fail_mode=open"'] }
      'local', 'closed'),
     (map { [$_, 'sync', 'sync=async rate=1r/s', '"sync=lease" or "sync=strict"'] }
      'fail_mode=open', 'fail_mode=local', 'fail_mode=closed',
      'emergency=1r/s'),
     (map { ['shards=2', s/=.*//r, "$_ rate=9r/s sync=strict", 'one of them'] }
      'count_status=401', 'cost_header=X-Cost', 'tiers=a:9r/s'),
     ['fail_mode=local', 'shards', 'shards=2 rate=9r/s sync=strict',
      '"fail_mode=open" or "fail_mode=closed"'])
{
    my ($at, $beside, $more, $expected) = @$_;

    $beside .= '=' if $beside ne 'nodelay';
    refused(with_rule("$more $at"),
            "\"ratelimit_rule\" \"r\" has \"$at\" beside \"$beside\", "
            . "expected $expected");
}

refused(with_rule("$_ limit=5"),
        '"ratelimit_rule" "r" has "limit=5", expected "window" with it')
    for '', 'algorithm=sliding_log';
refused(with_rule($_),
        '"ratelimit_rule" "r" has no limit, expected "limit"')
    for 'algorithm=concurrency';
refused(with_rule('algorithm=leaky_bucket rate=1r/366d burst=100'),
        '"ratelimit_rule" "r" has "burst=100", '
        . 'expected a burst that the rate drains within 35 years');
refused(with_rule('algorithm=sliding_log limit=10001 window=1m'),
        '"ratelimit_rule" "r" has "limit=10001", '
        . 'expected a limit of at most 10000 requests for sliding_log');
refused(with_rule('algorithm=sliding_window limit=1073741824 window=366d'),
        '"ratelimit_rule" "r" has "limit=1073741824", '
        . 'expected a lower limit or a shorter window for sliding_window: '
        . 'their product is at most 2^53 request-milliseconds');

for (['', '"sync=strict" with it'],
     ['sync=lease', '"sync=strict" with it'],
     ['sync=async', '"sync=strict" with it'],
     ['sync=strict capacity=3',
      'as many shards as requests of the limit, or fewer'],
     ['sync=strict cost=$arg_c', 'a cost without variables'],
     ['sync=strict capacity=11 cost=3',
      'a cost of at most the limit divided by the shards'])
{
    refused(with_rule("rate=12r/s shards=4 $_->[0]"),
            "\"ratelimit_rule\" \"r\" has \"shards=4\", expected $_->[1]");
}

refused(with_rule("sync=strict shards=4 $_"),
        '"ratelimit_rule" "r" has "shards=4", expected a limit without '
        . 'variables')
    for 'rate=$arg_r', 'limit=$arg_l window=1m',
        'limit=$arg_l window=calendar:day algorithm=fixed_window';
refused(with_rule("sync=strict shards=4 algorithm=$_ limit=3 window=1m"),
        '"ratelimit_rule" "r" has "shards=4", expected as many shards as '
        . 'requests of the limit, or fewer')
    for 'fixed_window', 'sliding_window';
refused(with_rule('sync=strict shards=4 rate=4r/92d'),
        '"ratelimit_rule" "r" has "shards=4", expected a rate whose period is '
        . 'at most 366 days when it is multiplied by the shards');

# which requests, and what they cost

refused(with_rule("rate=1r/s $_->[0]=$_->[1]"),
        "\"ratelimit_rule\" has an invalid \"$_->[0]=$_->[1]\", "
        . "expected $_->[2]")
    for (map { ['tier', $_, 'the name of a tier: 1 to 64 bytes without '
                            . 'variables and control characters'] }
         '', '$arg_t', 'a$arg_t'),
        (map { ['percent', $_, 'a whole number from 1 to 100'] }
         '', '0', '101', '-1', '5%'),
        (map { ['group', $_, $NAME] } '', 'a/b', '$arg_g', $LONG),
        (map { ['priority', $_, 'a whole number from -1000000 to 1000000'] }
         '', '-', 'x', '1000001', '-1000001', '+1', '--1'),
        (map { ['cost', $_, 'a whole number from 0 to 1073741824, or a text '
                            . 'with variables'] } '', '-1', '1.5', '1073741825'),
        (map { ['cost_header', $_, $NAME] }
         '', 'a:b', '$arg_h', $LONG),
        (map { ['count_status', $_, 'statuses from 100 to 599'] }
         '', '99', '600', '401,', ',401', '401:403', '4xx');

# ratelimit_rule

refused("$ZONE ratelimit_rule r;",
        'invalid number of arguments in "ratelimit_rule" directive');
refused("$ZONE ratelimit_rule r rate=1r/s;",
        '"ratelimit_rule" "r" has no zone, expected "zone=<name>"');
refused(with_rule('methods=GET'),
        "\"ratelimit_rule\" \"r\" has no limit, $NO_LIMIT");
refused("$ZONE ratelimit_rule $_ zone=z rate=1r/s;",
        "\"ratelimit_rule\" has an invalid name \"$_\", expected $NAME")
    for 'a/b', $LONG;
refused(with_rule('rate=1r/s zone=z'),
        '"ratelimit_rule" has "zone=z", expected one "zone="');
refused(with_rule("rate=1r/s $_"),
        "\"ratelimit_rule\" has an unknown parameter \"$_\", "
        . "expected $RULE_PARAMETERS")
    for 'unit=r', 'x';
refused(with_rule("rate=1r/s $_->[0]"),
        "\"ratelimit_rule\" has an unknown parameter \"$_->[0]\", "
        . "did you mean \"$_->[1]\"?")
    for ['burst', 'burst='], ['nodelay=', 'nodelay'], ['nodelays', 'nodelay'],
        ['dry_run=1', 'dry_run'], ['method=GET', 'methods='];
refused(with_rule("rate=1r/s $_"),
        "\"ratelimit_rule\" has \"$_\", but \"" . s/=.*/=/r
        . '" is a parameter of "ratelimit_zone"')
    for 'redis=r', 'state=a', 'keys_in_clear=on';
refused(with_rule("rate=1r/s $_ $_"),
        "\"ratelimit_rule\" has \"$_\", expected one \"" . s/=.*/=/r . '"')
    for 'rate=2r/s', 'key=$arg_a', 'match=/a', 'methods=GET', 'capacity=1',
        'sync=strict', 'shards=2', 'algorithm=token_bucket', 'window=1m', 'burst=1',
        'nodelay', 'delay=1', 'dry_run', 'cost=1', 'cost_header=a',
        'count_status=401', 'group=g', 'priority=1', 'percent=1', 'tier=a',
        'host=a', 'api_key=a', 'tiers=a:1r/s';
refused(with_rule("rate=1r/s host=$_"),
        "\"ratelimit_rule\" has an invalid \"host=$_\", expected host names "
        . 'like "api.example.com" or "*.example.org", without variables')
    for '', 'a,', ',a', '$host', 'a,$arg_h', 'h' x 257;
refused(with_rule("rate=1r/s api_key=$_"),
        "\"ratelimit_rule\" has an invalid \"api_key=$_\", expected API keys "
        . 'like "sk_live_*" or "sk_test_1", with "*" and "?" for any text and any '
        . 'character, without variables')
    for '', 'a,', ',a', '$arg_k', 'k' x 257;
refused(with_rule("rate=1r/s tiers=$_"),
        "\"ratelimit_rule\" has an invalid \"tiers=$_\", expected "
        . '"<tier>:<limit or rate>", with commas between, without variables')
    for '', 'a:$arg_l';
refused(with_rule("$_->[0] tiers=$_->[1]"),
        "\"ratelimit_rule\" \"r\" has an invalid \"tiers=$_->[1]\", "
        . "expected $_->[2]")
    for ['rate=1r/s', 'a', '"<tier>:<limit or rate>", with commas between'],
        ['rate=1r/s', 'a:1r/s,', '"<tier>:<limit or rate>", with commas between'],
        ['rate=1r/s', ':1r/s', 'a tier before each ":"'],
        ['rate=1r/s', 'a:5', $RATE],
        ['rate=$arg_r', 'a:5', $RATE],
        ['limit=5 window=1m', 'a:1r/s', 'a number from 1 to 1073741824'],
        ['limit=$arg_l window=1m', 'a:0', 'a number from 1 to 1073741824'],
        ['rate=1r/s', 'a:1r/s,b:2r/s,a:3r/s', 'one limit of each tier'],
        ['algorithm=sliding_log limit=5 window=1m', 'a:10001',
         'a limit of at most 10000 requests for sliding_log'];
refused(with_rule('rate=1r/s key='),
        '"ratelimit_rule" has an invalid "key=", '
        . 'expected a value with variables');

for (['a', 'must start with "/"'],
     ['', 'must start with "/"'],
     ['/a;b', 'must not contain ";": parameters of a path are ignored'],
     ['/a//b', 'must not contain "//"'],
     ['/**/a', '"**" must be the last segment'],
     ['/a*', '"{name}", "*" and "**" must be whole segments'],
     ['/{}', '"{}" must have a name inside'])
{
    my ($match, $expected) = @$_;

    refused(with_rule("rate=1r/s \"match=$match\""),
            "\"ratelimit_rule\" has an invalid \"match=$match\", "
            . "expected a path template: $expected");
}

refused(with_rule("rate=1r/s match=$_"),
        "\"ratelimit_rule\" has an invalid \"match=$_\": "
        . 'must not be empty behind "~"')
    for '~', '~*';
like(check(with_rule('rate=1r/s match=~[a')),
     qr/^"ratelimit_rule" has an invalid "match=~\[a": pcre2?_compile\(\) /,
     'a bad regular expression');
refused(with_rule("rate=1r/s methods=$_"),
        "\"ratelimit_rule\" has an invalid \"methods=$_\", "
        . 'expected HTTP methods like "GET"')
    for '', 'get', 'GET,', ',GET', 'GET,,PUT';
refused(with_rule('rate=1r/s sync=strict'),
        'rule "r" has "sync=strict", expected a zone with "redis="');
refused("$_->[0] ratelimit_rule r zone=gone rate=1r/s;",
        "\"ratelimit_rule\" \"r\" has an unknown \"zone=gone\", $_->[1]")
    for ['', 'there is none'], [$ZONE, 'expected "z"'];
like(check($_->[0]),
     qr{^zone "z" has two rules "\w", first $_->[1]in \S+:\d+, and again$},
     $_->[0])
    for ["$ZONE ratelimit_rule z zone=z rate=1r/s;", 'its own '],
        [with_rule('rate=1r/s') . ' ratelimit_rule r zone=z rate=2r/s;', ''];
refused("server { ratelimit_rule r zone=z rate=1r/s; }",
        '"ratelimit_rule" directive is not allowed here');

# ratelimit

refused(in_server('ratelimit;'),
        'invalid number of arguments in "ratelimit" directive');
refused(in_server("ratelimit $_;"),
        "\"ratelimit\" has an unknown parameter \"$_\", "
        . 'expected "off", or one each of "zone=", "rule="')
    for 'on', 'z';
refused(in_server('ratelimit zones=z;'),
        '"ratelimit" has an unknown parameter "zones=z", did you mean "zone="?');
refused(in_server("ratelimit $_->[0];"),
        "\"ratelimit\" has an invalid \"$_->[0]\", expected the name of a "
        . $_->[1])
    for ['zone=', 'zone'], ['rule=', 'rule'];
refused(in_server("ratelimit zone=z $_;"),
        '"ratelimit" has "burst=20", but "burst=" is a parameter of '
        . '"ratelimit_zone" and "ratelimit_rule"')
    for 'burst=20', 'burst=20 nodelay';
refused(in_server('ratelimit zone=z nodelay;'),
        '"ratelimit" has "nodelay", but "nodelay" is a parameter of '
        . '"ratelimit_zone" and "ratelimit_rule"');
refused(in_server('ratelimit zone=z match=/a;'),
        '"ratelimit" has "match=/a", but "match=" is a parameter of '
        . '"ratelimit_rule"');
refused(in_server('ratelimit zone=z zone=z;'),
        '"ratelimit" has "zone=z", expected one "zone="');
refused(in_server('ratelimit rule=z;'),
        '"ratelimit" has no zone, expected "zone=<name>"');
refused(in_server('ratelimit zone=gone;'),
        '"ratelimit" has an unknown "zone=gone", expected "z"');
refused("server { ratelimit zone=gone; } $ZONE "
        . 'ratelimit_zone $arg_k zone=other:1m rate=1r/s;',
        '"ratelimit" has an unknown "zone=gone", expected "z", "other"');
refused('server { ratelimit zone=apis; } '
        . 'ratelimit_zone $arg_k zone=api:1m rate=1r/s;',
        '"ratelimit" has an unknown "zone=apis", did you mean "api"?');
refused('server { ratelimit zone=gone; }',
        '"ratelimit" has an unknown "zone=gone", there is none');
refused(in_server('ratelimit zone=z rule=gone;'),
        '"ratelimit" has an unknown "rule=gone" of zone "z", expected "z"');
refused(in_server($_),
        '"ratelimit" counts zone "z" twice, expected the zone, or each of '
        . 'its rules, once')
    for 'ratelimit zone=z; ratelimit zone=z;',
        'ratelimit zone=z; ratelimit zone=z rule=z;',
        'ratelimit zone=z rule=z; ratelimit zone=z;',
        'ratelimit zone=z rule=z; ratelimit zone=z rule=z;';
refused(in_server($_),
        '"ratelimit" directive "off" stands beside another "ratelimit", '
        . 'expected it alone')
    for 'ratelimit off; ratelimit zone=z;', 'ratelimit zone=z; ratelimit off;',
        'ratelimit off; ratelimit off;';
refused(in_server('ratelimit off zone=z;'),
        '"ratelimit" directive "off" takes no parameter');

# the small ones

refused(in_server('ratelimit_tier a; ratelimit_tier b;'),
        '"ratelimit_tier" directive is duplicate');
refused(in_server('ratelimit_tier;'),
        'invalid number of arguments in "ratelimit_tier" directive');
refused(in_server('ratelimit_phase during_auth;'),
        '"ratelimit_phase" has an invalid "during_auth", expected '
        . 'one of "before_auth", "after_auth"');
refused(in_server("ratelimit_log_level $_;"),
        "\"ratelimit_log_level\" has an invalid \"$_\", expected one of "
        . '"info", "notice", "warn", "error"')
    for 'crit', '5', 'debug';
refused(in_server("ratelimit_log_level $_->[0];"),
        "\"ratelimit_log_level\" has an invalid \"$_->[0]\", did you mean "
        . "\"$_->[1]\"?")
    for ['err', 'error'], ['warning', 'warn'], ['Info', 'info'];
refused(in_server('ratelimit_log_level info; ratelimit_log_level warn;'),
        '"ratelimit_log_level" directive is duplicate');
accepted(in_server("ratelimit_log_level $_;"))
    for 'info', 'notice', 'warn', 'error';
refused(in_server('ratelimit_phase before_auth; ratelimit_phase after_auth;'),
        '"ratelimit_phase" directive is duplicate');
refused(in_server('ratelimit_dry_run try;'),
        'invalid value "try" in "ratelimit_dry_run" directive, it must be '
        . '"on" or "off"');
refused(in_server('ratelimit_dry_run on; ratelimit_dry_run on;'),
        '"ratelimit_dry_run" directive is duplicate');
refused(in_server("ratelimit_api_key $_;"),
        "\"ratelimit_api_key\" has an invalid source \"$_\", "
        . 'expected "header:<name>", "bearer", "basic", "query:<name>", '
        . '"cookie:<name>" or "jwt:<claim>"')
    for 'header:', 'header', 'query:', 'query', 'cookie:', 'jwt:', 'jwt',
        'Bearer', 'bearer:', 'bearer:a', 'basic:', 'cookies:a';
refused(in_server('ratelimit_api_key bearer; ratelimit_api_key bearer;'),
        '"ratelimit_api_key" directive is duplicate');
refused(in_server("ratelimit_headers $_;"),
        "\"ratelimit_headers\" has an invalid \"$_\", expected \"x\", "
        . '"draft3", "ietf" or "off"')
    for 'on', 'X', 'draft';
refused(in_server('ratelimit_headers x draft4;'),
        '"ratelimit_headers" has an invalid "draft4", expected "x", '
        . '"draft3", "ietf" or "off"');
refused(in_server("ratelimit_headers $_;"),
        '"ratelimit_headers" has "off" and other values, expected "off" alone')
    for 'x off', 'off x', 'off off';
refused(in_server("ratelimit_headers $_;"),
        '"ratelimit_headers" has "ietf", expected one "ietf"')
    for 'ietf ietf', 'ietf x ietf';
refused(in_server('ratelimit_headers x; ratelimit_headers x;'),
        '"ratelimit_headers" directive is duplicate');
refused(in_server('ratelimit_headers off; ratelimit_headers x;'),
        '"ratelimit_headers" directive is duplicate');
refused(in_server("ratelimit_response $_;"),
        "\"ratelimit_response\" has an invalid \"$_\", expected one of \"json\", "
        . '"problem", "off"')
    for 'on', 'html';
refused(in_server('ratelimit_response JSON;'),
        '"ratelimit_response" has an invalid "JSON", did you mean "json"?');
refused(in_server('ratelimit_response json; ratelimit_response off;'),
        '"ratelimit_response" directive is duplicate');
refused(in_server("ratelimit_status $_;"),
        "\"ratelimit_status\" has an invalid \"$_\", "
        . 'expected a status from 400 to 599')
    for '399', '600', 'x', '-1', '4294967725';
refused(in_server('ratelimit_status 429; ratelimit_status 429;'),
        '"ratelimit_status" directive is duplicate');

refused(in_server('ratelimit_metrics;'),
        '"ratelimit_metrics" directive is not allowed here');
refused(in_server('location / { ratelimit_metrics on; }'),
        'invalid number of arguments in "ratelimit_metrics" directive');
refused(in_server('location / { ratelimit_metrics; ratelimit_metrics; }'),
        '"ratelimit_metrics" directive is duplicate');
accepted(in_server('location / { ratelimit_metrics; ratelimit zone=z; }'));

# ratelimit_redis

refused('ratelimit_redis r;',
        'directive "ratelimit_redis" has no opening "{"');
refused("ratelimit_redis { $REDIS }",
        'invalid number of arguments in "ratelimit_redis" directive');
refused("ratelimit_redis $_ { $REDIS }",
        "\"ratelimit_redis\" has an invalid \"$_\", expected $NAME")
    for 'a/b', $LONG;
refused(in_redis($REDIS) . in_redis($REDIS),
        '"ratelimit_redis" has an invalid "r", expected one of each name');
refused(in_redis(''),
        '"ratelimit_redis" "r" has no address, '
        . 'expected "server", "cluster" or "sentinel"');
refused(in_redis('host a;'),
        'unknown directive "host" in "ratelimit_redis" "r", expected '
        . '"server", "cluster", "sentinel", "sentinel_username", '
        . '"sentinel_password_file", "timeout", "username", "password_file", '
        . '"secret_file", "prefix", "buckets", "database", "tls", "tls_ca", '
        . '"tls_name", "tls_certificate", "tls_certificate_key"');
refused(in_redis("$_->[0] a;"),
        "unknown directive \"$_->[0]\" in \"ratelimit_redis\" \"r\", did you "
        . "mean \"$_->[1]\"?")
    for ['password', 'password_file'], ['servers', 'server'],
        ['time_out', 'timeout'];
refused(in_redis('server;'),
        'invalid number of arguments in "server" of "ratelimit_redis" "r", '
        . 'expected one');
refused(in_redis('server 127.0.0.1:1 127.0.0.1:2;'),
        'invalid number of arguments in "server" of "ratelimit_redis" "r", '
        . 'expected one');
refused(in_redis('cluster;'),
        'invalid number of arguments in "cluster" of "ratelimit_redis" "r", '
        . 'expected one or more');
refused(in_redis("$REDIS $_ 127.0.0.1:2;"),
        "\"$_\" has an invalid \"127.0.0.1:2\", "
        . 'expected one "server", one "cluster" or one "sentinel"')
    for 'server', 'cluster';
refused(in_redis("$REDIS sentinel m 127.0.0.1:2;"),
        '"sentinel" has an invalid "m", '
        . 'expected one "server", one "cluster" or one "sentinel"');
refused(in_redis('sentinel m;'),
        '"sentinel" has an invalid "m", '
        . 'expected a master\'s name and one or more "host:port"');
refused(in_redis("sentinel $_ 127.0.0.1:2;"),
        "\"sentinel\" has an invalid \"$_\", "
        . "expected a master's name of $NAME")
    for 'm/n', '127.0.0.1:1';
refused(in_redis("$_ 127.0.0.1:70000;"),
        '"ratelimit_redis" "r" has an invalid address "127.0.0.1:70000" '
        . '(invalid port), expected "host:port"')
    for 'server', 'cluster 127.0.0.1', 'sentinel m 127.0.0.1';
refused(in_redis("server $_;"),
        "\"ratelimit_redis\" \"r\" has an invalid address \"$_\" "
        . '(invalid port), expected "host:port"')
    for '127.0.0.1:', '127.0.0.1:0', '127.0.0.1:7001-7003', '::1';
refused(in_redis("server $_;"),
        "\"ratelimit_redis\" \"r\" has an invalid address \"$_\" "
        . '(no host), expected "host:port"')
    for ':6379';

# what cannot be a name, with a resolver that would be asked for it too

for my $resolver ('', 'resolver 127.0.0.1; ') {
    refused($resolver . in_redis("$_;"),
            '"ratelimit_redis" "r" has an invalid address '
            . "\"@{[(split)[-1]]}\" (invalid host), expected \"host:port\"")
        for 'server redis://127.0.0.1', 'server 10.0.0.1,10.0.0.2',
            'server 10.0.0.256:6379', 'server a..b', 'server .a',
            'server redis/0', 'cluster 127.0.0.1:7001 10.0.0.1,10.0.0.2',
            'sentinel m 127.0.0.1 10.0.0.2.3:26379';
}

refused(in_redis("$REDIS timeout $_;"),
        "\"timeout\" has an invalid \"$_\", expected a time from 1ms to 10s, "
        . 'as in "50ms": a number alone is seconds')
    for '0', '50', '11s', '10001ms', 'x', '-1';
refused(in_redis("$REDIS buckets $_;"),
        "\"buckets\" has an invalid \"$_\", "
        . 'expected a power of two from 1 to 1048576')
    for '0', '3', '2097152', '-2', 'x';
refused(in_redis("$REDIS prefix $_;"),
        "\"prefix\" has an invalid \"$_\", expected $NAME")
    for 'a:b', 'a/b', $LONG;
refused(in_redis("$REDIS username \"\"; password_file pw;"),
        '"username" has an invalid "", expected a name');
refused(in_redis("$REDIS username u;"),
        '"ratelimit_redis" "r" has a "username", '
        . 'expected a "password_file" with it');
refused(in_redis("sentinel m 127.0.0.1; sentinel_username u;"),
        '"ratelimit_redis" "r" has a "sentinel_username", '
        . 'expected a "sentinel_password_file" with it');
refused(in_redis("$REDIS $_;"),
        '"ratelimit_redis" "r" has a user for sentinels, '
        . 'expected "sentinel" with it')
    for 'sentinel_password_file pw', 'sentinel_username u';
refused(in_redis("$REDIS $_ gone;"),
        "open() \"$gateway->{dir}/gone\" failed in \"$_\" "
        . '(2: No such file or directory)')
    for 'password_file', 'secret_file', 'sentinel_password_file';
refused(in_redis("$REDIS password_file $_;"),
        "\"password_file\" has an invalid \"$_\", "
        . 'expected a file whose first line has 1 to 1023 bytes')
    for 'empty', 'long';

refused(in_redis("$REDIS database $_;"),
        "\"database\" has an invalid \"$_\", expected a number")
    for '-1', 'x', '2147483648';
refused(in_redis("cluster 127.0.0.1:1; database $_;"),
        '"ratelimit_redis" "r" has a "database", expected none with "cluster"')
    for 0, 1;
refused(in_redis("$REDIS tls $_;"),
        "\"tls\" has an invalid \"$_\", expected \"on\" or \"off\"")
    for 'yes', 'On';
refused(in_redis("$REDIS $_ a; tls off;"),
        "\"ratelimit_redis\" \"r\" has \"$_\", expected \"tls on\" with it")
    for 'tls_ca', 'tls_name', 'tls_certificate', 'tls_certificate_key';
refused(in_redis("$REDIS tls on; $_ \"\";"),
        "\"$_\" has an invalid \"\", expected a text")
    for 'tls_ca', 'tls_name', 'tls_certificate', 'tls_certificate_key';
refused(in_redis("$REDIS tls on; tls_name " . 'a' x 256 . ';'),
        '"tls_name" has an invalid "' . 'a' x 256
        . '", expected at most 255 characters');
refused(in_redis("$REDIS tls on; tls_certificate a;"),
        '"ratelimit_redis" "r" has "tls_certificate", '
        . 'expected "tls_certificate_key" with it');
refused(in_redis("$REDIS tls on; tls_certificate_key a;"),
        '"ratelimit_redis" "r" has "tls_certificate_key", '
        . 'expected "tls_certificate" with it');
refused(in_redis('server unix:/run/redis; tls on;'),
        '"ratelimit_redis" "r" has "tls on" and "unix:", '
        . 'expected "tls_name" with it');

for ('timeout 1s', 'buckets 2', 'prefix a', 'username u', 'password_file pw',
     'secret_file pw', 'sentinel_username u', 'sentinel_password_file pw',
     'database 0', 'database 5', 'tls off', 'tls on',
     'tls_ca a', 'tls_name a', 'tls_certificate a', 'tls_certificate_key a')
{
    my ($name, $value) = split;

    refused(in_redis("$REDIS $_; $_;"),
            "\"$name\" has another \"$value\", expected one \"$name\"");
}

# accepted

accepted(with_rate($_))
    for '1r/s', '10r/5s', '100r/m', '1r/366d', '1073741824r/h', '1r/31622400s',
        '1r/s capacity=1073741824', '5r/m capacity=1', '$arg_r',
        '"${arg_r}r/s"', '$arg_r capacity=5';
accepted(with_rule($_))
    for 'limit=5 window=1m', 'limit=5 window=60', 'limit=5 window=1h30m',
        'limit=5 window=366d capacity=7', 'limit=$arg_l window=1m',
        'algorithm=token_bucket rate=1r/s capacity=5',
        'algorithm=leaky_bucket rate=1r/s',
        'algorithm=leaky_bucket rate=1r/s burst=0 nodelay',
        'algorithm=leaky_bucket rate=1r/s burst=5 delay=3',
        'algorithm=leaky_bucket rate=$arg_r burst=1073741823 delay=1073741823',
        (map {; "algorithm=$_ rate=100r/m", "algorithm=$_ limit=100 window=1m",
               "algorithm=$_ limit=\$arg_l window=1m" }
         'fixed_window', 'sliding_window', 'sliding_log'),
        'algorithm=sliding_log limit=10000 window=366d',
        'algorithm=fixed_window limit=5 window=calendar:day',
        'algorithm=fixed_window limit=5 window=calendar:month',
        'algorithm=fixed_window limit=$arg_l window=calendar:month',
        'algorithm=concurrency limit=5', 'algorithm=concurrency limit=$arg_l',
        'algorithm=concurrency limit=5 dry_run group=g priority=-5 percent=50',
        'rate=1r/s group=a.b-c_D priority=-1000000 tier=gold percent=100',
        '"tier=the best" rate=1r/s', 'rate=1r/s cost=0', 'rate=1r/s cost=$arg_c',
        'rate=1r/s cost=1073741824', 'rate=1r/s cost=2 cost_header=X-Cost',
        'rate=1r/s host=example.com,*.example.com', 'rate=1r/s api_key=sk_*,a?',
        'rate=1r/s api_key=sha256:' . 'Af09' x 16 . ',x',
        'rate=1r/s tiers=a:5r/m', 'rate=$arg_r tiers=a:5r/m',
        'rate=1r/s capacity=9 tiers=a:5r/m,b:c:7r/h',
        'algorithm=leaky_bucket rate=1r/s burst=3 "tiers=a b:5r/m"',
        'limit=5 window=1m tiers=a:1,b:1073741824',
        'algorithm=fixed_window limit=5 window=calendar:day tiers=a:7',
        'algorithm=concurrency limit=$arg_l tiers=a:7',
        'rate=1r/s cost=2 count_status=100,401,599';
accepted(with_rate($_))
    for '1r/s algorithm=leaky_bucket burst=5 nodelay dry_run cost=$arg_c '
        . 'cost_header=X-Cost group=g priority=5 percent=5',
        '1r/s algorithm=sliding_window count_status=401';
accepted('ratelimit_zone $arg_k zone=z:1m algorithm=concurrency limit=5;');
accepted("$ZONE ratelimit_rule $_ zone=z rate=1r/s cost=5;")
    for 'nodelay', 'dry_run', 'off';
accepted(in_server($_))
    for 'ratelimit off;', 'ratelimit zone=z;', 'ratelimit zone=z rule=z;',
        'ratelimit_tier gold;', 'ratelimit_tier "";', 'ratelimit_tier $arg_t;',
        'ratelimit_dry_run on;', 'ratelimit_dry_run off;',
        'ratelimit_api_key header:X-Key bearer header:Other;',
        'ratelimit_headers off;', 'ratelimit_headers x;',
        'ratelimit_headers draft3;', 'ratelimit_headers ietf x draft3;',
        'ratelimit_response json;', 'ratelimit_response problem;',
        'ratelimit_response off;',
        'ratelimit_status 400;', 'ratelimit_status 599;',
        'ratelimit zone=z; location / { ratelimit off; } '
        . 'location /a { ratelimit zone=z; }';
accepted(with_rule("rate=1r/s $_"))
    for '', 'key=$arg_a$arg_b', 'match=/', '"match=/v1/users/{id}"',
        'match=/a/*/b/**', 'match=~^/a', 'match=~*^/a', 'methods=GET',
        'methods=GET,POST,TRACE', 'capacity=5', '"match=/a b"';
accepted('resolver 127.0.0.1; ' . in_redis("server $_;"))
    for 'redis', 'redis:7000', 'redis_1.data-1.example.com.', '1.a';
accepted(in_redis($_))
    for $REDIS, 'server 127.0.0.1;', 'server [::1]:6379;', 'server [::1];',
        'server localhost;', 'server unix:/run/redis;',
        'cluster unix:/run/redis 127.0.0.1;', 'sentinel m [::1]:26379;',
        'sentinel m 127.0.0.1; database 1;',
        'cluster 127.0.0.1:7001 127.0.0.1:7002;',
        "$REDIS timeout 1ms; prefix a.b-c_D; buckets 1;",
        "$REDIS timeout 10s; buckets 1048576;",
        'sentinel m.1 127.0.0.1 127.0.0.2:7000;',
        'sentinel m 127.0.0.1; sentinel_password_file pw;',
        'sentinel_username u; sentinel_password_file pw; '
        . 'sentinel m 127.0.0.1;',
        "$REDIS password_file pw;", "$REDIS username u; password_file pw;",
        "$REDIS secret_file crlf;", "$REDIS database 0;",
        "$REDIS database 2147483647;", "$REDIS tls on;", "$REDIS tls off;",
        "$REDIS tls on; tls_name redis.test;",
        'server unix:/run/redis; tls on; tls_name redis.test;',
        "$REDIS secret_file $gateway->{dir}/pw;";

# the order of what names and what is named does not matter

accepted("server { ratelimit zone=z rule=r; } "
         . 'ratelimit_rule r zone=z rate=1r/s sync=strict; '
         . 'ratelimit_zone $arg_k zone=z:1m redis=r; '
         . in_redis($REDIS));
accepted("ratelimit zone=z; $ZONE");

# what needs Redis

for my $more ('sync=lease', 'sync=lease fail_mode=local', 'sync=async cost=2',
              'sync=lease cost=$arg_c cost_header=X-Cost',
              'sync=async cost_header=X-Cost dry_run',
              'sync=strict emergency=1r/s')
{
    accepted('ratelimit_zone $arg_k zone=z:1m redis=r ' . "$more $_;"
             . in_redis($REDIS))
        for 'rate=10r/s', 'rate=$arg_r', 'rate=1r/s algorithm=leaky_bucket',
            'algorithm=fixed_window limit=10 window=calendar:month',
            'algorithm=sliding_window limit=10 window=1m';
}

accepted("ratelimit_zone \$arg_k zone=z:1m redis=r $_;" . in_redis($REDIS))
    for 'rate=1r/s count_status=401', 'rate=1r/s count_status=401 sync=strict',
        'limit=5 algorithm=concurrency', 'rate=1r/s algorithm=sliding_log',
        'limit=5 algorithm=concurrency sync=strict',
        'rate=1r/s algorithm=sliding_log sync=strict',
        (map { "sync=strict $_" }
         'shards=64 rate=64r/s', 'shards=2 rate=4r/d capacity=2 cost=0',
         'shards=4 rate=11r/s cost=2 fail_mode=closed',
         'shards=4 rate=11r/s emergency=1r/s dry_run',
         'shards=4 rate=4r/91d fail_mode=open',
         'shards=2 algorithm=sliding_window limit=5 window=366d cost=2',
         'shards=2 algorithm=fixed_window limit=5 window=calendar:month');

# what is accepted, and hardly meant

my $USED = 'server { ratelimit zone=z; }';
my $UNUSED = '"ratelimit_zone" "z" limits nothing, expected a '
             . '"ratelimit zone=z"';

sub constant {
    my ($directive, $key) = @_;

    return "\"$directive\" has the key \"$key\" without a variable, which "
           . 'limits all clients together, expected one as in "$remote_addr", '
           . 'or "key=all" if that is meant';
}

warned("$ZONE $USED");
warned("ratelimit_zone $_ zone=z:1m rate=1r/s; $USED",
       constant('ratelimit_zone', s/^key=//r))
    for 'remote_addr', 'key=remote_addr', 'everybody', 'All';
warned(with_rule("rate=1r/s key=$_") . $USED, constant('ratelimit_rule', $_))
    for 'remote_addr', 'constant';
warned("ratelimit_zone $_ zone=z:1m rate=1r/s; $USED")
    for 'all', 'key=all', 'key=$remote_addr', 'a${arg_a}';
warned(with_rule('rate=1r/s key=all') . $USED);

warned($_, $UNUSED)
    for $ZONE, in_server(''), in_server('location / { ratelimit off; }');
warned($_)
    for "$ZONE ratelimit zone=z; server { }",
        in_server('location / { location /a { ratelimit zone=z; } }'),
        in_server('ratelimit zone=z rule=z;'),
        in_server('location /ratelimit/ { ratelimit_api zone=z; }');

for ('tier=pro', 'tiers=pro:5r/s') {
    my $rule = with_rule("rate=1r/s $_");
    my $message = "rule \"r\" of zone \"z\" has \"$_\" without effect, "
                  . 'expected a "ratelimit_tier" where "ratelimit zone=z" is';

    warned("$rule $USED", $message);
    warned("$rule $USED server { server_name a; ratelimit_tier pro; }",
           $message);
    warned("$rule server { ratelimit zone=z; location /a { ratelimit_tier pro; "
           . 'ratelimit off; } }', $message);
    warned("ratelimit_tier pro; $rule $USED");
    warned("$rule server { ratelimit zone=z; ratelimit_tier pro; }");
    warned("$rule server { ratelimit zone=z; location /a { ratelimit_tier pro; "
           . '} }');

    # a document gives tiers to API keys
    warned("$rule server { ratelimit zone=z; location /ratelimit/ { "
           . 'ratelimit_api zone=z; } }');
}

# the place of a mistake that only the whole configuration shows

$gateway->configure(http => "\n\n    $ZONE\n    server {\n"
                            . "        ratelimit zone=gone;\n    }\n");
my ($ok, $text) = $gateway->check;
my @lines = split /^/, $gateway->read('nginx.conf');
my ($line) = grep { $lines[$_ - 1] =~ /gone/ } 1 .. @lines;
like($text, qr{ in \Q$gateway->{dir}\E/nginx\.conf:$line$}m,
     'the line is named');
