# "new_keys=" of a zone: so many new values of a key may come from one network,
# which is the key of all others. A value that is known keeps its own counter.

use IO::Socket::INET;
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header output tally wait_for );
use t::Api;
use t::JWT;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $SECRET = 'secret-of-exactly-32-bytes------';

# an API that does not answer
my $silent = IO::Socket::INET->new(Listen => 16, LocalAddr => '127.0.0.1',
                                   Timeout => $t::Gateway::PATIENCE);

my $gateway = t::Gateway->limited(
    workers => 2,
    zone => {
        z => 'new_keys=2r/h rate=3r/h',
        lasting => 'new_keys=2r/h rate=1r/s',
        address => 'key=$binary_remote_addr new_keys=1r/h rate=1r/h',
        doc => 'new_keys=1r/h state=doc.rules',
        several => 'new_keys=1r/h rate=9r/h',
        busy => 'new_keys=1r/h algorithm=concurrency limit=1',
        banned => 'new_keys=1r/h rate=1r/h',
        failed => 'new_keys=1r/h rate=1000r/h',
        sub => 'key=$ratelimit_jwt_sub new_keys=1r/h rate=1r/h',
        plain => 'rate=1r/h',
        'full:64k' => 'new_keys=5r/h rate=1r/h',
    },
    rules => ['by-user zone=several key=$arg_u rate=2r/h',
              'half zone=several percent=50 rate=8r/h'],
    files => { tokens => "ops:$TOKEN\n", secret => t::JWT::json(t::JWT::oct($SECRET)) },
    http => <<'CONF',
    set_real_ip_from 127.0.0.1;
    set_real_ip_from unix:;
    real_ip_header X-Address;
    ratelimit_explain token_file=tokens;
    ratelimit_penalty flood zone=banned after=1r/h time=1h;
    ratelimit_penalty guess zone=failed key=$arg_u after=2r/h time=1h on=401;
    ratelimit_jwt_key secret;
CONF
    server => 'listen unix:%%DIR%%/socket;',
    locations => {
        '/' => 'ratelimit zone=z;',
        '/dry' => 'ratelimit zone=z; ratelimit_dry_run on;',
        '/lasting' => 'ratelimit zone=lasting;',
        '/address' => 'ratelimit zone=address;',
        '/doc' => 'ratelimit zone=doc;',
        '/rl/' => 'ratelimit_api zone=doc %%WRITE%%;',
        '/several' => 'ratelimit zone=several;',
        '/busy' => 'ratelimit zone=busy;',
        '/busy/held' => 'ratelimit zone=busy; proxy_pass http://127.0.0.1:'
                        . $silent->sockport . ';',
        '/banned' => 'ratelimit zone=banned;',
        '/failed' => 'ratelimit zone=failed; '
                     . 'proxy_pass http://127.0.0.1:%%PORT%%/401;',
        '/401' => 'return 401;',
        '/sub' => 'ratelimit zone=sub;',
        '/both' => 'ratelimit zone=z; ratelimit zone=several;',
        '/plain' => 'ratelimit zone=plain;',
        '/full' => 'ratelimit zone=full;',
    });

# requests with these queries from an address
sub ask {
    my ($path, $address, @queries) = @_;
    return $gateway->statuses(map { ["$path?$_", "X-Address: $address"] }
                              @queries);
}

