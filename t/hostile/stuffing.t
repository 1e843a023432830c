# Credential stuffing: an attacker tries stolen passwords. After step 1 of
# docs/under-attack.md its attempts do not reach the API any more, and people
# elsewhere log in.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header tally );

use t::hostile::Attack;

# one in fifty of the passwords is right, nobody knows which
my $gateway = t::hostile::Attack::gateway('1. Passwords are tried', <<'API',
    access_log %%DIR%%/api.log;
    if ($arg_password = right) { return 200 "welcome\n"; }
    return 401 "wrong password\n";
API
    # the address that clients say to have, instead of that of the test
    main => '', http => 'real_ip_header X-Address; '
                        . 'set_real_ip_from 127.0.0.1;');

sub login {
    my ($address, $user, $password) = @_;
    return ["/login?user=$user&password=$password", "X-Address: $address"];
}

# 200 attempts, one after the other, each with another name
my @got = map {
    my $try = login('203.0.113.7', "user$_", $_ % 50 == 49 ? 'right' : "p$_");
    $gateway->get(@$try)
} 1 .. 200;

is(tally(@got[0 .. 5]), '6 x 401', 'six attempts reach the API');
is(tally(@got[6 .. 199]), '194 x 429', 'and no other one: no account is open');
is(() = $gateway->read('api.log') =~ /^/mg, 6, 'as the API has it');
cmp_ok(header($got[199], 'Retry-After'), '>', 590, 'for ten minutes');

# people at other addresses
is($gateway->get(@{ login('198.51.100.1', 'alice', 'right') })->{status}, 200,
   'another address logs in');
is(tally(map { $gateway->get(@{ login("198.51.100.$_", 'bob', 'typo') }) }
         2 .. 9),
   '8 x 401', 'and may be wrong');

# a hundred connections at once, from twenty addresses
my @many = t::Gateway::send_all([map {
    [$gateway, @{ login('192.0.2.' . $_ % 20, "u$_", 'wrong') }]
} 1 .. 400], 60);

my $tried = grep { $_->{status} == 401 } @many;

# requests under way when a penalty begins have passed
cmp_ok($tried, '<', 400, 'twenty addresses are banned, too');
is(tally(map { $gateway->get(@{ login("192.0.2.$_", 'x', 'right') }) } 0 .. 19),
   '20 x 429', 'each of them');

my $metrics = $gateway->get('/metrics')->{body};

like($metrics, qr/^ratelimit_penalties_total\{zone="login",action="close"\} 21$/m,
     'twenty-one penalties');
like($metrics, qr/^ratelimit_penalties_active\{zone="login"\} 21$/m,
     'that are in force');
like($gateway->log, qr/\[warn\] .*penalty "guesses" of zone "login" begins/,
     'the log has some');

# it hits the wrong one
my $api = t::Api->new($gateway, '/ratelimit', $gateway->{operators});

is($api->get('/penalties')->{json}{total}, 21, 'the endpoint has them');
is($api->delete('/penalties?key=203.0.113.7')->{status}, 200, 'and ends one');
is($gateway->get(@{ login('203.0.113.7', 'x', 'right') })->{status}, 200,
   'the address is served');
is_deeply([sort map { $_->{key} =~ /^192\.0\.2\.\d+$/ ? () : $_->{key} }
           @{ $api->get('/penalties')->{json}{penalties} }], [],
          'addresses are readable');

$gateway->stop;
