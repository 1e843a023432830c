# "/penalties": those in force, by penalty and key; what a DELETE ends; the mark
# in "/top"; penalized requests in "/rejections"; and that a counter is another
# thing.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally );
use t::Api;

use Digest::SHA qw( sha256_hex );
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
        . "/$_->{counted_by}/$_->{retry_after_seconds}/$_->{times}"
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
is(penalties('?n=1') =~ tr{/}{}, 5, 'one of three');
is($api->get("/penalties?n=$_")->{status}, 400, "n=$_") for 0, 1001, 'x';

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

# a penalty that the configuration does not have any more
my $gone = t::Gateway->limited(zone => 'rate=1r/h', api => 1, http =>
    join "\n", map { "ratelimit_penalty $_ zone=z after=1r/1m time=1h;" }
                    'stays', 'goes');

sub active {
    my ($n) = $gone->get('/metrics')->{body}
        =~ /^ratelimit_penalties_active\{zone="z"\} (\d+)$/m;
    return $n;
}

$gone->get('/?k=a') for 1 .. 3;
is(active(), 2, 'two penalties');
$gone->configure(http => $gone->{http} =~ s/^ratelimit_penalty goes.*$//mr);
$gone->reload;
is(active(), 1, 'one of them is gone');
$gone->configure(http => $gone->{http} =~ s/^ratelimit_penalty stays/ratelimit_penalty other/mr);
$gone->reload;
is(active(), 0, 'and the other one');
is_deeply([grep { $_->{penalized} }
           @{ t::Api->new($gone)->get('/top')->{json}{keys} }], [],
          'no key is marked');

# penalized requests in "/rejections": a worker keeps one a second
my $one = t::Gateway->limited(api => 1, zone => 'rate=1r/h keys_in_clear=on',
    http => <<'CONF');
    ratelimit_penalty flood zone=z after=1r/1m time=1m;
    ratelimit_penalty other zone=z key=$http_x_other after=1r/1m time=2m;
CONF
my $see = t::Api->new($one);

sub rejections {
    return $see->get('/rejections' . ($_[0] // ''))->{json}{rejections};
}

sub kinds {
    return join ' ', map { $_->{penalty} // $_->{rule} }
                     @{ rejections($_[0]) };
}

$one->get('/?k=a') for 1 .. 9;
is(kinds(), 'flood z z', 'one in a second');
advance(1);
$one->get('/v1/7?k=a') for 1 .. 3;
is(kinds(), 'flood flood z z', 'and one in the next');
is(kinds('?penalty=flood'), 'flood flood', 'of one penalty');
is(kinds('?penalty=z'), '', 'a rule is none');
is(kinds('?rule=flood'), '', 'nor is it a rule');
is(kinds('?rule=z'), 'z z', 'those of a rule');
is(kinds('?key=a'), 'flood flood z z', 'of one key');

my ($newest) = @{ rejections() };

delete $newest->{time};
is_deeply($newest, { number => 4, rule => '', penalty => 'flood', key => 'a',
                     counted_by => '$arg_k', route => '/v1/{id}',
                     limit => undef, retry_after_seconds => 59,
                     dry_run => JSON::PP::false }, 'all that it has');
is(rejections('?rule=z')->[0]{penalty}, undef, 'a rejection has no penalty');

# a counter is not its key's penalty
is($see->get('/counters?rule=z&key=a')->{json}{penalty}, 'flood',
   'a counter names it');
is($see->get('/counters?key=a')->{json}{counters}[0]{penalty}, 'flood',
   'among all of a key, too');
is_deeply($see->delete('/counters?rule=z&key=a')->{json},
          { rule => 'z', reset => JSON::PP::true, penalty => 'flood' },
          'so does a reset');
like($one->get('/?k=a')->{body}, qr/PENALIZED/, 'which does not end it');
is($see->patch('/counters?rule=z&key=a', { used => 0 })->{json}{penalty},
   'flood', 'nor does a change');
like($one->get('/?k=a')->{body}, qr/PENALIZED/, 'end it');
$see->delete('/penalties?key=a');
is($one->get('/?k=a')->{status}, 200, 'that does');
is_deeply($see->delete('/counters?rule=z&key=a')->{json},
          { rule => 'z', reset => JSON::PP::true }, 'no penalty');

# a key by another variable is another one
advance(1);
$one->get('/?k=b', 'X-Other: c') for 1 .. 4;
is(kinds('?key=c'), 'other', 'the longer one');
ok(!exists $see->get('/counters?rule=z&key=c')->{json}{penalty},
   'the rule does not count by that');

# a key that JSON or the list cannot have as it is, is named by its hash
for my $key ('k' x 100, "\xff<b>", '<b>') {
    $one->get("/?k=1$key", "X-Other: $key") for 1 .. 4;
    my $name = $key eq '<b>' ? $key : 'sha256:' . sha256_hex($key);
    is($see->get("/penalties?penalty=other&key=$name")->{json}
           {penalties}[0]{key}, $name, "shown as $name");
    is($see->delete("/penalties?penalty=other&key=$name")->{status}, 200,
       'which ends it');
}

$_->stop for $gateway, $clear, $gone, $one;
