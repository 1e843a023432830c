# Requests in flight give their slots back on every way a request can end, here
# and in Redis; a worker that is killed does not keep any.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told wait_for );
use t::Http2;

use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;

# an answer to who has left
$SIG{PIPE} = 'IGNORE';

my $redis = redis_start();
my $made = 0;

# A limit of 5 in flight; what is proxied waits for the test to answer.
sub gateway {
    my (%more) = @_;
    my $api = 'api' . ++$made . '.sock';
    my $to_api = "proxy_pass http://unix:%%DIR%%/$api;";
    my $gateway = t::Gateway->limited(
        start => 0, workers => $more{workers} // 1, redis => $redis,
        zone => {
            c => 'algorithm=concurrency limit=5 ' . ($more{zone} // ''),
            slow => 'algorithm=leaky_bucket rate=1r/m burst=100',
            one => 'rate=1r/h', fleet => 'rate=100r/h redis=r' },
        http => <<'CONF',
    log_format rl '$uri $arg_k $status $ratelimit_status';
    access_log %%DIR%%/access.log rl;
    ratelimit zone=c;
CONF
        server => 'listen unix:%%DIR%%/h2.sock http2; proxy_read_timeout 60s;'
                  . 'lingering_timeout 300ms;',
        locations => {
            '/' => '',
            '/api' => "proxy_set_header X-Pid \$pid; $to_api",
            '/timeout' => "proxy_read_timeout 300ms; $to_api",
            '/page' => 'proxy_read_timeout 300ms; error_page 504 = /none/x;'
                       . $to_api,
            '/none' => 'ratelimit off; return 200;',
            '/refused' => 'proxy_pass http://127.0.0.1:1;',
            '/missing' => 'root %%DIR%%; error_page 404 = @named;',
            '@named' => $to_api,
            '/redirect' => 'try_files /none /api;',
            '/rate' => "limit_rate 1k; $to_api",
            '/slow' => 'ratelimit zone=c; ratelimit zone=slow;',
            '/one' => 'ratelimit zone=c; ratelimit zone=one;',
            '/and-fleet' => 'ratelimit zone=c; ratelimit zone=fleet;',
            '/after' => "ratelimit_phase after_auth; $to_api" });
    $gateway->{api} = IO::Socket::UNIX->new(Listen => 100,
                                            Local => "$gateway->{dir}/$api")
        or die "$api: $!";
    return $gateway->start;
}

my $gateway = gateway();

# Sends a request and does not wait for the answer.
sub client {
    my ($path, $more, $to) = @_;
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => ($to // $gateway)->{port})
        or die "connect: $!";
    $path = "GET $path" if $path !~ /^[A-Z]+ /;
    syswrite $client, join "\r\n", "$path HTTP/1.1", 'Host: a',
             $more // 'Connection: close', '', '';
    return $client;
}

# The API's end of the next request that comes there, and what is in its head.
sub held_with {
    my $to = shift // $gateway;
    IO::Select->new($to->{api})->can_read($t::Gateway::PATIENCE)
        or die 'nothing was passed to the API';
    my $held = $to->{api}->accept;
    sysread $held, my $head, 65536;
    return ($held, $head);
}

sub held { return (held_with(@_))[0] }

sub answer {
    my ($held, $body) = @_;
    syswrite $held, "HTTP/1.0 200 OK\r\n\r\n" . ($body // 'x');
    close $held;
}

# What a client reads to the end.
sub whole {
    local $/;
    return readline(shift) // '';
}

# The slots in use: the request that asks has one itself.
sub in_use {
    my ($key, $to) = @_;
    my $answer = ($to // $gateway)->get("/?k=$key");
    return '5, all' if $answer->{status} == 429;
    return 4 - header($answer, 'X-RateLimit-Remaining');
}

sub becomes {
    my ($key, $n, $name, $to) = @_;
    my $got;
    wait_for(sub { $n eq ($got = in_use($key, $to)) }, 10);
    is($got, $n, $name);
}

# What a dead worker held is found when a request would be denied for it, and
# until then the headers may show too few that are left: so n requests at once.
sub takes {
    my ($key, $n, $name, $to) = @_;
    $to //= $gateway;
    my @held;
    wait_for(sub {
        my @clients = map { client("/api?k=$key", undef, $to) } 1 .. $n;
        my @waiting = @clients;
        @held = ();
        # each of them is passed on, or answered without that
        while (@held + @clients - @waiting < $n) {
            my @ready = IO::Select->new($to->{api}, @waiting)
                                  ->can_read($t::Gateway::PATIENCE) or last;
            for my $ready (@ready) {
                push @held, held($to) if $ready == $to->{api};
                @waiting = grep { $_ != $ready } @waiting;
            }
        }
        answer($_) for @held;
        whole($_) for @clients;
        return @held == $n;
    }, 10);
    is(scalar @held, $n, $name);
}

# All of the slots, one more, and all of them back.
for my $path (qw( /api /missing/x /redirect /after )) {
    my $key = $path =~ s/\W//gr;
    my @clients = map { client("$path?k=$key") } 1 .. 5;
    my @held = map { held() } 1 .. 5;
    my $answer = $gateway->get("$path?k=$key");
    is(told($answer), '429 REJECTED 0', "$path: full");
    is(header($answer, 'Retry-After'), 1, "$path: told to come again");
    is($gateway->get("/?k=$key-other")->{status}, 200, "$path: others pass");
    answer($_) for @held;
    is(scalar(grep { whole($_) =~ /^HTTP\/1.1 200/ } @clients), 5,
       "$path: all are answered");
    is(in_use($key), 0, "$path: all are free");
}

# Each way to end: four take a slot and end so, a fifth stays.
my %ways = (
    'the API answers' => ['/api', sub { answer($_[1]) }],
    'a HEAD' => ['HEAD /api', sub { answer($_[1], '') }],
    'a POST' => ['POST /api', sub { answer($_[1]) },
                 "Content-Length: 0\r\nConnection: close"],
    'a long answer' => ['/api', sub { answer($_[1], 'x' x 500000);
                                      whole($_[0]) }],
    'the API fails' => ['/api', sub { close $_[1] }],
    'half an answer' => ['/api', sub {
        syswrite $_[1], "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
        close $_[1];
    }],
    'nonsense' => ['/api', sub { syswrite $_[1], "x\r\n\r\n"; close $_[1] }],
    'a timeout' => ['/timeout', sub { whole($_[0]) }],
    'an error page' => ['/page', sub { whole($_[0]) }],
    'X-Accel-Redirect' => ['/api', sub {
        syswrite $_[1], "HTTP/1.0 200 OK\r\nX-Accel-Redirect: /none\r\n\r\n";
        close $_[1];
        whole($_[0]);
    }],
    'the client leaves' => ['/api', sub { close $_[0] }],
    'the client leaves behind the access phase' => ['/after',
                                                   sub { close $_[0] }],
    'the client leaves during the answer' => ['/rate', sub {
        answer($_[1], 'x' x 30000);
        sysread $_[0], my $some, 100;
        close $_[0];
    }],
    'the client resets' => ['/api', sub {
        setsockopt $_[0], Socket::SOL_SOCKET(), Socket::SO_LINGER(),
                   pack 'II', 1, 0;
        close $_[0];
    }],
    'a connection is kept' => ['/api', sub {
        syswrite $_[1], "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx";
        close $_[1];
        my ($text, $n) = ('', 1);
        $text .= $n while $text !~ /\r\n\r\nx/
                          && sysread $_[0], $n, 65536;
    }, 'Connection: keep-alive'],
    'a body that nobody reads' => ['POST /api', sub {
        answer($_[1]);
        whole($_[0]);
    }, "Content-Length: 10\r\nConnection: close\r\n\r\n0123456789" ],
);

for my $way (sort keys %ways) {
    my ($path, $end, $more) = @{ $ways{$way} };
    my $key = $way =~ s/\W//gr;
    my (@clients, @held);
    for (1 .. 4) {
        push @clients, client("$path?k=$key", $more);
        push @held, held();
    }
    my $stays = client("/api?k=$key");
    my $stays_held = held();
    is(in_use($key), '5, all', "$way: all are taken")
        if $path !~ /timeout|page/;
    $end->($clients[$_], $held[$_]) for 0 .. 3;
    becomes($key, 1, "$way: given back");
    answer($stays_held);
    whole($stays);
    becomes($key, 0, "$way: the last, too");
}

# without the API
is($gateway->get('/refused?k=short')->{status}, 502, 'no API');
is(in_use('short'), 0, 'no API: given back');
is($gateway->get('/short?k=short')->{status}, 200, 'a short request');
is(in_use('short'), 0, 'a short request: given back');

my $lingers = client('POST /none?k=l', "Content-Length: 100000\r\n");
close $lingers;
becomes('l', 0, 'a body that never comes');

$lingers = client('POST /?k=l', 'Content-Length: 100000');
like(do { sysread $lingers, my $text, 65536; $text }, qr/^HTTP\S+ 405/,
     'an answer before the body');
becomes('l', 0, 'lingering: given back when that has ended');

# by another rule
is($gateway->get('/one?k=rule')->{status}, 200, 'another rule passes');
is($gateway->get('/one?k=rule')->{status}, 429, 'another rule denies')
    for 1 .. 10;
is(in_use('rule'), 0, 'another rule denies: given back');

# and the other way around
my @clients = map { client('/api?k=full') } 1 .. 5;
my @held = map { held() } 1 .. 5;
is($gateway->get('/one?k=full')->{status}, 429, 'full: rejected');
answer($_) for @held;
whole($_) for @clients;
is($gateway->get('/one?k=full')->{status}, 200,
   'full: the other rule was not charged');

# during a delay
$gateway->get('/slow?k=delay');
@clients = map { client('/slow?k=delay') } 1 .. 4;
becomes('delay', 4, 'a delayed request has its slot');
close $_ for @clients;
becomes('delay', 0, 'during the delay: given back');

# while Redis is asked
kill STOP => redis_pid($redis);
@clients = map { client('/and-fleet?k=wait') } 1 .. 4;
becomes('wait', 4, 'a request that waits for Redis has its slot');
close $_ for @clients;
becomes('wait', 0, 'while it waits: given back');
kill CONT => redis_pid($redis);

# streams of HTTP/2
my $http2 = t::Http2->new("$gateway->{dir}/h2.sock");

$http2->get($_, '/api?k=h2') for 1, 3, 5, 7, 9;
@held = map { held() } 1 .. 5;
is(in_use('h2'), '5, all', 'HTTP/2: five streams of a connection');
$http2->reset($_) for 1, 5;
becomes('h2', 3, 'HTTP/2: two are reset');
answer($_) for @held;
ok($http2->ended($_), "HTTP/2: stream $_ is answered") for 3, 7, 9;
becomes('h2', 0, 'HTTP/2: given back');
$http2->get($_, '/api?k=h2') for 11, 13, 15;
@held = map { held() } 1 .. 3;
$http2->close;
becomes('h2', 0, 'HTTP/2: the connection ends');

# a reload: the old worker's requests still have theirs
@clients = map { client('/api?k=reload') } 1 .. 3;
@held = map { held() } 1 .. 3;
$gateway->signal('HUP');
wait_for(sub { $gateway->log =~ /gracefully shutting down/ });
is(in_use('reload'), 3, 'a reload: held by the old worker');
push @clients, client('/api?k=reload') for 1 .. 2;
push @held, held() for 1 .. 2;
is(in_use('reload'), '5, all', 'a reload: full with those of both');
answer($_) for @held;
is(scalar(grep { whole($_) =~ /^HTTP\/1.1 200/ } @clients), 5,
   'a reload: all are answered');
becomes('reload', 0, 'a reload: given back');
$gateway->stop;

# workers: that are told to end, or killed
$gateway = gateway(workers => 2);

for my $signal (qw( TERM KILL QUIT )) {
    @clients = map { client("/api?k=$signal") } 1 .. 5;
    @held = map { held() } 1 .. 5;
    is(in_use($signal), '5, all', "$signal: full");
    my @workers = $gateway->workers;
    if ($signal eq 'QUIT') {
        answer($_) for @held;
    }
    kill $signal => @workers;
    close $_ for @clients, @held;
    wait_for(sub {
        my %old = map { $_ => 1 } @workers;
        my @now = $gateway->workers;
        return @now == 2 && !grep { $old{$_} } @now;
    });
    takes($signal, 5, "$signal: given back");
}

# one of two is killed: the other's stay
my %of;

for (1 .. 50) {
    @clients = map { client("/api?k=half&n=$_") } 0 .. 4;
    @held = %of = ();
    for (@clients) {
        my ($held, $head) = held_with();
        my ($n, $pid) = $head =~ /&n=(\d).*^X-Pid: (\d+)/ms;
        push @held, $held;
        push @{ $of{$pid} }, $clients[$n];
    }
    last if keys %of == 2;
    answer($_) for @held;
    whole($_) for @clients;
}

is(scalar keys %of, 2, 'both workers have requests');

my ($victim, $survivor) = keys %of;
my @lost = @{ $of{$victim} };
my @left = @{ $of{$survivor} };

kill KILL => $victim;
whole($_) for @lost;
takes('half', scalar @lost,
      'one worker is killed: what it held is given back');
is(in_use('half'), scalar @left,
   'one worker is killed: the other one\'s requests have theirs');
answer($_) for @held;
whole($_) for @left;
takes('half', 5, 'one worker is killed: all are given back');

$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);

# in Redis: two gateways share the slots
$gateway = gateway(zone => 'redis=r');
my $other = gateway(zone => 'redis=r');

# the sorted sets of counters, not that of the fleet's nodes
my $SETS = <<'LUA';
    local function sets()
        local keys = {}
        for _, key in ipairs(redis.call('keys', '*}:*')) do
            if not key:find('726c2d6e6f646573', 1, true) then
                keys[#keys + 1] = key
            end
        end
        return keys
    end
LUA

# the leases in Redis: how many, and one command for each set of them
sub leases {
    return redis_cli($redis, 'eval', $SETS . <<'LUA', 0);
        local n = 0
        for _, key in ipairs(sets()) do
            n = n + redis.call('zcard', key)
        end
        return n
LUA
}

# Moves the deadlines so many seconds, as if so much time had passed.
sub later {
    my $seconds = shift;
    return redis_cli($redis, 'eval', $SETS . <<'LUA', 0, $seconds);
        for _, key in ipairs(sets()) do
            for _, name in ipairs(redis.call('zrange', key, 0, -1)) do
                redis.call('zincrby', key, -ARGV[1] * 1000000, name)
            end
        end
LUA
}

# The earliest deadline, in seconds from now.
sub deadline {
    return redis_cli($redis, 'eval', $SETS . <<'LUA', 0);
        local key = sets()[1]
        local lease = key and redis.call('zrange', key, 0, 0, 'WITHSCORES')[2]
        local time = redis.call('time')
        return lease and math.floor(lease / 1000000) - time[1] or -1
LUA
}

sub freed {
    my $name = shift;
    ok(wait_for(sub { leases() eq '0' }, 10), $name)
        or diag(leases(), ' leases are left');
}

@clients = ((map { client('/api?k=share') } 1 .. 3),
            (map { client('/api?k=share', undef, $other) } 1 .. 2));
@held = ((map { held() } 1 .. 3), (map { held($other) } 1 .. 2));
is(told($_->get('/api?k=share')), '429 REJECTED 0',
   "Redis: full for $_->{name}") for $gateway, $other;
is($other->get('/?k=another')->{status}, 200, 'Redis: another client passes');
cmp_ok(leases(), '>=', 5, 'Redis: a lease for each');
answer($_) for @held;
is(scalar(grep { whole($_) =~ /^HTTP\/1.1 200/ } @clients), 5,
   'Redis: all are answered');
freed('Redis: given back');

for my $way ('the API fails', 'the client leaves', 'a timeout',
             'X-Accel-Redirect', 'a long answer')
{
    my ($path, $end, $more) = @{ $ways{$way} };
    @clients = map { client("$path?k=way", $more) } 1 .. 5;
    @held = map { held() } 1 .. 5;
    $end->($clients[$_], $held[$_]) for 0 .. 4;
    freed("Redis: $way: given back");
}

$gateway->get('/one?k=fleet-rule') for 1 .. 10;
freed('Redis: another rule denies: given back');

$gateway->get('/slow?k=fleet-delay');
@clients = map { client('/slow?k=fleet-delay') } 1 .. 4;
wait_for(sub { leases() eq '4' });
close $_ for @clients;
freed('Redis: during the delay: given back');

# while Redis is asked: what it took then is given back behind that
sub taken { return redis_cli($redis, 'info', 'commandstats')
                   =~ /cmdstat_zadd:calls=(\d+)/ ? $1 : 0 }

my $taken = taken();

t::Clock::stop();
kill STOP => redis_pid($redis);
@clients = ();

for (1 .. 5) {
    my $before = t::Gateway::unread($redis);
    push @clients, client('/api?k=wait');
    wait_for(sub { t::Gateway::unread($redis) > $before });
}

close $_ for @clients;
ok(wait_for(sub {
    5 == (() = $gateway->read('access.log') =~ m{^/api wait 499}mg)
}), 'Redis: the client leaves while it waits: it is gone');
t::Clock::go();
kill CONT => redis_pid($redis);
ok(wait_for(sub { taken() >= $taken + 5 }),
   'Redis: the client leaves while it waits: and yet it took');
freed('Redis: the client leaves while it waits: given back');

# Redis answers too late: the request passes, and what it took comes back
kill STOP => redis_pid($redis);
my $before = t::Gateway::unread($redis);
my $late = client('/api?k=late');
wait_for(sub { t::Gateway::unread($redis) > $before });
advance(5);
my $late_held = held();
kill CONT => redis_pid($redis);
wait_for(sub { leases() eq '1' });
is(leases(), 1, 'Redis: too late, and yet it took');
answer($late_held);
like(whole($late), qr/X-Status: DEGRADED/, 'Redis: the request was let pass');
freed('Redis: too late: given back');

# a long request renews its lease (looked at below)
my $long = client('/api?k=long');
my $long_held = held();
later(20);
my $deadline = deadline();
cmp_ok($deadline, '>', 0, 'Redis: a lease');
cmp_ok($deadline, '<', 12, 'Redis: as it would be after 20 s');

# a reload: the old worker gives back what its requests had
@clients = map { client('/api?k=fleet-reload', undef, $other) } 1 .. 3;
@held = map { held($other) } 1 .. 3;
$other->signal('HUP');
wait_for(sub { $other->log =~ /gracefully shutting down/ });
is(in_use('fleet-reload', $other), 3, 'Redis: a reload');
answer($_) for @held;
whole($_) for @clients;
ok(wait_for(sub { leases() eq '1' }), 'Redis: a reload: given back');

# it renews three times in its life of 30 s, so each 10
advance(10);
ok(wait_for(sub { deadline() > 20 }),
   'Redis: a long request renews its lease') or diag(deadline());
answer($long_held);
whole($long);
freed('Redis: the long request ends');

# a worker is killed: its leases end by themselves
@clients = map { client('/api?k=killed') } 1 .. 5;
@held = map { held() } 1 .. 5;
kill KILL => $gateway->workers;
close $_ for @clients, @held;
is(told($other->get('/api?k=killed')), '429 REJECTED 0',
   'Redis: a worker is killed: full, since nobody knows');
later(20);
is($other->get('/?k=killed')->{status}, 429, 'Redis: until their deadline');
later(11);
takes('killed', 5, 'Redis: and then all are free', $other);
freed('Redis: nothing is left of it');

# Redis is away when a request ends
my $away = client('/api?k=away', undef, $other);
my $away_held = held($other);
redis_stop($redis);
answer($away_held);
like(whole($away), qr/^HTTP\S+ 200/, 'Redis is gone: the request ends');
is($other->get('/?k=away')->{status}, 200, 'Redis is gone: requests pass');
redis_start(port => $redis);
ok(wait_for(sub {
    header($other->get('/?k=back'), 'X-Status') eq 'PASSED'
}), 'Redis is back');
takes('away', 5, 'Redis is back: five at once', $other);
freed('Redis is back: given back');

$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);

# a quit: what the last requests had is given back
@clients = map { client('/api?k=quit', undef, $other) } 1 .. 5;
@held = map { held($other) } 1 .. 5;
is(leases(), 5, 'Redis: a quit');
$other->signal('QUIT');
wait_for(sub { $other->log =~ /gracefully shutting down.*gracefully/s });
answer($_) for @held;
whole($_) for @clients;
freed('Redis: a quit: given back');
$other->stop;

redis_stop($redis);
