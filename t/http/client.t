# $ratelimit_client: the client's address, or the network that it is in.

use t::RateLimit 'no_plan';
use t::Gateway qw( header output );

my $gateway = t::Gateway->limited(
    zone => { client => 'key=$ratelimit_client rate=1r/h' },
    http => 'set_real_ip_from 127.0.0.1; set_real_ip_from unix:;'
            . 'real_ip_header X-Real;',
    server => 'listen unix:%%DIR%%/socket;'
              . 'add_header X-Got "[$ratelimit_client]" always;',
    locations => {
        '/' => '',
        '/limited' => 'ratelimit zone=client;',
        (map { ("/$_->[0]" => "ratelimit_client_prefix $_->[1];") }
         [whole => '32 128'], [24 => '24 56'], [31 => '31 127'], [1 => '1 9'],
         [0 => '0 0']),
        '/20' => 'ratelimit_client_prefix 20 61;'
                 . 'location /20/inherited { empty_gif; }'
                 . 'location /20/replaced { ratelimit_client_prefix 25 1;'
                 . ' empty_gif; }',
    });

sub is_client {
    my ($path, $address, $client) = @_;
    my @headers = defined $address ? ("X-Real: $address") : ();
    my $answer = $gateway->get($path, @headers);
    is(header($answer, 'X-Got'), "[$client]",
       "$path " . ($address // 'the connection'));
}

sub statuses {
    return $gateway->statuses(map { ['/limited', "X-Real: $_"] } @_);
}

is_client('/', undef, '127.0.0.1');
is_client('/24', undef, '127.0.0.0/24');

# unless told otherwise IPv4 as it is, and of IPv6 the first half
is_client('/', '192.0.2.1', '192.0.2.1');
is_client('/', '2001:db8::1', '2001:db8::/64');
is_client('/', '2001:db8:0:1:ffff::1', '2001:db8:0:1::/64');

is_client('/whole', '192.0.2.1', '192.0.2.1');
is_client('/whole', '255.255.255.254', '255.255.255.254');
is_client('/whole', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:5:6');
is_client('/whole', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
          'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff');
is_client('/whole', '::1', '::1');

is_client('/24', '192.0.2.255', '192.0.2.0/24');
is_client('/24', '2001:db8:0:1ff::1', '2001:db8:0:100::/56');

is_client('/20', '192.0.63.255', '192.0.48.0/20');
is_client('/20', '2001:db8:0:f::1', '2001:db8:0:8::/61');
is_client('/20/inherited', '192.0.63.255', '192.0.48.0/20');
is_client('/20/replaced', '192.0.2.255', '192.0.2.128/25');
is_client('/20/replaced', 'ffff::1', '8000::/1');

is_client('/31', '192.0.2.1', '192.0.2.0/31');
is_client('/31', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
          'ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127');

is_client('/1', '255.255.255.254', '128.0.0.0/1');
is_client('/1', 'ffff::1', 'ff80::/9');

is_client('/0', '192.0.2.1', '0.0.0.0/0');
is_client('/0', '2001:db8::1', '::/0');

# IPv4 in IPv6 is IPv4
is_client('/', '::ffff:192.0.2.1', '192.0.2.1');
is_client('/', '::ffff:c000:201', '192.0.2.1');
is_client('/24', '::ffff:192.0.2.1', '192.0.2.0/24');
is_client('/whole', '::fffe:c000:201', '::fffe:c000:201');

# a socket of this machine has no address, unless realip knows one
sub over_socket {
    my $text = output('curl', '-s', '-o', "$gateway->{dir}/body", '-D', '-',
                      '--max-time', 60, '--unix-socket',
                      "$gateway->{dir}/socket", @_, 'http://localhost/24');
    return $text =~ /^X-Got: \[(.*)\]/m ? $1 : $text;
}

is(over_socket(), 'unix:', 'a UNIX socket');
is(over_socket('-H', 'X-Real: 192.0.2.1'), '192.0.2.0/24',
   'a UNIX socket, with an address by realip');

# what is counted
is(statuses('192.0.2.1', '192.0.2.2', '::ffff:192.0.2.1'), '200 200 429',
   'IPv4 by address');
is(statuses('2001:db8::1', '2001:db8:0:0:ff::', '2001:db8:0:1::1'),
   '200 429 200', 'IPv6 by network');

$gateway->stop;

# what nginx -t says
sub refused {
    my ($directive, $message) = @_;
    is($gateway->verdict("server { listen %%PORT%%; $directive }"), $message,
       $directive);
}

refused("ratelimit_client_prefix $_ 64;",
        "\"ratelimit_client_prefix\" has an invalid IPv4 prefix \"$_\", "
        . 'expected a number from 0 to 32')
    for '33', '-1', 'x', '1.5', '99999999999999999999';
refused("ratelimit_client_prefix 32 $_;",
        "\"ratelimit_client_prefix\" has an invalid IPv6 prefix \"$_\", "
        . 'expected a number from 0 to 128')
    for '129', '/64';
refused($_, 'invalid number of arguments in "ratelimit_client_prefix" directive')
    for 'ratelimit_client_prefix 32;', 'ratelimit_client_prefix 32 64 1;';
refused('ratelimit_client_prefix 32 64; ratelimit_client_prefix 32 64;',
        '"ratelimit_client_prefix" directive is duplicate');
