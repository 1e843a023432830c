# Values of nginx.conf: captures of a location's regular expression beside texts
# and variables, more pieces than a document may have, and what is no value.

use t::RateLimit 'no_plan';
use t::Gateway qw( told );

my $many = join '', map { '$arg_a-' } 1 .. 20;

my $gateway = t::Gateway->limited(
    zone => { lone => 'key=$1 rate=1r/h', joined => 'key=$2/${arg_a}:$1 rate=1r/h',
              many => "key=$many rate=1r/h" },
    locations => {
        '~ ^/lone/(\w*)' => 'ratelimit zone=lone;',
        '~ ^/joined/(\w+)/(\w+)' => 'ratelimit zone=joined;',
        '/many' => 'ratelimit zone=many;',
        '/none' => 'ratelimit zone=lone;',
    });

sub is_told {
    my ($name, @cases) = @_;
    is(join(' ', map { told($gateway->get($_)) =~ s/ .*//r } map { $_->[0] } @cases),
       join(' ', map { $_->[1] } @cases), $name);
}

is_told('a capture', ['/lone/a', 200], ['/lone/b', 200], ['/lone/a', 429]);
is_told('captures, a variable and texts', ['/joined/a/b?a=c', 200],
        ['/joined/a/b?a=d', 200], ['/joined/b/a?a=c', 200], ['/joined/a/b?a=c', 429]);
is_told('40 pieces', ['/many?a=x', 200], ['/many?a=y', 200], ['/many?a=x', 429]);
is_told('no capture is no key', (['/none', 200]) x 2, (['/lone/', 200]) x 2);

for my $value ('$', 'a$', '$-', '${arg_a', '${}', 'a${arg_a-b}') {
    is($gateway->verdict("ratelimit_zone '$value' zone=z:1m rate=1r/s;"),
       "\"ratelimit_zone\" has an invalid value \"$value\", expected the name of a "
       . 'variable after "$"', $value);
}
