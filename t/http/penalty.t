# "ratelimit_penalty": what is an event, when a penalty begins and ends, what a
# penalized request gets, and that it touches no counter.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally wait_for );

use t::Http2;

# more than one request may meet
my $MANY = join "\n", map { "ratelimit_rule m$_ zone=many rate=9r/h;" } 1 .. 17;

my $gateway = t::Gateway->limited(
    workers => 2, zone => 'rate=3r/h',
    http => <<'CONF' =~ s/RULES/$MANY/r,
    ratelimit_zone $arg_k zone=fails:1m rate=1000r/s keys_in_clear=on;
    ratelimit_zone $arg_k zone=closes:1m rate=1r/h;
    ratelimit_zone $arg_k zone=delays:1m rate=1r/h;
    ratelimit_penalty flood zone=z after=2r/1m time=1m max=5m;
    ratelimit_penalty login zone=fails key=$arg_ip after=2r/1m time=1m
                      on=401,403 growth=1.5;
    ratelimit_penalty missing zone=fails after=5r/1m time=10s on=404;
    ratelimit_penalty end zone=closes after=1r/1m time=1h action=close;
    ratelimit_penalty hold zone=delays after=1r/1m time=20s action=delay;
    ratelimit_zone $arg_q zone=quota:1m rate=1r/30d;
    ratelimit_zone $arg_k zone=many:1m rate=9r/h;
    RULES
    ratelimit_zone $arg_k zone=ones:1m rate=1r/h;
    ratelimit_rule other zone=ones rate=1000r/s;
    ratelimit_penalty once zone=ones after=2r/1m time=1m on=rejected,429;
CONF
    server => 'add_header X-Penalty $ratelimit_penalty always;',
    locations => {
        '/' => 'ratelimit zone=z;',
        '/403' => 'ratelimit zone=z; ratelimit_penalty_status 403;',
        '/own' => 'ratelimit zone=z; ratelimit_status 503;',
        '/problem' => 'ratelimit zone=z; ratelimit_response problem;',
        '/page' => 'ratelimit zone=z; error_page 429 /said;',
        '/silent' => 'ratelimit zone=z; ratelimit_status 444;',
        '/quiet' => 'ratelimit zone=z; ratelimit_headers off;',
        '/dry' => 'ratelimit zone=z; ratelimit_dry_run on;',
        '/said' => 'return 429 "page\n";',
        '/login' => 'ratelimit zone=fails; '
                    . 'proxy_pass http://127.0.0.1:%%PORT%%/status;',
        '/dry-login' => 'ratelimit zone=fails; ratelimit_dry_run on; '
                        . 'proxy_pass http://127.0.0.1:%%PORT%%/status;',
        '/status' => 'if ($arg_s = 401) { return 401; }'
                     . 'if ($arg_s = 403) { return 403; }'
                     . 'if ($arg_s = 404) { return 404; } return 200;',
        '/close' => 'ratelimit zone=closes;',
        '/delay' => 'ratelimit zone=delays;',
        '/both' => 'ratelimit zone=z; ratelimit zone=closes;',
        '/quota' => 'ratelimit zone=z; ratelimit zone=quota;',
        '/ones' => 'ratelimit zone=ones;',
        '/many' => 'ratelimit zone=many; ratelimit zone=z;',
        '/ones/page' => 'ratelimit zone=ones; error_page 429 /ones;',
        '/ones/rules' => 'ratelimit zone=ones rule=ones; '
                         . 'ratelimit zone=ones rule=other;',
    });

# What each of these requests gets: status, and the penalty.
sub told {
    my ($path, $n) = @_;
    return join ', ', map {
        my $answer = $gateway->get($path);
        join ' ', grep { length } $answer->{status},
                                  header($answer, 'X-Penalty')
    } 1 .. $n // 1;
}

t::Clock::stop();

# rejections
is(told('/?k=a', 6), '200, 200, 200, 429, 429, 429', 'three rejections');

