# "ratelimit_phase": before the access modules, failed logins count, and a
# limited client is not asked for a password; behind them only those count to
# whom access was granted, by what authentication has said of them. A request
# counts once, whichever phases the locations have that it comes through.

use strict;
use warnings;

use MIME::Base64 qw( encode_base64 );
use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

my $gateway = t::Gateway->new(http => <<"CONF");
    ratelimit_redis r { server 127.0.0.1:$redis; prefix $prefix; timeout 5s; }
    # the arguments are gone in subrequests and behind redirects
    map \$request_uri \$k { ~[?&]k=(.+) \$1; }
    ratelimit_zone \$k zone=z:1m rate=3r/h;
    ratelimit_zone \$user zone=user:1m rate=3r/h;
    ratelimit_zone \$remote_user zone=login:1m rate=3r/h;
    ratelimit_zone \$k zone=fleet:1m rate=3r/h redis=r;

    # the API, who authenticates, and who gets the copies
    map \$http_x_user \$verdict { "" 401; mallory 403; default 200; }
    log_format arg \$arg_k;
    server {
        listen unix:%%DIR%%/auth.sock;
        access_log %%DIR%%/auth.log arg;
        location / {
            add_header X-User \$http_x_user;
            if (\$verdict = 401) { return 401; }
            if (\$verdict = 403) { return 403; }
            return 204;
        }
    }
    server {
        listen unix:%%DIR%%/copies.sock;
        access_log %%DIR%%/copies.log arg;
        return 200;
    }

    server {
        listen 127.0.0.1:%%PORT%%;
        root %%DIR%%/html;
        access_log off;
        add_header X-Status \$ratelimit_status always;
        auth_basic_user_file %%DIR%%/passwords;

        location = /auth {
            internal;
            # a subrequest is never checked
            ratelimit zone=z;
            ratelimit_phase after_auth;
            proxy_pass http://unix:%%DIR%%/auth.sock:/?k=\$k;
        }

        location /before/ {
            ratelimit zone=z;
            location /before/basic { auth_basic x; empty_gif; }
            location /before/request { auth_request /auth; empty_gif; }
            location /before/deny { deny all; empty_gif; }
            location /before/any-allow {
                satisfy any; allow all; auth_basic x; empty_gif;
            }
            location /before/any-basic {
                satisfy any; deny all; auth_basic x; empty_gif;
            }
            location /before/any-request {
                satisfy any; deny all; auth_request /auth; empty_gif;
            }
            location /before/all {
                satisfy all; allow all; auth_basic x; empty_gif;
            }
            location /before/vote {
                # no more than a vote, were it returned to the phase
                ratelimit_status 403;
                satisfy any; allow all; empty_gif;
            }
            location /before/return { return 200; }
        }

        location /after/ {
            ratelimit zone=z;
            ratelimit_phase after_auth;
            location /after/basic { auth_basic x; empty_gif; }
            location /after/request { auth_request /auth; empty_gif; }
            location /after/deny { deny all; empty_gif; }
            location /after/any-allow {
                satisfy any; allow all; auth_basic x; empty_gif;
            }
            location /after/any-basic {
                satisfy any; deny all; auth_basic x; empty_gif;
            }
            location /after/any-request {
                satisfy any; deny all; auth_request /auth; empty_gif;
            }
            location /after/all {
                satisfy all; allow all; auth_basic x; empty_gif;
            }
            location /after/return { return 200; }

            location /after/login {
                auth_basic x;
                ratelimit zone=login;
                empty_gif;
            }
            location /after/user {
                auth_request /auth;
                auth_request_set \$user \$upstream_http_x_user;
                ratelimit zone=user;
                empty_gif;
            }
            location /after/fleet {
                auth_request /auth; ratelimit zone=fleet; empty_gif;
            }

            location /after/page-401 {
                auth_basic x; error_page 401 /after/plain; empty_gif;
            }
            location /after/page-403 {
                deny all; error_page 403 \@named; empty_gif;
            }
            location /after/page-200 {
                deny all; error_page 403 = /after/plain; empty_gif;
            }
            location /after/page-200-named {
                deny all; error_page 403 = \@named; empty_gif;
            }
            location /after/page-200-before {
                deny all; error_page 403 = /before/plain; empty_gif;
            }
            location /after/page-200-off {
                deny all; error_page 403 = /unlimited/plain; empty_gif;
            }
            location /after/page-404 { error_page 404 /after/plain; }

            location /after/plain { empty_gif; }
            location /after/try { try_files /none /file.txt; }
            location /after/mirror { mirror /copy; empty_gif; }
            location /after/ssi.shtml { ssi on; }
            location /after/dir/ { index none index.html; }

            # from one phase to the other, in both directions
            location /after/to-named { try_files /none \@named; }
            location /after/to-before { try_files /none /before/plain; }
            location /after/to-off { try_files /none /unlimited/plain; }
            location /after/error-before { error_page 404 = /before/plain; }
        }

        location /before/plain { ratelimit zone=z; empty_gif; }
        location /before/to-after {
            ratelimit zone=z; try_files /none /after/plain;
        }
        location /before/to-named {
            ratelimit zone=z; try_files /none \@named;
        }
        location /before/error-after {
            ratelimit zone=z; error_page 404 = /after/plain;
        }
        location /unlimited/ {
            ratelimit off;
            ratelimit_phase after_auth;
            location /unlimited/to-after { try_files /none /after/plain; }
            location /unlimited/to-before { try_files /none /before/plain; }
            location /unlimited/to-named { try_files /none \@named; }
            location /unlimited/plain { empty_gif; }
        }
        location \@named {
            ratelimit zone=z; ratelimit_phase after_auth; empty_gif;
        }
        location = /copy {
            internal;
            proxy_pass http://unix:%%DIR%%/copies.sock:/?k=\$k;
        }
    }
