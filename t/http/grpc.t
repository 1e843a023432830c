# A rejected gRPC request gets an answer that gRPC understands: the status among
# the headers, and the end of the stream with them.

use IO::Select;
use IO::Socket::INET;

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );

my @conf = (zone => 'rate=1r/h', http => 'ratelimit zone=z;', locations => {
    '/' => '',
    '/ietf' => 'ratelimit_headers ietf;',
    '/none' => 'ratelimit_headers off;',
    '/problem' => 'ratelimit_response problem;',
    '/off' => 'ratelimit_response off;',
    '/503' => 'ratelimit_status 503;',
    '/closed' => 'ratelimit_status 444;',
    '/page' => 'error_page 429 /slow;',
    '= /slow' => 'return 200 "slow\n";',
    '/free' => 'ratelimit off; return 200 "free\n";',
});

my $h2 = t::Gateway->limited(@conf, listen => 'http2');
my $h1 = t::Gateway->limited(@conf);

# HTTP/2, as nghttp saw it; the second of two streams: a gRPC request with a
# message, an empty one
sub frames {
    my ($path) = @_;
    my $message = $h2->write('message', "\0\0\0\0\0");
    my $url = "http://127.0.0.1:$h2->{port}$path";
    my $nghttp = "timeout 20 nghttp -vn --no-dep -H 'te: trailers' -H"
                 . " 'content-type: application/grpc' -d $message";
    `$nghttp '$url' 2>&1`;
    return scalar `$nghttp '$url' 2>&1`;
}

# what was received, in short: "HEADERS+END_STREAM", "DATA". nginx may tell a
# client that is still sending that it need not, after the answer.
sub received {
    my $text = shift;
    my @frames;
    while ($text =~ /recv (HEADERS|DATA) frame <length=\d+, flags=0x(..)/g) {
        push @frames, $1 . (hex($2) & 1 ? '+END_STREAM' : '');
    }
    return join ' ', @frames;
}

sub headers {
    my $text = shift;
    return { $text =~ /recv \(stream_id=\d+\) (:?[\w-]+): (.*)$/mg };
}

# one HEADERS frame is the whole answer
my $text = frames('/?k=a');
my $headers = headers($text);

is(received($text), 'HEADERS+END_STREAM', 'headers, and the end of the stream');
is($headers->{':status'}, 200, 'the HTTP status');
is($headers->{'content-type'}, 'application/grpc', 'the type');
is($headers->{'grpc-status'}, 8, 'RESOURCE_EXHAUSTED');
is($headers->{'grpc-message'},
   'Rate limit of 1 request in 1 hour exceeded', 'a message');
like($headers->{'grpc-message'}, qr/^[\x20-\x24\x26-\x7e]+$/,
     'in which nothing needs an escape');
is($headers->{'content-length'}, undef, 'no length');
is($headers->{'x-ratelimit-limit'}, 1, 'the headers of the limit');
is($headers->{'x-ratelimit-remaining'}, 0, 'what is left');
like($headers->{'retry-after'}, qr/^(?:3600|359\d)$/, 'Retry-After');

$headers = headers(frames('/ietf?k=b'));
like($headers->{ratelimit}, qr/^"z";r=0;t=\d+;pk=/, 'another set of headers');
is($headers->{'grpc-status'}, 8, 'with it too');

$headers = headers(frames('/none?k=c'));
is(join(' ', grep { /ratelimit|retry/ } keys %$headers), '', 'none of them');
is($headers->{'grpc-status'}, 8, 'without them too');

for my $path (qw( /problem /503 )) {
    $headers = headers(frames("$path?k=$path"));
    is("$headers->{':status'} $headers->{'grpc-status'}", '200 8',
       "$path: it is gRPC all the same");
}

$text = frames('/off?k=d');
is(headers($text)->{':status'}, 429, 'off: nginx\'s own status');
is(headers($text)->{'grpc-status'}, undef, 'off: no status of gRPC');
is(received($text), 'HEADERS DATA+END_STREAM', 'off: its page');

$text = frames('/page?k=e');
is(headers($text)->{':status'}, 429, 'error_page wins');
is(headers($text)->{'grpc-status'}, undef, 'error_page: no status of gRPC');
is(headers($text)->{'content-length'}, 5, 'error_page: its page');

# the connection goes on
my $url = "http://127.0.0.1:$h2->{port}";

$text = `timeout 20 nghttp -vn -H 'content-type: application/grpc' $url/?k=a $url/free 2>&1`;
is(join(' ', sort $text =~ /:status: (\d+)/g), '200 200',
   'two streams of one connection');
like($text, qr/grpc-status: 8/, 'of which one is rejected');

# which types are gRPC
sub type {
    my ($type, $n) = @_;
    my @request = ("POST /?k=type$n", "Content-Type: $type",
                   'Content-Length: 0');
    $h1->get(@request);
    my $answer = $h1->get(@request);
    return join ' ', $answer->{status},
                     header($answer, 'Content-Type'),
                     header($answer, 'grpc-status');
}

my $n = 0;

is(type($_, ++$n), '200 application/grpc 8', "$_ is gRPC")
    for 'application/grpc', 'application/grpc+proto',
        'application/grpc;charset=utf-8', 'Application/GRPC+json';
is(type($_, ++$n), '429 application/json ', "$_ is not")
    for 'application/grpc-web', 'application/grpc-web+proto',
        'application/grpcx', 'application/grp', 'text/application/grpc';

my @head = map { $h1->get('HEAD /?k=head', 'Content-Type: application/grpc') }
               1 .. 2;
is(join(' ', header($head[1], 'grpc-status'), $head[1]{body}), '8 ', 'HEAD');

is(tally($h1->burst(2, '/closed?k=f',
                                'Content-Type: application/grpc')),
   '1 x 0, 1 x 200', '444 ends the connection all the same');

# over HTTP/1.1 the answer ends, and the connection does not; the body is read
# away
my $client = $h1->connect_to;
my $grpc = "POST /?k=g HTTP/1.1\r\nHost: a\r\n"
           . "Content-Type: application/grpc\r\nContent-Length: 20000\r\n\r\n"
           . 'GET /x ' x 2857 . 'y';

print $client $grpc x 2, "GET /free HTTP/1.1\r\nHost: a\r\n\r\n";
$client->flush;

my $read = '';

wait_for(sub {
    sysread $client, $read, 65536, length $read
        if IO::Select->new($client)->can_read(0.1);
    $read =~ /free\n$/;
});

my @answers = split /(?=HTTP\/1\.1 \d{3} )/, $read;

is(join(' ', map { substr $_, 9, 3 } @answers), '405 200 200',
   'three answers of one connection');
like($answers[1], qr/^grpc-status: 8\r$/m, 'the second is the rejection');
like($answers[1], qr/^Content-Length: 0\r\n.*\r\n\r\n\z/ms,
     'which is empty, and says so');
unlike($answers[1], qr/^Transfer-Encoding/mi, 'and no chunks');
close $client;

$_->stop for $h1, $h2;
