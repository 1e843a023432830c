# What the endpoint may take of a worker's memory for documents is bounded: what
# is above is refused at once, with a status that says so, and what ends gives
# its part back, whatever ends it.

use strict;
use warnings;

use Digest::SHA qw( sha256_hex );
use Socket qw( MSG_NOSIGNAL );
use t::RateLimit 'no_plan';
use t::Gateway;
use t::Api;
use t::Rules;

# 512 MiB; a version that is read counts as 64
my $VERSIONS = 8;

my $port = redis_start();
my $gateway = t::Gateway->new(workers => 1, http => <<"CONF")->start;
    ratelimit_redis fleet { server 127.0.0.1:$port; }
    ratelimit_zone \$arg_k zone=one:1m redis=fleet;
    ratelimit_zone \$arg_k zone=two:1m redis=fleet;
    gzip_types application/json;
    gzip_http_version 1.0;
    server {
        listen 127.0.0.1:%%PORT%%;
        location / { return 204; }
        location /gzip/ { gzip on; ratelimit_api zone=two; }
        location /rl/ { ratelimit_api zone=one write; }
        location /two/ { ratelimit_api zone=two write; }
    }
CONF

my $api = t::Api->new($gateway);
my $two = t::Api->new($gateway, '/two');

ok(t::Gateway::wait_for(sub { $api->get('/versions')->{status} == 200 }),
   'Redis is there');
is($api->put('/rules', { whitelist => ['a*'] }, 'If-Match: "0"')->{etag},
   '"1"', 'a document');
is($two->put("/rules", { whitelist => [map { "b$_*" } 1 .. 20] },
             'If-Match: "0"')->{etag},
   '"1"', 'that of another zone');

# A request that nobody has read the answer of yet.
sub begin {
    my ($line) = @_;

    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $gateway->{port})
        or die "connect: $!";

    send $socket, "$line HTTP/1.1\r\nHost: localhost\r\n"
                  . "Connection: close\r\nIf-Match: *\r\n\r\n", MSG_NOSIGNAL;
    return $socket;
}

sub end {
    my $socket = shift;

    my $text = do { local $/; <$socket> } // '';
    return $text =~ m{^HTTP/1.1 (\d+)} ? $1 : 'nothing';
}

sub busy_ok {
    my ($answer, $name) = @_;

    t::Api::problem_ok($answer, '503 busy', $name);
    is(t::Gateway::header($answer, 'Retry-After'), 1, "$name: Retry-After");
}

# as many as there may be wait for a Redis that has stopped

kill 'STOP', redis_pid($port);

my @waiting = map { begin('GET /rl/versions/1') } 1 .. $VERSIONS - 1;
push @waiting, begin('POST /two/versions/1/restore');

ok(t::Gateway::wait_for(sub {
       return t::Api::said($api->get('/versions/1')) eq '503 busy';
   }), 'one more is refused');
busy_ok($api->get('/versions/1'), 'a version');
busy_ok($two->get('/versions/1'), 'of another zone');
busy_ok($api->post('/versions/1/restore', undef, 'If-Match: *'), 'a way back');
busy_ok($api->get('/whitelist'), 'a part');
busy_ok($api->put('/rules', { whitelist => ['c*'] }, 'If-Match: *'),
        'a change');
is($api->get('/status')->{status}, 200, 'what takes no document goes on');
is($gateway->get('/')->{status}, 204, 'and so do others');

# a client that leaves takes its part with it

close pop @waiting;
ok(t::Gateway::wait_for(sub { $api->get('/whitelist')->{status} == 200 }),
   'one less: a part is read');

kill 'CONT', redis_pid($port);
is_deeply([map { end($_) } @waiting], [(200) x @waiting],
          'those that waited are answered');

# all of it has come back: as many as before may begin

for my $round (1 .. 3) {
    my @now = map { begin('GET /rl/versions/1') } 1 .. $VERSIONS;
    is_deeply([map { end($_) } @now], [(200) x $VERSIONS],
              "round $round: they are answered");
    is($api->get('/rules/none')->{status}, 404, "round $round: none there");
    is($api->put("/tier-of/k$round", { tier => 'x' }, 'If-Match: *')->{status},
       201, "round $round: a change");
    is($api->put('/rules', { rules => 1 }, 'If-Match: *')->{status}, 422,
       "round $round: nothing valid");
    is($api->post('/versions/1/restore', undef, 'If-Match: *')->{status}, 200,
       "round $round: the way back");
}

# nginx compresses what is small: what is large would keep the others waiting

my $gzip = t::Api->new($gateway, '/gzip');

my %keys = map { ("sha256:" . sha256_hex($_) => 'pro') } 1 .. 6000;

is($two->patch('/tier-of', { keys => \%keys }, 'If-Match: *')->{status}, 200,
   'a document of 500 KB');

for (['/whitelist', 'gzip'], ['/rules', '']) {
    my ($path, $encoding) = @$_;
    my $answer = $gzip->get($path, 'Accept-Encoding: gzip');

    is($answer->{status}, 200, "$path, where gzip is on");
    is(t::Gateway::header($answer, 'Content-Encoding'), $encoding,
       "$path: " . ($encoding || 'as it is'));
}

$gateway->stop;
$gateway->log_ok;
