# What nginx -t says: each mistake is refused with a message that names the
# directive, the value and what was expected; what is right is accepted.

use t::RateLimit 'no_plan';
use t::Gateway;

my $gateway = t::Gateway->limited(start => 0, files => {
    pw => "secret\n", crlf => "secret\r\nmore\n", empty => "\n",
    long => 'x' x 1024,
});

my $ZONE = 'ratelimit_zone $arg_k zone=z:1m rate=10r/s;';
my $REDIS = 'server 127.0.0.1:6379;';
my $NAME = '1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"';
my $LONG = 'n' x 65;
my @LIMIT = qw( algorithm= rate= limit= window= tz= month_day= capacity= burst=
                nodelay delay= sync= shards= fail_mode= emergency= regions= dry_run
                cost= cost_header= cost_end= cost_every= count_status= retry= group= priority=
                percent= );
my @RULE = qw( zone= key= match= methods= tier= host= api_key= network= header=
               arg= if= active= tiers= );
my @ZONE = qw( zone= redis= peers= state= keys_in_clear= new_keys= );
my $RATE = '"r/" and a period after the number of requests, as in "100r/m"';
my $COUNT = 'a whole number from 1 to 1073741824';
my $NUMBER = 'a number from 0 to 1073741824, or "unlimited"';
my $NO_LIMIT = 'expected "rate", or "limit" and "window"';
my $TIERS = '"<tier>:<limit or rate>", with commas between';

sub one_of { return 'one each of ' . join ', ', map { "\"$_\"" } @_ }

# In a configuration and a message %1 and so on stand for each value, or for the
# elements of each; %n for the name of a parameter "name=value".
sub filled {
    my ($text, @value) = @_;
    return $text =~ s/%([1-3n])/$1 eq 'n' ? $value[0] =~ s{=.*}{=}sr
                                          : $value[$1 - 1]/ger;
}

# The message, whole but for the place in the file.
sub refused {
    my ($http, $message, @values) = @_;
    for (@values ? @values : '') {
        my @value = ref $_ ? @$_ : $_;
        my $filled = filled($http, @value);
        is($gateway->verdict($filled), filled($message, @value), $filled);
    }
}

# A value that its directive or parameter cannot have.
sub invalid {
    my ($http, $directive, $parameter, $expected, @values) = @_;
    refused($http, "\"$directive\" has an invalid \"$parameter%1\", "
                   . "expected $expected", @values);
}

