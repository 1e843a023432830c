# Who a client is, and how that is known, are one name: a claim of a valid token,
# a user of Basic, a valid token without the claim, an API key and the address
# that stands in for an invalid token share no counter, no list and no limit.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header );
use t::JWT;

use MIME::Base64 qw( encode_base64 );

my $SECRET = 'secret-of-exactly-32-bytes------';

my $gateway = t::Gateway->new(http => '');

$gateway->write('secret', t::JWT::json(t::JWT::oct($SECRET)));

$gateway->configure(http => t::Gateway::limited_http(
    zone => { z => 'key=$ratelimit_api_key rate=1r/h',
              sub => 'key=$ratelimit_jwt_sub rate=1r/h',
              two => 'key=${ratelimit_jwt_sub}/$arg_x rate=1r/h',
              other => 'key=$http_x_other rate=1r/h',
              each => 'key=$ratelimit_api_key rate=1r/h',
              doc => 'key=$ratelimit_api_key rate=1000r/h',
              banned => 'key=$ratelimit_api_key rate=1000r/h' },
    http => <<"CONF",
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Client;
    ratelimit_jwt_key secret;
    ratelimit_api_key jwt:sub basic header:X-Key query:key cookie:key bearer;
    ratelimit_penalty ban zone=banned key=\$ratelimit_api_key after=1r/1m
                      time=1h on=404;
    ratelimit_deny zone=banned key:jwt:mallory;
CONF
    server => 'add_header X-Got $ratelimit_api_key always;',
    locations => { (map { ("/$_" => "ratelimit zone=$_;") } qw( z sub two other each doc )),
                   '/docs/' => 'ratelimit_api zone=doc %%WRITE%%;',
                   '/banned' => 'ratelimit zone=banned;',
                   '/missing' => 'root %%DIR%%/none; ratelimit zone=banned;' }))->start;

my $api = t::Api->new($gateway, '/docs');

sub token {
    return 'Authorization: Bearer '
           . t::JWT::hs256(t::JWT::content({ alg => 'HS256' }, { @_ }), $SECRET);
}

sub user { return token(sub => shift) }
sub basic { return 'Authorization: Basic ' . encode_base64(shift . ':x', '') }
sub at { return 'X-Client: ' . shift }

my $INVALID = 'Authorization: Bearer a.b.c';
my $NAMELESS = token(jti => 1);
my ($SIGNED) = $NAMELESS =~ /Bearer (.*)\./;

# the name of each
sub is_key {
    my ($key, @headers) = @_;
    is(header($gateway->get('/z', @headers), 'X-Got'), $key, $key);
}

is_key('jwt:alice', user('alice'));
is_key('jwt:jwt:alice', user('jwt:alice'));
is_key('jwt:plain:alice', user('plain:alice'));
is_key('basic:alice', basic('alice'));
is_key("token:$SIGNED", $NAMELESS);
is_key('alice', 'X-Key: alice');
is_key("plain:$_", "X-Key: $_")
    for qw( jwt:alice basic:alice address:192.0.2.1 plain:alice plain: ),
        "token:$SIGNED";
is_key($_, "X-Key: $_") for qw( JWT:alice jwt jwt/alice key:alice xjwt: );

# counters: each request is another client's first one
my @ALICE = (user('bob'), basic('bob'), map { "X-Key: $_" }
             qw( bob jwt:bob basic:bob plain:bob plain:jwt:bob ));

is($gateway->statuses(map { ['/z', $_] } @ALICE, @ALICE),
   join(' ', (200) x @ALICE, (429) x @ALICE), 'one name, seven clients');

# each source with each text that another one may have: who is who by the kind of
# the source and its text, and a second request of one is rejected
my %SOURCES = (claim => sub { '/each', user(shift) },
               basic => sub { '/each', basic(shift) },
               header => sub { '/each', 'X-Key: ' . shift },
               query => sub { '/each?key=' . shift },
               cookie => sub { '/each', 'Cookie: key=' . shift });
my (%had, @names, @requests, @statuses);

