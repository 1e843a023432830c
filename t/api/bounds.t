# How large a document may be: what is above is refused with its reason, costs a
# worker little memory, and leaves what runs; a stored one, too.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( wait_for );
use t::Rules;

my $MAX = 1024 * 1024;
my $SANITIZED = $ENV{SAN} || $ENV{RATELIMIT_STATIC};

sub gateway {
    return t::Gateway->limited(api => 1, @_);
}

# The most memory that a worker ever had of its own, in MB.
sub peak {
    my ($pid) = $_[0]->workers;
    open my $status, '<', "/proc/$pid/status" or die "status: $!";
    return join('', <$status>) =~ /^VmHWM:\s+(\d+)/m ? $1 / 1024 : die;
}

# bodies of 1 MiB that would be large trees, or many rules
{
    my $gateway = gateway();
    my $api = t::Api->new($gateway);
    my $fill = sub {
        my ($head, $item, $tail) = @_;
        my $n = int(($MAX - length($head) - length($tail))
                    / (length($item) + 1));
        return $head . join(',', ($item) x $n) . $tail;
    };
    my @hostile = (
        ['zeros for rules', $fill->('{"rules":[', '0', ']}'),
         '/rules has 524282 entries, expected at most 1000'],
        ['empty arrays', $fill->('{"rules":[', '[]', ']}'),
         ' has more than 100000 arrays and objects, at byte 300004'],
        ['empty objects', $fill->('{"overrides":[', '{}', ']}'),
         ' has more than 100000 arrays and objects, at byte 300008'],
        ['objects with a member', $fill->('{"overrides":[', '{"a":1}', ']}'),
         ' has more than 100000 arrays and objects, at byte 799998'],
        ['zeros for keys', $fill->('{"allow":[', '0', ']}'),
         '/allow has 524282 entries, expected at most 10000'],
        ['a deep tree', '[' x $MAX,
         ' has more than 32 arrays and objects in one another, at byte 32'],
    );
    my $before = peak($gateway);
    for (@hostile) {
        my ($name, $text, $said) = @$_;
        t::Api::problem_ok($api->post('/document/validate', \$text),
                           "422 invalid: $said", $name);
    }
    my @many = map { ['POST', '/document/validate', \$_->[1]] } @hostile[0 .. 4];
    # one after the other: so many may wait
    is_deeply([map { $_->{status} } $api->send_all(@many, @many[0 .. 3])],
              [(422) x 9], 'nine at once');
    my $grown = peak($gateway) - $before;
    SKIP: {
        skip 'a sanitizer keeps what is freed', 1 if $SANITIZED;
        cmp_ok($grown, '<', 200,
               sprintf 'they took %d MB of a worker at most', $grown);
    }
    # a document grows by an edit, and by what is stored of keys
    my @keys = map { sprintf '%s%05d', 'k' x 95, $_ } 1 .. 4999;
    my $large = { allow => [map { "$_*" } @keys] };
    is($api->change('PUT', '/document', $large)->{status}, 201, 'one of 500 KB');
    is($api->change('PUT', '/deny', $large->{allow})->{status}, 200,
       'twice of it');
    t::Api::problem_ok($api->change('PATCH', '/tier_of',
                           { keys => { map { ("a$_" => 't') } 1 .. 2000 } }),
                       '413 too-large', 'and more');
    is($api->get('/status')->{json}{newest}, 2, 'nothing is changed');
    my %plain = (tier_of => { keys => { map { ("k$_" => 't') } 1 .. 9999 } },
                 allow => [map { "w$_" } 1 .. 9999]);
    for (['PUT', '/document'], ['POST', '/document/validate']) {
        t::Api::problem_ok($api->change(@$_, \%plain), '413 too-large',
                           "$_->[1]: short keys, whose digests are long");
    }
    $gateway->stop;
}

