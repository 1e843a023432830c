# The state file of a zone that follows a document: a gateway begins with it,
# also where it was damaged, and through what may happen to its workers.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;
use t::Rules;

use Time::HiRes qw( sleep time );

sub gateway {
    my (%self) = @_;

    return t::Gateway->new(workers => 2, %self, http => <<"CONF");
    ratelimit_zone \$arg_k zone=z:1m state=rules.state @{[$self{zone} // '']};
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        location / { ratelimit zone=z; empty_gif; }
        @{[t::Rules::location()]}
    }
CONF
}

sub passes {
    my ($gateway, $key) = @_;
    return scalar grep { $_->{status} == 200 } $gateway->burst(30, "/?k=$key");
}

my @records = map { t::Rules::record($_, t::Rules::rules(10 + $_)) } 1 .. 3;


# no file: no rules

{
    my $gateway = gateway()->start;

    ok(t::Rules::follows($gateway, 0), 'no file: no version');
    is(passes($gateway, 'a'), 30, 'no file: no limit');

    my ($ok, $said) = $gateway->check;
    ok($ok, 'no file: nginx -t');
    ok(!-e "$gateway->{dir}/rules.state", 'and none is made');

    $gateway->stop;
}


# a file: its newest version counts from the first request on

{
    my $gateway = gateway();
    my $text = join '', reverse @records;

    $gateway->write('rules.state', $text);
    $gateway->start;

    is(passes($gateway, 'a'), 13, 'a file: its newest version');
    ok(t::Rules::follows($gateway, 3), 'on all workers');
    like($gateway->log, qr/\[notice\] .*zone "z" begins with version 3 of its rules, from ".*rules\.state"/,
         'and the log says so');
    sleep 0.5;
    is($gateway->read('rules.state'), $text, 'it stays as it is');

    # through a reload, where nothing is read again

    $gateway->write('rules.state', 'x');
    $gateway->reload;
    is(passes($gateway, 'b'), 13, 'a reload keeps the rules');
    is($gateway->read('rules.state'), 'x', 'and reads no file');

    $gateway->stop;
}
