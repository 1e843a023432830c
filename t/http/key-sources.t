# Keys from Basic, the query string and cookies: what is the same to an API is
# the same key, however it is spelled; and keys that are too long or no text.

use Digest::SHA qw( sha256_hex );
use MIME::Base64 qw( encode_base64 );
use t::RateLimit 'no_plan';
use t::Gateway qw( header output );

my $h2 = t::Gateway::free_port();

my $gateway = t::Gateway->limited(
    zone => { key => 'key=$ratelimit_api_key rate=1r/h' },
    http => <<'CONF',
    log_format key '$ratelimit_api_key';
    access_log %%DIR%%/access.log key;
    large_client_header_buffers 4 16k;
CONF
    server => "listen 127.0.0.1:$h2 http2;"
              . 'add_header X-Got "[$ratelimit_api_key]" always;',
    locations => {
        (map { ("/$_->[0]" => "ratelimit_api_key $_->[1];") }
         [basic => 'basic'], [query => 'query:api_key'],
         [blank => '"query:api key"'], [cookie => 'cookie:api'],
         [header => 'header:X-Key'],
         [all => 'header:X-Key bearer basic query:k cookie:k']),
        '/limited' => 'ratelimit_api_key header:X-Key query:k;'
                      . 'ratelimit zone=key;',
    });

sub is_key {
    my ($key, $path, @headers) = @_;
    (my $name = "$path @headers") =~ s/[^\x20-\x7e]/./g;
    is(header($gateway->get($path, @headers), 'X-Got'), "[$key]",
       substr $name, 0, 70);
}

sub basic { return 'Authorization: Basic ' . encode_base64(shift, '') }

# basic: the user, in each spelling of the credentials
is_key('basic:alice', '/basic', basic('alice:secret'));
is_key('basic:alice', '/basic', basic('alice:'));
is_key('basic:alice', '/basic', basic('alice:a:b'));
is_key('basic: Al ice ', '/basic', basic(' Al ice :x'));
is_key("basic:\xc3\xa9", '/basic', basic("\xc3\xa9:x"));
is_key('', '/basic', basic('alice'));
is_key('', '/basic', basic(':secret'));
is_key('', '/basic', 'Authorization: Basic');
is_key('', '/basic', 'Authorization: Basic !!!!');
is_key('', '/basic', 'Authorization: Bearer YWxpY2U6eA==');
is_key('', '/basic');

is_key('basic:alice', '/basic', "Authorization: $_")
    for 'basic YWxpY2U6eA==', 'BASIC YWxpY2U6eA==', 'Basic    YWxpY2U6eA==',
        "Basic\tYWxpY2U6eA==", "\tBasic YWxpY2U6eA==", 'Basic YWxpY2U6eA',
        "Basic YWxpY2U6eA== \t";

is($gateway->get('/basic', $_, basic('alice:x'))->{status}, 400,
   "nginx refuses credentials beside \"$_\"")
    for 'Authorization:', 'Authorization: Bearer x';

# HTTP/2: nginx leaves spaces before a value
for my $value (' Basic YWxpY2U6eA==', 'Basic YWxpY2U6eA== ') {
    like(output('nghttp', '-v', '-H', "authorization:$value",
                "http://127.0.0.1:$h2/basic"),
         qr/x-got: \[basic:alice\]/, "HTTP/2: \"$value\"");
}

# query: decoded names and values, the first that is not empty
is_key('x', "/query?$_")
    for 'api_key=x', 'api%5Fkey=x', 'api%5fkey=x', '%61pi_key=x', 'api_key=%78',
        'a=1&api_key=x', 'api_key=x&api_key=y', 'api_key=&api_key=x',
        'api_key&api_key=x', '&&api_key=x&', 'api_key%20=y&api_key=x',
        'xapi_key=y&api_key=x', 'api_key=x#api_key=y';

is_key('a b', "/query?api_key=$_") for 'a+b', 'a%20b';
is_key('a+b', '/query?api_key=a%2Bb');
is_key('a=b', '/query?api_key=a=b');
is_key('a&b', '/query?api_key=a%26b');
is_key('%', '/query?api_key=%');
is_key('%4', '/query?api_key=%4');
is_key('%zz', '/query?api_key=%zz');
is_key('%41', '/query?api_key=%2541');
is_key(' ', '/query?api_key=+');
is_key("\xc3\xa9", "/query?api_key=$_") for '%C3%A9', '%c3%a9', "\xc3\xa9";

