# The route of a request: the most specific template of its location, or the
# path folded; the same one however a client writes the path.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );

my $unmerged = t::Gateway::free_port();

# a thousand templates, in a hundred directives; each with one that is less
# specific and one that is more
my @many = map { ("/many/t$_/{id}", "/many/t$_/**", "/many/t$_/x/y") } 1 .. 333;
my $many = '';

for (my $i = 0; $i < @many; $i += 10) {
    my @some = grep { defined } @many[$i .. $i + 9];
    $many .= 'ratelimit_route ' . join(' ', map { "\"$_\"" } @some) . ";\n";
}

my $gateway = t::Gateway->limited(
    zone => { route => 'key=$ratelimit_route rate=1r/h', match => 'key=all',
              loose => 'key=x rate=1000r/s' },
    rules => ['user zone=match "match=/user/{id}" rate=1r/h key=$ratelimit_route',
              'regex zone=match match=~^/regex\d rate=1r/h'],
    http => <<"CONF",
    ratelimit_route /of/http /v1/**;
    server {
        listen 127.0.0.1:$unmerged;
        merge_slashes off;
        add_header X-Route \$ratelimit_route always;
        ratelimit zone=route;
        location / { empty_gif; }
        location /limited { ratelimit zone=route; empty_gif; }
        location /user { ratelimit zone=match; empty_gif; }
    }
CONF
    server => <<'CONF',
        add_header X-Route $ratelimit_route always;
        ratelimit_route "/v1/users/{id}" /v1/users/me;
        ratelimit_route /v1/files/** "/v1/users/{id}/orders/{order}/"
                        /v1/*/orders / "/v1/sp ace";
CONF
    locations => {
        '/' => '',
        '/limited' => 'ratelimit zone=route;',
        '/user' => 'ratelimit zone=match;',
        '/regex' => 'ratelimit zone=match;',
        '/own' => 'ratelimit_route "/own/{x}" "/{a}/{b}/{c}";',
        '/from' => 'ratelimit_route "/from/{x}" "/to/{not}";'
                   . 'ratelimit zone=loose; root %%DIR%%/nowhere;'
                   . 'error_page 404 =200 /to/7;',
        '/to' => 'ratelimit_route "/to/{y}" "/from/{not}";'
                 . 'ratelimit zone=loose;',
        '/rewritten' => 'ratelimit_route "/rewritten/{x}"; rewrite ^ /to/8 last;',
        '/many' => $many,
        '/two' => 'ratelimit_route /two/search/** "/two/{id}" /two/x/** /**;'
                  . 'ratelimit zone=loose;',
    });

sub route { return header($gateway->get(shift), 'X-Route') }

sub unmerged {
    return map { $_->{status} . ' ' . header($_, 'X-Route') }
           map { t::Gateway::send_all([[$unmerged, $_]]) } @_;
}

# the most specific
is(route($_->[0]), $_->[1], "$_->[0] is $_->[1]")
    for ['/v1/users/me', '/v1/users/me'],
        ['/v1/users/7', '/v1/users/{id}'],
        ['/v1/users/me7', '/v1/users/{id}'],
        ['/v1/users/7/orders/8', '/v1/users/{id}/orders/{order}/'],
        ['/v1/x/orders', '/v1/*/orders'],
        ['/v1/users/orders', '/v1/users/{id}'],
        ['/v1/files', '/v1/files/**'],
        ['/v1/files/a/b/7', '/v1/files/**'],
        ['/v1/sp%20ace', '/v1/sp ace'],
        ['/', '/'];

# what no template describes is folded; templates of http are not inherited
is(route($_->[0]), $_->[1], "$_->[0] is $_->[1], folded")
    for ['/v1/users/7/orders', '/v1/users/{id}/orders'],
        ['/of/http/7', '/of/http/{id}'],
        ['/v1', '/v1'],
        ['/V1/users/7', '/V1/users/{id}'],
        ['/v1/users/7/x', '/v1/users/{id}/x'];

# the same path, written to be another one
is(route($_), '/v1/users/me', "$_ is /v1/users/me")
    for '/v1/users/me/', '/v1/users/me?a=/b', '//v1///users/me//',
        '/v1%2Fusers%2fme', '/v1/users/%6de', '/v1/x/../users/me',
        '/v1/x/%2e%2e/users/me', '/v1/x%2f..%2fusers/me', '/v1/./users/me/.',
        '/v1/users/me;v=1', '/v1;a/users;b=1;c/me;', '/v1/;x/users/me',
        '/v1/users/me%3Bv=1', '/v1/x/..;/users/me', '/v1/x/..;a=b/users/me',
        '/v1/.;/users/me', '/v1/x/%2e%2e%3b/users/me', '/..;/v1/users/me/;a',
        'http://localhost/v1//users/me';

is(route($_), '/folded/{id}', "$_ is /folded/{id}")
    for '/folded/7', '/folded/7/', '//folded//8', '/folded;v/9;v',
        '/folded/x/..;/7', '/folded/./7/;', '/folded%2F7', '/x/../folded/7';

# a location's own

# another template in another reading
is(route("/two/$_->[0]"), $_->[1], "two readings: $_->[0]")
    for ['search/..;/7', '/'], ['search/..%3B/7', '/'], ['search/..;/x/7', '/'],
        ['search/7;a', '/two/search/**'], ['7;a', '/two/{id}'], ['search;a', '/two/search/**'],
        ['search\\7', '/'], ['7/8;9', '/**'], ['search/..;/../..;/y/z', '/two/search/**'];