my $answer = $gateway->get('/?k=a');

is(join(' ', map { length ? $_ : '-' } $answer->{status},
        map { header($answer, $_) }
        qw( X-Status X-Penalty Retry-After X-RateLimit-Limit X-Rule )),
   '429 PENALIZED flood 60 - -', 'more than two begin a penalty');
like($answer->{body}, qr/^\{"error":\{"code":"PENALIZED","message":"Too\ many
     \ rejected\ or\ failed\ requests","details":
     \{"retry_after_seconds":60\}\}\}\n$/x, 'its body');
is(told('/?k=b'), '200', 'of this key alone');
is(told('/many?k=a'), '429 flood', 'also behind more rules than are counted');
is(told('/403?k=a'), '403 flood', '"ratelimit_penalty_status"');
is(told('/own?k=a'), '503 flood', 'else "ratelimit_status"');
is(told('/dry?k=a'), '200', 'not in a dry run');

$answer = $gateway->get('/problem?k=a');
like($answer->{body}, qr/#abnormal-usage-detected","title":"Abnormal\ Usage
     \ Detected","status":429,"detail":"Too\ many\ rejected/x, 'a problem');
is($gateway->get('/page?k=a')->{body}, "page\n", 'an error page');
is($gateway->get('/silent?k=a')->{status}, 0, 'no answer at all');
is(header($gateway->get('/quiet?k=a'), 'Retry-After'), '', 'no headers');

$gateway->log_has(qr/\[warn\] .* ratelimit\ penalty\ "flood"\ of\ zone
                     \ "z"\ begins:\ ban\ for\ 60\ s,
                     \ key\ "sha256:ca978112[0-9a-f]+",
                     \ number\ 1\ of\ this\ key/x, 'the log has it');

# it ends at the moment that Retry-After named, and touched no counter
advance(59);
is(header($gateway->get('/?k=a'), 'Retry-After'), 1, 'a second before its end');
advance(1);
is(told('/?k=a', 4), '429, 429, 429, 429 flood', 'its end, and a repetition');
is(header($gateway->get('/?k=a'), 'Retry-After'), 120, 'which is twice as long');
advance(120);
is(told('/?k=a', 3), '429, 429, 429', 'a third one');
is(header($gateway->get('/?k=a'), 'Retry-After'), 240, 'twice as long again');
advance(240);
is(told('/?k=a', 3), '429, 429, 429', 'a fourth one');
is(header($gateway->get('/?k=a'), 'Retry-After'), 300, 'is of "max="');
advance(600);
is(told('/?k=a', 3), '429, 429, 429', 'after "max=" without one');
is(header($gateway->get('/?k=a'), 'Retry-After'), 60, 'it is forgotten');

advance(3600);
is(told('/?k=a', 3), '200, 200, 200', 'the counter is full again');

# too few in the time are none
is(told('/?k=slow', 5), '200, 200, 200, 429, 429', 'two');
advance(60);
is(told('/?k=slow', 3), '429, 429, 429', 'and three more, a minute later');
is(told('/?k=slow'), '429 flood', 'of which the third was too many');

# a reload
$gateway->reload;
is(told('/?k=slow'), '429 flood', 'a reload keeps it');

