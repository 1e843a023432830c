# Exactly the limit, whoever takes it: several workers, hundreds of requests at
# once, and a client that waits as long as it was told.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally );

use JSON::PP ();
use Time::Local qw( timegm );

my $gateway = t::Gateway->limited(workers => 2, listen => 'reuseport',
    zone => { hour => 'rate=100r/h', slow => 'rate=1r/2s', fast => 'rate=1r/s' },
    locations => { '/' => 'ratelimit zone=hour;',
                   map { ("/$_" => "ratelimit zone=$_;") } qw( slow fast ) });

# two workers, 400 connections
my @answers = $gateway->burst(400, '/?k=a');
is(tally(@answers), '100 x 200, 300 x 429', 'exactly the limit');

my %workers = map { header($_, 'X-Pid') => 1 } @answers;
is(keys %workers, 2, 'both workers took part');

my @left = sort { $b <=> $a } map { header($_, 'X-RateLimit-Remaining') }
           grep { $_->{status} == 200 } @answers;
is("@left", join(' ', reverse 0 .. 99), 'no two were told the same rest');

# many keys at once, each with its own count
my @requests = map { my $k = $_; map { [$gateway, "/?k=$k"] } 1 .. 120 }
               'u' .. 'w';
is(tally(t::Gateway::send_all(\@requests)), '300 x 200, 60 x 429',
   'each key has its limit');

# a client that waits as long as it was told passes
t::Clock::stop();
t::Clock::align(1, 0.5);

my $now = t::Clock::now();

is($gateway->get('/slow?k=a')->{status}, 200, 'the first passes');

my $rejected = $gateway->get('/slow?k=a');
my $wait = header($rejected, 'Retry-After');
my $reset = header($rejected, 'X-RateLimit-Reset');

is($rejected->{status}, 429, 'the second does not');
is($wait, 2, 'it is told when');
is($reset, int($now) + 3, 'Reset is the second in which all is back');

my $details = JSON::PP::decode_json($rejected->{body})->{error}{details};
my ($y, $m, $d, $h, $min, $s) = $details->{reset_at} =~ /(\d+)/g;

is($details->{retry_after_seconds}, $wait, 'the body says Retry-After too');
is(timegm($s, $min, $h, $d, $m - 1, $y), $reset, 'and Reset');

advance($wait - 0.1);
is($gateway->get('/slow?k=a')->{status}, 429, 'not before that');
advance(0.1);
is($gateway->get('/slow?k=a')->{status}, 200, 'then it passes');

# late in a second, where rounding down would be seen most: at Reset the bucket
# is full
t::Clock::align(1, 0.7);
$now = t::Clock::now();

my $spent = $gateway->get('/fast?k=a');

$reset = header($spent, 'X-RateLimit-Reset');
is($spent->{status}, 200, 'the bucket is spent');
is($reset, int($now) + 2, 'Reset is rounded up');
advance($reset - $now);
is($gateway->get('/fast?k=a')->{status}, 200, 'at Reset a whole bucket is there');

$gateway->stop;
