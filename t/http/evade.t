# What a client writes differently is still the same client to the API, so it is
# the same counter; and what a rewrite makes of a request is what counts.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( output );

my $h2 = t::Gateway::free_port();

my $gateway = t::Gateway->limited(
    rules => [
        'bots zone=z match=/z/bot header=X-Client:bot* arg=mode:full* key=all rate=1r/h',
        'tree zone=paths match=/p/tree/** rate=1r/h',
        'leaf zone=paths match=/p/leaf rate=1r/h',
        'open zone=paths match=/p/open/** group=g priority=1 rate=1000r/h',
        'free zone=paths match=/p/free/** group=g priority=1 limit=$arg_n window=1h',
        'rest zone=paths match=/p/** group=g rate=2r/h',
        'dot zone=line match=~^/line/dot/.*$ rate=1r/h',
        'end zone=line match=~^/line/end$ rate=1r/h',
        (map { "tree$_ zone=many match=/many/tree/** rate=1000r/h" } 1 .. 16),
        'leaf zone=many "match=/many/{leaf}" rate=1r/h',
        'verb zone=line match=~*(*UTF)^/LINE/verb/.+$ rate=1r/h'],
    api => 1,
    zone => { paths => 'key=$http_x_key', many => 'key=$http_x_key', arg => 'key=$arg_user rate=1r/h', tenant => 'key=$http_x_tenant rate=1r/h',
              cookie => 'key=${cookie_Sid} rate=1r/h', z => 'key=$uri rate=1000r/h',
              line => 'key=$http_x_key rate=1000r/h', key => 'key=$ratelimit_api_key rate=1r/h',
              uri => 'key=$uri rate=1r/h',
              route => 'key=$ratelimit_route rate=1r/h' },
    server => <<"CONF",
        listen 127.0.0.1:$h2 http2;
        ratelimit_api_key header:X-Other bearer header:X-Key;
        if (\$uri = /never) { return 404; }
        if (\$ratelimit_route = /never) { return 404; }
        if (\$ratelimit_api_key = never) { return 404; }
CONF
    locations => {
        '/' => 'ratelimit zone=key;',
        '/own' => 'ratelimit_api_key header:X-Key; ratelimit zone=key;',
        '/p' => 'ratelimit zone=paths;',
        (map { ("/$_" => "ratelimit zone=$_;") } qw( arg tenant cookie z )),
        '/line' => 'ratelimit zone=line;',
        '/many' => 'ratelimit zone=many;',
        '/to-uri' => 'rewrite ^ /uri/same last;',
        '/uri' => 'ratelimit zone=uri;',
        '/to-route' => 'rewrite ^ /route/same last;',
        '/route' => 'ratelimit zone=route;',
    });

# blanks around a value, which nginx leaves and the API does not see
is($gateway->statuses(map { ['/', $_] } 'X-Key: a', "X-Key: a\t", "X-Key:\ta",
            "X-Key: \t a \t "), '200 429 429 429', 'blanks around a key');

is($gateway->statuses(map { ['/', $_] } 'Authorization: Bearer b',
            "Authorization: Bearer b\t", "Authorization:\tBearer b",
            "Authorization: bearer\tb", "Authorization: Bearer \t b"),
   '200 429 429 429 429', 'blanks around a token');

is($gateway->statuses((['/', "X-Key: \t", "Authorization: Bearer \t"]) x 2), '200 200',
   'blanks alone are no key');

for my $header ('x-key:a ', 'x-key:a  ', "x-key:a\t", 'authorization:Bearer b ',
                "authorization:Bearer b\t")
{
    like(output('nghttp', '-v', '-H', $header, "http://127.0.0.1:$h2/"),
         qr/:status: 429/, "HTTP/2: \"$header\"");
}

# an expression reads a path as one line
is($gateway->statuses(map { ["/line/dot/$_", 'X-Key: e'] } 'a', '%0Ab', 'b%0A', '%0D%0Ac%0A',
            'd%0D%0A'), '200 429 429 429 429', '"." is any byte of a path');
is($gateway->statuses(map { ["/line/verb/$_", 'X-Key: e'] } 'a', '%0Ab', 'b%0A'),
   '200 429 429', 'behind a verb, too');
is($gateway->statuses(map { ["/line/end$_", 'X-Key: e'] } '', '', '%0A', '%0A'), '200 429 200 200',
   '"$" is the end');

# a path that servers read in different ways: ";" and "\"
my $n = 0;

for my $path ('/p/tree/..;/x', '/p/tree/..%3B/x', '/p/tree/x/..;/..;/q', '/p/y/..;/tree/x',
              '/p\\tree\\x', '/p/y\\..\\tree', '/p/tree;x/y', '/p/leaf;x', '/p\\leaf',
              '/p/leaf\\..;\\leaf', '/p/open\\..\\leaf',
              # dropped before the path is decoded, or resolved
              '/p;x/tree/..%3B/q', '/p%3Bx/tree/..;/q', '/p;x\\tree/..%3b\\q',
              '/p;x%2Fy/leaf', '/p;%5Cx/tree/q', '/p;\\x/tree/..%3B/q', '/p/y/;x/../leaf',
              '/p/tree%2F..%5Cq\\x', '/p\\tree/..%5Cq', '/p/y/..;/../y;/../p/leaf')
{
    my $key = 'X-Key: ' . $n++;
    is($gateway->statuses([$path, $key],
                          [$path =~ /leaf/ ? '/p/leaf' : '/p/tree', $key]),
       '200 429', $path);
}

