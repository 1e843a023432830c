# The status page in a real browser: two gateways and a Redis Cluster, all that
# it shows and all that it does, by mouse and by keyboard. t/page/page.js has
# the tests; it says here "ok" and "not ok", and asks for what a browser cannot
# do: "do stop 0" ends the first gateway, "do start 0" brings it back.

use IPC::Open2 qw( open2 );
use JSON::PP qw( encode_json );
use t::RateLimit 'no_plan';
use t::Gateway;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $WRITE = 'write token_file=%%DIR%%/tokens';
my $redis = 'cluster ' . join ' ', map { "127.0.0.1:$_" } cluster_ports();

my @gateways = t::Gateway->limited(
    gateways => 2, workers => 2, redis => $redis,
    zone => { z => 'key=$ratelimit_api_key rate=1000r/s keys_in_clear=on '
                   . 'redis=r state=%%DIR%%/rules',
              hashed => 'key=$ratelimit_api_key rate=2r/d redis=r',
              alone => 'key=$ratelimit_api_key rate=1000r/s' },
    files => { tokens => "ann:$TOKEN\n" },
    http => <<'CONF',
    ratelimit_penalty guesses zone=z after=1r/1h time=1h on=404;
    ratelimit_penalty flood zone=hashed after=2r/1h time=1h;
CONF
    locations => { '/v1/' => 'ratelimit zone=z;',
                   '/hashed/' => 'ratelimit zone=hashed;',
                   '/login/' => 'ratelimit zone=z; '
                                . 'proxy_pass http://127.0.0.1:%%PORT%%/none/;',
                   '/none/' => 'return 404;' },
    server => join '', map { "location $_->[0] { ratelimit_api zone=$_->[1];"
                             . ' ratelimit_status_page; }' }
        ['/read/', 'z'], map { [$_->[0], "$_->[1] $WRITE"] }
        ['/rl/', 'z'], ['/see/', 'hashed'], ['/token/', 'z'],
        ['/alone/', 'alone']);

my $pid = open2(my $says, my $hears, 'node', 't/page/page.js', encode_json({
    bases => [map { "http://127.0.0.1:$_->{port}" } @gateways],
    token => $TOKEN, shots => $gateways[0]{dir},
    pictures => $ENV{RATELIMIT_SHOTS} }));

my $ended = 0;

while (<$says>) {
    chomp;
    if (/^(not )?ok (.*)/) {
        ok(!$1, $2);
    } elsif (/^do (stop|start) (\d)$/) {
        $1 eq 'stop' ? $gateways[$2]->stop : $gateways[$2]->start;
        syswrite $hears, "done\n";
    } elsif ($_ eq 'end') {
        $ended = 1;
    } else {
        diag($_);
    }
}

waitpid $pid, 0;
is($?, 0, 'the browser ends');
ok($ended, 'after its last test');

$_->stop for @gateways;
