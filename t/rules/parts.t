# Keys of several parts: one that is absent is a part, too, and no two sequences of
# parts are one key, whatever bytes clients send.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( header );

my $gateway = t::Gateway->limited(
    zone => 'key=$http_x_a rate=1000r/h', api => 1);

my $api = t::Api->new($gateway);

sub parts {
    my ($one, $two) = @_;
    return ('/', defined $one ? "X-A: $one" : (), defined $two ? "X-B: $two" : ());
}

is(t::Api::said($api->change('PUT', '/document', { rules => [
       { id => 'parts', key => ['$http_x_a', '$http_x_b'],
         params => { limit => 2, window => '1h' } }] })), 201, 'a document');
ok($api->follows(1), 'is in use');

# a part that is absent
is($gateway->statuses(([parts('one')]) x 3), '200 200 429', 'the second one is absent');
is($gateway->statuses(([parts(undef, 'one')]) x 3), '200 200 429', 'so is the first');
is($gateway->statuses(([parts('one', 'one')]) x 3), '200 200 429', 'none is');
is($gateway->statuses(([parts()]) x 3), '200 200 200', 'all are: there is no key');

# each of these is another client
my @keys = (["x\x1fy", 'z'], ['x', "y\x1fz"], ["x\x1ey", 'z'], ["x\x1e\x1fy", 'z'],
            ["x\x1e\x3fy", 'z'], ["x\x1e", "\x1fz"], ["x\x1e\x1f", 'z'],
            ["x\x1f"], [undef, "x\x1f"], ["x\x1e\x3e", 'z'], ["x\x1e\x1e", 'z']);

is($gateway->statuses(map { [parts(@$_)] } (@keys) x 3),
   join(' ', (200) x (2 * @keys), (429) x @keys), 'bytes that stand between parts');

# as the endpoint and lists name them
sub left {
    my $answer = $api->get('/counters?rule=parts&' . shift);
    return $answer->{json}{remaining} // t::Api::said($answer);
}

is(left('key=one&key='), 0, 'a counter whose second part is absent');
is(left('key=&key=one'), 0, 'and its first');
is(left('key=two&key='), 2, 'another one');
is(left('key=x%1f&key=y'), 2, 'a value with such a byte');
is(left('key=x%1fy&key=z'), 0, 'one that was counted');

is(t::Api::said($api->change('PUT', '/deny', [
       { rule => 'parts', key => ['eve', ''] }, { rule => 'parts', key => ['', 'bob'] },
       { rule => 'parts', key => ["x\x1f", 'w'] }])), 200, 'a deny list');
ok($api->follows(2), 'is in use');
is($gateway->statuses(map { [parts(@$_)] } ['eve'], ['eve', 'x'], [undef, 'bob'],
                      ["x\x1f", 'w'], ["x\x1f\x1f", 'w'], ['x', "\x1fw"]),
   '403 200 403 403 200 200', 'it knows them');
like(t::Api::said($api->change('POST', '/deny', { rule => 'parts', key => ['', ''] })),
     qr/^422 .*expected a value of the key/, 'no value at all');

is(t::Api::said($api->change('POST', '/overrides', {
       id => 'o', tenant => { part => '$http_x_b', value => "t\x1f" }, type => 'absolute',
       value => { limit => 9 } })), 201, 'an override by a part');
ok($api->follows(3), 'is in use');
is(join(' ', map { header($gateway->get(parts(@$_)), 'X-RateLimit-Limit') }
             ['a', "t\x1f"], ['a', "t\x1e?"], ["a\x1ft\x1f"]), '9 2 2', 'it knows that part');

$gateway->stop;
