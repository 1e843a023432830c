# A zone whose key changes, or that gets Redis or loses it, and the reloads after
# that: they keep the memory that is in use, and only that.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );

sub conf {
    my ($key, $more) = @_;
    return t::Gateway::limited_http(
        zone => { z => "key=$key rate=100r/h", other => 'rate=100r/h' },
        http => $more, locations => { '/' => 'ratelimit zone=z;',
                                      '/other' => 'ratelimit zone=other;' });
}

my $gateway = t::Gateway->new(workers => 2, http => conf('$arg_k'))->start;

sub left {
    return join ' ', map {
        header($gateway->get($_), 'X-RateLimit-Remaining')
    } '/?k=a', '/other?k=a';
}

# how much shared memory the master has mapped
sub bytes {
    no warnings 'portable';
    my $bytes = 0;
    open my $maps, '<', "/proc/$gateway->{pid}/maps" or return 0;
    while (<$maps>) {
        $bytes += hex($2) - hex($1) if m{^(\w+)-(\w+) rw-s .*/dev/zero};
    }
    return $bytes;
}

my $mapped = bytes();

cmp_ok($mapped, '>=', 2 * 1024 * 1024, 'the zones are mapped');
is(left(), '99 99', 'the first request');

for my $key ('$arg_k$arg_l', '$arg_k') {
    $gateway->configure(http => conf($key));
    $gateway->reload;
    is(left() =~ s/ .*//r, 99, "with the key $key it starts anew");
    for my $left (98, 97) {
        $gateway->reload;
        is(left() =~ s/ .*//r, $left, 'and stays through a reload');
    }
}

like(left(), qr/ 92$/, 'the other zone kept its counters all the time');
is(bytes(), $mapped, 'the master has as much memory mapped as at first');

# the same where Redis comes and goes: half of the memory is for leases then
for my $redis ('redis=r', '', 'redis=r', '') {
    $gateway->configure(http => t::Gateway::limited_http(
        redis => 1, http => 'ratelimit_fail_mode local;',
        zone => { z => "$redis rate=2r/h", other => 'rate=100r/h' },
        locations => { '/' => 'ratelimit zone=z;',
                       '/other' => 'ratelimit zone=other;' }));
    $gateway->reload;
    is(tally($gateway->burst(3, '/?k=a')), '2 x 200, 1 x 429',
       "with '$redis' it starts anew");
    for (1 .. 2) {
        $gateway->reload;
        is(tally($gateway->burst(3, '/?k=a')), '3 x 429',
           'and stays through a reload');
    }
}

$gateway->configure(http => conf('$arg_k$arg_n'));
$gateway->reload;
$gateway->configure(http => conf('$arg_k'));
$gateway->reload;
is(left(), '99 91', 'the other zone has kept its counters');
is(bytes(), $mapped, 'as much memory is mapped as at first');

# a new key in a configuration that is refused changes nothing
$gateway->configure(http => conf('$arg_k$arg_m', 'ratelimit zone=gone;'));
$gateway->signal('HUP');
ok(wait_for(sub { $gateway->log =~ /\[emerg\].*zone=gone/ }),
   'a reload is refused');
is(left(), '98 90', 'and keeps the counters');

$gateway->configure(http => conf('$arg_k'));
$gateway->reload;
is(left(), '97 89', 'and so does the next one');

$gateway->stop('QUIT', qr/\[emerg\].*zone=gone/);
