# The bodies that the endpoint takes: how large, of which type, however they
# come, and what nginx or another module has done with them before. And requests
# that end in the middle.

use Socket qw( SOL_SOCKET SO_LINGER );
use Time::HiRes qw( sleep );
use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Api;

my $MAX = 1024 * 1024;
my $TOKEN = $t::Gateway::TOKEN;

my $gateway = t::Gateway->limited(
    zone => { one => 'rate=1r/h', gone => 'rate=1r/h' },
    http => 'client_body_timeout 1s;',
    locations => {
        '/rl/' => 'ratelimit_api zone=one %%WRITE%%;',
        '/gone/' => 'ratelimit_api zone=gone %%WRITE%%;',
        '/small/' => 'ratelimit_api zone=one %%WRITE%%; client_max_body_size 1k;',
        '/large/' => 'ratelimit_api zone=one %%WRITE%%; client_max_body_size 100m;',
        '/file/' => 'ratelimit_api zone=one %%WRITE%%; mirror /mirror;'
                    . 'client_body_in_file_only clean;',
        '/memory/' => 'ratelimit_api zone=one %%WRITE%%; mirror /mirror;'
                      . 'client_body_buffer_size 2m;',
        '= /mirror' => 'internal; return 204;',
    });

# A request as it is, in pieces with a pause before each but the first; the
# whole answer.
sub raw {
    my @pieces = @_;
    my $socket = $gateway->connect_to;
    local $SIG{PIPE} = 'IGNORE';
    local $SIG{ALRM} = sub { die 'no answer' };
    alarm 30;
    my $n = 0;
    for (@pieces) {
        sleep 0.05 if $n++;
        my $piece = $_;
        while (length $piece) {
            my $written = syswrite $socket, $piece or last;
            substr $piece, 0, $written, '';
        }
    }
    my $text = '';
    # nginx keeps a connection for a while that it has not read to its end
    1 while !($text =~ /^Content-Length: (\d+)\r\n.*?\r\n\r\n(.*)/ms
              && length $2 >= $1)
            && sysread $socket, $text, 65536, length $text;
    alarm 0;
    $text =~ s{^HTTP/1.1 100 Continue\r\n\r\n}{};
    my %answer = (status => 0, headers => {}, body => '');
    t::Gateway::parse(\%answer, $text);
    return t::Api::answer(\%answer);
}

sub head {
    my ($path, @headers) = @_;
    return join "\r\n", "PUT $path HTTP/1.1", 'Host: localhost', 'If-Match: *',
                        $TOKEN,
                        'Connection: close', @headers, '', '';
}

sub chunked { return join '', map { sprintf "%x\r\n%s\r\n", length, $_ } @_ }

# a document that is so long
sub document {
    my $text = '{"rules":[]';
    return $text . ' ' x ($_[0] - length($text) - 1) . '}';
}

my $JSON = 'Content-Type: application/json';

# sizes
for my $where (qw( /rl /small /large /file /memory )) {
    my $api = t::Api->new($gateway, $where);
    t::Api::problem_ok($api->change('PUT', '/document', \document($MAX + 1)),
                       '413 too-large', "$where: a byte too many");
    t::Api::problem_ok($api->change('PUT', '/document', \document(20 * $MAX)),
                       '413 too-large', "$where: many too many");
    for my $size (12, 2000, 100_000, $MAX) {
        my $answer = $api->change('PUT', '/document', \document($size));
        like($answer->{status}, qr/^20[01]$/, "$where: $size bytes");
        is_deeply($answer->{json}{rules}, [], "$where: $size bytes: all of them");
    }
    my $head = head("$where/document", $JSON, 'Transfer-Encoding: chunked');
    my $all = document($MAX);
    my @parts = unpack '(a60000)*', $all;
    is(raw($head . chunked(@parts) . "0\r\n\r\n")->{status}, 200,
       "$where: chunked");
    is(raw($head, (map { chunked($_) } document(100), '', ''))->{status}, 200,
       "$where: chunked, in pieces");
    t::Api::problem_ok(raw($head . chunked(@parts, ' ') . "0\r\n\r\n"),
                       '413 too-large', "$where: chunked, a byte too many");
    # a mirror wants all of it first
    t::Api::problem_ok(raw($head . chunked((' ' x 60000) x 60)),
                       '413 too-large', "$where: chunked, without an end")
        if $where !~ /file|memory/;
}

# in pieces; with "Expect"
my $small = document(40);
my $head = head('/rl/document', $JSON, 'Content-Length: 40');

