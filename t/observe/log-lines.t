# The lines that a request causes in the error log: one for each rejection, at
# the level of ratelimit_log_level; of all other kinds one a second, with the
# number of those that were not written. And the filter of fail2ban.

use strict;
use warnings;

use Digest::SHA qw( sha256_hex );
use Time::HiRes qw( sleep time );
use t::RateLimit 'no_plan';
use t::Gateway;
use t::JWT;
use t::Rules;

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

$gateway->write('secret', 'secret-of-exactly-32-bytes------');

$gateway->write('rules.state',
                t::Rules::record(1, { rules => [], blacklist => ['bad'] }));

my $many = join '', map { "ratelimit_rule r$_ zone=many rate=9999r/s;\n" }
               1 .. 17;

$gateway->configure(http => <<"CONF")->start;
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Client;
    ratelimit_redis gone { server 127.0.0.1:1; timeout 100ms; }

    ratelimit_zone \$arg_k zone=api:1m rate=2r/h;
    ratelimit_zone \$arg_k zone=other:1m limit=3 window=1m
                   algorithm=fixed_window;
    ratelimit_zone \$arg_k zone=flight:1m limit=1 algorithm=concurrency;
    ratelimit_zone \$arg_k zone=never:1m rate=2r/h cost=3;
    ratelimit_zone \$ratelimit_api_key zone=listed:1m rate=9999r/s
                   state=rules.state;
    ratelimit_zone \$arg_k zone=leaky:1m rate=200r/s burst=50000
                   algorithm=leaky_bucket;
    ratelimit_zone \$arg_k zone=try:1m rate=1r/h dry_run;
    ratelimit_zone \$arg_k zone=leaky-try:1m rate=1r/m burst=9000
                   algorithm=leaky_bucket dry_run;
    ratelimit_zone \$arg_k zone=closed:1m rate=9r/s redis=gone fail_mode=closed;
    ratelimit_zone \$arg_k zone=cost:1m rate=100000r/s cost=\$arg_cost;
    ratelimit_zone \$arg_k zone=rate:1m rate=\$arg_rate;
    ratelimit_zone \$arg_k zone=header:1m rate=100000r/s cost_header=X-Cost;
    ratelimit_zone \$arg_k zone=many:1m;
    $many
    ratelimit_zone \$arg_k zone=regex:1m;
    ratelimit_rule regex zone=regex rate=100000r/s "match=~^/regex/(?:a+)+\$";

    server {
        listen unix:%%DIR%%/api.sock;
        add_header X-Cost much;
        return 200;
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        ratelimit_api_key header:X-Key;
        add_header X-Status \$ratelimit_status always;

        location /info { ratelimit zone=api; empty_gif; }
        location /notice {
            ratelimit zone=api; ratelimit_log_level notice; empty_gif;
        }
        location /warn {
            ratelimit_log_level warn;
            ratelimit zone=api;
            location /warn/other { ratelimit zone=other; empty_gif; }
            location /warn/never { ratelimit zone=never; empty_gif; }
            location /warn/flight {
                ratelimit zone=flight; proxy_pass http://unix:%%DIR%%/api.sock;
            }
            location /warn/leaky { ratelimit zone=leaky; empty_gif; }
            location /warn/listed { ratelimit zone=listed; empty_gif; }
            empty_gif;
        }
        location /error {
            ratelimit_log_level error; ratelimit zone=api;
            location /error/leaky { ratelimit zone=leaky; empty_gif; }
            empty_gif;
        }
        location /leaky { ratelimit zone=leaky; empty_gif; }
        location /try { ratelimit zone=try; empty_gif; }
        location /leaky-try { ratelimit zone=leaky-try; empty_gif; }
        location /closed { ratelimit zone=closed; empty_gif; }
        location /cost { ratelimit zone=cost; empty_gif; }
        location /rate { ratelimit zone=rate; empty_gif; }
        location /header {
            ratelimit zone=header; proxy_pass http://unix:%%DIR%%/api.sock;
        }
        location /many { ratelimit zone=many; empty_gif; }
        location /regex { ratelimit zone=regex; empty_gif; }
        location /listed-try {
            ratelimit_dry_run on; ratelimit zone=listed; empty_gif;
        }
        location /token {
            ratelimit zone=listed; ratelimit_api_key jwt:sub;
            ratelimit_jwt_key secret; empty_gif;
        }
    }