is($gateway->statuses(map { [$_, 'X-Key: g'] } '/p/open/x', '/p/open/x;y', '/p/open/x',
                      '/p/a', '/p/a', '/p/a', '/p/open/..;/a', '/p/open/..\\a', '/p/open/x'),
   '200 200 200 200 200 429 429 429 200', 'no group is left by a path');

is($gateway->statuses(map { [$_, 'X-Key: f'] } '/p/a', '/p/a', '/p/free/x?n=unlimited',
                      map { "/p/free/$_?n=unlimited" } '..;/a', '..\\a', 'x;y', 'x'),
   '200 200 200 429 429 200 200', 'nor one that has no limit');

is($gateway->statuses(map { [$_, 'X-Key: m'] } '/many/tree/x', '/many/tree/x;y', '/many/tree/..;/x',
                      '/many/x', '/many/x;y'),
   '200 200 400 200 429', 'nor is a rule left out because there are too many');

# variables of nginx as keys: what the API reads is the key
my @ARGS = ('user=eve', 'u%73er=e%76e', 'user=&user=eve', 'user=e%56e&user=eve',
            'USER=x&user=eve', 'user=eve&user=x', 'USER=eve');

is($gateway->statuses(map { ["/arg?$_"] } @ARGS), '200 429 429 200 429 429 429',
   'an argument');
is($gateway->statuses(map { ["/tenant", @$_] } ['X-Tenant: acme'], ["X-Tenant:\tacme"],
            ["X-Tenant: acme\t\t"], ['X-Tenant: acme', 'X-Tenant: 1'],
            ["X-Tenant: \t", 'X-Tenant: acme'], ['X-Tenant: 1']),
   '200 429 429 429 429 200', 'a header');
is($gateway->statuses(map { ['/cookie', "Cookie: $_"] } 'Sid=bob', 'Sid="bob"',
            'Sid=bob ;x=y', 'Sid=%62ob', 'sid=x; Sid=bob', 'Sid=; Sid=bob', 'sid=bob',
            'sid=x'),
   '200 429 429 429 429 429 429 200', 'a cookie');
is($gateway->statuses(map { ["/z/bot$_->[0]", $_->[1]] } ['?mode=full', 'X-Client: bot1'],
            ['?mode=f%75ll', "X-Client:\tbot1"], ['?m%6fde=full', "X-Client: bot\t"],
            ['?mode=&mode=full', 'X-Client: bot'], ['?mode=x&mode=full', 'X-Client: bot']),
   '200 429 429 429 200', 'conditions');

my $api = t::Api->new($gateway);

is(t::Api::said($api->change('PUT', '/document', {
       rules => [{ id => 'user', key => '$arg_user', match => { route => '/z/one' },
                   params => { limit => 1, window => '1h' } },
                 { id => 'pair', key => ['$http_x_tenant', '$cookie_sid'],
                   match => { route => '/z/pair' }, params => { limit => 1, window => '1h' } },
                 { id => 'agent', match => { route => '/z/agent', header => 'User-Agent:bot*' },
                   key => '$http_user_agent', params => { limit => 1, window => '1h' } }],
       deny => [{ rule => 'user', key => 'eve' }] })), 201, 'a document');
ok($api->follows(1), 'is in use');

is($gateway->statuses(map { ["/z/two?$_"] } @ARGS), '403 403 403 200 403 403 403',
   'its deny list');
is($gateway->statuses(map { ["/z/one?$_"] } 'user=bob', 'user=b%6fb', 'USER=x&user=bob'),
   '200 429 429', 'its rule');
is($gateway->statuses(map { ['/z/pair', "X-Tenant:$_->[0]", "Cookie: $_->[1]"] }
            ['a', 'sid=b'], ["\ta", 'sid="b"'], ["a\t", 'SID=b'], ['a', 'sid=c']),
   '200 429 429 200', 'a key of parts');
is($gateway->statuses(map { ['/z/agent', "User-Agent: $_"] } 'bot', "bot\t", "\tbot"),
   '200 429 429', 'a header of which nginx has a variable');

# an empty header before the one that the API may take
is($gateway->statuses(['/', 'X-Key: c'], ['/', 'X-Key:', 'X-Key: c'],
            ['/', "X-Key: \t", 'X-Key: c']), '200 429 429',
   'an empty header of the same name');

# what was read in the server, before there was a location
is($gateway->statuses(map { ['/own', 'X-Key: d', "X-Other: $_"] } 1 .. 2), '200 429',
   'the key is that of the location\'s sources');

is($gateway->statuses(map { ["/to-uri/$_"] } 1 .. 2), '200 429',
   'the key is the rewritten URI');

is($gateway->statuses(map { ["/to-route/x$_"] } 1 .. 2), '200 429',
   'the key is the rewritten route');

$gateway->stop;

# a variable that nginx cannot work out is no empty key: here one of a folder
# that is not there
my $failing = t::Gateway->limited(
    zone => { failing => 'key=$realpath_root rate=1r/h' },
    server => 'root %%DIR%%/nowhere;',
    locations => { '/' => 'ratelimit zone=failing;' });

is($failing->statuses('/', '/'), '500 500', 'a variable fails: no request passes');
$failing->stop('QUIT', qr/realpath\(\)/);
