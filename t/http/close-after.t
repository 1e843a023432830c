# "ratelimit_close_after": the n-th rejection of a connection is its last answer.

use t::RateLimit 'no_plan';
use t::Gateway;

use t::Http2;

my $gateway = t::Gateway->limited(zone => 'rate=1r/h', locations => {
    '/' => 'ratelimit zone=z; ratelimit_close_after 2;',
    '/at-once' => 'ratelimit zone=z; ratelimit_close_after 1;',
    '/never' => 'ratelimit zone=z; ratelimit_close_after 0;',
    '/page' => 'ratelimit zone=z; ratelimit_close_after 1; '
               . 'error_page 429 /429;',
    '/429' => 'ratelimit off; return 429 "page\n";',
    '/dry' => 'ratelimit zone=z; ratelimit_close_after 1; ratelimit_dry_run on;',
});

# What each request of one connection gets, "!" where that is said to end. The last
# request, if the connection lives so long, is "429 page" and ends it.
sub answers {
    my $answer = $gateway->raw(join '', (map {
        "GET $_ HTTP/1.1\r\nHost: t\r\n\r\n"
    } @_), "GET /429 HTTP/1.0\r\n\r\n");
    return join ' ', map {
        my ($status) = /^(\d+)/;
        $status . (/^page$/m && ' page') . (/^Connection: close/m && '!');
    } split m{HTTP/1\.1 }, $answer =~ s{^HTTP/1\.1 }{}r;
}

is(answers(('/?k=a') x 5), '200 429 429!', 'the second rejection');
is(answers('/?k=a', '/?k=b', '/?k=a', '/?k=c'), '429 200 429!',
   'answers between them do not count');
is(answers('/?k=a', '/at-once?k=a', '/?k=a'), '429 429!',
   'the location of the last one says after how many');
is(answers('/at-once?k=a', '/?k=a'), '429!', 'the first one');
is(answers(('/never?k=a') x 3), '429 429 429 429 page!', 'off');
is(answers('/page?k=a', '/'), '429 page!', 'with a page of the operator\'s');
is(answers(('/dry?k=a') x 2), '200 200 429 page!', 'not in a dry run');

# HTTP/2
my $http2 = t::Gateway->limited(zone => 'rate=1r/h', listen => 'http2',
    locations => { '/' => 'ratelimit zone=z; ratelimit_close_after 2;' });

my $client = t::Http2->new($http2->{port});

for my $stream (1, 3, 5) {
    $client->get($stream, '/?k=a');
    ok($client->ended($stream), "stream $stream is answered");
}

is($client->goaway, 5, 'the second rejection sends GOAWAY, and closes');

# many at once
$client = t::Http2->new($http2->{port});
$client->get($_ * 2 + 1, '/?k=a') for 0 .. 19;
$client->ended(39);
ok(defined $client->goaway, 'also among many streams');

# rejections of other connections are not this one's
$client = t::Http2->new($http2->{port});
$client->get(1, '/?k=a');
$client->ended(1);
$client->get(3, '/?k=d');
ok($client->ended(3), 'each connection has a number of its own');
is($client->{goaway}, undef, 'and stays');
$client->close;

$_->stop for $gateway, $http2;
