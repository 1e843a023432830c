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
my $RULE_PARAMETERS = '"zone=", "rate=", "key=", "match=", "methods=", '
                      . '"capacity=" or "sync="';
my $ZONE_PARAMETERS = 'one each of "zone=<name>:<size>", "rate=", '
                      . '"redis=<name>", "capacity=" or "sync="';


sub check {
    my $http = shift;

    $gateway->configure(http => $http);

    my ($ok, $text) = $gateway->check;

    return $ok ? 'accepted' : $text =~ /\[emerg\] (.*) in \S+:\d+$/m ? $1
                                                                    : $text;
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
refused('ratelimit_zone $arg_k rate=1r/s;',
        '"ratelimit_zone" has no zone, expected "zone=<name>:<size>"');
refused('ratelimit_zone $arg_k zone=z rate=1r/s;',
        '"ratelimit_zone" has an invalid "zone=z", '
        . 'expected "zone=<name>:<size>"');
refused("ratelimit_zone \$arg_k zone=$_:1m rate=1r/s;",
        "\"ratelimit_zone\" has an invalid name \"$_\", expected $NAME")
    for '', 'a/b', $LONG;
refused("ratelimit_zone \$arg_k zone=z:$_ rate=1r/s;",
        "\"ratelimit_zone\" \"z\" has an invalid size \"$_\", "
        . 'expected 64k or more')
    for '', '63k', 'big', '-1m';
refused("ratelimit_zone \$arg_k zone=z:1m $_;",
        "\"ratelimit_zone\" has an invalid parameter \"$_\", "
        . "expected $ZONE_PARAMETERS")
    for 'burst=5', 'redis=', 'match=/a', 'zone=y:1m';
refused('ratelimit_zone $arg_k zone=z:1m rate=1r/s rate=2r/s;',
        '"ratelimit_zone" has "rate=2r/s", expected one "rate="');
refused("ratelimit_zone \$arg_k zone=z:1m $_;",
        '"ratelimit_zone" "z" has "capacity=" or "sync=" without "rate="')
    for 'capacity=5', 'sync=strict';
refused("$ZONE $ZONE",
        '"ratelimit_zone" "z" is defined twice, expected one of each name');
refused("limit_req_zone \$arg_k zone=z:1m rate=1r/s; $ZONE",
        'the shared memory zone "z" is already declared for a different use');
refused('ratelimit_zone $arg_k zone=z:1m;',
        '"ratelimit_zone" "z" has no rule, expected "rate=" or a '
        . '"ratelimit_rule"');
refused('ratelimit_zone $arg_k zone=z:1m rate=1r/s redis=gone;',
        '"ratelimit_zone" "z" has "redis=gone", expected one that a '
        . '"ratelimit_redis" defines');
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
        . 'expected "r/" after the number of requests')
    for '5', '5/s', '5q/s', '5r', '1.5r/s';
refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . 'expected a period of s, m, h or d, or a number of them')
    for '5r/', '5r/w', '5r/5', '5r/S';
refused(with_rate($_),
        "\"ratelimit_zone\" has an invalid \"rate=$_\", "
        . 'expected a period from 1s to 366d')
    for '5r/0s', '5r/-1s', '5r/367d', '5r/31622401s',
        '5r/99999999999999999999d';
refused(with_rate("1r/s capacity=$_"),
        "\"ratelimit_zone\" has an invalid \"capacity=$_\", "
        . 'expected a number of requests from 1 to 1073741824')
    for '', '0', 'x', '1073741825';
refused(with_rate('1r/366d capacity=100'),
        '"ratelimit_zone" "z" has an invalid capacity 100, '
        . 'expected a capacity that the rate fills within 35 years');
refused(with_rate("1r/s sync=$_"),
        "\"ratelimit_zone\" has an invalid \"sync=$_\", "
        . 'expected "sync=strict"')
    for '', 'lease';
refused(with_rate('1r/s sync=strict'),
        'rule "z" has "sync=strict", expected a zone with "redis="');

# ratelimit_rule

refused("$ZONE ratelimit_rule r;",
        'invalid number of arguments in "ratelimit_rule" directive');
