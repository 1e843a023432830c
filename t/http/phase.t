# "ratelimit_phase": before the access modules, failed logins count, and a
# limited client is not asked for a password; behind them only those count to
# whom access was granted, by what authentication has said of them. A request
# counts once, whichever phases the locations have that it comes through.

use MIME::Base64 qw( encode_base64 );
use t::RateLimit 'no_plan';
use t::Gateway qw( told wait_for );

my $redis = redis_port();
my $prefix = key_prefix();

my $BASIC = 'auth_basic x;';
my $REQUEST = 'auth_request /auth;';
my %ACCESS = (
    basic => $BASIC, request => $REQUEST, deny => 'deny all;',
    'any-allow' => "satisfy any; allow all; $BASIC",
    'any-basic' => "satisfy any; deny all; $BASIC",
    'any-request' => "satisfy any; deny all; $REQUEST",
    all => "satisfy all; allow all; $BASIC",
    return => 'return 200;',
);
my %BEFORE = (
    plain => '',
    # no more than a vote, were it returned to the phase
    vote => 'ratelimit_status 403; satisfy any; allow all;',
    'to-after' => 'try_files /none /after/plain;',
    'to-named' => 'try_files /none @named;',
    'error-after' => 'root %%DIR%%/html; error_page 404 = /after/plain;',
);
my %AFTER = (%ACCESS,
    plain => '',
    login => "$BASIC ratelimit zone=login;",
    user => "$REQUEST auth_request_set \$user \$upstream_http_x_user;"
            . 'ratelimit zone=user;',
    fleet => "$REQUEST ratelimit zone=fleet;",
    'page-401' => "$BASIC error_page 401 /after/plain;",
    'page-403' => 'deny all; error_page 403 @named;',
    'page-200' => 'deny all; error_page 403 = /after/plain;',
    'page-200-named' => 'deny all; error_page 403 = @named;',
    'page-200-before' => 'deny all; error_page 403 = /before/plain;',
    'page-200-off' => 'deny all; error_page 403 = /unlimited/plain;',
    'page-404' => 'root %%DIR%%/html; error_page 404 /after/plain;',
    try => 'try_files /none /file.txt;',
    mirror => 'mirror /copy;',
    'ssi.shtml' => 'ssi on;',
    'dir/' => 'index none index.html;',
    # from one phase to the other, in both directions
    'to-named' => 'try_files /none @named;',
    'to-before' => 'try_files /none /before/plain;',
    'to-off' => 'try_files /none /unlimited/plain;',
    'error-before' => 'root %%DIR%%/html; error_page 404 = /before/plain;',
);
my %OFF = (
    plain => '',
    'to-after' => 'try_files /none /after/plain;',
    'to-before' => 'try_files /none /before/plain;',
    'to-named' => 'try_files /none @named;',
);

sub locations {
    my ($folder, $lines, %of) = @_;
    return map { ("/$folder/$_" => ($of{$_} =~ /\bratelimit zone=/ ? '' : $lines)
                                   . $of{$_}) } keys %of;
}

