# "/penalties": those in force, by penalty and key; what a DELETE ends; and the
# mark in "/top".

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally );
use t::Api;

use JSON::PP qw( decode_json );

my $gateway = t::Gateway->limited(workers => 2, api => 1, zone => 'rate=1r/h',
    http => <<'CONF');
    ratelimit_penalty one zone=z after=1r/1m time=1m;
    ratelimit_penalty two zone=z key=$arg_two after=2r/1m time=1h action=close;
CONF
my $api = t::Api->new($gateway);

sub penalties {
    my $answer = decode_json($api->get('/penalties' . ($_[0] // ''))->{body});

    return $answer->{total} . join '', sort map {
        " $_->{penalty}/$_->{action}/" . substr($_->{key}, 7, 8)
        . "/$_->{counted_by}/$_->{retry_after}/$_->{times}"
    } @{ $answer->{penalties} };
}

sub status { return $gateway->get($_[0])->{status} }

t::Clock::stop();
is(penalties(), '0', 'none');
status('/?k=a&two=b') for 1 .. 4;
is(penalties(), '1 one/ban/ca978112/$arg_k/60/1', 'one');

status($_) for '/?k=c&two=b', '/?k=c&two=b', '/?k=c';
is(penalties(), '3 one/ban/2e7d2c03/$arg_k/60/1 one/ban/ca978112/$arg_k/60/1 '
   . 'two/close/3e23e816/$arg_two/3600/1', 'three');
is(penalties('?penalty=two'), '1 two/close/3e23e816/$arg_two/3600/1',
   'of one penalty');
is(penalties('?key=a'), '1 one/ban/ca978112/$arg_k/60/1', 'of one key');
is(penalties('?penalty=two&key=a'), '0', 'of both');
is(penalties('?penalty=three'), '0', 'of none');

my ($first) = grep { $_->{penalty} eq 'two' } @{ decode_json(
    $api->get('/penalties')->{body})->{penalties} };
like($first->{ends_at}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'a time');

# /top

my %marked = map { substr($_->{key}, 7, 8) => $_->{penalized} ? 1 : 0 }
             @{ decode_json($api->get('/top')->{body})->{keys} };

status('/?k=other');
is($marked{ca978112}, 1, 'a key with a penalty is marked');
is_deeply([map { $_->{penalized} ? 1 : 0 }
           grep { substr($_->{key}, 7, 8) eq 'd9298a10' }
           @{ decode_json($api->get('/top')->{body})->{keys} }], [0],
          'another one is not');

# ended by hand

is($api->delete('/penalties')->{status}, 400, 'not all at once');
is($api->delete('/penalties?key=nobody')->{status}, 404, 'there is none');
is($api->delete('/penalties?key=a')->{body}, "{\"ended\":1}\n", 'ended');
is(penalties('?key=a'), '0', 'it is not there');
is(status('/?k=a'), 429, 'the limit still is');
$gateway->log_has(qr/\[notice\] .*penalties are ended/, 'the log has it');
like($gateway->get('/?k=a')->{body}, qr/EXCEEDED/, 'and its events are counted');
like($gateway->get('/?k=a')->{body}, qr/PENALIZED/, 'anew');
is(penalties('?key=a'), '1 one/ban/ca978112/$arg_k/60/1', 'not as a repetition');

is($api->delete('/penalties?penalty=one')->{body}, "{\"ended\":2}\n",
   'all of a penalty');
is(penalties(), '1 two/close/3e23e816/$arg_two/3600/1', 'others stay');

advance(3600);
is(penalties(), '0', 'what is over is not shown');

my $clear = t::Gateway->limited(api => 1, zone => 'key=$binary_remote_addr '
    . 'rate=1r/h keys_in_clear=on', http => 'ratelimit_penalty p zone=z '
    . 'after=1r/1m time=1m;');
my $answer;

$clear->get('/') for 1 .. 3;
$api = t::Api->new($clear);
$answer = decode_json($api->get('/penalties?key=127.0.0.1')->{body});
is($answer->{penalties}[0]{key}, '127.0.0.1', 'a key in clear');
is($api->delete('/penalties?key=127.0.0.1')->{status}, 200, 'names it, too');
$_->stop for $gateway, $clear;
