# The lists of clients: addresses, values of the keys of rules, and when an entry
# ends; of a document, and of nginx.conf.

use t::RateLimit 'no_plan';
use t::Api;
use t::Clock qw( advance );
use t::Gateway qw( header wait_for );
use t::Rules;

my $gateway = t::Gateway->limited(
    start => 0, workers => 2, api => 1,
    zone => 'state=%%DIR%%/rules.state keys_in_clear=on',
    rules => ['fixed match=/fixed limit=5 window=1h key=$arg_user'],
    http => 'set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;',
    server => 'ratelimit zone=z;',
    locations => { '/' => '', '/dry' => 'ratelimit_dry_run on;' });

$gateway->write('rules.state', t::Rules::record(1, { rules => [
    { id => 'r', key => ['$http_x_tenant', '$arg_k'],
      match => { route => '/r' }, params => { limit => 1, window => 3600 } },
] }));
$gateway->start;
ok(t::Rules::follows($gateway, 1), 'the document counts');

my $api = t::Api->new($gateway);

sub told {
    my ($path, @headers) = @_;
    my $answer = $gateway->get($path, @headers);
    return "$answer->{status} " . header($answer, 'X-Status');
}

sub from { return "X-Real-IP: $_[0]" }

sub change {
    my ($method, $path, $body, $version, $name) = @_;
    is(t::Api::said($api->change($method, $path, $body)), 200, $name);
    ok($api->follows($version), "$name: followed");
}

# addresses
change('PUT', '/deny', ['192.0.2.0/24', '2001:db8::/32', 'sk_bad',
                             { address => '198.51.100.7', reason => 'scans' }],
       2, 'the deny list');

is(told('/x', from($_)), '403 DENIED', "$_ is denied")
    for '192.0.2.200', '2001:db8:1::1', '198.51.100.7', '::ffff:192.0.2.1';
is(told('/x', from($_)), '200 BYPASSED', "$_ is not")
    for '192.0.3.1', '2001:db9::1', '198.51.100.8';
is(told('/x', from('192.0.3.1'), 'X-API-Key: sk_bad'), '403 DENIED', 'a key');
is(told('/dry', from('192.0.2.1')), '200 DENIED_DRY_RUN', 'a dry run');

is($gateway->get('/x', from('192.0.2.1'))->{body},
   '{"error":{"code":"CLIENT_DENIED","message":"This client is denied"}}'
   . "\n", 'the body says so');
is($gateway->get('/x', from('192.0.2.1'), 'X-API-Key: sk_bad')->{body},
   '{"error":{"code":"API_KEY_DENIED","message":"This API key is denied"}}'
   . "\n", 'and that of a key');
ok($gateway->log_has(qr/request denied by the list of ratelimit zone "z", key "192\.0\.2\.1"/),
   'the log line has the address');

# the deny list comes first, however long the prefix is; then the allow list
change('PUT', '/allow', ['192.0.2.7', '203.0.113.0/24'], 3,
       'the allow list');
is(told('/x', from('192.0.2.7')), '403 DENIED', 'denied and allowed');
is(told('/fixed?user=u', from('203.0.113.9')), '200 BYPASSED', 'not counted')
    for 1 .. 7;
is(told('/fixed?user=u', from('203.0.114.9')), '200 PASSED', 'counted');

# values of the keys of rules, wherever the request goes
change('POST', '/deny', [{ rule => 'fixed', key => 'eve' },
                              { rule => 'r', key => ['acme', 'k1'] },
                              { rule => 'fixed', key => t::Api::sha('mallory') }],
       4, 'keys of rules');
is(told('/fixed?user=eve'), '403 DENIED', 'the key of a rule of nginx.conf');
is(told('/other?user=eve'), '403 DENIED', 'where the rule does not apply');
is(told('/x?user=mallory'), '403 DENIED', 'by its hash');
is(told('/x?k=k1', 'X-Tenant: acme'), '403 DENIED', 'a key of two parts');
is(told('/x?k=k2', 'X-Tenant: acme'), '200 BYPASSED', 'another one');
is(told('/x?user=bob'), '200 BYPASSED', 'another user');

