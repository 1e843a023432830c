# Another nginx, while a binary is upgraded, has written a version to the state
# file that this one cannot go by, as of another configuration. It is the
# current one all the same: it can be read here, and changed by who expects it.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Api;
use t::Rules;

my $gateway = t::Gateway->new(workers => 1, http => <<"CONF")->start;
    ratelimit_zone \$arg_k zone=z:1m state=%%DIR%%/rules.state;

    server {
        listen 127.0.0.1:%%PORT%%;
        ${\ t::Rules::location() }
        location / { ratelimit zone=z; empty_gif; }
    }
CONF

my $api = t::Api->new($gateway);

# Puts the file in its place as nginx does.
sub others {
    my $text = join '', @_, $gateway->read('rules.state');

    $gateway->write('rules.other', $text);
    rename "$gateway->{dir}/rules.other", "$gateway->{dir}/rules.state"
        or die "rename: $!";
}

sub versions {
    return join ' ', map { $_->{version} }
                     @{ $api->get('/versions')->{json}{versions} };
}

is($api->put('/rules', t::Rules::rules(1), 'If-Match: "0"')->{status}, 201,
   'a change');

# a document that this nginx cannot use
sub of_tomorrow { return { %{ t::Rules::rules($_[0]) }, format => '2.0' } }

others(t::Rules::record(3, of_tomorrow(3)),
       t::Rules::record(2, t::Rules::rules(2)));

ok(t::Gateway::wait_for(sub {
       $gateway->log =~ /version 3 of its rules is not used/;
   }), 'the one of the file is not used');
is($api->get('/rules')->{version}, 1, 'the one before goes on');

t::Api::problem_ok($api->put('/rules', t::Rules::rules(4), $api->if_match(1)),
                   '412 conflict', 'who expects that');
is($api->get('/versions/3')->{json}{format}, '2.0',
   'it can be read');
is($api->get('/versions/2')->{json}{rules}[0]{params}{limit}, 2,
   'and one before it');
is($api->get('/versions/4')->{status}, 404, 'none that there is not');

is($api->put('/rules', t::Rules::rules(4), $api->if_match(3))->{version}, 4,
   'who expects it changes it');
is(versions(), '4 3 2 1', 'all are in the history');
ok(t::Rules::follows($gateway, 4), 'it is followed');
like($gateway->read('rules.state'), qr/^[^\n]*"version":4\b/, 'and saved');

others(t::Rules::record(5, of_tomorrow(5)));

is($api->put('/rules', t::Rules::rules(6), 'If-Match: *')->{version}, 6,
   'or who expects none in particular');
is(versions(), '6 5 4 3 2 1', 'nothing is lost');

others(t::Rules::record(7, t::Rules::rules(7)));

is($api->put('/rules', t::Rules::rules(8), $api->if_match(7))->{version}, 8,
   'one of this moment is not waited for');

$gateway->stop;
$gateway->log_ok;