# statuses
is(told('/login?ip=1&s=401', 2), '401, 401', 'two failures');
is(told('/login?ip=1&s=200', 9), join(', ', (200) x 9), 'others do not count');
is(told('/login?ip=2&s=401'), '401', 'of another key');
is(told('/login?ip=1&s=403'), '403', 'the third failure');
is(told('/login?ip=1'), '429 login', 'begins a penalty');
is(told('/login?ip=2'), '200', 'of that key alone');
$gateway->log_has(qr/penalty "login" .* key "sha256:/, 'a hash in the log');
is(told('/dry-login?ip=3&s=401', 5), join(', ', (401) x 5), 'in a dry run');
is(told('/login?ip=3'), '200', 'nothing is an event');
advance(60);
is(told('/login?ip=1&s=401', 4), '401, 401, 401, 429 login', 'a repetition');
is(header($gateway->get('/login?ip=1'), 'Retry-After'), 90, '"growth=1.5"');

# of two penalties that of the longer wait
is(told('/login?ip=5&k=x&s=404', 6), join(', ', (404) x 6), 'not found');
is(told('/login?ip=5&k=x'), '429 missing', 'the key of the zone');
is(told('/login?ip=5&k=y'), '200', 'is not that of another penalty');
is(told('/login?ip=1&k=x'), '429 login', 'the longer one');

# a request is one event of a penalty, for several reasons
for my $path ('/ones', '/ones/page', '/ones/rules') {
    is(told("$path?k=$path", 5), '200, 429, 429, 429, 429 once', "$path: one");
}

# a request that no key names
is(told('/login?s=401', 9), join(', ', (401) x 9), 'an empty key is none');

# only the zone that rejects
is(told('/both?k=c', 2), '200, 429', 'two zones');
is(told('/both?k=c', 2), '429, 429 end', 'of which one has rejected');
is(told('/?k=c', 4), '200, 200, 429, 429', 'the other has counted one request');

# also if another one has the longer wait
is(told('/?k=q', 3), '200, 200, 200', 'a limit is spent');
is(told('/quota?k=e&q=q', 2), '200, 429', 'and that of another zone');
is(told('/quota?k=q&q=q', 4), '429, 429, 429, 429 flood', 'a zone that rejects');
is(told('/quota?k=e&q=q', 9), join(', ', (429) x 9), 'one that does not');

# action=close
$answer = $gateway->raw("GET /close?k=c HTTP/1.1\r\nHost: t\r\n\r\n" x 3);
is(() = $answer =~ /^HTTP/mg, 1, 'no answer behind that of the penalty');
like($answer, qr/^Connection: close\r$/m, 'and the connection is closed');

# action=delay
is(told('/delay?k=d', 3), '200, 429, 429', 'rejected');

my $begun = $gateway->begin(2, '/delay?k=d');

wait_for(sub { $gateway->waiting == 2 });
advance(19.9);
is($gateway->get('/?k=other')->{status}, 200, 'others pass');
is(t::Gateway::answered($begun), 0, 'no answer until its time has passed');
wait_for(sub { advance(0.1); t::Gateway::answered($begun) == 2 });
is(tally(t::Gateway::finish($begun)), '2 x 429', 'the answers');
is(told('/delay?k=d'), '429', 'the penalty is over, too');

$gateway->stop;

# the most at once: an eighth of a worker's 2,048 connections
my $few = t::Gateway->limited(zone => 'rate=1r/h',
    http => 'ratelimit_penalty hold zone=z after=1r/1h time=20s action=delay;');

$few->get('/?k=d') for 1 .. 3;
$begun = $few->begin(260, '/?k=d');
ok(wait_for(sub { t::Gateway::answered($begun) == 4 && $few->waiting == 256 }),
   'others are answered at once');

# a client that leaves gives its place back
my ($fd) = keys %{ $begun->{open} };
my $left = delete $begun->{open}{$fd};

pop @{ $begun->{answers} };
$begun->{poll}->remove($left->{socket});
close $left->{socket};
wait_for(sub { $few->waiting == 255 });

my $more = $few->begin(1, '/?k=d');

wait_for(sub { $few->waiting == 256 });
is(t::Gateway::answered($more), 0, 'a place that a client has left');
wait_for(sub { advance(1); t::Gateway::answered($begun) == 259 });
wait_for(sub { advance(1); t::Gateway::answered($more) });
is($few->get('/?k=d')->{status}, 429, 'it serves');

$few->stop;

# HTTP/2
my $http2 = t::Gateway->limited(zone => 'rate=1r/h', listen => 'http2',
    http => 'ratelimit_penalty end zone=z after=1r/1m time=1h action=close;');
my $client = t::Http2->new($http2->{port});

for my $stream (1, 3, 5) {
    $client->get($stream, '/?k=a');
    ok($client->ended($stream), "stream $stream is answered");
}

$client->get(7, '/?k=a');
ok($client->ended(7), 'so is one with a penalty');
is($client->goaway, 7, 'and GOAWAY is sent');
$http2->stop;

# a zone that gets another size: its counters start anew, its penalties go on
sub sized {
    return <<"CONF";
    ratelimit_zone \$arg_k zone=s:$_[0] rate=1r/h;
    ratelimit_penalty p zone=s after=1r/1m time=1h;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { ratelimit zone=s; empty_gif; }
    }
CONF
}