# The networks that the rules which apply would count a request by.
sub network {
    my ($target, $address) = @_;
    my $answer = $gateway->get($target, "X-Address: $address",
                               "X-RateLimit-Explain: $TOKEN");
    return join ' ', map { $_->{by_network} // 'own' }
                     grep { $_->{applies} }
                     map { @{ $_->{rules} } }
                     @{ t::Api::answer($answer)->{json}{zones} };
}

sub metric {
    my ($zone) = @_;
    return $gateway->get('/metrics')->{body}
           =~ /^ratelimit_new_keys_exceeded_total\{zone="$zone"\} (\d+)$/m
           ? $1 : 0;
}

# values of one network
is(network('/?k=a', '198.51.100.1'), 'own', 'a first value');
is(network("/?k=e$_", '198.51.100.1'), 'own', 'explained, not counted')
    for 1 .. 5;
is(ask('/', '198.51.100.1', 'k=a', 'k=b'), '200 200', 'two values');
is(network('/?k=c', '198.51.100.2'), '198.51.100.0/24', 'a third one');
is(ask('/', '198.51.100.2', 'k=c', 'k=d'), '200 200', 'and more');
is(ask('/', '198.51.100.3', 'k=e', 'k=f', 'k=c', 'k=g'), '200 429 429 429',
   'have one limit together, whatever they are');
is(ask('/', '::ffff:198.51.100.9', 'k=h'), '429', 'also as IPv4 in IPv6');
is(ask('/', '198.51.100.3', 'k=a', 'k=a', 'k=a'), '200 200 429',
   'a value that is known has its own');
is(ask('/', '198.51.100.3', ('k=') x 5), '200 200 200 200 200',
   'an empty key is not limited');
is(metric('z'), 7, 'the metric');

# elsewhere
is(ask('/', '203.0.113.1', 'k=a', 'k=c', 'k=c'), '429 200 200',
   'another network: what is known is known, the rest has its own');
is(ask('/', '198.51.100.3', 'k=c', 'k=c'), '200 429',
   'and is known here, too');
is(ask('/', '2001:db8:0:100::1', 'k=m', 'k=n'), '200 200', 'IPv6');
is(ask('/', '2001:db8:0:1ff::1', 'k=o', 'k=p', 'k=q', 'k=r'),
   '200 200 200 429', 'by /56');
is(ask('/', '2001:db8:0:200::1', 'k=r', 'k=r'), '200 200', 'its neighbour');

# a value that looks like the key of a network
is(ask('/', '192.88.99.1', ('k=network:203.0.113.0/24') x 2, 'k=network:x',
       'k=network:203.0.113.0/24'),
   '200 200 200 429', 'a network does not speak for another one');
is(ask('/', '203.0.113.1', 'k=s', 'k=t', 'k=u', 'k=v', 'k=w'),
   '200 200 200 200 429', 'whose limit it leaves');

# a UNIX socket
my @socket = map {
    output('curl', '-s', '-o', "$gateway->{dir}/body", '-w', '%{http_code}',
           '--max-time', 60, '--unix-socket', "$gateway->{dir}/socket",
           "http://localhost/?k=x$_")
} 1 .. 6;

is("@socket", '200 200 200 200 200 429', 'all without an address are one');

# without the parameter, and in a dry run
is(ask('/plain', '198.51.100.1', map { "k=$_" } 1 .. 9),
   join(' ', (200) x 9), 'a zone without it');
is(tally(map { $gateway->get("/dry?k=dry$_", 'X-Address: 192.0.2.1') } 1 .. 9),
   '9 x 200', 'a dry run rejects nothing');
is(header($gateway->get('/dry?k=dry10', 'X-Address: 192.0.2.1'), 'X-Status'),
   'REJECTED_DRY_RUN', 'and says what it would');
is(network('/?k=dry1', '192.0.2.1'), 'own', 'its values are known');
is(network('/?k=dry3', '192.0.2.1'), '192.0.2.0/24', 'as many as are allowed');

# the address as the key
is(ask('/address', '198.51.100.1', 1), '200', 'an address');
is(ask('/address', '198.51.100.2', 1), '200', 'a second one is the network');
is(ask('/address', '198.51.100.3', 1), '429', 'as the third');
is(ask('/address', '2001:db8::1', 1), '200', 'of IPv6');
is(ask('/address', '2001:db8::ffff', 1), '200', 'the network');
is(ask('/address', '2001:db8:0:ff:1::', 1), '429', 'the same');

# several keys in a zone: each has its values; a network of all
is(ask('/several', '198.51.100.1', 'k=a&u=ann'), '200', 'two keys');
is(network('/several?k=a&u=bob', '198.51.100.1') =~ s/own own/own/r,
   'own 198.51.100.0/24', 'one is known');
is(network('/several?k=b&u=ann', '198.51.100.1')
   =~ s/(198\S+) 198\S+$/$1/r =~ s/^(\S+) own 198\S+$/$1 own/r,
   '198.51.100.0/24 own', 'the other is');
is(metric('several'), 0, 'so far nothing was counted');
is(ask('/several', '198.51.100.1', 'k=b&u=bob'), '200', 'both are new');
is(metric('several'), 1, 'a request counts once');
is(ask('/both', '192.0.2.1', 'k=new1&u=new1', 'k=new2&u=new2'), '429 429',
   'and in the first of several zones');
is(metric('several'), 1, 'not in the second');

# keys of several parts, and the endpoint
my $api = t::Api->new($gateway);

is(t::Api::said($api->put('/document', { rules => [{
       id => 'pair', params => { limit => 3, window => '1h' },
       key => ['$arg_k', '$arg_u'] }] }, 'If-Match: "0"')), 201, 'a document');
ok($api->follows(1), 'is in force');

is(ask('/doc', '198.51.100.1', 'k=a&u=ann', 'k=a&u=bob', 'k=b&u=ann',
       'k=b&u='), '200 200 200 200', 'several parts are one value');

my $counter = '/counters?rule=pair&key=network:198.51.100.0/24';

is($api->get($counter)->{json}{used}, 3, 'the counter of a network');
is($api->get('/counters?rule=pair&key=a&key=ann')->{json}{used}, 1,
   'and that of a value');
is($api->get('/counters?key=network:198.51.100.0/24')->{json}{counters}[0]{used},
   3, 'by its key alone');
is(t::Api::said($api->delete($counter, 'If-Match: *')), 200, 'a reset');
is(ask('/doc', '198.51.100.1', map { "k=$_&u=$_" } 1 .. 4),
   '200 200 200 429', 'it is fresh again');

# requests in flight
my (@held, @api);

for my $value (qw( a b )) {
    push @held, $gateway->begin(1, "/busy/held?k=$value",
                                'X-Address: 198.51.100.1');
    push @api, $silent->accept;
}

is(ask('/busy', '198.51.100.2', 'k=c', 'k=d', 'k=a'), '429 429 429',
   'the network has a permit, and the value its own');
close $_ for @api, $silent;
t::Gateway::finish($_) for @held;
ok(wait_for(sub { ask('/busy', '198.51.100.2', 'k=c') eq '200' }),
   'that of the network comes back');
is(ask('/busy', '198.51.100.2', 'k=d', 'k=a'), '200 200', 'and the other');

# penalties
is(ask('/banned', '198.51.100.1', 'k=a', 'k=b', 'k=c', 'k=d', 'k=e'),
   '200 200 429 429 429', 'invented keys are rejected');
is(header($gateway->get('/banned?k=f', 'X-Address: 198.51.100.1'), 'X-Status'),
   'PENALIZED', 'and penalized together');
is(header($gateway->get('/banned?k=a', 'X-Address: 198.51.100.1'), 'X-Status'),
   'REJECTED', 'a known key is not');
is(ask('/banned', '203.0.113.1', 'k=f'), '200', 'nor is another network');

is(ask('/failed', '198.51.100.1', 'k=k&u=ann', map { "k=k&u=$_" } 1 .. 5),
   '401 401 401 401 429 429', 'many names that fail');
is(ask('/failed', '198.51.100.1', 'k=k&u=ann'), '401', 'a known one goes on');

# tokens that nobody has signed: the address is the key
my $good = t::JWT::hs256(t::JWT::content({ alg => 'HS256' }, { sub => 'ann' }),
                         $SECRET);

sub sub_key {
    my ($address, $token) = @_;
    return $gateway->get('/sub', "X-Address: $address",
                         "Authorization: Bearer $token")->{status};
}

is(sub_key('198.51.100.1', $good), 200, 'a token');
is(sub_key('198.51.100.2', "$good-$_"), 200 + 229 * !!$_, "wrong one $_")
    for 0 .. 2;
is(sub_key('198.51.100.3', "$good-x"), 429, 'another address');
is(sub_key('203.0.113.1', "$good-x"), 200, 'another network');

# a table that is full
my @flood = map { [$gateway, "/full?k=$_", "X-Address: 10.0." . $_ % 250 . '.1'] }
            1 .. 5000;

while (@flood) {
    t::Gateway::send_all([splice @flood, 0, 500], 60);
}

my $metrics = $gateway->get('/metrics')->{body};

like($metrics, qr/^ratelimit_table_evicted_total\{zone="full",lost="new"\} [1-9]/m,
     'a full table');
cmp_ok(scalar(grep { ask('/full', '192.0.2.1', "k=f$_") == 200 } 1 .. 100),
       '<', 20, 'limits hold');

# a reload, and time
is(ask('/lasting', '198.51.100.1', 'k=a', 'k=b', 'k=c'), '200 200 200',
   'two values');
$gateway->reload;
is(network('/lasting?k=a', '198.51.100.1'), 'own', 'are known after a reload');
is(network('/lasting?k=c', '198.51.100.1'), '198.51.100.0/24',
   'and no other one');

advance(1800);
is(network('/lasting?k=c', '198.51.100.1'), 'own', 'half an hour later: one');
is(ask('/lasting', '198.51.100.1', 'k=c'), '200', 'is taken');
is(network('/lasting?k=d', '198.51.100.1'), '198.51.100.0/24', 'and no more');

advance(23 * 3600);
is(ask('/lasting', '198.51.100.1', 'k=a', 'k=x', 'k=y'), '200 200 200',
   'a value is seen again, and two new ones');
advance(1800 - 10);
is(network('/lasting?k=b', '198.51.100.1'), 'own', 'a day less ten seconds');

advance(1800);
is(ask('/lasting', '198.51.100.1', 'k=z'), '200', 'a new one');
is(network('/lasting?k=b', '198.51.100.1'), '198.51.100.0/24',
   'what was not seen for a day is new');
is(network('/lasting?k=a', '198.51.100.1'), 'own', 'what was seen is known');

$gateway->stop;