my $gateway = t::Gateway->limited(
    redis => $redis,
    zone => { z => 'key=$k rate=3r/h', user => 'key=$user rate=3r/h',
              login => 'key=$remote_user rate=3r/h',
              fleet => 'key=$k rate=3r/h redis=r' },
    http => <<'CONF',
    # the arguments are gone in subrequests and behind redirects
    map $request_uri $k { ~[?&]k=(.+) $1; }
    # the API, who authenticates, and who gets the copies
    map $http_x_user $verdict { "" 401; mallory 403; default 200; }
    log_format arg $arg_k;
    server {
        listen unix:%%DIR%%/auth.sock;
        access_log %%DIR%%/auth.log arg;
        location / {
            add_header X-User $http_x_user;
            if ($verdict = 401) { return 401; }
            if ($verdict = 403) { return 403; }
            return 204;
        }
    }
    server {
        listen unix:%%DIR%%/copies.sock;
        access_log %%DIR%%/copies.log arg;
        return 200;
    }
CONF
    files => {
        passwords => "alice:{PLAIN}secret\nbob:{PLAIN}secret\n",
        'html/file.txt' => "file\n",
        'html/after/dir/index.html' => "index\n",
        'html/after/ssi.shtml' => '<!--# include virtual="/after/plain" -->' x 5,
    },
    server => 'root %%DIR%%/html; access_log off;'
              . 'auth_basic_user_file %%DIR%%/passwords;',
    locations => {
        # a subrequest is never checked
        '= /auth' => 'internal; ratelimit zone=z; ratelimit_phase after_auth;'
                     . 'proxy_pass http://unix:%%DIR%%/auth.sock:/?k=$k;',
        '= /copy' => 'internal;'
                     . 'proxy_pass http://unix:%%DIR%%/copies.sock:/?k=$k;',
        '@named' => 'ratelimit zone=z; ratelimit_phase after_auth;',
        locations('before', 'ratelimit zone=z;', %ACCESS, %BEFORE),
        locations('unlimited', 'ratelimit off; ratelimit_phase after_auth;',
                  %OFF),
        locations('after', 'ratelimit zone=z;', map {
            $_ => "ratelimit_phase after_auth; $AFTER{$_}" } keys %AFTER),
    });

sub basic {
    my ($user, $password) = @_;
    return 'Authorization: Basic ' . encode_base64("$user:$password", '');
}

my $GOOD = basic('alice', 'secret');
my $BAD = basic('alice', 'guess');
my $keys = 0;

# The statuses of n requests, one after the other.
sub statuses {
    my ($n, @request) = @_;
    return $gateway->statuses(map { [@request] } 1 .. $n);
}

sub lines {
    my ($log, $key) = @_;
    return scalar grep { $_ eq $key } split /\n/, $gateway->read($log);
}

# before: all count, and a limited client is not asked for more
for (['basic', 401, $BAD], ['basic', 200, $GOOD],
     ['request', 401], ['request', 403, 'X-User: mallory'],
     ['request', 200, 'X-User: alice'],
     ['deny', 403],
     ['any-allow', 200, $BAD], ['any-basic', 200, $GOOD],
     ['any-basic', 401, $BAD], ['any-request', 200, 'X-User: alice'],
     ['any-request', 401], ['all', 401], ['all', 200, $GOOD])
{
    my ($name, $status, @headers) = @$_;
    my $key = 'before' . ++$keys;
    is(statuses(5, "/before/$name?k=$key", @headers),
       "$status $status $status 429 429", "before: $name, $status");
    next if $name !~ /request/;
    is(lines('auth.log', $key), 3,
       "before: $name, $status: the limited were not authenticated");
}

my $key = 'guessed';
is(statuses(3, "/before/basic?k=$key", $BAD), '401 401 401', 'before: guesses');
is($gateway->statuses(["/before/basic?k=$key", $GOOD]), '429',
   'before: the right guess comes too late');
is(statuses(5, '/before/vote?k=vote'), '200 200 200 403 403',
   'before: "satisfy any" does not outvote a rejection');
is(statuses(5, '/before/return?k=return'), '200 200 200 200 200',
   'before: what "return" answers is not checked');

# after: who was refused does not count
for (['basic', 401, [$BAD], [$GOOD]], ['request', 401, [], ['X-User: a']],
     ['request', 403, ['X-User: mallory'], ['X-User: a']],
     ['any-basic', 401, [$BAD], [$GOOD]],
     ['any-request', 401, [], ['X-User: a']],
     ['all', 401, [], [$GOOD]], ['fleet', 401, [], ['X-User: a']])
{
    my ($name, $status, $bad, $good) = @$_;
    my $key = 'after' . ++$keys;
    is($gateway->told("/after/$name?k=$key", @$bad),
       "$status  ", "after: $name, $status: not checked");
    is(statuses(5, "/after/$name?k=$key", @$bad),
       join(' ', ($status) x 5), "after: $name, $status: refused");
    is($gateway->told("/after/$name?k=$key", @$good),
       '200 PASSED 2', "after: $name, $status: and not counted");
    is(statuses(4, "/after/$name?k=$key", @$good), '200 200 429 429',
       "after: $name, $status: limited");
    is($gateway->statuses(["/after/$name?k=$key", @$bad]), $status,
       "after: $name, $status: refused first");
    next if $name !~ /request|fleet/;
    is(lines('auth.log', $key), 12,
       "after: $name, $status: all were authenticated");
}

