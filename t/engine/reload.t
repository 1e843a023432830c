# A gateway's life: counters stay through a reload, a refused reload and the
# death of a worker; they start anew only where the zone is another one.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );

sub conf {
    # no token comes back meanwhile, however slow the machine is
    my %is = (key => '$arg_k', size => '1m', rate => '1000r/366d', zone => 'z',
              redis => '', @_);
    # nobody listens there, so it counts alone
    return t::Gateway::limited_http(
        redis => 1, http => 'ratelimit_fail_mode local;',
        zone => { "z:$is{size}" => "key=$is{key} $is{redis} rate=$is{rate}" },
        locations => { '/' => "ratelimit zone=$is{zone};" });
}

sub left {
    my ($gateway, $path) = @_;
    return header($gateway->get($path), 'X-RateLimit-Remaining');
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
wait_for(sub { $gateway->workers == 2 });

# a worker is killed
for (1 .. 3) {
    my @workers = $gateway->workers;
    kill KILL => $workers[0];
    wait_for(sub {
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
    ok(wait_for(sub {
           $refused == (() = $gateway->log =~ /\[emerg\]/g)
       }), "a reload with another $change->[0] is refused");
    is(left($gateway, '/?k=a'), 995 - $refused, 'and changes nothing');
}

# a table of another layout, as another version of the module would have made:
# the number of its layout stands behind its magic word
sub layout {
    my ($gateway, $layout, $magic) = @_;
    no warnings 'portable';
    open my $maps, '<', "/proc/$gateway->{pid}/maps" or die "maps: $!";
    open my $mem, '+<:raw', "/proc/$gateway->{pid}/mem" or die "mem: $!";
    while (<$maps>) {
        m{^(\w+)-(\w+) rw-s .*/dev/zero} or next;
        my ($from, $bytes, $data) = (hex $1, hex($2) - hex $1);
        sysseek $mem, $from, 0;
        sysread $mem, $data, $bytes;
        my $at = index $data, $magic // 'rlttable';
        next if $at < 0;
        sysseek $mem, $from + $at + 8, 0;
        syswrite $mem, pack('L', $layout);
        return unpack 'L', substr $data, $at + 8, 4;
    }
}

$gateway->configure(http => conf());
is(layout($gateway, 99), 5, 'the table has the layout of this version');
$gateway->signal('HUP');
ok(wait_for(sub {
       $gateway->log =~ /\[emerg\] .*ratelimit zone "z" was made by an incompatible version of the module, expected a restart or another zone name/
   }), 'a reload onto an incompatible table is refused');
is(left($gateway, '/?k=a'), 990, 'and the old workers count on');
is(layout($gateway, 5), 99, 'nothing was written to it');
$gateway->reload;
is(left($gateway, '/?k=a'), 989, 'nor has a counter been lost');

# a limit is another one
$gateway->configure(http => conf(rate => '2000r/366d'));
$gateway->reload;
is(header($gateway->get('/?k=a'), 'X-RateLimit-Limit'), 2000,
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

# Redis comes, stays, and goes; its answers nobody has, so each tells but
# whether it passed
my %few = (size => '2m', rate => '3r/h');
my %redis = (%few, redis => 'redis=r');
my $anew = qr/, its counters on this gateway start anew/;

sub tally {
    return t::Gateway::tally($gateway->burst(5, '/?k=a'));
}

$gateway->configure(http => conf(%few));
$gateway->reload;
is(tally(), '3 x 200, 2 x 429', 'without Redis');

$gateway->configure(http => conf(%redis));
$gateway->reload;
is(tally(), '3 x 200, 2 x 429', 'with Redis it starts anew');
like($gateway->log,
     qr/\[notice\] .*ratelimit zone "z" gets "redis="$anew/,
     'and the log says so');

$gateway->reload;
is(tally(), '5 x 429', 'and stays through a reload');

is(layout($gateway, 99, 'rlleases'), 5, 'leases have their layout, too');
$gateway->signal('HUP');
ok(wait_for(sub {
       2 == (() = $gateway->log =~ /\[emerg\] .*incompatible version/g)
   }), 'a reload onto incompatible leases is refused');
is(tally(), '5 x 429', 'and the old workers count on');
is(layout($gateway, 5, 'rlleases'), 99, 'nothing was written to them');
$gateway->reload;
is(tally(), '5 x 429', 'nor has a counter been lost');

$gateway->configure(http => conf(%few));
$gateway->reload;
is(tally(), '3 x 200, 2 x 429', 'without Redis it starts anew');
like($gateway->log,
     qr/\[notice\] .*ratelimit zone "z" loses "redis="$anew/,
     'and the log says so');
ok(!layout($gateway, 1, 'rlleases'), 'nobody has leases now');

$gateway->reload;
is(tally(), '5 x 429', 'and stays through a reload');

# the least size has room for both
for my $redis ('', 'redis=r') {
    $gateway->configure(http => conf(%few, size => '64k', redis => $redis));
    $gateway->reload;
    is(tally(), '3 x 200, 2 x 429', "64k are enough: '$redis'");
}

# it was refused six times, and a worker killed three times
$gateway->stop('QUIT', qr/\[emerg\]|\[alert\] .* exited on signal 9$/);
