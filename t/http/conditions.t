# Conditions of rules on headers, query arguments, variables and networks: the same in
# nginx.conf and in a document. And "ratelimit_explain" names the one that is
# not met.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::Api;

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';

# by rule: the conditions of a document
my @rules = (
    [header => { header => ['X-Client:bot*', 'x-client:crawler', 'X_Env:t?st'] }],
    [arg => { arg => ['mode:full*', 'api-version:*'] }],
    [if => { if => '$wanted$arg_more' }],
    [network => { network => ['192.0.2.1', '10.0.0.0/8', '2001:db8::/32',
                              '::ffff:198.51.100.0/120'] }],
    [agent => { header => 'User-Agent:* (KHTML? like *', methods => ['GET'] }],
    [all => { header => ['X-A:*'], arg => ['a:1'], if => '$arg_if' }],
);

my $gateway = t::Gateway->limited(
    zone => { conf => '', document => 'state=%%DIR%%/document.state' },
    rules => [ map {
        my ($id, $match) = @$_;
        "$id zone=conf rate=999r/h "
        . ($id eq 'if' ? '' : "match=/conf/$id ") . join ' ', map {
            my $value = $match->{$_};
            "'$_=" . (ref $value ? join ',', @$value : $value) . "'";
        } grep { $match->{$_} } qw( header arg if methods network );
    } @rules ],
    files => { tokens => "ops:$TOKEN\n" },
    http => 'set_real_ip_from 127.0.0.1; real_ip_header X-Real;'
            . 'ratelimit_explain token_file=tokens; underscores_in_headers on;'
            . 'map $http_x_wanted $wanted { default $http_x_wanted; none ""; }',
    locations => {
        '/rl/' => 'ratelimit_api zone=document %%WRITE%%;',
        '/named' => 'ratelimit zone=conf rule=if;',
        map { ("/$_" => "ratelimit zone=$_;") } qw( conf document ),
    });

is(t::Api->new($gateway)->put('/document', { rules => [ map { {
       id => $_->[0], params => { rate => '999r/h' },
       match => { route => "/document/$_->[0]", %{ $_->[1] } },
   } } @rules ] }, 'If-Match: *')->{status}, 201, 'the document');

sub counted {
    my ($path, @headers) = @_;
    my $answer = $gateway->get("$path", @headers);
    return header($answer, 'X-Status') eq 'PASSED';
}

sub why {
    my ($path, @headers) = @_;
    my $answer = t::Api::answer($gateway->get($path, @headers,
                                              "X-RateLimit-Explain: $TOKEN"));
    my ($id) = $path =~ m{^/\w+/(\w+)};
    return join ', ', map { $_->{because} . ($_->{condition}
                                             ? " $_->{condition}" : '') }
                      grep { $_->{rule} eq $id }
                      @{ $answer->{json}{zones}[0]{rules} };
}

for my $zone (qw( conf document )) {
    # alternatives of one name, and all names
    ok(counted("/$zone/header?k=1", "$_", 'X-Env: test'), "$zone: $_")
        for 'X-Client: bot 7', 'x-CLIENT: crawler', "X-Client: bot\r\nX-Client: x";
    ok(counted("/$zone/header?k=1", 'X-Client: bot', 'x_env: tEst'),
       "$zone: a name with _");
    ok(!counted("/$zone/header?k=1", @$_), "$zone: not @$_")
        for ['X-Client: bot'], ['X-Env: test'], ['X-Client: bot', 'X-Env: tst'],
            ['X-Client: Bot', 'X-Env: test'], ['X-Client: crawler2', 'X-Env: test'],
            ['X-Client: x', 'X-Client: bot', 'X-Env: test'];
    # a comma is in no glob of nginx.conf: "?" is
    ok(counted("/$zone/agent?k=1", 'User-Agent: A/1 (KHTML, like Gecko) B'),
       "$zone: a comma");
    ok(!counted("POST /$zone/agent?k=1", 'User-Agent: A/1 (KHTML, like Gecko) B'),
       "$zone: the method, too");
    # arguments: the first of a name, decoded
    ok(counted("/$zone/arg?k=1&$_"), "$zone: $_")
        for 'mode=full&api-version=1', 'API-VERSION=%31&MODE=f%75ll+x',
            'mode=full&mode=x&api-version=1';
    ok(!counted("/$zone/arg?k=1&$_"), "$zone: not $_")
        for 'mode=full', 'mode=full&api-version=', 'mode=full&api-version',
            'mode=x&mode=full&api-version=1', 'amode=full&api-version=1',
            'mode=%2566ull&api-version=1', 'mode=Full&api-version=1';
    # a variable: neither empty nor "0"
    ok(counted("/$zone/if?k=1", "X-Wanted: $_"), "$zone: if $_")
        for '1', 'no', '00';
    ok(counted("/$zone/if?k=1&more=0", 'X-Wanted: 0'), "$zone: if 00");
    ok(!counted("/$zone/if?k=1", "X-Wanted: $_"), "$zone: not if $_")
        for '0', 'none';
    ok(!counted("/$zone/if?k=1"), "$zone: not without a value");
    # networks: IPv4 also in its mapped form
    ok(counted("/$zone/network?k=1", "X-Real: $_"), "$zone: from $_")
        for '192.0.2.1', '::ffff:192.0.2.1', '10.255.0.1', '2001:db8:1::1',
            '198.51.100.7', '::ffff:10.1.1.1';
    ok(!counted("/$zone/network?k=1", "X-Real: $_"), "$zone: not from $_")
        for '192.0.2.2', '11.0.0.1', '2001:db9::1', '198.51.101.1', '::1';
    ok(!counted("/$zone/network?k=1"), "$zone: nor from the proxy");
    ok(!counted("/$zone/network?k=1", 'X-Real: unix:'), "$zone: nor a socket");
    is(why("/$zone/network?k=1"), 'network', "$zone: a network");
    # the first one that is not met
    is(why("/$zone/all?k=1"), 'header X-A', "$zone: a header");
    is(why("/$zone/all?k=1", 'X-A: 1'), 'arg a', "$zone: an argument");
    is(why("/$zone/all?k=1&a=1", 'X-A: 1'), 'if $arg_if', "$zone: a variable");
    is(why("/$zone/all?k=1&a=1&if=1", 'X-A: 1'), '', "$zone: all are met");
    is(why("/$zone/header?k=1", 'X-Client: bot'), 'header X_Env',
       "$zone: another header");
    is(why("/$zone/header/x?k=1"), 'path', "$zone: the path comes first");
}

ok(counted('/named?k=1', 'X-Wanted: 1'), 'a rule that a location names');
ok(!counted('/named?k=1', 'X-Wanted: 0'), 'has its conditions there, too');

$gateway->stop;