CONF

$gateway->write('passwords', "alice:{PLAIN}secret\nbob:{PLAIN}secret\n");
mkdir "$gateway->{dir}/html";
mkdir "$gateway->{dir}/html/after";
mkdir "$gateway->{dir}/html/after/dir";
$gateway->write('html/file.txt', "file\n");
$gateway->write('html/after/dir/index.html', "index\n");
$gateway->write('html/after/ssi.shtml',
                '<!--# include virtual="/after/plain" -->' x 5);
$gateway->start;

sub basic {
    my ($user, $password) = @_;
    return 'Authorization: Basic ' . encode_base64("$user:$password", '');
}

my $GOOD = basic('alice', 'secret');
my $BAD = basic('alice', 'guess');
my $keys = 0;

# n requests, one after the other: "200 PASSED 2", and so on, in short.
sub statuses {
    my ($n, $path, @headers) = @_;

    return join ' ', map { $gateway->get($path, @headers)->{status} } 1 .. $n;
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
is(statuses(3, "/before/basic?k=$key", $BAD), '401 401 401',
   'before: guesses');
is(statuses(1, "/before/basic?k=$key", $GOOD), '429',
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

    is(t::Gateway::told($gateway->get("/after/$name?k=$key", @$bad)),
       "$status  ", "after: $name, $status: not checked");
    is(statuses(5, "/after/$name?k=$key", @$bad),
       join(' ', ($status) x 5), "after: $name, $status: refused");
    is(t::Gateway::told($gateway->get("/after/$name?k=$key", @$good)),
       '200 PASSED 2', "after: $name, $status: and not counted");
    is(statuses(4, "/after/$name?k=$key", @$good), '200 200 429 429',
       "after: $name, $status: limited");
    is(statuses(1, "/after/$name?k=$key", @$bad), $status,
       "after: $name, $status: refused first");

    next if $name !~ /request|fleet/;

    is(lines('auth.log', $key), 12,
       "after: $name, $status: all were authenticated");
}

is(statuses(5, '/after/deny?k=deny'), '403 403 403 403 403',
   'after: deny');
is(t::Gateway::told($gateway->get('/after/plain?k=deny')), '200 PASSED 2',
   'after: deny: not counted');
is(statuses(5, '/after/any-allow?k=any', $BAD), '200 200 200 429 429',
   'after: "satisfy any" where the address is what grants');
is(statuses(5, '/after/return?k=return'), '200 200 200 200 200',
   'after: what "return" answers is not checked');

# after: by what authentication says

is(statuses(4, '/after/login', $GOOD), '200 200 200 429',
   'after: by $remote_user');
is(statuses(1, '/after/login', basic('bob', 'secret')), '200',
   'after: another user');
is(statuses(4, '/after/user', 'X-User: alice'), '200 200 200 429',
   'after: by a variable of auth_request_set');
is(statuses(1, '/after/user', 'X-User: bob'), '200', 'after: another user');
is(statuses(5, '/after/user'), '401 401 401 401 401', 'after: nobody');

# the error page of who was refused

is(statuses(5, '/after/page-401?k=page'), '401 401 401 401 401',
   'the error page of a refused client');
is(statuses(5, '/after/page-403?k=page'), '403 403 403 403 403',
   'the named location of a refused client');
is(t::Gateway::told($gateway->get('/after/page-401?k=page')), '401  ',
   'is not checked');
is(t::Gateway::told($gateway->get('/after/plain?k=page')), '200 PASSED 2',
   'nor counted');

# a page with a status of its own counts by its location

for my $page ('', '-named', '-before') {
    is(t::Gateway::told($gateway->get("/after/page-200$page?k=own$page")),
       '200 PASSED 2', "error_page 403 =, $page: checked");
    is(statuses(4, "/after/page-200$page?k=own$page"), '200 200 429 429',
       "error_page 403 =, $page: limited");
}

is(t::Gateway::told($gateway->get('/after/page-200-off?k=own')), '200  ',
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

    is(t::Gateway::told($gateway->get("$path?k=$key")), "$status PASSED 2",
       "$path counts");
    is(t::Gateway::told($gateway->get("/after/plain?k=$key")),
       '200 PASSED 1', "$path counts once");
    is(statuses(2, "$path?k=$key"), "$status 429", "$path is limited");
}

is(statuses(5, '/unlimited/plain?k=off'), '200 200 200 200 200',
   '"ratelimit off"');

# a rejected request is not copied

ok(t::Gateway::wait_for(sub { lines('copies.log', 'aftermirror') == 2 }),
   'what passed was copied');
is(statuses(3, '/after/mirror?k=aftermirror'), '429 429 429',
   'the mirror: limited');
is(statuses(1, '/after/mirror?k=another'), '200', 'the mirror: another');
ok(t::Gateway::wait_for(sub { lines('copies.log', 'another') }),
   'the mirror: copied');
is(lines('copies.log', 'aftermirror'), 2,
   'the mirror: no rejected request was');

$gateway->stop;