# expressions that are short, and large when they are compiled
{
    my $gateway = gateway();
    my $api = t::Api->new($gateway);
    my $before = peak($gateway);
    my @rules = map { { id => "r$_", params => { limit => 1, window => 60 },
                        match => { endpoint_regex =>
                                   '(?:[^a]{1,500}){0,2000}x' } } } 1 .. 1000;
    my @many = ([POST => '/document/validate', { rules => \@rules }]) x 9;
    my ($answer) = $api->send_all(@many);
    my ($error) = @{ $answer->{json}{errors} };
    like(t::Api::said($answer), qr{^422 invalid: /rules/\d+/match/endpoint_regex makes the compiled expressions of the document larger than 4 MiB; },
         'too large together');
    like($error->{id}, qr/^r\d+$/, 'which is the first');
    my $fits = $error->{id} =~ s/^r//r - 1;
    is($api->change('PUT', '/document', { rules => [@rules[0 .. $fits - 1]] })
           ->{status}, 201, "the $fits before it fit");
    ok($api->follows(1), 'and are used');
    is_deeply($api->get('/status')->{json}{skipped}, [], 'all of them');
    is($api->change('PATCH', '/rules/r1', { enabled => JSON::PP::false })
           ->{status}, 200, 'and edited');
    is($api->change('PUT', '/rules/more', $rules[-1])->{status}, 422,
       'one more does not fit');
    my $grown = peak($gateway) - $before;
    SKIP: {
        skip 'a sanitizer keeps what is freed', 1 if $SANITIZED;
        cmp_ok($grown, '<', 60,
               sprintf '9 at once took %d MB of a worker at most', $grown);
    }
    $gateway->stop;
}

# an older gateway has written a larger one: to Redis, and to a state file
my $deny = { rules => [], deny => ['bad'] };
my $old = t::Rules::record(7, { allow => [map { sprintf '%0100d*', $_ }
                                              1 .. 21_000] });
cmp_ok(length $old, '>', 2 * $MAX, 'a record from before');

{
    my $port = redis_start();
    my $gateway = gateway(redis => $port, timeout => '1s');
    my $api = t::Api->new($gateway);
    ok(wait_for(sub {
           $api->put('/document', $deny, 'If-Match: "0"')->{version} eq 1
       }), 'a document');
    ok($api->follows(1), 'is followed');
    is(t::Rules::put($port, key_prefix(), 'z', 1, $old), '1', 'Redis has a large one');
    $gateway->log_has(qr/version 7 of its rules is not used: its document is larger than 1 MiB/, 'it is refused, with the reason');
    is($gateway->get('/?k=a', 'X-API-Key: bad')->{status}, 403,
       'what runs goes on');
    is_deeply([@{ $api->get('/status')->{json} }{qw( newest refused )}], [1, 7],
              'version 1; /status names the other one');
    t::Api::problem_ok($api->get('/versions/7'), '413 too-large',
                       'it is not read');
    my $tag = $api->get('/versions')->{etag};
    is($tag, '"7-' . t::Rules::id($old) . '"', 'its tag is known');
    t::Api::problem_ok($api->patch('/tier_of', {}, "If-Match: $tag"),
                       '413 too-large', 'nor edited');
    is($api->put('/document', $deny, "If-Match: $tag")->{version}, 8,
       'but replaced');
    ok($api->follows(8), 'and that is followed');
    is($api->get('/status')->{json}{refused}, undef, 'nothing is refused');
    is(t::Rules::put($port, key_prefix(), 'z', 8, $old =~ s/"version":7/"version":9/r),
       '1', 'another one');
    is($api->change('PUT', '/document', $deny)->{version}, 10,
       'replaced, whatever there is');
    is_deeply([map { $_->{version} }
               @{ $api->get('/versions')->{json}{versions} }],
              [10, 9, 8, 7, 1], 'its head is in the history');
    $gateway->stop;
}

{
    my $gateway = gateway(zone => 'state=rules.state',
                          files => { 'rules.state' => $old });
    like($gateway->log,
         qr/rules\.state" is not whole, from byte 0 on: its document is larger than 1 MiB/,
         'a state file: the reason');
    like($gateway->log, qr/is set aside as ".*rules\.state\.corrupt"/,
         'and it is kept');
    is($gateway->get('/?k=a')->{status}, 200, 'the gateway serves');
    $gateway->stop;
}