sub meets {
    my ($source, $text, @request) = @_;
    my $kind = $source =~ /header|query|cookie/ ? 'key' : $source;
    push @names, "$source $text";
    push @requests, \@request;
    push @statuses, $had{"$kind $text"}++ ? 429 : 200;
}

meets('token', '', '/each', $NAMELESS);
meets('address', '192.0.2.6', '/each', at('192.0.2.6'), $INVALID);

for my $text (map { ($_, "jwt:$_", "basic:$_", "token:$_", "address:$_", "plain:$_",
                     "plain:jwt:$_") } 'bob6', '192.0.2.6', $SIGNED)
{
    for my $source (sort keys %SOURCES) {
        # a user has no ":"
        next if $source eq 'basic' && $text =~ /:/;
        meets($source, $text, $SOURCES{$source}->($text));
    }
}

my @got = split ' ', $gateway->statuses(@requests);

is(join("\n", map { "$names[$_]: $got[$_]" } 0 .. $#names),
   join("\n", map { "$names[$_]: $statuses[$_]" } 0 .. $#names),
   'no two of other sources meet');

my @ADDRESS = ([at('192.0.2.7'), $INVALID], [user('192.0.2.7')],
               [user('address:192.0.2.7')], [user('plain:address:192.0.2.7')]);

for my $zone (qw( z sub two )) {
    is($gateway->statuses(map { ["/$zone", @$_] } @ADDRESS, @ADDRESS),
       '200 200 200 200 429 429 429 429', "$zone: an address is nobody's claim");
}

is($gateway->statuses(map { ['/other', @$_] } (
       [at('192.0.2.7'), $INVALID], ['X-Other: 192.0.2.7'],
       ['X-Other: address:192.0.2.7'], ['X-Other: plain:address:192.0.2.7']) x 2),
   '200 200 200 200 429 429 429 429', 'nor any other key');

# lists, limits and penalties
is($gateway->statuses(map { ['/banned', $_] } user('mallory'), 'X-Key: mallory',
                      'X-Key: jwt:mallory', basic('mallory')),
   '403 200 200 200', 'a deny list of nginx.conf');

is($gateway->statuses((['/missing', user('carol')]) x 3,
                      map { ['/banned', $_] } user('carol'), 'X-Key: carol',
                      'X-Key: jwt:carol', basic('carol')),
   '404 404 429 429 200 200 200', 'a penalty');

is(t::Api::said($api->change('PUT', '/document', {
       deny => ['jwt:eve', { rule => 'sub', key => 'address:192.0.2.9' }],
       tier_of => { keys => { 'jwt:dan' => 'gold' } },
       overrides => [{ id => 'o', key => 'jwt:fay', rule => 'two', type => 'absolute',
                       value => { limit => 1 } }],
       rules => [{ id => 'gold', match => { tier => 'gold' },
                   params => { limit => 1, window => '1h' } },
                 { id => 'two', params => { limit => 2, window => '1h' } },
                 { id => 'sub', key => '$ratelimit_jwt_sub',
                   params => { limit => 2, window => '1h' },
                   limits_by_key => { 'address:192.0.2.8' => { limit => 1 } } }] })),
   201, 'a document');
ok($api->follows(1), 'is in use');

for (['eve', '403 200 200 200'], ['dan', '200 200 200 200 429 200 200 200'],
     ['fay', '200 200 200 200 429 200 200 200'])
{
    my ($name, $statuses) = @$_;
    my @each = (user($name), "X-Key: $name", "X-Key: jwt:$name", basic($name));
    is($gateway->statuses(map { ['/doc', $_] } @each, length $statuses > 15 ? @each : ()),
       $statuses, "$name in a document");
}

is($gateway->statuses(map { ['/doc', @$_] } ([at('192.0.2.8'), $INVALID],
                                             [user('address:192.0.2.8')]) x 2),
   '200 200 429 200', 'an address in a document');

is($gateway->statuses(map { ['/doc', @$_] } [at('192.0.2.9'), $INVALID],
                      [at('192.0.2.9'), 'X-Key: any'], [user('192.0.2.9')],
                      [user('address:192.0.2.9')]),
   '403 200 200 200', 'and on its deny list');

$gateway->stop;