is_key('x', "/blank?$_") for 'api+key=x', 'api%20key=x';

is_key('', "/query$_")
    for '', '?', '?API_KEY=x', '?api_key', '?api_key=', '?api_key2=x',
        '?api%255Fkey=x', '?b=api_key=x', '?api_key%00=x';

# cookie: without quotes, blanks and escapes
is_key('x', '/cookie', "Cookie: $_")
    for 'api=x', 'a=1; api=x', 'a=1;api=x;b=2', 'api=x; api=y', 'api=; api=x',
        'api=""; api=x', 'api; api=x', ' api = x ', "api=\tx\t", 'api="x"',
        'api= "x" ', 'api=%78', 'api="%78"', 'api="\\170"', 'api="\\x"',
        'xapi=y; api=x', 'b="; api=x';

is_key('x', '/cookie', 'Cookie: a=1', 'Cookie:', 'Cookie: api=', 'Cookie: api=x',
       'Cookie: api=y');
is_key('a=b', '/cookie', 'Cookie: api=a=b');
is_key('a,b=c', '/cookie', 'Cookie: api=a,b=c');
is_key('a+b', '/cookie', 'Cookie: api=a+b');
is_key('"x', '/cookie', 'Cookie: api="x');
is_key("\xc3\xa9", '/cookie', "Cookie: api=\xc3\xa9");

is_key('', '/cookie', "Cookie: $_")
    for '', 'API=x', 'api', 'api=', 'api=""', 'apix=1', '=api', 'a=api=x';

# several sources, in their order
my @all = ('X-Key: h', 'Authorization: Bearer b', 'Cookie: k=c');

is_key('h', '/all?k=q', @all);
is_key('b', '/all?k=q', @all[1, 2]);
is_key('basic:u', '/all?k=q', basic('u:p'), $all[2]);
is_key('q', '/all?k=q', $all[2]);
is_key('c', '/all?k=', $all[2]);
is_key('c', '/all', basic(':p'), $all[2]);
is_key('c', '/all', 'Authorization: Basic !!!!', $all[2]);
is_key('', '/all');

# nginx keeps headers in lists of 20
is_key('h', '/all', (map { "X-$_: x" } 1 .. 50), $all[0]);

# long keys, and control characters
my $LONGEST = 'k' x 256;

sub hashed { return 'sha256:' . sha256_hex(shift) }

is_key($LONGEST, '/header', "X-Key: $LONGEST");
is_key(hashed("${LONGEST}k"), '/header', "X-Key: ${LONGEST}k");
is_key(hashed('k' x 8000), '/header', 'X-Key: ' . 'k' x 8000);
is_key(hashed($_), '/header', "X-Key: $_")
    for "a\x01", "\x7f", "a\tb", "\x1f";
is_key("\xff\x80", '/header', "X-Key: \xff\x80");
is_key(hashed("a\0b"), '/query?api_key=a%00b');
is_key(hashed("a\r\nX: y"), '/query?api_key=a%0d%0aX:+y');
is_key(hashed("basic:\x7f"), '/basic', basic("\x7f:x"));
is_key(hashed('k' x 300), '/cookie', 'Cookie: api="' . 'k' x 300 . '"');

# a name and three bytes for each that is counted
is_key('k' x 256, '/query?api_key=' . '%6b' x 256);

is($gateway->statuses(map { ["/limited?k=$_"] } 'a%00b', 'a%00c', 'a%00b', 'a', 'a'),
   '200 200 429 200 429', 'the bytes behind a zero count');
is($gateway->statuses(map { ['/limited', "X-Key: $_"] } 'l' x 299 . 'a', 'l' x 299 . 'b',
            'l' x 299 . 'a'),
   '200 200 429', 'so do those behind the 256th');
is($gateway->statuses(map { ["/limited?k=$_"] } 'same', '%73ame', 's%61me'),
   '200 429 429', 'each spelling is one key');

$gateway->stop;

my @long = grep { length > 256 } split /\n/, $gateway->read('access.log');

is(scalar @long, 0, 'no line of a log has more');
