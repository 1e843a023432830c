# A client sends another API key with each request. After step 4 of
# docs/under-attack.md its network has a limit, and the keys that are known there
# go on.

use t::RateLimit 'no_plan';
use t::Gateway qw( passed tally );

use t::hostile::Attack;

sub gateway {
    return t::hostile::Attack::gateway('4. A client invents keys',
        'access_log %%DIR%%/api.log; return 200 "orders\n";',
        http => 'real_ip_header X-Address; set_real_ip_from 127.0.0.1;', @_);
}

# Requests of so many keys that nobody has seen, from 50 addresses.
my $made = 0;

sub attack {
    my ($gateway, $n, $network) = @_;
    return map { t::Gateway::send_all([map {
               [$gateway, '/', 'X-API-Key: invented' . $made++,
                sprintf "X-Address: $network", $made % 50]
           } 1 .. 200], 60) } 1 .. $n / 200;
}

sub client {
    my ($gateway, $address, @keys) = @_;
    return $gateway->statuses(map { ['/', "X-API-Key: $_",
                                     "X-Address: $address"] } @keys);
}

# before
my $gateway = gateway(without => ' new_keys=20r/h');

is(tally(attack($gateway, 1000, '198.51.100.%d')), '1000 x 200',
   'without it each key has a limit of its own');
$gateway->stop;

# after: 20 keys, and 100 requests a minute of all others
$gateway = gateway(small => 1);

is(client($gateway, '198.51.100.7', 'alice', 'bob'), '200 200', 'clients');

my $passed = passed(attack($gateway, 2000, '198.51.100.%d'));

cmp_ok($passed, '>=', 118, 'with it a network brings 20 keys');
cmp_ok($passed, '<', 200, 'and the others share a limit');

is(client($gateway, '198.51.100.7', ('alice') x 50, ('bob') x 50),
   join(' ', (200) x 100), 'clients of this network go on');
is(client($gateway, '203.0.113.1', 'carol'), '200', 'as does another network');

cmp_ok(passed(attack($gateway, 400, '2001:db8:0:1%02x::1')), '<', 200,
       'addresses of a /56 are one network, too');

# what the attack costs: 20 keys and what else is counted, of 2,000
my $metrics = $gateway->get('/metrics')->{body};

like($metrics, qr/^ratelimit_new_keys_exceeded_total\{zone="keys"\} \d{4}$/m,
     'the metric');
my ($used) = $metrics =~ /^ratelimit_table_used\{zone="keys"\} (\d+)$/m;

# an estimate, by a sample of the table's sets: that of a small table is close
cmp_ok($used, '<', 200, 'the table is not full of them');

$gateway->stop;