refused("$ZONE ratelimit_rule r rate=1r/s;",
        '"ratelimit_rule" "r" has no zone, expected "zone=<name>"');
refused(with_rule('methods=GET'),
        '"ratelimit_rule" "r" has no rate, expected "rate=<n>r/<period>"');
refused("$ZONE ratelimit_rule $_ zone=z rate=1r/s;",
        "\"ratelimit_rule\" has an invalid name \"$_\", expected $NAME")
    for 'a/b', $LONG;
refused(with_rule('rate=1r/s zone=z'),
        '"ratelimit_rule" has "zone=z", expected one "zone="');
refused(with_rule("rate=1r/s $_"),
        "\"ratelimit_rule\" has an invalid parameter \"$_\", "
        . "expected $RULE_PARAMETERS")
    for 'redis=r', 'burst', 'Rate=1r/s';
refused(with_rule("rate=1r/s $_ $_"),
        "\"ratelimit_rule\" has \"$_\", expected one \"" . s/=.*/=/r . '"')
    for 'rate=2r/s', 'key=$arg_a', 'match=/a', 'methods=GET', 'capacity=1',
        'sync=strict';
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
        "\"ratelimit_rule\" has an invalid \"match=$_\", "
        . 'expected a regular expression after "~" or "~*"')
    for '~', '~*';
like(check(with_rule('rate=1r/s match=~[a')),
     qr/^"ratelimit_rule" has an invalid "match=~\[a": pcre2?_compile\(\) /,
     'a bad regular expression');
refused(with_rule("rate=1r/s methods=$_"),
        "\"ratelimit_rule\" has an invalid \"methods=$_\", "
        . 'expected HTTP methods like "GET,POST"')
    for '', 'get', 'GET,', ',GET', 'GET,,PUT';
refused(with_rule('rate=1r/s sync=strict'),
        'rule "r" has "sync=strict", expected a zone with "redis="');
refused("$_ ratelimit_rule r zone=gone rate=1r/s;",
        '"ratelimit_rule" "r" names zone "gone", expected one that a '
        . '"ratelimit_zone" defines')
    for '', $ZONE;
refused("$ZONE ratelimit_rule z zone=z rate=1r/s;",
        'zone "z" has two rules "z", expected one of each name');
refused(with_rule('rate=1r/s') . ' ratelimit_rule r zone=z rate=2r/s;',
        'zone "z" has two rules "r", expected one of each name');
refused("server { ratelimit_rule r zone=z rate=1r/s; }",
        '"ratelimit_rule" directive is not allowed here');

# ratelimit

refused(in_server('ratelimit;'),
        'invalid number of arguments in "ratelimit" directive');
refused(in_server("ratelimit $_;"),
        "\"ratelimit\" has an invalid parameter \"$_\", "
        . 'expected "zone=<name> [rule=<id>]" or "off"')
    for 'zone=', 'on', 'z';
refused(in_server('ratelimit zone=z zone=z;'),
        '"ratelimit" has an invalid parameter "zone=z", '
        . 'expected "zone=<name> [rule=<id>]" or "off"');
refused(in_server('ratelimit rule=z;'),
        '"ratelimit" has no zone, expected "zone=<name>"');
refused(in_server('ratelimit zone=gone;'),
        '"ratelimit" has "zone=gone", expected one that a "ratelimit_zone" '
        . 'defines');
refused("server { ratelimit zone=gone; } $ZONE",
        '"ratelimit" has "zone=gone", expected one that a "ratelimit_zone" '
        . 'defines');
refused(in_server('ratelimit zone=z rule=gone;'),
        '"ratelimit" has "rule=gone", expected a rule of zone "z"');
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

refused(in_server("ratelimit_api_key $_;"),
        "\"ratelimit_api_key\" has an invalid source \"$_\", "
        . 'expected "header:<name>", "bearer", "basic", "query:<name>", '
        . '"cookie:<name>" or "jwt:<claim>"')
    for 'header:', 'header', 'query:', 'query', 'cookie:', 'jwt:', 'jwt',
        'Bearer', 'bearer:', 'bearer:a', 'basic:', 'cookies:a';
refused(in_server('ratelimit_api_key bearer; ratelimit_api_key bearer;'),
        '"ratelimit_api_key" directive is duplicate');