my $sized = t::Gateway->new(http => sized('1m'))->start;

$sized->get('/?k=a') for 1 .. 3;
$sized->configure(http => sized('2m'));
$sized->reload;
is($sized->get('/?k=b')->{status}, 200, 'another size');
like($sized->get('/?k=a')->{body}, qr/PENALIZED/, 'keeps penalties');
$sized->stop;

# addresses: one of IPv6 is banned with its /64, and a network, which may be that
# of one client, has but a part of the places
my $nets = t::Gateway->limited(
    zone => 'rate=1000r/s',
    http => <<'CONF',
    set_real_ip_from 127.0.0.1;
    real_ip_header X-From;
    ratelimit_zone $binary_remote_addr zone=bytes:1m rate=1000r/s;
    ratelimit_zone $remote_addr zone=text:1m rate=1000r/s;
    ratelimit_zone $arg_k zone=keys:1m rate=1000r/s;
    ratelimit_penalty b zone=bytes after=2r/1m time=1m on=404;
    ratelimit_penalty t zone=text after=2r/1m time=1m on=404;
    ratelimit_penalty k zone=keys after=1r/1m time=1m on=404;
CONF
    server => 'add_header X-Penalty $ratelimit_penalty always;',
    locations => { '/bytes' => 'ratelimit zone=bytes; '
                               . 'proxy_pass http://127.0.0.1:%%PORT%%/404;',
                   '/text' => 'ratelimit zone=text; '
                              . 'proxy_pass http://127.0.0.1:%%PORT%%/404;',
                   '/keys' => 'ratelimit zone=keys; '
                              . 'proxy_pass http://127.0.0.1:%%PORT%%/404;',
                   '/404' => 'return 404;' });

sub from {
    my ($path, @addresses) = @_;
    return join ' ', map {
        $nets->get($path, "X-From: $_")->{status} } @addresses;
}

for my $path ('/bytes', '/text') {
    is(from($path, map { "2001:db8:0:7::$_" } 1 .. 3), '404 404 404',
       "$path: three failures of one /64");
    is(from($path, '2001:db8:0:7:ffff::1'), '429', "$path: ban all of it");
    is(from($path, '2001:db8:0:8::1'), '404', "$path: and no other");
    is(from($path, ('192.0.2.1') x 3, '192.0.2.1'), '404 404 404 429',
       "$path: an address of IPv4");
    is(from($path, '192.0.2.2', '::ffff:192.0.2.3'), '404 404',
       "$path: is one client");
}

sub banned { return scalar grep { from("/keys?k=$_[0]$_", $_[1]) eq '429' }
                           1 .. $_[2] }

for (['v6-', '2001:db8:0:7f::1', 64], ['v4-', '192.0.2.9', 256]) {
    my ($name, $address, $most) = @$_;
    from("/keys?k=$name$_", ($address) x 2) for 1 .. $most + 5;
    is(banned($name, $address, $most + 5), $most, "$address: so many keys");
}

is(from('/keys?k=other', ('2001:db8:0:100::1') x 3), '404 404 429',
   'another network');
$nets->log_has(qr/does not begin: too many keys of its network are penalized/,
               'the log says it');
$nets->stop('QUIT', qr/does not begin/);