change('POST', '/allow', { rule => 'fixed', key => 'root' }, 5, 'allowed');
is(told('/r?k=root&user=root', 'X-Tenant: t'), '200 BYPASSED',
   'no rule counts it') for 1 .. 3;

change('DELETE', '/deny?rule=fixed&key=eve', undef, 6, 'taken away');
is(told('/x?user=eve'), '200 BYPASSED', 'eve is free');
is_deeply($api->get('/deny')->{json}[-1],
          { rule => 'fixed', key => t::Api::sha('mallory') }, 'others stay');

# a duration ends by itself
change('POST', '/deny', { address => '198.51.100.99', duration => '1h',
                               reason => 'slow down' }, 7, 'for a time');
is(told('/x', from('198.51.100.99')), '403 DENIED', 'denied');
ok(!exists $api->get('/deny')->{json}[-1]{duration}, 'a time is stored');
like($api->get('/deny')->{json}[-1]{expires_at}, qr/^20\d\d-.*Z\z/,
     'of this form');
advance(3000);
is(told('/x', from('198.51.100.99')), '403 DENIED', 'still denied');
advance(601);
is(told('/x', from('198.51.100.99')), '200 BYPASSED', 'no more');
change('POST', '/deny', ['sk_worse'], 8, 'the next change');
is((grep { ref $_ && ($_->{address} // '') eq '198.51.100.99' }
    @{ $api->get('/deny')->{json} }), 0, 'takes the entry away');

$gateway->stop;

# lists of nginx.conf
sub conf {
    my ($lines, $zone) = @_;
    return <<"CONF";
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    $lines
    ratelimit_zone \$arg_k zone=z:1m rate=1r/h;
    server {
        listen 127.0.0.1:%%PORT%%;
        add_header X-Status \$ratelimit_status always;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF
}

$gateway = t::Gateway->new(http => conf(<<'CONF'));
    ratelimit_deny zone=z 192.0.2.0/24 key:sk_bad_*;
    ratelimit_deny zone=z file=deny.txt;
    ratelimit_allow zone=z 192.0.2.1 10.0.0.0/8;
CONF
$gateway->write('deny.txt', "# scans\n2001:db8::/32   # all\n\n  198.51.100.7\r\nkey:"
                            . t::Api::sha('k'));
$gateway->start;
is(told('/?k=a', from($_)), '403 DENIED', "nginx.conf: $_")
    for '192.0.2.1', '192.0.2.9', '2001:db8::1', '198.51.100.7';
is(told('/?k=a', from('10.9.9.9')), '200 BYPASSED', 'nginx.conf: allowed')
    for 1 .. 3;
is(told('/?k=a', "X-API-Key: $_"), '403 DENIED', "nginx.conf: $_")
    for 'sk_bad_1', 'k';
is(told('/?k=a', from('198.51.100.8')), '200 PASSED', 'nginx.conf: another');

$gateway->write('deny.txt', "198.51.100.8\n");
$gateway->reload;
ok(wait_for(sub { told('/?k=a', from('198.51.100.8')) eq '403 DENIED' }),
   'a reload reads the file again');
$gateway->stop;

my $expected = 'expected an address, a network like "192.0.2.0/24", or "key:" '
               . 'and an API key, its "sha256:..." or a glob';

for (['ratelimit_deny zone=z 10.0.0;', "\"ratelimit_deny\" has an invalid \"10.0.0\", $expected"],
     ['ratelimit_allow zone=z key:;', "\"ratelimit_allow\" has an invalid \"key:\", $expected"],
     ['ratelimit_deny 10.0.0.1 10.0.0.2;', '"ratelimit_deny" has no "zone=<name>" before "10.0.0.1"'],
     ['ratelimit_deny zone=y ::1;', '"ratelimit_deny" has an unknown "zone=y"'])
{
    my ($line, $message) = @$_;
    like($gateway->verdict(conf($line)), qr/\Q$message\E/, $line);
}
