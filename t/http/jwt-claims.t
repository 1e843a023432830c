# $ratelimit_jwt_<claim>: what it is of each kind of claim, in keys, tiers, maps
# and logs, of documents too; and that a request's token is verified once.

use MIME::Base64 qw( encode_base64url );
use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::JWT;

my $SECRET = 'secret-of-exactly-32-bytes------';

my @VARIABLES = qw( sub tenantid n f yes no nothing list mixed object
                    object__a object__b__c a_b a__b_c https___example_com_id
                    cognito_groups line list__a );

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

$gateway->write('secret', t::JWT::json(t::JWT::oct($SECRET)));
$gateway->write('other', t::JWT::json(t::JWT::oct("$SECRET, another")));
$gateway->configure(http => t::Gateway::limited_http(
    zone => { tenant => 'key=$ratelimit_jwt_org__tenant rate=2r/h',
              both => 'key=$ratelimit_jwt_sub:$ratelimit_jwt_org__tenant'
                      . ' rate=1r/h',
              tiers => 'key=$ratelimit_jwt_sub rate=100r/h' },
    rules => ['mapped zone=both rate=1r/h key=$mapped',
              'plan zone=tiers rate=1r/h tiers=gold:3r/h'],
    http => <<"CONF",
    error_log %%DIR%%/error.log debug;
    map \$ratelimit_jwt_org__tenant \$mapped {
        ""      "";
        default map-\$ratelimit_jwt_org__tenant;
    }
    log_format claims '\$uri \$ratelimit_jwt_sub \$ratelimit_jwt_list';
    access_log $dir/access.log claims;
    ratelimit_jwt_key secret;
CONF
    locations => {
        '/all' => 'add_header X-Got "'
                  . join('|', map { "\$ratelimit_jwt_$_" } @VARIABLES) . '";',
        '/brace' => 'add_header X-Got "${ratelimit_jwt_SUB}-$ratelimit_jwt_";',
        '/other' => 'ratelimit_jwt_key other;'
                    . 'add_header X-Got "[$ratelimit_jwt_sub]";',
        '/insecure' => 'ratelimit_jwt_key insecure;'
                       . 'add_header X-Got "[$ratelimit_jwt_sub]";',
        '/source' => 'ratelimit_api_key jwt:org.tenant jwt:a.b;'
                     . 'add_header X-Got "[$ratelimit_api_key]";',
        '/set' => 'set $from "$ratelimit_jwt_sub"; if ($ratelimit_jwt_sub)'
                  . ' { set $from "$from!"; }'
                  . 'add_header X-Got "$from$ratelimit_jwt_sub";',
        '/again' => 'error_page 404 = @again; ratelimit zone=tenant;'
                    . 'if ($ratelimit_jwt_sub = alice) { return 404; }',
        '@again' => 'ratelimit zone=both;'
                    . 'add_header X-Got $ratelimit_jwt_sub always;'
                    . 'return 200;',
        (map { ("/$_" => "ratelimit zone=$_;") } qw( tenant both )),
        '/tiers' => 'ratelimit_tier $ratelimit_jwt_plan; ratelimit zone=tiers;',
    }))->start;

sub token {
    return t::JWT::hs256(t::JWT::content({ alg => 'HS256' }, shift), $SECRET);
}

sub ask {
    my ($path, $body) = @_;
    return $gateway->get($path, 'Authorization: Bearer ' . token($body));
}

# all variables of a body that has only this claim, by their names
sub got {
    my ($name, $text) = @_;
    my %got;
    @got{@VARIABLES} = split /\|/, header(ask('/all', $text), 'X-Got'), -1;
    return $got{$name};
}

sub is_claim { is(got($_[0], $_[1]), $_[2], "$_[1]: $_[0]") }

# each kind
is_claim(sub => "{\"sub\":$_->[0]}", $_->[1])
    for ['"alice"', 'alice'], ['"a b"', 'a b'], ['""', ''], ['"\u00e9"', "\xc3\xa9"],
        ['42', '42'], ['-7', '-7'], ['9223372036854775807', '9223372036854775807'],
        ['18446744073709551615', '18446744073709551615'],
        ['-18446744073709551616', '-18446744073709551616'],
        ['[18446744073709551615,"b",1]', '18446744073709551615,b,1'],
        ['184467440737095516150.5', '1.84467440737096e+20'],
        ['1.5', '1.5'], ['1e3', '1000'], ['0.1', '0.1'], ['true', 'true'],
        ['false', 'false'], ['null', ''], ['{}', ''], ['{"a":1}', ''],
        ['[]', ''], ['["a"]', 'a'], ['["a","b","c"]', 'a,b,c'],
        ['["a",1,true,false,-2.5]', 'a,1,true,false,-2.5'],
        ['[null,"a",["b"],{"c":1},"d"]', 'a,d'], ['["a b","c,d"]', 'a b,c,d'],
        ['"' . 'k' x 3000 . '"', 'k' x 3000];

# no claim ends a header or a line
is_claim(line => '{"line":"a\r\nX-Evil: 1"}', 'a%0D%0AX-Evil: 1');
is_claim(line => '{"line":["\u0001","\u007f%0A"]}', '%01,%7F%0A');

# names: small letters, "_" for what a variable's name cannot have
is_claim(tenantid => '{"tenantId":"t"}', 't');
is_claim(cognito_groups => '{"cognito:groups":["a","b"]}', 'a,b');
is_claim(https___example_com_id => '{"https://example.com/id":"i"}', 'i');