sub accepted {
    my ($http, @values) = @_;
    refused($http, 'accepted', @values);
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

sub in_server { return "$ZONE server { $_[0] }" }
sub in_redis { return "ratelimit_redis r { $_[0] }" }
sub with_zone { return "ratelimit_zone \$arg_k zone=z:1m $_[0];" }
sub with_rate { return with_zone("rate=$_[0]") }
sub with_penalty { return "$ZONE ratelimit_penalty p zone=z $_[0];" }
sub with_rule { return "$ZONE ratelimit_rule r zone=z $_[0];" }

# one of each directive, and its number of arguments
refused(in_server('%1'), '"%2" directive is duplicate',
    (map { ["$_->[0] $_->[1]; $_->[0] $_->[2];", $_->[0]] }
     ['ratelimit_tier', 'a', 'b'], ['ratelimit_log_level', 'info', 'warn'],
     ['ratelimit_phase', 'before_auth', 'after_auth'],
     ['ratelimit_once', 'off', '$arg_k 1h'],
     ['ratelimit_dry_run', 'on', 'on'], ['ratelimit_api_key', 'bearer', 'bearer'],
     ['ratelimit_headers', 'x', 'x'], ['ratelimit_headers', 'off', 'x'],
     ['ratelimit_response', 'json', 'off'], ['ratelimit_status', 429, 429],
     ['ratelimit_penalty_status', 429, 403],
     ['ratelimit_retry_jitter', '1%', '1%'], ['ratelimit_close_after', 1, 1]),
    ['location / { ratelimit_metrics; ratelimit_metrics; }',
     'ratelimit_metrics']);
refused("$ZONE %1", 'invalid number of arguments in "%2" directive',
    ['ratelimit_zone $arg_k;', 'ratelimit_zone'],
    ['ratelimit_rule r;', 'ratelimit_rule'],
    ['ratelimit_penalty p;', 'ratelimit_penalty'],
    ['server { ratelimit; }', 'ratelimit'],
    ['server { ratelimit_tier; }', 'ratelimit_tier'],
    ['server { location / { ratelimit_metrics a b; } }', 'ratelimit_metrics'],
    ["ratelimit_redis { $REDIS }", 'ratelimit_redis']);
refused('server { %1 }', '"%2" directive is not allowed here',
    [$ZONE, 'ratelimit_zone'],
    ['ratelimit_rule r zone=z rate=1r/s;', 'ratelimit_rule'],
    ['ratelimit_penalty p zone=z after=1r/m time=1m;', 'ratelimit_penalty'],
    ['ratelimit_metrics;', 'ratelimit_metrics']);

# ratelimit_zone
refused('ratelimit_zone %1 zone=z:1m rate=1r/s;',
        '"ratelimit_zone" has an empty key, expected a value with variables',
        '""', 'key=');
accepted(with_zone('%1'), 'state=a.state',
         'state=a.state keys_in_clear=on rate=1r/s',
         'keys_in_clear=off state=a.state',
         'new_keys=10r/m state=a.state', 'new_keys=1r/365d rate=1r/s');
refused(with_rate('1r/s %1'),
        '"ratelimit_zone" has an invalid "%1", expected %2',
        ['state=', 'a file'], ['redis=', 'the name of a "ratelimit_redis"'],
        ['peers=', 'the name of a "ratelimit_peers"'],
        (map { ["keys_in_clear=$_", '"off" or "on"'] } '', 'yes', 'onn'),
        (map { ["new_keys=$_", $RATE] } '10', '10/m'),
        ['new_keys=', 'a number of requests from 0 to 1073741824'],
        ['new_keys=0r/m', 'a limit from 1 to 1073741824'],
        ['new_keys=$arg_n', 'a rate without variables']);
refused(with_rate('1r/s %1 %1'), '"ratelimit_zone" has "%1", expected one "%n"',
        'state=a', 'keys_in_clear=on', 'redis=a', 'peers=a', 'new_keys=1r/s',
        'rate=1r/s');
refused('ratelimit_zone $arg_k zone=y:1m state=s; ' . with_zone('state=s'),
        "\"ratelimit_zone\" \"z\" has \"state=$gateway->{dir}/s\", "
        . 'expected another file than that of zone "y"');
refused('ratelimit_zone $arg_k rate=1r/s;',
        '"ratelimit_zone" has no zone, expected "zone=<name>:<size>"');
refused('ratelimit_zone %1 rate=1r/s;',
        '"ratelimit_zone" has no key before "%1"',
        'zone=z:1m', 'rate=1r/s', 'redis=a', 'algorithm=token_bucket',
        'keys_in_clear=on');
refused("$ZONE ratelimit_rule zone=z rate=1r/s;",
        '"ratelimit_rule" has no name before "zone=z"');
invalid('ratelimit_zone $arg_k zone=%1 rate=1r/s;', 'ratelimit_zone', 'zone=',
        '"zone=<name>:<size>"', 'z');
refused('ratelimit_zone $arg_k zone=%1:1m rate=1r/s;',
        "\"ratelimit_zone\" has an invalid name \"%1\", expected $NAME",
        '', 'a/b', $LONG);
refused('ratelimit_zone $arg_k zone=z:%1 rate=1r/s;',
        '"ratelimit_zone" "z" has an invalid size "%1", expected 64k or more, '
        . 'as in "10m"', '', '63k', 'big', '-1m', '10mb');
refused(with_zone('%1'),
        '"ratelimit_zone" has an unknown parameter "%1", expected '
        . one_of(@ZONE, @LIMIT), 'memory=1m', '=', 'x');
refused(with_zone('zone=y:1m'),
        '"ratelimit_zone" has "zone=y:1m", expected one "zone="');
refused(with_rate('1r/s %1'), '"ratelimit_zone" has "%1", but "%n" is a '
        . 'parameter of "ratelimit_rule"', 'match=/a', 'tier=a', 'host=a',
        'api_key=a', 'tiers=a:1r/s', 'methods=GET', 'key=$arg_a');

# a name that is written wrongly: letters that are missing, too many, others,
# swapped; its beginning alone; with a value, or without
refused(with_zone('%1'), '"ratelimit_zone" has an unknown parameter "%1", '
        . 'did you mean "%2"?',
        ['bust=5', 'burst='], ['burrst=5', 'burst='], ['brust=5', 'burst='],
        ['birst=5', 'burst='], ['algo=token_bucket', 'algorithm='],
        ['Rate=1r/s', 'rate='], ['nodelay=1', 'nodelay'],
        ['no_delay', 'nodelay'], ['dry_run=on', 'dry_run'],
        ['dryrun', 'dry_run'], ['rates=1r/s', 'rate='],
        ['failmode=open', 'fail_mode='], ['rate', 'rate=']);
refused(with_rate('1r/s rate=2r/s'),
        '"ratelimit_zone" has "rate=2r/s", expected one "rate="');
refused(with_zone('%1'), "\"ratelimit_zone\" \"z\" has no limit, $NO_LIMIT",
        'capacity=5', 'sync=strict', 'window=1m',
        'algorithm=leaky_bucket burst=5');
like($gateway->verdict("\n$ZONE\n\n$ZONE"),
     qr{^"ratelimit_zone" "z" is defined twice, first in \S+:\d+, and again$},
     'a zone that is defined twice');
refused("limit_req_zone \$arg_k zone=z:1m rate=1r/s; $ZONE",
        'the shared memory zone "z" is already declared for a different use');
refused(with_zone(''), '"ratelimit_zone" "z" has no rule, expected "rate=" or a '
                       . '"ratelimit_rule"');
refused(with_rate('1r/s redis=gone') . ' %1',
        '"ratelimit_zone" "z" has an unknown "redis=gone", %2',
        ['', 'there is none'],
        ["ratelimit_redis other { $REDIS }", 'expected "other"'],
        ["ratelimit_redis gnoe { $REDIS }", 'did you mean "gnoe"?']);

# rates and capacities
for (['a number of requests from 0 to 1073741824',
      map { "${_}r/s" } '', '-1', '1073741825', '99999999999999999999'],
     [$RATE, '5', '100', '5/s', '5q/s', '5r'],
     ['a whole number of requests, as in "1r/2s" for one in two seconds',
      '0.5r/s', '1.5r/s', '.5r/s'],
     ['a period of s, m, h or d, or a number of them, as in "100r/m"',
      '5r/', '5r/w', '5r/5', '5r/S'],
     ['a period from 1s to 366d', '5r/0s', '5r/-1s', '5r/367d',
      '5r/31622401s', '5r/99999999999999999999d'])
{
    my ($expected, @rates) = @$_;
    invalid(with_rate('%1'), 'ratelimit_zone', 'rate=', $expected, @rates);
}

invalid(with_rate('1r/s capacity=%1'), 'ratelimit_zone', 'capacity=', $COUNT,
        '', '0', 'x', '1073741825');
refused(with_rate('1r/366d capacity=100'),
        '"ratelimit_zone" "z" has "capacity=100", '
        . 'expected a capacity that the rate fills within 35 years');
invalid(with_rate('1r/s sync=%1'), 'ratelimit_zone', 'sync=',
        '"lease", "strict" or "async"',
        '', 'local', 'leases', 'Strict', '$arg_s');
refused(with_rate('1r/s %1'),
        'rule "z" has "%2", expected a zone with "redis="',
        (map { [$_, $_] } 'sync=lease', 'sync=strict', 'sync=async'),
        ['fail_mode=open sync=lease', 'fail_mode=open']);
invalid(with_rate('10r/s shards=%1'), 'ratelimit_zone', 'shards=',
        'a whole number from 2 to 64',
        '', '0', '1', '65', '-2', '2.5', 'x', '$arg_n');
invalid(with_rate('10r/s sync=async regions=%1'), 'ratelimit_zone', 'regions=',
        'a whole number from 2 to 64',
        '', '0', '1', '65', '-2', '2.5', 'x', '$arg_n');

# algorithms, limits and windows
invalid(with_rule('rate=1r/s algorithm=%1'), 'ratelimit_rule', 'algorithm=',
        '"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", '
        . '"sliding_log" or "concurrency"',
        '', 'bucket', 'token_bucket2', 'Token_bucket');
invalid(with_rule('limit=%1 window=1m'), 'ratelimit_rule', 'limit=',
        'a whole number from 0 to 1073741824, "unlimited", or a text with '
        . 'variables', '', 'none', '-1', '1073741825', '5r/s', '1.5');
invalid(with_rule('limit=1 window=%1'), 'ratelimit_rule', 'window=',
        'a time from 1s to 366d in whole seconds, "calendar:day", '
        . '"calendar:week" or "calendar:month"', 'calendar:', 'calendar:days', '',
        '0', '500ms', '1.5s', '367d', '-1s', 'x', 'calendar',
        '99999999999999999999d');
invalid(with_rule("algorithm=leaky_bucket rate=1r/s $_=%1"), 'ratelimit_rule',
        "$_=", 'a whole number from 0 to 1073741823', '', '-1', 'x',
        '1073741824') for 'burst', 'delay';

# what goes together: what stands last does not fit the algorithm
for (['capacity=5', 'leaky_bucket', 'token_bucket'],
     ['capacity=5', 'fixed_window', 'token_bucket'],
     ['burst=5', 'token_bucket', 'leaky_bucket'],
     ['burst=5', 'sliding_log', 'leaky_bucket'],
     ['nodelay', 'token_bucket', 'leaky_bucket'],
     ['delay=1', 'sliding_window', 'leaky_bucket'],
     ['rate=1r/s', 'concurrency'],
     ['limit=1 cost=2', 'concurrency'],
     ['limit=1 cost_header=a', 'concurrency'],
     ['limit=1 cost_end=$arg_c', 'concurrency'],
     ['limit=1 count_status=401', 'concurrency'],
     ['limit=1 window=1m', 'concurrency'],
     ['limit=1 retry=growth', 'concurrency'],
     ['rate=10r/s sync=strict shards=2', 'leaky_bucket'],
     ['rate=10r/s sync=strict shards=2', 'sliding_log'],
     ['limit=10 sync=strict shards=2', 'concurrency'])
{
    my ($parameters, $algorithm, $expected) = @$_;
    my ($bad) = $parameters =~ /(\S+)$/;
    my $more = $parameters =~ /^(?:rate|limit)=/ ? '' : 'rate=1r/s ';
    refused(with_rule("$more$parameters algorithm=$algorithm"),
            "\"ratelimit_rule\" \"r\" has \"$bad\" with algorithm $algorithm, "
            . 'expected ' . (defined $expected ? "algorithm $expected"
                                               : 'another algorithm'));
}

for (['tz', 'Europe/Berln',
      'a time zone that is known here, in /usr/share/zoneinfo (package tzdata)'],
     ['tz', '../passwd', 'the name of a time zone, as in "Europe/Berlin"'],
     ['tz', '', 'the name of a time zone, as in "Europe/Berlin"'],
     ['month_day', '0', 'a whole number from 1 to 31'],
     ['month_day', '32', 'a whole number from 1 to 31'])
{
    my ($name, $value, $expected) = @$_;
    invalid(with_rule("algorithm=fixed_window limit=1 window=calendar:month $name=%1"),
            'ratelimit_rule', "$name=", $expected, $value);
}

for (['tz=UTC', 'window=1d', 'a "window" of the calendar with it'],
     ['month_day=15', 'window=calendar:week',
      'the window "calendar:month" with it'])
{
    my ($parameter, $window, $expected) = @$_;
    refused(with_rule("algorithm=fixed_window limit=1 $window $parameter"),
            "\"ratelimit_rule\" \"r\" has \"$parameter\", expected $expected");
}

refused(with_rule('limit=1 window=calendar:%1 algorithm=%2'),
        '"ratelimit_rule" "r" has "window=calendar:%1" with algorithm %2, '
        . 'expected a time as in "60s", or algorithm fixed_window',
        ['day', 'token_bucket'], ['month', 'sliding_window'],
        ['day', 'sliding_log']);
refused(with_rule('limit=5 algorithm=%2 %3 sync=%1'),
        '"ratelimit_rule" "r" has "sync=%1" with algorithm %2, '
        . 'expected "sync=strict"',
        map { my $sync = $_; (["$sync", 'concurrency', ''],
                              [$sync, 'sliding_log', 'window=1m']) }
        'lease', 'async');
refused(with_rate('1r/s burst=5'),
        '"ratelimit_zone" "z" has "burst=5" with algorithm token_bucket, '
        . 'expected algorithm leaky_bucket');

for (['limit=5', 'rate=', 'rate=1r/s', 'one of them'],
     ['limit=$arg_l', 'rate=', 'rate=$arg_r', 'one of them'],
     ['window=1m', 'rate=', 'rate=1r/s', '"limit" with the window'],
     ['window=calendar:day', 'rate=', 'rate=1r/d algorithm=fixed_window',
      '"limit" with the window'],
     ['delay=1', 'nodelay', 'nodelay rate=1r/s algorithm=leaky_bucket',
      'one of them'],
     ['count_status=401', 'cost_header=', 'cost_header=X-Cost rate=1r/s',
      'one of them'],
     ['count_status=401', 'cost_end=', 'cost_end=$arg_c rate=1r/s', 'one of them'],
     ['cost_end=$arg_c', 'cost_header=', 'cost_header=X-Cost rate=1r/s',
      'one of them'],
     (map { ["sync=$_", 'count_status=', 'count_status=401 rate=1r/s',
             '"sync=strict"'] } 'lease', 'async'),
     (map { ["fail_mode=$_", 'emergency=', 'emergency=1r/s rate=1r/s',
             '"fail_mode=open"'] } 'local', 'closed'),
     (map { [$_, 'sync=', 'sync=async rate=1r/s',
             '"sync=lease" or "sync=strict"'] }
      'fail_mode=open', 'fail_mode=local', 'fail_mode=closed',
      'emergency=1r/s'),
     (map { ['shards=2', s/=.*/=/r, "$_ rate=9r/s sync=strict", 'one of them'] }
      'count_status=401', 'cost_header=X-Cost', 'cost_end=$arg_c', 'tiers=a:9r/s'),
     ['fail_mode=local', 'shards=', 'shards=2 rate=9r/s sync=strict',
      '"fail_mode=open" or "fail_mode=closed"'])
{
    my ($at, $beside, $more, $expected) = @$_;
    refused(with_rule("$more $at"), "\"ratelimit_rule\" \"r\" has \"$at\" "
            . "beside \"$beside\", expected $expected");
}

refused(with_rule('%1'), '"ratelimit_rule" "r" has %2',
    ['limit=5', '"limit=5", expected "window" with it'],
    ['algorithm=sliding_log limit=5',
     '"limit=5", expected "window" with it'],
    ['algorithm=concurrency', 'no limit, expected "limit"'],
    ['methods=GET', "no limit, $NO_LIMIT"],
    ['algorithm=leaky_bucket rate=1r/366d burst=100',
     '"burst=100", expected a burst that the rate drains within 35 years'],
    ['algorithm=sliding_log limit=10001 window=1m', '"limit=10001", expected a '
     . 'limit of at most 10000 requests for sliding_log'],
    ['algorithm=sliding_window limit=1073741824 window=366d',
     '"limit=1073741824", expected a lower limit or a shorter window for '
     . 'sliding_window: their product is at most 2^53 request-milliseconds']);

my $FEWER = 'as many shards as requests of the limit, or fewer';

refused(with_rule('shards=4 %1'),
        '"ratelimit_rule" "r" has "shards=4", expected %2',
    ['rate=12r/s', '"sync=strict" with it'],
    ['rate=12r/s sync=lease', '"sync=strict" with it'],
    ['rate=12r/s sync=async', '"sync=strict" with it'],
    ['rate=12r/s sync=strict capacity=3', $FEWER],
    ['rate=12r/s sync=strict cost=$arg_c', 'a cost without variables'],
    ['rate=12r/s sync=strict capacity=11 cost=3',
     'a cost of at most the limit divided by the shards'],
    (map { ["sync=strict $_", 'a limit without variables'] }
     'rate=$arg_r', 'limit=$arg_l window=1m',
     'limit=$arg_l window=calendar:day algorithm=fixed_window'),
    (map { ["sync=strict algorithm=$_ limit=3 window=1m", $FEWER] }
     'fixed_window', 'sliding_window'),
    ['sync=strict rate=4r/92d', 'a rate whose period is at most 366 days when it '
     . 'is multiplied by the shards']);

# which requests, and what they cost
for (['tier=', 'the name of a tier: 1 to 64 bytes without variables and control '
      . 'characters', '', '$arg_t', 'a$arg_t'],
     ['percent=', 'a whole number from 1 to 100', '', '0', '101', '-1', '5%'],
     ['group=', $NAME, '', 'a/b', '$arg_g', $LONG],
     ['priority=', 'a whole number from -1000000 to 1000000',
      '', '-', 'x', '1000001', '-1000001', '+1', '--1'],
     ['cost=', 'a whole number from 0 to 1073741824, or a text with variables',
      '', '-1', '1.5', '1073741825'],
     ['cost_header=', $NAME, '', 'a:b', '$arg_h', $LONG],
     ['cost_end=', 'a text with variables', '', '5'],
     ['cost_every=', 'a size from 64k to 1g', '', '63k', '65535', '1025m', '2g',
      '1t', 'm', '-1m', '$arg_c'],
     ['count_status=', 'statuses from 100 to 599',
      '', '99', '600', '401,', ',401', '401:403', '4xx'],
     ['retry=', '"growth"', '', 'on', 'Growth', 'grow'],
     ['host=', 'host names like "api.example.com" or "*.example.org", without '
      . 'variables', '', 'a,', ',a', '$host', 'a,$arg_h', 'h' x 257],
     ['api_key=', 'API keys like "sk_live_*" or "sk_test_1", with "*" and "?" for '
      . 'any text and any character, without variables',
      '', 'a,', ',a', '$arg_k', 'k' x 257],
     ['header=', 'a header and a glob of its value like "X-Client:bot*", without '
      . 'variables', '', 'a', ':b', 'a:', 'a.b:c', 'a:b,', '$host:a', 'a:$arg_b',
      'h' x 65 . ':a', 'a:' . 'h' x 257],
     ['arg=', 'a query argument and a glob of its value like "mode:full*", '
      . 'without variables', '', 'a', ':b', 'a:', 'a:$arg_b'],
     ['if=', 'a value with variables', '', '1'],
     ['network=', 'addresses and networks like "192.0.2.1" or "2001:db8::/32"',
      '', '10.0.0.0/33', '10.0.0', '$remote_addr', '10.0.0.1,', '::1/', 'unix:',
      'localhost'],
     ['header=', 'at most 32 conditions', join ',', ('a:b') x 33],
     ['active=', 'days, times and a time zone like '
      . '"mon-fri,09:00-17:00,Europe/Berlin"', '', 'mon,', '9:00-17:00',
      '09:00', '09:00-17:00-18:00'],
     ['active=', 'days like "mon-fri" or "sat,sun"', 'mon-fry', 'all'],
     ['active=', 'a time from "00:00" to "23:59"', '24:00-06:00'],
     ['active=', 'a time from "00:00" to "24:00"', 'mon,09:00-24:01'],
     ['active=', 'one time and one time zone', '09:00-12:00,13:00-17:00',
      'Europe/Berlin,UTC'],
     ['active=', 'the name of a time zone, as in "Europe/Berlin"', '$arg_z',
      '/etc/passwd', 'Europe//Berlin'],
     ['active=', 'a time zone that is known here, in /usr/share/zoneinfo '
      . '(package tzdata)', 'Europe/Bonn', 'Mon'],
     ['tiers=', "$TIERS, without variables", '', 'a:$arg_l'],
     ['key=', 'a value with variables', ''],
     ['methods=', 'HTTP methods like "GET"', '', 'get', 'GET,', ',GET',
      'GET,,PUT'],
     ['match=', 'a path template: must start with "/"', 'a', ''],
     ['match=', 'a path template: must not contain "//"', '/a//b'],
     ['match=', 'a path template: "**" must be the last segment', '/**/a'],
     ['match=', 'a path template: "{name}", "*" and "**" must be whole segments',
      '/a*'])
{
    my ($parameter, $expected, @values) = @$_;
    invalid(with_rule("rate=1r/s $parameter%1"), 'ratelimit_rule', $parameter,
            $expected, @values);
}

invalid(with_rule('rate=1r/s "match=%1"'), 'ratelimit_rule', 'match=',
        'a path template: must not contain ";": parameters of a path are '
        . 'ignored', '/a;b');
invalid(with_rule('rate=1r/s "match=%1"'), 'ratelimit_rule', 'match=',
        'a path template: "{}" must have a name inside', '/{}');
refused(with_rule('rate=1r/s match=%1'), '"ratelimit_rule" has an invalid '
        . '"match=%1": must not be empty behind "~"', '~', '~*');
like($gateway->verdict(with_rule('rate=1r/s match=~[a')),
     qr/^"ratelimit_rule" has an invalid "match=~\[a": pcre2?_compile\(\) .* in "\[a"$/,
     'a bad regular expression');

refused(with_rule('rate=1r/s cost_every=1m'),
        '"ratelimit_rule" "r" has "cost_every=1m", expected "cost_end" with it');
refused(with_rule("rate=1r/s $_ %1"), '"ratelimit_rule" "r" has "%1", expected '
        . '"sync=async" with it', ['regions=3'])
    for '', 'sync=lease', 'sync=strict';
refused(with_rule('rate=1r/s active=%1'),
        '"ratelimit_rule" "r" has "active=%1", expected two different times',
        'mon,09:00-09:00', '00:00-00:00');

# ratelimit_rule
refused("$ZONE ratelimit_rule r rate=1r/s;",
        '"ratelimit_rule" "r" has no zone, expected "zone=<name>"');
refused("$ZONE ratelimit_rule %1 zone=z rate=1r/s;",
        "\"ratelimit_rule\" has an invalid name \"%1\", expected $NAME",
        'a/b', $LONG);
refused(with_rule('rate=1r/s zone=z'),
        '"ratelimit_rule" has "zone=z", expected one "zone="');
refused(with_rule('rate=1r/s %1'),
        '"ratelimit_rule" has an unknown parameter "%1", expected '
        . one_of('zone=', @LIMIT, @RULE[1 .. $#RULE]), 'unit=r', 'x');
refused(with_rule('rate=1r/s %1'), '"ratelimit_rule" has an unknown parameter '
        . '"%1", did you mean "%2"?', ['burst', 'burst='],
        ['nodelay=', 'nodelay'], ['nodelays', 'nodelay'],
        ['dry_run=1', 'dry_run'], ['method=GET', 'methods=']);
refused(with_rule('rate=1r/s %1'), '"ratelimit_rule" has "%1", but "%n" is a '
        . 'parameter of "ratelimit_zone"',
        'redis=r', 'peers=p', 'state=a', 'keys_in_clear=on', 'new_keys=1r/s');
refused(with_rule('rate=1r/s %1 %1'),
        '"ratelimit_rule" has "%1", expected one "%n"',
        'rate=2r/s', 'key=$arg_a', 'match=/a', 'methods=GET', 'capacity=1',
        'sync=strict', 'shards=2', 'regions=2', 'algorithm=token_bucket', 'window=1m',
        'burst=1', 'nodelay', 'delay=1', 'dry_run', 'cost=1', 'cost_header=a',
        'cost_end=$arg_c', 'cost_every=1m', 'count_status=401', 'retry=growth',
        'group=g', 'priority=1', 'percent=1', 'tier=a',
        'host=a', 'api_key=a', 'tiers=a:1r/s', 'active=mon');
refused(with_rule('%1 tiers=%2'),
        '"ratelimit_rule" "r" has an invalid "tiers=%2", expected %3',
        ['rate=1r/s', 'a', $TIERS], ['rate=1r/s', 'a:1r/s,', $TIERS],
        ['rate=1r/s', ':1r/s', 'a tier before each ":"'],
        ['rate=1r/s', 'a:5', $RATE], ['rate=$arg_r', 'a:5', $RATE],
        ['limit=5 window=1m', 'a:1r/s', $NUMBER],
        ['limit=$arg_l window=1m', 'a:-1', $NUMBER],
        ['rate=1r/s', 'a:1r/s,b:2r/s,a:3r/s', 'one limit of each tier'],
        ['algorithm=sliding_log limit=5 window=1m', 'a:10001',
         'a limit of at most 10000 requests for sliding_log']);
refused(with_rule('rate=1r/s sync=strict'),
        'rule "r" has "sync=strict", expected a zone with "redis="');
refused('%1 ratelimit_rule r zone=gone rate=1r/s;',
        '"ratelimit_rule" "r" has an unknown "zone=gone", %2',
        ['', 'there is none'], [$ZONE, 'expected "z"']);
like($gateway->verdict($_->[0]),
     qr{^zone "z" has two rules "\w", first $_->[1]in \S+:\d+, and again$},
     $_->[0])
    for ["$ZONE ratelimit_rule z zone=z rate=1r/s;", 'its own '],
        [with_rule('rate=1r/s') . ' ratelimit_rule r zone=z rate=2r/s;', ''];

# ratelimit
refused(in_server('ratelimit %1;'), '"ratelimit" has an unknown parameter "%1", '
        . 'expected "off", or one each of "zone=", "rule=", "look", "burst=", "nodelay", '
        . '"delay="', 'on', 'z');
refused(in_server('ratelimit zones=z;'),
        '"ratelimit" has an unknown parameter "zones=z", did you mean "zone="?');
refused(in_server('ratelimit %1=;'),
        '"ratelimit" has an invalid "%1=", expected the name of a %1',
        'zone', 'rule');
refused(in_server('ratelimit zone=z %1;'),
        '"ratelimit" has "%2", but "%3" is a parameter of %4'
        =~ s/%4/"ratelimit_zone" and "ratelimit_rule"/r,
        ['capacity=20', 'capacity=20', 'capacity='],
        ['rate=20r/s nodelay', 'rate=20r/s', 'rate='],
        ['dry_run', 'dry_run', 'dry_run']);
refused(in_server('ratelimit zone=z match=/a;'), '"ratelimit" has "match=/a", '
        . 'but "match=" is a parameter of "ratelimit_rule"');
refused(in_server('ratelimit zone=z zone=z;'),
        '"ratelimit" has "zone=z", expected one "zone="');
refused(in_server('ratelimit rule=z;'),
        '"ratelimit" has no zone, expected "zone=<name>"');
refused('server { ratelimit zone=gone; } %1',
        '"ratelimit" has an unknown "zone=gone", %2',
        ['', 'there is none'], [$ZONE, 'expected "z"'],
        ["$ZONE ratelimit_zone \$arg_k zone=other:1m rate=1r/s;",
         'expected "z", "other"'],
        ['ratelimit_zone $arg_k zone=gones:1m rate=1r/s;',
         'did you mean "gones"?']);
refused(in_server('ratelimit zone=z rule=gone;'),
        '"ratelimit" has an unknown "rule=gone" of zone "z", expected "z"');
refused(in_server('%1'), '"ratelimit" counts zone "z" twice, expected the zone, '
        . 'or each of its rules, once',
        map { my $one = $_; map { "ratelimit $one; ratelimit $_;" }
              'zone=z', 'zone=z rule=z' } 'zone=z', 'zone=z rule=z');
refused(in_server('%1'), '"ratelimit" directive "off" stands beside another '
        . '"ratelimit", expected it alone',
        'ratelimit off; ratelimit zone=z;', 'ratelimit zone=z; ratelimit off;',
        'ratelimit off; ratelimit off;');
refused(in_server('ratelimit off zone=z;'),
        '"ratelimit" directive "off" takes no parameter');

# ratelimit_penalty
accepted(with_penalty($_))
    for 'after=1r/s time=1s', 'after=10000r/d time=366d', 'after=5r/1m time=1m '
        . 'key=$arg_a$arg_b action=ban on=rejected growth=1 max=1m',
        'after=5r/m time=30s action=delay on=200,599,rejected growth=1.001',
        'after=5r/30m time=2d action=close growth=1000 max=366d', 'time=1m '
        . 'after=5r/m key=all', 'after=1r/m time=1m; ratelimit_penalty q zone=z '
        . 'after=1r/m time=1m';
refused(with_penalty('%1'), '"ratelimit_penalty" "p" has no "%2"',
        ['time=1m', 'after='], ['after=1r/m', 'time=']);
refused("$ZONE ratelimit_penalty p after=1r/m time=1m;",
        '"ratelimit_penalty" "p" has no "zone="');
refused(with_penalty('after=1r/m time=1m %1'),
        '"ratelimit_penalty" has an invalid "%1", expected %2',
        ['key=', 'a value with variables'],
        (map { ["action=$_", '"ban", "close" or "delay"'] } '', 'bann', 'Ban'),
        (map { ["on=$_", '"rejected" or statuses from 200 to 599'] }
         '', '199', '600', '401,', ',401', 'reject', '401/403'),
        (map { ["growth=$_", 'a number from 1 to 1000'] }
         '', '0', '0.9', '1001', 'x', '1.0001', '-1'),
        (map { ["max=$_", 'a time from 1s to 366d'] } '', '0', '367d', '1x'));
refused(with_penalty('after=1r/m %1'),
        '"ratelimit_penalty" has an invalid "%1", expected %2',
        (map { ["time=$_", 'a time from 1s to 366d'] } '', '0', '367d', '5ms'));
refused(with_penalty('time=1m after=10001r/m'),
        '"ratelimit_penalty" has an invalid "after=10001r/m", expected a rate '
        . 'of at most 10000 requests');
refused(with_penalty('time=1m after=x'),
        '"ratelimit_penalty" has an invalid "after=x", expected a number of '
        . 'requests from 0 to 1073741824');
refused(with_penalty('after=1r/m time=1m %1'),
        '"ratelimit_penalty" has "%1", expected one "%2"',
        ['time=2m', 'time='], ['zone=y', 'zone=']);
refused(with_penalty('after=1r/m time=1m %1'),
        '"ratelimit_penalty" has an unknown parameter "%1", did you mean "%2"?',
        ['actions=ban', 'action='], ['grow=2', 'growth=']);
refused(with_penalty('after=1r/m time=31s action=delay'),
        '"ratelimit_penalty" "p" has "action=delay", expected a "time=" of at '
        . 'most 30s');
refused(with_penalty('after=1r/m time=1m max=59s'),
        '"ratelimit_penalty" "p" has a "max=" below its "time="');
refused(with_penalty('after=1r/m time=1m; ratelimit_penalty p zone=z '
                     . 'after=1r/m time=1m'),
        'zone "z" has two penalties "p", the second');
refused("$ZONE ratelimit_penalty %1 zone=z after=1r/m time=1m;",
        '"ratelimit_penalty" has an invalid name "%1", expected 1 to 64 of '
        . 'A-Z, a-z, 0-9, "_", ".", "-"',
        'a/b', 'x' x 65);
refused("$ZONE ratelimit_penalty p zone=y after=1r/m time=1m;",
        '"ratelimit_penalty" "p" has an unknown "zone=y", expected "z"');

# the small ones
for (['ratelimit_phase', 'one of "before_auth", "after_auth"', 'during_auth'],
     ['ratelimit_log_level', 'one of "info", "notice", "warn", "error"',
      'crit', '5', 'debug'],
     ['ratelimit_headers', '"x", "draft3", "ietf", "keep" or "off"', 'on', 'X', 'draft'],
     ['ratelimit_response', 'one of "json", "problem", "off"', 'on', 'html'],
     ['ratelimit_status', 'a status from 400 to 599',
      '399', '600', 'x', '-1', '4294967725'],
     ['ratelimit_penalty_status', 'a status from 400 to 599', '399', '600'],
     ['ratelimit_retry_jitter', 'a percentage from 0% to 100%',
      '10', '101%', '-1%', '%', '1.5%', '%10', '18446744073709551626%'],
     ['ratelimit_close_after', 'a number of rejections from 0 to 1000000',
      '-1', '1000001', 'off', '5%'])
{
    my ($directive, $expected, @values) = @$_;
    invalid(in_server("$directive %1;"), $directive, '', $expected, @values);
}

refused(in_server('%1 %2;'), '"%1" has an invalid "%2", did you mean "%3"?',
        ['ratelimit_log_level', 'err', 'error'],
        ['ratelimit_log_level', 'warning', 'warn'],
        ['ratelimit_log_level', 'Info', 'info'],
        ['ratelimit_response', 'JSON', 'json']);
refused(in_server('ratelimit_once %1;'), '"ratelimit_once" directive has no '
        . 'time, expected "<key> <time>" or "off"', '$arg_k', 'on', '""');
refused(in_server('ratelimit_once %1 1h;'), '"ratelimit_once" has the key "%1" '
        . 'without a variable, expected one as in "$http_idempotency_key"',
        'key', 'off');
invalid(in_server('ratelimit_once $arg_k %1;'), 'ratelimit_once', '',
        'a time from 1s to 7d', '0', '-1s', '8d', '604801s', '10ms', 'x');
refused(in_server('ratelimit_dry_run try;'), 'invalid value "try" in '
        . '"ratelimit_dry_run" directive, it must be "on" or "off"');
refused(in_server('ratelimit_api_key %1;'),
        '"ratelimit_api_key" has an invalid source "%1", '
        . 'expected "header:<name>", "bearer", "basic", "query:<name>", '
        . '"cookie:<name>" or "jwt:<claim>"',
        'header:', 'header', 'query:', 'query', 'cookie:', 'jwt:', 'jwt',
        'Bearer', 'bearer:', 'bearer:a', 'basic:', 'cookies:a');
invalid(in_server('ratelimit_headers x %1;'), 'ratelimit_headers', '',
        '"x", "draft3", "ietf", "keep" or "off"', 'draft4');
refused(in_server('ratelimit_headers %1;'),
        '"ratelimit_headers" has "off" and other values, expected "off" alone',
        'x off', 'off x', 'off off');
refused(in_server('ratelimit_headers %1;'),
        '"ratelimit_headers" has "ietf", expected one "ietf"',
        'ietf ietf', 'ietf x ietf');
refused(in_server('ratelimit_headers keep;'),
        '"ratelimit_headers" has "keep" alone, expected "x", "draft3" or "ietf"'
        . ' beside it');

# ratelimit_redis
refused('ratelimit_redis r;',
        'directive "ratelimit_redis" has no opening "{"');
invalid("ratelimit_redis %1 { $REDIS }", 'ratelimit_redis', '', $NAME,
        'a/b', $LONG);
refused(in_redis($REDIS) . in_redis($REDIS),
        '"ratelimit_redis" has an invalid "r", expected one of each name');
refused(in_redis('host a;'),
        'unknown directive "host" in "ratelimit_redis" "r", expected '
        . join ', ', map { "\"$_\"" } qw( server cluster sentinel
            sentinel_username sentinel_password_file timeout interval username
            password_file secret_file prefix buckets database tls tls_ca tls_name
            tls_certificate tls_certificate_key ));
refused(in_redis('%1 a;'), 'unknown directive "%1" in "ratelimit_redis" "r", did '
        . 'you mean "%2"?', ['password', 'password_file'],
        ['servers', 'server'], ['time_out', 'timeout']);
refused(in_redis('%1;'), 'invalid number of arguments in "%2" of '
        . '"ratelimit_redis" "r", expected %3',
        ['server', 'server', 'one'],
        ['server 127.0.0.1:1 127.0.0.1:2', 'server', 'one'],
        ['cluster', 'cluster', 'one or more']);
refused(in_redis("$REDIS %1 %2 127.0.0.1:3;"), '"%1" has an invalid "%2", '
        . 'expected one "server", one "cluster" or one "sentinel"',
        ['cluster', '127.0.0.1:2'], ['sentinel', 'm']);
refused(in_redis("$REDIS server 127.0.0.1:2;"), '"server" has an invalid '
        . '"127.0.0.1:2", expected one "server", one "cluster" or one '
        . '"sentinel"');
invalid(in_redis('sentinel %1;'), 'sentinel', '',
        'a master\'s name and one or more "host:port"', 'm');
invalid(in_redis('sentinel %1 127.0.0.1:2;'), 'sentinel', '',
        "a master's name of $NAME", 'm/n', '127.0.0.1:1');
refused(in_redis('%1%2;'), '"ratelimit_redis" "r" has an invalid address "%2" '
        . '(%3), expected "host:port"',
        (map { [$_, '127.0.0.1:70000', 'invalid port'] }
         'server ', 'cluster 127.0.0.1 ', 'sentinel m 127.0.0.1 '),
        (map { ['server ', $_, 'invalid port'] }
         '127.0.0.1:', '127.0.0.1:0', '127.0.0.1:7001-7003', '::1'),
        ['server ', ':6379', 'no host']);

# what cannot be a name, with a resolver that would be asked for it too
refused('%1' . in_redis('%2%3;'), '"ratelimit_redis" "r" has an invalid address '
        . '"%3" (invalid host), expected "host:port"',
        map { my $resolver = $_; map { [$resolver, /^(.* )(\S+)$/] }
              'server redis://127.0.0.1', 'server 10.0.0.1,10.0.0.2',
              'server 10.0.0.256:6379', 'server a..b', 'server .a',
              'server redis/0', 'cluster 127.0.0.1:7001 10.0.0.1,10.0.0.2',
              'sentinel m 127.0.0.1 10.0.0.2.3:26379' }
        '', 'resolver 127.0.0.1; ');

for (['timeout', 'a time from 1ms to 10s, as in "50ms": a number alone is '
      . 'seconds', '0', '50', '11s', '10001ms', 'x', '-1'],
     ['interval', 'a time from 100ms to 10s, as in "500ms"',
      '99ms', '0', '11s', '10001ms', 'x', '-1'],
     ['buckets', 'a power of two from 1 to 1048576',
      '0', '3', '2097152', '-2', 'x'],
     ['prefix', $NAME, 'a:b', 'a/b', $LONG],
     ['password_file', 'a file whose first line has 1 to 1023 bytes',
      'empty', 'long'],
     ['database', 'a number', '-1', 'x', '2147483648'],
     ['tls', '"on" or "off"', 'yes', 'On'])
{
    my ($directive, $expected, @values) = @$_;
    invalid(in_redis("$REDIS $directive %1;"), $directive, '', $expected,
            @values);
}

refused(in_redis("$REDIS username \"\"; password_file pw;"),
        '"username" has an invalid "", expected a name');
refused(in_redis("$REDIS %1 gone;"), "open() \"$gateway->{dir}/gone\" failed in "
        . '"%1" (2: No such file or directory)',
        'password_file', 'secret_file', 'sentinel_password_file');
refused(in_redis("$REDIS tls on; %1 \"\";"),
        '"%1" has an invalid "", expected a text',
        qw( tls_ca tls_certificate tls_certificate_key ));
invalid(in_redis("$REDIS tls on; tls_name \"%1\";"), 'tls_name', '',
        '1 to 255 characters', '', 'a' x 256);
refused(in_redis('%1'), '"ratelimit_redis" "r" has %2',
    ['', 'no address, expected "server", "cluster" or "sentinel"'],
    ["$REDIS username u;",
     'a "username", expected a "password_file" with it'],
    ['sentinel m 127.0.0.1; sentinel_username u;',
     'a "sentinel_username", expected a "sentinel_password_file" with it'],
    (map { ["$REDIS $_;",
            'a user for sentinels, expected "sentinel" with it'] }
     'sentinel_password_file pw', 'sentinel_username u'),
    (map { ["cluster 127.0.0.1:1; database $_;",
            'a "database", expected none with "cluster"'] } 0, 1),
    (map { ["$REDIS $_ a; tls off;", "\"$_\", expected \"tls on\" with it"] }
     qw( tls_ca tls_name tls_certificate tls_certificate_key )),
    (map { ["$REDIS tls on; $_->[0] a;",
            "\"$_->[0]\", expected \"$_->[1]\" with it"] }
     ['tls_certificate', 'tls_certificate_key'],
     ['tls_certificate_key', 'tls_certificate']),
    ['server unix:/run/redis; tls on;',
     '"tls on" and "unix:", expected "tls_name" with it']);
refused(in_redis("$REDIS %1 %2; %1 %2;"),
        '"%1" has another "%2", expected one "%1"', map { [split] }
        'timeout 1s', 'interval 1s', 'buckets 2', 'prefix a', 'username u', 'password_file pw',
        'secret_file pw', 'sentinel_username u', 'sentinel_password_file pw',
        'database 0', 'database 5', 'tls off', 'tls on', 'tls_ca a',
        'tls_name a', 'tls_certificate a', 'tls_certificate_key a');

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
        'algorithm=fixed_window limit=5 window=calendar:week tz=Asia/Kolkata',
        'algorithm=fixed_window limit=$arg_l window=calendar:month month_day=31 tz=UTC',
        'algorithm=concurrency limit=5', 'algorithm=concurrency limit=$arg_l',
        'algorithm=concurrency limit=5 dry_run group=g priority=-5 percent=50',
        'rate=1r/s group=a.b-c_D priority=-1000000 tier=gold percent=100',
        '"tier=the best" rate=1r/s', 'rate=1r/s cost=0', 'rate=1r/s cost=$arg_c',
        'rate=1r/s cost=1073741824', 'rate=1r/s cost=2 cost_header=X-Cost',
        'rate=1r/s cost_end=$bytes_sent', 'rate=1r/s cost_end=a$arg_a',
        (map { "rate=1r/s cost_end=\$bytes_sent cost_every=$_" } '64k', '65536', '5M',
         '1g'),
        'rate=1r/s host=example.com,*.example.com', 'rate=1r/s api_key=sk_*,a?',
        'rate=1r/s header=X-A:b*,x_a:c:d,B:? arg=a-b:*,a[b]:c if=x$arg_k$1',
        'rate=1r/s network=10.0.0.0/8,::1,0.0.0.0/0',
        (map { "rate=1r/s active=$_" } 'mon-fri,09:00-17:00,Europe/Berlin',
         'sat,sun', 'sun-sat', '22:00-06:00,fri,America/New_York', 'UTC',
         '00:00-24:00'),
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
        '1r/s algorithm=sliding_window count_status=401 retry=growth';
accepted('ratelimit_zone $arg_k zone=z:1m algorithm=concurrency limit=5;');
accepted("$ZONE ratelimit_rule $_ zone=z rate=1r/s cost=5;")
    for 'nodelay', 'dry_run', 'off';
accepted(in_server($_))
    for 'ratelimit off;', 'ratelimit zone=z;', 'ratelimit zone=z rule=z;',
        'ratelimit_tier gold;', 'ratelimit_tier "";', 'ratelimit_tier $arg_t;',
        'ratelimit_dry_run on;', 'ratelimit_dry_run off;',
        'ratelimit_once off;', 'ratelimit_once $http_a$arg_b 1s;',
        'ratelimit_once $http_a 7d; location / { ratelimit_once off; }',
        'ratelimit_api_key header:X-Key bearer header:Other;',
        'ratelimit_headers off;', 'ratelimit_headers x;',
        'ratelimit_headers draft3;', 'ratelimit_headers ietf x draft3;',
        'ratelimit_headers keep x;',
        'ratelimit_response json;', 'ratelimit_response problem;',
        'ratelimit_response off;',
        (map { "ratelimit_log_level $_;" } qw( info notice warn error )),
        'location / { ratelimit_metrics; ratelimit zone=z; }',
        'ratelimit_status 400;', 'ratelimit_status 599;',
        'ratelimit_penalty_status 400;', 'ratelimit_penalty_status 599;',
        'ratelimit_retry_jitter 0%;', 'ratelimit_retry_jitter 100%;',
        'ratelimit_close_after 0;', 'ratelimit_close_after 1000000;',
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
        "$REDIS interval 100ms;", "$REDIS interval 10s;",
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
              'sync=async regions=2', 'sync=async regions=64',
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

{
    my $message = '"ratelimit_redis" "r" has no "secret_file", so a client can '
                  . 'choose where its counters are in Redis, expected one';
    $gateway->write('secret', "s\n");
    warned(in_redis("$_;"), $message)
        for 'server 10.0.0.1:6379', 'cluster 127.0.0.1:6379 10.0.0.1:6379',
            'sentinel m 10.0.0.1:26379';
    warned(in_redis("$_;"))
        for 'server 127.0.0.1:6379', 'cluster 127.0.0.1:1 [::1]:2',
            'server unix:/run/r', 'server localhost:6379',
            'server 10.0.0.1:6379; secret_file secret';
}

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

# a bucket in shared memory, whose time is counted in milliseconds
sub slow {
    my ($most, $expected) = @_;
    return "rule \"r\" of zone \"z\" admits at most $most requests a second, "
           . "which is less than its rate, expected \"$expected\" or more";
}

warned(with_rule("rate=$_") . $USED)
    for '1000r/s capacity=1', '3000r/s', '3000r/s capacity=3', '2001r/s algorithm=leaky_bucket burst=2',
        '1000r/s algorithm=leaky_bucket', '60000r/m capacity=1', '$arg_rate capacity=1';
warned(with_rule("rate=$$_[0]") . $USED, slow(@$_[1, 2]))
    for ['1001r/s capacity=1', 1000, 'capacity=2'],
        ['3000r/s capacity=2', 2000, 'capacity=3'],
        ['3000r/s algorithm=leaky_bucket', 1000, 'burst=2'],
        ['90000r/m capacity=1', 1000, 'capacity=2'];
warned('ratelimit_redis r { server 127.0.0.1:1; } ratelimit_zone $arg_k zone=z:1m '
       . "redis=r rate=3000r/s capacity=1; $USED");

warned(with_rule("$$_[0] match=/a") . $USED,
       'rule "r" of zone "z" has the limit "' . $$_[1] . '", which is none '
       . 'without a valid token, expected a "map" of it, with a number for ""')
    for ['rate=$ratelimit_jwt_rate', '$ratelimit_jwt_rate'],
        ['limit=${ratelimit_JWT_quota} window=1h', '${ratelimit_JWT_quota}'],
        ['window=1h limit=$ratelimit_jwt_plan__limit', '$ratelimit_jwt_plan__limit'];
warned(with_rule('rate=$limit')
       . 'map $ratelimit_jwt_rate $limit { default $ratelimit_jwt_rate; "" 1r/s; } ' . $USED);

my $FOLDS = 'rule "r" of zone "z" counts by $ratelimit_route, so a client has a counter '
            . 'for each path that it invents, expected a "ratelimit_route ... /**" where '
            . '"ratelimit zone=z" is';

for my $rule (map { with_rule("rate=1r/s $_") } '"key=$arg_a ${ratelimit_ROUTE}"',
                  'match=/a/** key=$ratelimit_route')
{
    warned("$rule server { location / { ratelimit zone=z; } }", $FOLDS);
    warned("$rule server { ratelimit zone=z; ratelimit_route /a; location / { } }", $FOLDS);
    warned("$rule server { ratelimit zone=z; ratelimit_route /**; "
           . 'location / { ratelimit_route /a; } }', $FOLDS);
    warned("$rule server { location / { ratelimit_route /a /**; ratelimit zone=z; } }");
    warned("$rule server { ratelimit zone=z; location / { ratelimit_route /**; } }");
    warned("$rule ratelimit_route /**; server { ratelimit zone=z; location / { } }");
}

for ('key:sk_*', 'key:*', 'key:plain:jwt:*') {
    warned("$ZONE $USED ratelimit_allow zone=z $_;",
           "\"ratelimit_allow\" has the pattern \"$_\", so that any client can send such a "
           . 'key and is not limited, expected a whole key, a network, or "key:jwt:..."');
    warned("$ZONE $USED ratelimit_deny zone=z $_;");
}

warned("$ZONE $USED ratelimit_allow zone=z $_;") for 'key:sk_1', 'key:jwt:*', 'key:sk\\\\*';

# the place of a mistake that only the whole configuration shows
$gateway->configure(http => "\n\n    $ZONE\n    server {\n"
                            . "        ratelimit zone=gone;\n    }\n");
my ($ok, $text) = $gateway->check;
my @lines = split /^/, $gateway->read('nginx.conf');
my ($line) = grep { $lines[$_ - 1] =~ /gone/ } 1 .. @lines;
like($text, qr{ in \Q$gateway->{dir}\E/nginx\.conf:$line$}m,
     'the line is named');
