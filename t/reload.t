# A gateway's life: counters stay through a reload, a refused reload and the
# death of a worker; they start anew only where the zone is another one.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

sub conf {
    my %is = (key => '$arg_k', size => '1m', rate => '1000r/h', zone => 'z',
              @_);

    return <<"CONF";
    ratelimit_zone $is{key} zone=z:$is{size} rate=$is{rate};
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        location / { ratelimit zone=$is{zone}; empty_gif; }
    }
CONF
}

sub left {
    my ($gateway, $path) = @_;
    return t::Gateway::header($gateway->get($path), 'X-RateLimit-Remaining');
}

my $gateway = t::Gateway->new(workers => 2, http => conf())->start;

# a reload

is(left($gateway, '/?k=a'), 999, 'the first request');
$gateway->reload;
is(left($gateway, '/?k=a'), 998, 'counters survive a reload');

# reloads under load

my @answers;

for (1 .. 6) {
    $gateway->signal('HUP');
    push @answers, $gateway->burst(200, '/?k=load');
}

is(t::Gateway::tally(@answers), '1000 x 200, 200 x 429',
   'under load no request is lost and none counts twice');
t::Gateway::wait_for(sub { $gateway->workers == 2 });

# a worker is killed

for (1 .. 3) {
    my @workers = $gateway->workers;

    kill KILL => $workers[0];
    t::Gateway::wait_for(sub {
        my @now = $gateway->workers;
        return @now == 2 && !grep { $_ == $workers[0] } @now;
    });
    is(left($gateway, '/?k=a'), 998 - $_, 'counters survive a killed worker');
}

# a reload that is refused

my $refused = 0;

for my $change ([zone => 'gone'], [size => '1k'], [key => '""'],
                [rate => 'many'])
{
    $gateway->configure(http => conf(@$change));
    $gateway->signal('HUP');
    $refused++;
    ok(t::Gateway::wait_for(sub {
           $refused == (() = $gateway->log =~ /\[emerg\]/g)
       }), "a reload with another $change->[0] is refused");
    is(left($gateway, '/?k=a'), 995 - $refused, 'and changes nothing');
}

# a limit is another one

$gateway->configure(http => conf(rate => '2000r/h'));
$gateway->reload;
is(t::Gateway::header($gateway->get('/?k=a'), 'X-RateLimit-Limit'), 2000,
   'a new limit holds');
cmp_ok(left($gateway, '/?k=a'), '<', 1990, 'and what was used counts');

# another size, another key

unlike($gateway->log, qr/start anew/, 'nothing has started anew yet');

$gateway->configure(http => conf(size => '2m'));
$gateway->reload;
is(left($gateway, '/?k=a'), 999, 'another size starts anew');
like($gateway->log, qr/\[notice\] .*ratelimit zone "z" changes size from 1048576 to 2097152, its counters start anew/,
     'and the log says so');

$gateway->configure(http => conf(size => '2m', key => '$arg_k$arg_l'));
$gateway->reload;
is(left($gateway, '/?k=a'), 999, 'another key starts anew');
like($gateway->log, qr/\[notice\] .*ratelimit zone "z" changes key from "\$arg_k" to "\$arg_k\$arg_l", its counters start anew/,
     'and the log says so');

# it was refused four times, and a worker killed three times

$gateway->stop('QUIT', qr/\[emerg\]|\[alert\] .* exited on signal 9$/);