is(raw($head, split //, $small)->{status}, 200, 'byte after byte');
is(raw(head('/rl/document', $JSON, 'Content-Length: 40', 'Expect: 100-continue'),
       $small)->{status}, 200, 'Expect');
is(raw(head('/rl/document', $JSON, 'Expect: 100-continue',
            'Content-Length: ' . ($MAX + 1)))->{status}, 413,
   'Expect: what is too large is not sent');
is(raw(head('/rl/document', 'Content-Type: text/plain', 'Content-Length: 40',
            'Expect: 100-continue'))->{status}, 415, 'Expect: of another type');
is(raw($head . substr $small, 0, 20)->{status}, 0,
   'half of it: the connection is closed in time');
is(raw(head('/rl/document', $JSON, 'Transfer-Encoding: chunked') . "x\r\n")
   ->{status}, 400, 'no chunk');

# a connection that goes on behind a body that was not read
my $long = head('/rl/nothing', $JSON, 'Content-Length: 40');

$long =~ s/Connection: close\r\n//;

my $text = $gateway->raw($long . $small . head('/rl/document', $JSON, 'Content-Length: 40')
               . $small);
is(join(' ', $text =~ m{^HTTP/1.1 (\d+)}mg), '404 200',
   'the next request is read behind it');

# none, or of another type
my $api = t::Api->new($gateway);

for (['', "$JSON", '400 empty-body'], ['{', $JSON, '422 invalid'],
     ['{}', "$JSON; charset=utf-8", '201'],
     ['{}', "$JSON ; charset=utf-8", 201],
     ['{}', 'Content-Type: APPLICATION/JSON', 201],
     ['{}', 'Content-Type: application/jsonx', '415 unsupported-media-type'],
     ['{}', 'Content-Type: application/merge-patch+json',
      '415 unsupported-media-type'],
     ['{}', 'Content-Type: application/x-www-form-urlencoded',
      '415 unsupported-media-type'],
     ['{}', 'Content-Type:', '415 unsupported-media-type'])
{
    my ($body, $type, $said) = @$_;
    my $answer = $api->change('PUT', '/document', \$body, $type);
    like(t::Api::said($answer) =~ s/ invalid: .*/ invalid/sr =~ s/^200$/201/r,
         qr/^\Q$said\E$/, "'$body', $type");
}

my $none = raw(head('/rl/document', $JSON));
t::Api::problem_ok($none, '400 empty-body', 'no length at all');

my $patch = $api->change('PATCH', '/rules/x', \'{}', 'Content-Type: text/json');

t::Api::problem_ok($patch, '415 unsupported-media-type', 'PATCH');
is(header($patch, 'Accept-Patch'),
   'application/merge-patch+json, application/json', 'PATCH: what it takes');
t::Api::problem_ok($api->change('PATCH', '/rules/x', \'{}',
                                'Content-Type: application/merge-patch+json'),
                   '404 not-found', 'PATCH of a type it takes');

# the answer of one that reads is not in the way of the next: HTTP/1.1
$text = $gateway->raw("GET /rl/document HTTP/1.1\r\nHost: localhost\r\n$TOKEN\r\n\r\n" x 20
               . "GET /rl/status HTTP/1.1\r\nHost: localhost\r\n$TOKEN\r\n"
               . "Connection: close\r\n\r\n");
is(join(' ', $text =~ m{HTTP/1.1 (\d+)}g), join(' ', (200) x 21),
   'requests one behind the other');

# clients that leave, anywhere
my $gone = t::Api->new($gateway, '/gone');
my $request = head('/gone/document', $JSON, 'Content-Length: 40') . $small;

for my $n (1 .. 200) {
    my $socket = $gateway->connect_to;
    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0) if $n % 2;
    syswrite $socket, substr $request, 0,
             $n % 3 ? length $request : int rand length $request;
    sleep 0.0002 * int rand 10 if $n % 5;
    close $socket;
}

my ($version, $count);

ok(wait_for(sub {
       my $before = $version // -1;
       $version = $gone->get('/document')->{json}{version};
       sleep 0.1;
       return $version == $before;
   }), 'the endpoint goes on');
$count = @{ $gone->get('/versions')->{json}{versions} };
is($count, $version < 51 ? $version : 51,
   'what was asked for before was done, or not: no version is missing');

# a worker that is to end answers first
my $socket = $gateway->connect_to;

syswrite $socket, substr $request, 0, length($request) - 5;
sleep 0.1;
$gateway->signal('HUP');
ok(wait_for(sub { $gateway->log =~ /gracefully shutting down/ }),
   'a worker drains');
syswrite $socket, substr $request, -5;
$text = do { local $/; <$socket> };
like($text, qr{^HTTP/1.1 20[01] .*"rules":\[\]}s,
     'a change goes on through a reload');

$gateway->stop;