is(statuses(5, '/after/deny?k=deny'), '403 403 403 403 403', 'after: deny');
is($gateway->told('/after/plain?k=deny'), '200 PASSED 2',
   'after: deny: not counted');
is(statuses(5, '/after/any-allow?k=any', $BAD), '200 200 200 429 429',
   'after: "satisfy any" where the address is what grants');
is(statuses(5, '/after/return?k=return'), '200 200 200 200 200',
   'after: what "return" answers is not checked');

# after: by what authentication says
is(statuses(4, '/after/login', $GOOD), '200 200 200 429',
   'after: by $remote_user');
is($gateway->statuses(['/after/login', basic('bob', 'secret')]), '200',
   'after: another user');
is(statuses(4, '/after/user', 'X-User: alice'), '200 200 200 429',
   'after: by a variable of auth_request_set');
is($gateway->statuses(['/after/user', 'X-User: bob']), '200', 'after: another user');
is(statuses(5, '/after/user'), '401 401 401 401 401', 'after: nobody');

# the error page of who was refused
is(statuses(5, '/after/page-401?k=page'), '401 401 401 401 401',
   'the error page of a refused client');
is(statuses(5, '/after/page-403?k=page'), '403 403 403 403 403',
   'the named location of a refused client');
is($gateway->told('/after/page-401?k=page'), '401  ', 'is not checked');
is($gateway->told('/after/plain?k=page'), '200 PASSED 2', 'nor counted');

# a page with a status of its own counts by its location
for my $page ('', '-named', '-before') {
    is($gateway->told("/after/page-200$page?k=own$page"),
       '200 PASSED 2', "error_page 403 =, $page: checked");
    is(statuses(4, "/after/page-200$page?k=own$page"), '200 200 429 429',
       "error_page 403 =, $page: limited");
}

is($gateway->told('/after/page-200-off?k=own'), '200  ',
   'error_page 403 =, where nothing is limited');
is(statuses(4, '/after/page-200-off?k=own'), '200 200 200 200',
   'error_page 403 =, where nothing is limited: not counted');

# once a request
for my $path (qw( /after/plain /after/try /after/mirror /after/ssi.shtml
                  /after/dir/ /after/page-404 /after/to-named
                  /after/to-before /after/to-off /after/error-before
                  /before/to-after /before/to-named /before/error-after
                  /unlimited/to-after /unlimited/to-before
                  /unlimited/to-named ))
{
    my $key = $path =~ s/\W//gr;
    my $status = $path eq '/after/page-404' ? 404 : 200;
    is($gateway->told("$path?k=$key"), "$status PASSED 2", "$path counts");
    is($gateway->told("/after/plain?k=$key"),
       '200 PASSED 1', "$path counts once");
    is(statuses(2, "$path?k=$key"), "$status 429", "$path is limited");
}

is(statuses(5, '/unlimited/plain?k=off'), '200 200 200 200 200',
   '"ratelimit off"');

# a rejected request is not copied
ok(wait_for(sub { lines('copies.log', 'aftermirror') == 2 }),
   'what passed was copied');
is(statuses(3, '/after/mirror?k=aftermirror'), '429 429 429',
   'the mirror: limited');
is($gateway->statuses(['/after/mirror?k=another']), '200', 'the mirror: another');
ok(wait_for(sub { lines('copies.log', 'another') }), 'the mirror: copied');
is(lines('copies.log', 'aftermirror'), 2,
   'the mirror: no rejected request was');

$gateway->stop;
