# What logs and headers may say about a check.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header tally wait_for );

my $gateway = t::Gateway->limited(
    zone => { z => 'rate=2r/h', strict => 'rate=2r/h', slots => '' },
    rules => ['narrow zone=strict rate=1r/h match=/narrow',
              'slots zone=slots algorithm=concurrency limit=1'],
    http => <<'CONF',
    log_format rl 'rl [$ratelimit_status] [$ratelimit_rule] [$ratelimit_limit]'
                  ' [$ratelimit_remaining] [$ratelimit_reset]'
                  ' [$ratelimit_retry_after] [$ratelimit_source]'
                  ' [$ratelimit_route] [$ratelimit_api_key]';
    log_format key 'key [$ratelimit_zone] [$ratelimit_key] [$ratelimit_algorithm]'
                   ' [$ratelimit_cost] [$ratelimit_check_time]';
    access_log %%DIR%%/access.log rl;
CONF
    server => 'add_header X-Route $ratelimit_route;',
    locations => {
        '/' => 'ratelimit zone=z;',
        '/header' => 'ratelimit zone=z; add_header X-Vars "[$ratelimit_status] '
                     . '[$ratelimit_rule] [$ratelimit_limit] '
                     . '[$ratelimit_remaining] [$ratelimit_retry_after] '
                     . '[$ratelimit_source]" always;',
        '/free' => '', '/narrow' => 'ratelimit zone=strict;',
        '/slots' => 'ratelimit zone=slots;',
        '/key' => 'access_log %%DIR%%/access.log key; ratelimit zone=z;',
        '/checked' => 'ratelimit zone=z; root /nonexistent;'
                      . 'error_page 404 =200 /page/9;',
        '/page' => '' });

t::Clock::stop();

# The last line of the log is like that, after this request.
sub logs {
    my ($name, $like, @request) = @_;
    my $lines = () = $gateway->read('access.log') =~ /\n/g;
    $gateway->get(@request);
    my @lines;
    wait_for(sub {
        @lines = split /\n/, $gateway->read('access.log');
        return @lines > $lines;
    });
    like($lines[-1], qr/$like/, $name);
}

my @said = map { $gateway->get('/header?k=h') } 1 .. 3;
is(tally(@said), '2 x 200, 1 x 429', 'passed and rejected');
is(join(' ', map { header($_, 'X-Vars') } @said),
   '[PASSED] [z] [2] [1] [] [local] [PASSED] [z] [2] [0] [] [local] '
   . '[REJECTED] [z] [2] [0] [1800] [local]', 'in a header');
logs('passed', qr{^rl \[PASSED\] \[z\] \[2\] \[1\] \[\d{10}\] \[-\] \[local\]}
     . qr{ \[/users/\{id\}\] \[the-key\]$},
     '/users/42/?k=b', 'X-API-Key: the-key');
logs('nothing counts', qr{^rl \[BYPASSED\]( \[-\]){6} \[/\] \[-\]$}, '/');
logs('no ratelimit sees it', qr{^rl \[-\]( \[-\]){6} \[/free\] \[-\]$},
     '/free?k=a');
logs("the rule is the strictest one's", qr{^rl \[PASSED\] \[narrow\] \[1\] \[0\] },
     '/narrow?k=a');
logs('no reset of requests in flight',
     qr{^rl \[PASSED\] \[slots\] \[1\] \[0\] \[-\] \[-\] \[local\] },
     '/slots?k=a');
is(header($gateway->get($_->[0]), 'X-Route'), $_->[1], "the route of $_->[0]")
    for ['/', '/'], ['/a/b', '/a/b'], ['/v1/users/123/', '/v1/users/{id}'],
        ['/o/00112233445566AA/x', '/o/{id}/x'],
        ['/f/123e4567-e89b-12d3-a456-426614174000', '/f/{id}'], ['/v2', '/v2'],
        ['/a;p=1/7;q', '/a/{id}'], ['/%37/x', '/{id}/x'], ['/abc', '/abc'];
logs('through an internal redirect they are those of the check',
     qr{^rl \[PASSED\] \[z\] \[2\] \[1\] \[\d{10}\] \[-\] \[local\]}
     . qr{ \[/checked/\{id\}\] }, '/checked/1?k=c');
logs('the key by its hash, the algorithm, the cost and the time',
     qr{^key \[z\] \[sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b}
     . qr{9807785afee48bb\] \[token_bucket\] \[1\] \[0\.000\]$}, '/key?k=a');
logs('a value that looks like a hash is hashed',
     qr{^key \[z\] \[sha256:9f447b1b473d359884f2b8541a1ad0b7d194ed59b79e8eee4}
     . qr{8047ec4830564fd\] }, '/key?k=sha256:' . 'a' x 64);
logs('nothing counts: no key', qr{^key( \[-\]){5}$}, '/key');
$gateway->stop;