# the claim of exactly that name is before others, of which there may be one
is_claim(a_b => $_, 'own')
    for '{"a-b":"x","a_b":"own"}', '{"a_b":"own","A-b":"x"}', '{"A:B":"own"}',
        '{"a-b":"x","a_b":"own","A_B":"y"}';
is_claim(a_b => $_, '')
    for '{"a-b":"x","A_b":"y"}', '{"a-b":"x","A_b":"x"}',
        '{"a-b":"x","A_b":"y","a.b":"z"}';
is_claim(tenantid => '{"Tenant-ID":"x","tenantId":"t"}', 't');
is_claim(object__a => $_, 'own')
    for '{"Object":{"a":"x"},"object":{"a":"own"}}',
        '{"object--a":"x","object":{"a":"own"}}',
        '{"object":{"A":"x","a":"own"}}', '{"Object":{"a":"own"}}',
        '{"OBJECT":{"a":"x"},"Object":{"a":"y"},"object":{"a":"own"}}';
is_claim(object__a => $_, '')
    for '{"Object":{"a":"x"},"OBJECT":{"a":"y"}}',
        '{"object--a":"x","Object":{"a":"y"}}';

# inside another claim
is_claim(object__a => '{"object":{"a":"in"}}', 'in');
is_claim(object__a => '{"object":{"a":"in"},"object__a":"flat"}', 'flat');
is_claim(object__b__c => '{"object":{"b":{"c":7}}}', '7');
is_claim(object__b__c => '{"object":{"b__c":8}}', '8');
is_claim(object__b__c => '{"object":{"b":"x"},"object__b":{"c":9}}', '9');
is_claim(a__b_c => '{"a":{"b.c":"dot"}}', 'dot');
is_claim(object__a => '{"object":"x"}', '');
is_claim(list__a => '{"list":[{"a":1}]}', '');
is_claim(a_b => '{"a":{"b":"no"}}', '');

is(header(ask('/brace', { sub => 'alice' }), 'X-Got'), 'alice-', 'in braces');
is(header(ask('/source', $_->[0]), 'X-Got'), "[$_->[1]]", "source: $_->[0]")
    for ['{"org":{"tenant":"t"}}', 'jwt:t'], ['{"org.tenant":"flat"}', 'jwt:flat'],
        ['{"org":{"tenant":["t"]},"a":{"b":5}}', 'jwt:5'],
        ['{"Org":{"tenant":"t"}}', ''], ['{"org":{"tenant":true}}', ''];

# no token, no valid one, another key
is(header($gateway->get('/all'), 'X-Got'), '|' x $#VARIABLES, 'no token');
is(header($gateway->get('/all', 'Authorization: Bearer ' . token({ sub => 'a' })
                                . 'AAAA'), 'X-Got'),
   '|' x $#VARIABLES, 'a wrong signature');
is(header(ask('/other', { sub => 'a' }), 'X-Got'), '[]', 'another key');
is(header(ask('/insecure', { sub => 'a', exp => 1 }), 'X-Got'), '[a]',
   'nothing is verified');
is(header(ask('/set', { sub => 'a' }), 'X-Got'), 'a!a', 'in a rewrite');

# keys, tiers, maps, logs
sub statuses {
    my ($path, $body) = @_;
    return join ' ', map { ask($path, $body)->{status} } 1 .. 4;
}

is(statuses('/tenant', { sub => 'a', org => { tenant => 't' } }),
   '200 200 429 429', 'a tenant');
is(statuses('/tenant', { sub => 'b', org => { tenant => 't' } }),
   '429 429 429 429', 'its other users');
is(statuses('/tenant', { sub => 'b', org => { tenant => 'u' } }),
   '200 200 429 429', 'another tenant');
is(statuses('/tenant', { sub => 'b' }), '200 200 200 200', 'no tenant');
is(statuses('/both', { sub => 'a', org => { tenant => 'v' } }),
   '200 429 429 429', 'two claims');
is(statuses('/both', { sub => 'b', org => { tenant => 'v' } }),
   '429 429 429 429', 'the mapped claim is counted, too');
is(statuses('/tiers', { sub => 'a', plan => 'gold' }), '200 200 200 429',
   'a tier');
is(statuses('/tiers', { sub => 'b', plan => 'none' }), '200 429 429 429',
   'an unknown tier');

ask('/all', { sub => 'log', list => ['a', 'b'] });
t::Gateway::wait_for(sub { $gateway->read('access.log') =~ m{^/all log a,b$}m });
like($gateway->read('access.log'), qr{^/all log a,b$}m, 'a log');

# each request verifies its token once, whoever asks, before limits or after a
# redirect; another key verifies it anew
sub verified {
    my ($path, @headers) = @_;
    my $from = length $gateway->log;
    $gateway->get($path, "Authorization: Bearer " . token({ sub => 'a' })
                         . 'AAAA', @headers);
    return scalar(() = substr($gateway->log, $from)
                       =~ /the bearer token is not valid/g);
}

is(verified($_), 1, "$_: once") for qw( /all /set /both /tiers /again );

is(header(ask('/again', { sub => 'alice', org => { tenant => 'again' } }),
          'X-Got'), 'alice', 'after a redirect');

$gateway->stop;
