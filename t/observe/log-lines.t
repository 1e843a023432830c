# The lines that a request causes in the error log: one for each rejection, at
# the level of ratelimit_log_level; of all other kinds one a second, with the
# number of those that were not written. And the filter of fail2ban.

use Digest::SHA qw( sha256_hex );
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header output wait_for );
use t::JWT;
use t::Rules;

my $UPSTREAM = 'proxy_pass http://unix:%%DIR%%/api.sock;';

my $gateway = t::Gateway->limited(
    redis => { gone => 'server 127.0.0.1:1; timeout 100ms' },
    files => { secret => t::JWT::json(t::JWT::oct('x' x 32)),
               'rules.state' => t::Rules::record(1, { rules => [],
                                                      deny => ['bad'] }) },
    zone => {
        api => 'rate=2r/h',
        other => 'limit=3 window=1m algorithm=fixed_window',
        flight => 'limit=1 algorithm=concurrency',
        never => 'rate=2r/h cost=3',
        listed => 'key=$ratelimit_api_key rate=9999r/s state=rules.state',
        leaky => 'rate=200r/s burst=50000 algorithm=leaky_bucket',
        try => 'rate=1r/h dry_run',
        'leaky-try' => 'rate=1r/m burst=9000 algorithm=leaky_bucket dry_run',
        closed => 'rate=9r/s redis=gone fail_mode=closed',
        cost => 'rate=100000r/s cost=$arg_cost',
        rate => 'rate=$arg_rate',
        header => 'rate=100000r/s cost_header=X-Cost',
        many => '',
        regex => '',
    },
    rules => [(map { "r$_ zone=many rate=9999r/s" } 1 .. 17),
              'regex zone=regex rate=100000r/s "match=~^/regex/(?:a+)+$"'],
    http => <<'CONF',
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Client;
    server {
        listen unix:%%DIR%%/api.sock;
        add_header X-Cost much;
        return 200;
    }
CONF
    server => 'ratelimit_api_key header:X-Key;',
    locations => {
        '/info' => 'ratelimit zone=api;',
        '/notice' => 'ratelimit zone=api; ratelimit_log_level notice;',
        '/warn' => <<"CONF",
            ratelimit_log_level warn;
            ratelimit zone=api;
            location /warn/other { ratelimit zone=other; empty_gif; }
            location /warn/never { ratelimit zone=never; empty_gif; }
            location /warn/flight { ratelimit zone=flight; $UPSTREAM }
            location /warn/leaky { ratelimit zone=leaky; empty_gif; }
            location /warn/listed { ratelimit zone=listed; empty_gif; }
CONF
        '/error' => 'ratelimit_log_level error; ratelimit zone=api;'
                    . 'location /error/leaky { ratelimit zone=leaky; empty_gif; }',
        '/header' => "ratelimit zone=header; $UPSTREAM",
        (map { ("/$_" => "ratelimit zone=$_;") }
         qw( leaky try leaky-try closed cost rate many regex )),
        '/listed-try' => 'ratelimit_dry_run on; ratelimit zone=listed;',
        '/token' => 'ratelimit zone=listed; ratelimit_api_key jwt:sub;'
                    . 'ratelimit_jwt_key secret;',
    });
my $dir = $gateway->{dir};

t::Clock::stop();

my $from = 0;

# The lines that the module wrote since it was asked last: "level: line".
sub lines {
    my $text = substr $gateway->log, $from;
    $from += length $text;
    return map { /\[(\w+)\] \S+ \*\d+ (.*)/ ? "$1: $2" : $_ }
           grep { /\] \d+#\d+: \*\d+ / && /ratelimit/ } split /\n/, $text;
}

# A client's requests, one after the other, and what the log says of them.
sub said {
    my ($n, $path, @headers) = @_;
    lines();
    $gateway->get($path, @headers) for 1 .. $n;
    return lines();
}

# n at once, of which some may be delayed: what the log says before time goes
# on, and the answers.
sub burst {
    my ($n, @request) = @_;
    my $begun = $gateway->begin($n, @request);
    wait_for(sub { t::Gateway::answered($begun) + $gateway->waiting == $n });
    my @lines = lines();
    advance(60);
    return \@lines, t::Gateway::finish($begun);
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
    is_deeply([said(5, $path, 'X-Client: 192.0.2.7')],
              [("$_: request rejected by ratelimit rule \"api\" of zone \"api\", "
                . key($_) . ', limit 2 in 3600 s, retry after 1800 s, '
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

my $slow = $gateway->connect_to;
print $slow "POST /warn/flight?k=a HTTP/1.0\r\nContent-Length: 1\r\n\r\n";
like((said(1, '/warn/flight?k=a'))[0],
     qr/^warn: request rejected .*, \Q${\key('a')}\E, limit 1, retry after \d+ s, /,
     'requests in flight');
close $slow;

is_deeply([said(3, '/warn/listed', 'X-Key: bad', 'X-Client: 192.0.2.9')],
          [('warn: request denied by the list of ratelimit zone "listed", '
            . key('bad') . ', ' . context('/warn/listed', '192.0.2.9')) x 3],
          'a denied request, too');

# The others: one a second, with the number of those that it stands for.
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
     ['info: ratelimit: the bearer token is not valid: its signature',
      'token', '/token', "Authorization: Bearer $token"],
     ['error: pcre', 'regex', '/regex/' . 'a' x 40 . 'b'],
     ['info: request delayed ' . $RULE, 'leaky', '/leaky?k=a'])
{
    my ($line, $zone, $path, @headers) = @$_;
    limited($line =~ s/%(?:1\$)?s/$zone/gr, $path, @headers);
}

# a delay is a level lower than a rejection, as in limit_req
for (['/warn', 'notice'], ['/error', 'warn'], ['', 'info']) {
    my ($lines) = burst(2, "$_->[0]/leaky?k=b$_->[1]");
    like($lines->[0], qr/^$_->[1]: request delayed .*, limit 200 in 1 s, burst 50000, for 5 ms/,
         "$_->[1]: a delay");
}

sub limited {
    my ($line, $path, @headers) = @_;
    lines();
    my ($first, @answers) = burst($path =~ /regex/ ? 4 : 300, $path, @headers);
    my $caused = grep { causes($path, header($_, 'X-Status')) } @answers;
    my ($then) = burst(5, $path, @headers);
    is(scalar @$first, 1, "$line: a line in this second");
    is(scalar @$then, 1, "$line: and one later");
    is((grep { index($_, $line) != 0 } @$first, @$then), 0,
       "$line: no other line") or diag(@$first, @$then);
    unlike($first->[0], qr/suppressed/, "$line: the first stands for itself");
    is(($then->[0] =~ /\((\d+) similar lines? suppressed\)/)[0], $caused - 1,
       "$line: the second for all others");
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
    $n{$_}++ for split /\n/, output('fail2ban-regex', '-o', 'ip',
                                    "$dir/all.log", $filter);
    return \%n;
}

$gateway->stop;
