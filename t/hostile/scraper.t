# A scraper reads pages from a thousand addresses, a few from each. After step 3
# of docs/under-attack.md its networks are limited, and then denied.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( tally wait_for );

use t::hostile::Attack;

my $gateway = t::hostile::Attack::gateway('3. A scraper on a thousand',
    'access_log %%DIR%%/api.log; return 200 "a page\n";',
    http => 'ratelimit_deny zone=pages 203.0.113.0/24; '
            . 'real_ip_header X-Address; set_real_ip_from 127.0.0.1;');
my $api = t::Api->new($gateway, '/ratelimit', $gateway->{operators});

# as many pages for each of these addresses, 200 at once
sub pages {
    my ($n, @addresses) = @_;
    my @requests = map { [$gateway, '/', "X-Address: $_"] } (@addresses) x $n;
    my @got;
    push @got, t::Gateway::send_all([splice @requests, 0, 200], 60)
        while @requests;
    return @got;
}

sub passed { return scalar grep { $_->{status} == 200 } @_ }

# 250 addresses of each of four networks; and 1,000 of one /56, in its 250 /64
my @ipv4 = map { my $net = $_; map { "198.18.$net.$_" } 1 .. 250 } 0 .. 3;
my @ipv6 = map { my $net = sprintf '%x', $_; map { "2001:db8:0:$net\::$_" } 1 .. 4 }
           0 .. 249;

# 500 pages an hour for a network, of 1,000 that are asked for; and the few that
# come back while the test runs
my $got = passed(pages(4, @ipv4));

cmp_ok($got, '>=', 2000, 'four networks of IPv4 have their limits');
cmp_ok($got, '<', 2400, 'and no more');
$got = passed(pages(1, @ipv6));
cmp_ok($got, '>=', 500, 'so has one of IPv6');
cmp_ok($got, '<', 600, 'and no more');

is(tally(pages(1, map { "192.0.2.$_" } 1 .. 50)), '50 x 200',
   'people elsewhere read on');

# Which networks they are: the endpoint looks at some of the requests of each
# second, and the scraper goes on.
my $top;

wait_for(sub {
    pages(1, '2001:db8:0:1::1', map { "198.18.$_.1" } 0 .. 3);
    $top = join ' ', sort map { $_->{key} }
                          grep { $_->{counted_by} eq '$ratelimit_client' }
                          @{ $api->get('/top?by=rejected')->{json}{keys} };
    return $top =~ tr/ // >= 4;
});

is($top, '198.18.0.0/24 198.18.1.0/24 198.18.2.0/24 198.18.3.0/24 '
         . '2001:db8::/56', 'the endpoint names the networks');

# they are denied for a day
my $answer = $api->post('/deny', [
    { address => '198.18.0.0/22', duration => '1d', reason => 'scraper' },
    { address => '2001:db8::/56', duration => '1d', reason => 'scraper' },
], 'If-Match: *');

is(t::Api::said($answer), 200, 'the deny list');
ok($api->follows(1), 'is in force');

my $reached = () = $gateway->read('api.log') =~ /^/mg;

is(tally(pages(1, @ipv4, @ipv6)), '2000 x 403', 'all addresses are denied');
is(tally(pages(1, '203.0.113.9')), '1 x 403',
   'as is a network of nginx.conf');
is(() = $gateway->read('api.log') =~ /^/mg, $reached, 'none reaches the API');
is(tally(pages(1, '198.18.4.1', '2001:db8:0:100::1', '192.0.2.1')), '3 x 200',
   'their neighbours are served');

my $metrics = $gateway->get('/metrics')->{body};

like($metrics, qr/^ratelimit_requests_total\{zone="pages",rule="network",
                  outcome="rejected",source="local"\}\ [1-9]/mx, 'the metrics');
like($metrics, qr/^ratelimit_requests_total\{zone="pages",rule="",
                  outcome="denied",source="local"\}\ 2001$/mx, 'of both');

# and served again
$api->delete('/deny?key=198.18.0.0/22', 'If-Match: *');
ok($api->follows(2), 'a network is taken off the list');
isnt((pages(1, '198.18.0.1'))[0]{status}, 403, 'and not denied any more');

$gateway->stop;
