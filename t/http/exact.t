# Exactly the limit, whoever takes it: several workers, hundreds of requests at
# once, and a client that waits as long as it was told.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway;

use JSON::PP ();
use Time::Local qw( timegm );

my $gateway = t::Gateway->new(workers => 2, http => <<'CONF')->start;
    ratelimit_zone $arg_k zone=hour:1m rate=100r/h;
    ratelimit_zone $arg_k zone=fast:1m rate=1r/2s;
    server {
        listen 127.0.0.1:%%PORT%% reuseport backlog=1024;
        add_header X-Worker $pid always;
        location / { ratelimit zone=hour; empty_gif; }
        location /fast { ratelimit zone=fast; empty_gif; }
    }
CONF

# two workers, 400 connections

my @answers = $gateway->burst(400, '/?k=a');
is(t::Gateway::tally(@answers), '100 x 200, 300 x 429', 'exactly the limit');

my %workers = map { t::Gateway::header($_, 'X-Worker') => 1 } @answers;
is(keys %workers, 2, 'both workers took part');

my @left = sort { $b <=> $a }
           map { t::Gateway::header($_, 'X-RateLimit-Remaining') }
           grep { $_->{status} == 200 } @answers;
is("@left", join(' ', reverse 0 .. 99), 'no two were told the same rest');

# many keys at once, each with its own count

my @requests = map { my $k = $_; map { [$gateway, "/?k=$k"] } 1 .. 120 }
               'u' .. 'w';
is(t::Gateway::tally(t::Gateway::send_all(\@requests)),
   '300 x 200, 60 x 429', 'each key has its limit');

# who waits as long as told passes

t::Clock::stop();
t::Clock::align(1, 0.5);

my $now = t::Clock::now();

is($gateway->get('/fast?k=a')->{status}, 200, 'the first passes');

my $rejected = $gateway->get('/fast?k=a');
my $wait = t::Gateway::header($rejected, 'Retry-After');

is($rejected->{status}, 429, 'the second does not');
is($wait, 2, 'it is told when');

my $reset = t::Gateway::header($rejected, 'X-RateLimit-Reset');

is($reset, int($now) + 3, 'Reset is the second in which all is back');

my $details = JSON::PP::decode_json($rejected->{body})->{error}{details};
my ($y, $m, $d, $h, $min, $s) = $details->{reset_at} =~ /(\d+)/g;

is($details->{retry_after_seconds}, $wait, 'the body says Retry-After too');
is(timegm($s, $min, $h, $d, $m - 1, $y), $reset, 'and Reset');

advance($wait - 0.1);
is($gateway->get('/fast?k=a')->{status}, 429, 'not before that');
advance(0.1);
is($gateway->get('/fast?k=a')->{status}, 200, 'then it passes');

$gateway->stop;