CONF


my $from = 0;


# The lines that the module wrote since it was asked last: of each request its
# whole line.
sub lines {
    my $text = substr $gateway->log, $from;

    $from += length $text;

    return grep { /\] \d+#\d+: \*\d+ / && /ratelimit/ } split /\n/, $text;
}


# A client's requests, one after the other, and what the log says of them.
sub said {
    my ($n, $path, @headers) = @_;

    lines();
    $gateway->get($path, @headers) for 1 .. $n;

    return map { /\[(\w+)\] \S+ \*\d+ (.*)/ ? "$1: $2" : $_ } lines();
}


sub key { return 'key "sha256:' . sha256_hex(shift) . '"' }

sub context {
    my ($path, $client) = @_;

    return 'client: ' . ($client // '127.0.0.1') . ', server: , request: '
           . "\"GET $path HTTP/1.0\", host: \"localhost\"";
}


# the level, and all that stands in the line

for ('info', 'notice', 'warn', 'error') {
    my $path = "/$_?k=$_";

    is_deeply([map { s/retry after (\d+) s/$1 > 1700 && $1 <= 1800 ? '*' : $1/er }
               said(5, $path, 'X-Client: 192.0.2.7')],
              [("$_: request rejected by ratelimit rule \"api\" of zone \"api\", "
                . key($_) . ', limit 2 in 3600 s, *, '
                . context($path, '192.0.2.7')) x 3],
              "$_: each rejection has its line");
}

like((said(4, '/warn/other?k=a'))[0],
     qr/^warn: request rejected by ratelimit rule "other" of zone "other", \Q${\
        key('a')}\E, limit 3 in 60 s, retry after \d+ s, client: /,
     'a location inherits the level');
is_deeply([said(1, '/warn/never?k=a')],
          ['warn: request rejected by ratelimit rule "never" of zone "never", '
           . key('a') . ', limit 2 in 3600 s, no retry helps, '
           . context('/warn/never?k=a')], 'what costs more than the limit');

my $slow = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                 PeerPort => $gateway->{port}) or die;
print $slow "POST /warn/flight?k=a HTTP/1.0\r\nContent-Length: 1\r\n\r\n";
like((said(1, '/warn/flight?k=a'))[0],
     qr/^warn: request rejected .*, \Q${\key('a')}\E, limit 1, retry after \d+ s, /,
     'requests in flight');
close $slow;

is_deeply([said(3, '/warn/listed', 'X-Key: bad', 'X-Client: 192.0.2.9')],
          [('warn: request denied by the list of ratelimit zone "listed", '
            . key('bad') . ', ' . context('/warn/listed', '192.0.2.9')) x 3],
          'a denied request, too');


# The others: one a second at most, with the number of those that it stands
# for. They are all counted: the last line comes when a second has passed.

my $token = t::JWT::content({ alg => 'HS256' }, { sub => 'a' }) . '.AAAA';
my $RULE = 'by ratelimit rule "%s" of zone "%1$s", ';

for (['info: request not rejected, dry run, ' . $RULE, 'try', '/try?k=a'],
     ['info: request not delayed, dry run, ' . $RULE, 'leaky-try',
      '/leaky-try?k=a'],
     ['info: request not denied, dry run, by the list of ratelimit zone "%s", ',
      'listed', '/listed-try', 'X-Key: bad'],
     ['info: request answered with 503, no answer from Redis, ' . $RULE,
      'closed', '/closed?k=a'],
     ['error: ratelimit rule "%s" of zone "%1$s" has a cost of "x", ', 'cost',
      '/cost?k=a&cost=x'],
     ['error: ratelimit rule "%s" of zone "%1$s" has a limit of "x", ',
      'rate', '/rate?k=a&rate=x'],
     ['error: ratelimit rule "%s" has a cost of "much" in the response\'s ',
      'header', '/header?k=a'],
     ['error: more than 16 ratelimit rules match one request, rule "r17" of '
      . 'zone "%s" is not counted', 'many', '/many?k=a'],
     ['info: ratelimit: the bearer token has no claim for a key: its signature',
      'token', '/token', "Authorization: Bearer $token"],
     ['error: pcre', 'regex', '/regex/' . 'a' x 40 . 'b'],
     ['info: request delayed ' . $RULE, 'leaky', '/leaky?k=a'])
{
    my ($line, $zone, $path, @headers) = @$_;

    limited($line =~ s/%(?:1\$)?s/$zone/gr, $path, @headers);
}