is(route('/own/7'), '/own/{x}', 'the location\'s');
is(route('/own/7/8'), '/{a}/{b}/{c}', 'the location\'s, of wildcards');
is(route('/own'), '/own', 'none of the server\'s');

# nothing of a client's path ends a header
my $answer = $gateway->get('/x%0d%0aX-Evil:%201');

is(header($answer, 'X-Route'), '/x%0D%0AX-Evil: 1',
   'control characters are escaped');
is(header($answer, 'X-Evil'), '', 'and make no header');

# counted as what it is
is($gateway->statuses('/limited/7', '/limited/8', '//limited///9', '/limited/7;a',
            '/limited%2F7', '/limited/x/..;/7/', '/limited/x/../7',
            '/limited/seven'), '200 429 429 429 429 429 429 200',
   'a counter for each route');

is($gateway->statuses('/user/7', '/user/8', '/user//8', '/user/;/8;v', '/user/x/..;/8',
            '/user%2f8/', '/user', '/user/7/8'),
   '200 429 429 429 429 429 200 200', 'a rule by its template');

is($gateway->statuses('/regex1', '/regex2;v', '/regex', '/regex'), '200 429 200 200',
   'a rule by its expression');

# under merge_slashes off nginx leaves the slashes
is(join(', ', unmerged('/limited//7', '//limited/8', '/limited/9//')),
   '429 /limited/{id}, 429 /limited/{id}, 429 /limited/{id}',
   'empty segments make no other route');
is(join(', ', unmerged('/v1//x', '//v1/x///y')), '200 /v1/**, 429 /v1/**',
   'nor another template, inherited from http');
is(join(', ', unmerged('/user/1', '/user//1', '/user///2//')),
   '429 /user/{id}, 429 /user/{id}, 429 /user/{id}', 'nor another rule');

# the route that was checked, by the templates of where it was
is(route('/from/7'), '/from/{x}', 'after an error page');
is(route('/rewritten/7'), '/to/{y}', 'after a rewrite, the place of the check');

# a thousand
is(join(' ', grep { route("/many/t$_/7") ne "/many/t$_/{id}"
                    || route("/many/t$_/7/8") ne "/many/t$_/**"
                    || route("/many/t$_/x/y") ne "/many/t$_/x/y" }
             1, 2, 10, 11, 100, 222, 332, 333), '', 'of 999 templates');
is(route('/many/t334/7'), '/many/t334/{id}', 'none of 999 templates');

# paths made to cost
is(route($_ x (8000 / length)), '/', "8,000 bytes of $_")
    for '/', '/..;', '/.', '/;x', '/x/..';
is(route('/a' x 4000), '/a' x 4000, '8,000 bytes of /a');
is(route('/many/t1' . '/a' x 3900), '/many/t1/**', '7,800 bytes below **');

$gateway->stop;

# what nginx -t says
sub refused {
    my ($http, $message) = @_;
    is($gateway->verdict("server { $http }"), $message,
       'refused: ' . substr $http, 0, 70);
}

refused("ratelimit_route $_->[0];", "\"ratelimit_route\" has an invalid "
        . "\"$_->[1]\", expected a path template: $_->[2]")
    for ['""', '', 'must start with "/"'],
        ['/a v1', 'v1', 'must start with "/"'],
        ['/a//b', '/a//b', 'must not contain "//"'],
        ['"/a;b"', '/a;b', 'must not contain ";": parameters of a path are '
                           . 'ignored'],
        ['/a/../b', '/a/../b', 'must not contain "." or ".." as a segment'],
        ['/a/./b', '/a/./b', 'must not contain "." or ".." as a segment'],
        ["\"/a\tb\"", "/a\tb", 'must not contain control characters'],
        ['/**/a', '/**/a', '"**" must be the last segment'],
        ['"/a{b}"', '/a{b}', '"{name}", "*" and "**" must be whole segments'],
        ['"/{}"', '/{}', '"{}" must have a name inside'],
        ['/a' x 33, '/a' x 33, 'must have at most 32 segments'];

refused($_->[0], "\"ratelimit_route\" has \"$_->[1]\" and \"$_->[2]\", "
                 . 'expected templates that differ in more than names')
    for ['ratelimit_route /a /b /a;', '/a', '/a'],
        ['ratelimit_route /a; ratelimit_route /b /a/;', '/a', '/a/'],
        ['ratelimit_route "/u/{id}" "/u/{user}";', '/u/{id}', '/u/{user}'],
        ['ratelimit_route "/u/{id}/x" /u/*/x;', '/u/{id}/x', '/u/*/x'],
        ['ratelimit_route /**; ratelimit_route /**;', '/**', '/**'],
        ['location / { ' . join(' ', map { "ratelimit_route /t$_;" } 1 .. 99)
         . ' ratelimit_route /t7/; }', '/t7', '/t7/'];

refused('ratelimit_route;',
        'invalid number of arguments in "ratelimit_route" directive');

is($gateway->verdict("server { $_ }"), 'accepted', 'accepted: ' . substr $_, 0, 70)
    for 'ratelimit_route /;', 'ratelimit_route /a /a/* /a/**;',
        'ratelimit_route /a; location / { ratelimit_route /a/; }',
        'ratelimit_route ' . '/a' x 32 . ';',
        'location / { if ($arg_a) { set $b 1; } ratelimit_route "/{a}/{b}"; }';