refused(in_server("ratelimit_headers $_;"),
        "\"ratelimit_headers\" has an invalid \"$_\", expected \"x\" or "
        . '"off"')
    for 'on', 'X';
refused(in_server('ratelimit_headers x; ratelimit_headers x;'),
        '"ratelimit_headers" directive is duplicate');
refused(in_server("ratelimit_status $_;"),
        "\"ratelimit_status\" has an invalid \"$_\", "
        . 'expected a status from 400 to 599')
    for '399', '600', 'x', '-1', '4294967725';
refused(in_server('ratelimit_status 429; ratelimit_status 429;'),
        '"ratelimit_status" directive is duplicate');

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
        . 'expected "server" or "cluster"');
refused(in_redis('password a;'),
        'unknown directive "password" in "ratelimit_redis" "r", expected '
        . '"server", "cluster", "timeout", "username", "password_file", '
        . '"secret_file", "prefix" or "buckets"');
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
        . 'expected one "server" or one "cluster"')
    for 'server', 'cluster';
refused(in_redis("$_ 127.0.0.1:70000;"),
        '"ratelimit_redis" "r" has an invalid address "127.0.0.1:70000" '
        . '(invalid port), expected "host:port"')
    for 'server', 'cluster 127.0.0.1';
refused(in_redis("$REDIS timeout $_;"),
        "\"timeout\" has an invalid \"$_\", expected a time from 1ms to 60s")
    for '0', '61s', 'x', '-1';
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
refused(in_redis("$REDIS $_ gone;"),
        "open() \"$gateway->{dir}/gone\" failed in \"$_\" "
        . '(2: No such file or directory)')
    for 'password_file', 'secret_file';
refused(in_redis("$REDIS password_file $_;"),
        "\"password_file\" has an invalid \"$_\", "
        . 'expected a file whose first line has 1 to 1023 bytes')
    for 'empty', 'long';

for ('timeout 1s', 'buckets 2', 'prefix a', 'username u', 'password_file pw',
     'secret_file pw')
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
accepted(in_server($_))
    for 'ratelimit off;', 'ratelimit zone=z;', 'ratelimit zone=z rule=z;',
        'ratelimit_api_key header:X-Key bearer header:Other;',
        'ratelimit_headers off;', 'ratelimit_headers x;',
        'ratelimit_status 400;', 'ratelimit_status 599;',
        'ratelimit zone=z; location / { ratelimit off; } '
        . 'location /a { ratelimit zone=z; }';
accepted(with_rule("rate=1r/s $_"))
    for '', 'key=$arg_a$arg_b', 'match=/', '"match=/v1/users/{id}"',
        'match=/a/*/b/**', 'match=~^/a', 'match=~*^/a', 'methods=GET',
        'methods=GET,POST,TRACE', 'capacity=5', '"match=/a b"';
accepted(in_redis($_))
    for $REDIS, 'server 127.0.0.1;', 'server [::1]:6379;',
        'cluster 127.0.0.1:7001 127.0.0.1:7002;',
        "$REDIS timeout 1ms; prefix a.b-c_D; buckets 1;",
        "$REDIS timeout 60s; buckets 1048576;",
        "$REDIS password_file pw;", "$REDIS username u; password_file pw;",
        "$REDIS secret_file crlf;",
        "$REDIS secret_file $gateway->{dir}/pw;";

# the order of what names and what is named does not matter

accepted("server { ratelimit zone=z rule=r; } "
         . 'ratelimit_rule r zone=z rate=1r/s sync=strict; '
         . 'ratelimit_zone $arg_k zone=z:1m redis=r; '
         . in_redis($REDIS));
accepted("ratelimit zone=z; $ZONE");

# the place of a mistake that only the whole configuration shows

$gateway->configure(http => "\n\n    $ZONE\n    server {\n"
                            . "        ratelimit zone=gone;\n    }\n");
my ($ok, $text) = $gateway->check;
my @lines = split /^/, $gateway->read('nginx.conf');
my ($line) = grep { $lines[$_ - 1] =~ /gone/ } 1 .. @lines;
like($text, qr{ in \Q$gateway->{dir}\E/nginx\.conf:$line$}m,
     'the line is named');