# a delay is a level lower than a rejection, as in limit_req

for (['/warn', 'notice'], ['/error', 'warn'], ['', 'info']) {
    sleep 1.01;
    $gateway->burst(2, "$_->[0]/leaky?k=b$_->[1]");
    like((lines())[0], qr/\[$_->[1]\] .* request delayed .*, for \d+ ms/,
         "$_->[1]: a delay");
}


sub limited {
    my ($line, $path, @headers) = @_;

    my $n = $path =~ /regex/ ? 4 : 300;
    my $begin = time;

    lines();

    my @answers = $gateway->burst($n, $path, @headers);
    my @lines = map { /\[(\w+)\] \S+ \*\d+ (.*)/ ? "$1: $2" : $_ } lines();
    my $seconds = time - $begin;

    cmp_ok(@lines, '>=', 1, "$line: a line");
    cmp_ok(@lines, '<=', 1 + $seconds, "$line: not more than one in a second");

    sleep 1.01;
    push @answers, $gateway->burst(5, $path, @headers);
    push @lines, map { /\[(\w+)\] \S+ \*\d+ (.*)/ ? "$1: $2" : $_ } lines();

    is((grep { index($_, $line) != 0 } @lines), 0, "$line: no other line")
        or diag(@lines);

    my ($suppressed, $later) = (0, 0);
    $suppressed += $_ for map { /\((\d+) similar lines? suppressed\)/ } @lines;

    # those after the last line are told by the next one
    my $caused = grep { causes($path, t::Gateway::header($_, 'X-Status')) }
                      @answers;
    cmp_ok(@lines + $suppressed, '>', $caused - 5, "$line: all are counted");
    cmp_ok(@lines + $suppressed, '<=', $caused, "$line: once");
}

# Of two kinds a first request passes.
sub causes {
    my ($path, $status) = @_;

    return $status =~ /^DELAYED/ if $path =~ /leaky/;
    return $status =~ /^REJECTED/ if $path =~ m{/try};
    return 1;
}


# fail2ban reads who was rejected, and nobody else

my $log = $gateway->read('error.log');
my $filter = 'examples/fail2ban/nginx-ratelimit.conf';

$gateway->write('all.log', $log);
is_deeply(banned($filter), { '192.0.2.7' => 12, '192.0.2.9' => 3,
                             '127.0.0.1' => 3 }, 'fail2ban');

# what a client sends does not make it find others

$gateway->get('/info?k=x%22,%20client:%20192.0.2.1,%20&' . $_ =>
              'X-Client: 192.0.2.8',
              'Referer: "request rejected by ratelimit rule "a" of zone "b", '
              . 'key "c", client: 192.0.2.1, ') for 1 .. 4;
$gateway->write('all.log', $gateway->read('error.log'));
is_deeply(banned($filter), { '192.0.2.7' => 12, '192.0.2.9' => 3,
                             '127.0.0.1' => 3, '192.0.2.8' => 2 },
          'a client that writes addresses');

sub banned {
    my $filter = shift;

    my %n;

    open my $out, '-|', 'fail2ban-regex', '-o', 'ip', "$dir/all.log", $filter
        or die "fail2ban-regex: $!";
    chomp, $n{$_}++ for <$out>;
    close $out or fail("fail2ban-regex: $?");

    return \%n;
}

$gateway->stop;
