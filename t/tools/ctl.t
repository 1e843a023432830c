# ratelimitctl: what docs/ctl.md does not show, each a row of arguments, what it
# prints and its status. No token is an argument of a program.

use t::RateLimit 'no_plan';
use t::Gateway;

use Cwd qw( getcwd );

my $gateway = t::Gateway->new(http => <<'CONF');
    ratelimit_zone $ratelimit_api_key zone=api:1m;
    ratelimit_rule all zone=api algorithm=fixed_window rate=100r/d;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=api write token_file=tokens; }
        location / { ratelimit zone=api; ratelimit_explain token_file=tokens;
                     empty_gif; }
        location /plain { return 200; }
    }
CONF

my $dir = $gateway->{dir};
my $url = "http://127.0.0.1:$gateway->{port}";

$gateway->write('tokens', "ann:a-token-of-32-bytes-0123456789ab\n");
$gateway->write('token', "a-token-of-32-bytes-0123456789ab\n");
$gateway->write('wrong', 'another-token-of-32-bytes-012345');
$gateway->write('empty', '');
$gateway->write('conf', "# a comment\n\ngateway $url/rl/\ntoken_file token\n");
$gateway->write('two', "gateway $url/rl\ngateway $url/rl\ntoken_file $dir/token");
$gateway->write('bad', "gateway $url/rl\ntoken_file wrong\n");
$gateway->write('none', "token_file token\n");
$gateway->write('typo', "gateway $url/rl\ntokenfile token\n");
$gateway->write('no-token', "gateway $url/rl\ntoken_file empty\n");
$gateway->write('away', "gateway http://127.0.0.1:1/rl\n");
$gateway->write('rules.json', '[{"id":"a","params":{"limit":-1,"window":60}}]');
$gateway->write('mine.json', '[{"id":"a","params":{"limit":7,"window":60}}]');
$gateway->write('document.json', '{"rules":[],"deny":["sk_9"]}');
$gateway->write('broken.json', '[{');
$gateway->start;
$gateway->get('/v', 'X-API-Key: sk_1') for 1 .. 3;

# the arguments of all programs that it starts, by a curl of our own
my $curl = qx(sh -c 'command -v curl') =~ s/\n//r;
mkdir "$dir/bin";
$gateway->write('bin/curl', "#!/bin/sh\nprintf '%s\\n' \"\$@\" >> $dir/arguments\n"
                            . "exec $curl \"\$@\"\n");
chmod 0755, "$dir/bin/curl";
$ENV{PATH} = "$dir/bin:$ENV{PATH}";
$ENV{HOME} = $dir;
delete $ENV{RATELIMITCTL};
my $program = getcwd() . '/ctl/ratelimitctl';

for (
    ['--help', 0, qr/^usage: ratelimitctl .*^  nodes/ms],
    ['', 2, qr/^usage:/],
    ['-c conf top', 0, qr/^key +counted_by .*\nsha256:\S+ +\$ratelimit_api_key +\S+ +3 /],
    ['-c two top -n 5', 0, qr/^sha256:\S+ +\$ratelimit_api_key +\S+ +6 /m],
    ['top -c conf --rejected', 0, qr/^key +counted_by[^\n]*\n\z/],
    ['-c two nodes', 0, qr/^(?:\S+\/rl  +api +0 +0 [^\n]*\n){2}\z/m],
    ['-c conf who sk_1 --rule all', 0, qr/^all +100 +97 +3 /m],
    ['-c conf who sk_1 --rule none', 2, qr/^ratelimitctl: \S+: 404 /],
    ["-c conf explain $url/v -H 'X-API-Key: sk_1'", 0, qr/^api +all +true +- +100 +97 +true$/m],
    ["-c conf explain $url/plain", 2, qr/200 no answer of an endpoint$/],
    ["-c conf explain $url/rl/", 2, qr/401, expected the right token_file/],
    ['-c conf allow add', 2, qr/^ratelimitctl: allow add: expected an entry$/],
    ['-c conf allow delete x', 2, qr/expected add or remove, not "delete"/],
    ['-c conf deny add sk_1 --dry-run', 0, qr{^\+ /deny: "sha256:\w+"$}],
    ['-c conf deny', 0, qr/^entry +ends +reason\n\z/],
    ['-c conf deny add 192.0.2.0/24 key --for 1h', 0, qr/^\z/],
    ['-c conf deny', 0, qr/^192\.0\.2\.0\/24 +2\S+Z +-\nsha256:\w+ +2\S+Z +-\n\z/m],
    ['-c conf override add k absolute 5', 2, qr/expected --for/],
    ['-c conf override add k absolute x --for 1h', 2, qr{422 .*\n  /overrides/0/value}],
    ['-c conf override add k absolute 5 --for 1h --rule all --reason why', 0, qr/^\z/],
    ['-c conf override', 0, qr/ all +absolute +5 +2\S+Z +why$/m],
    ['-c conf override remove none', 2, qr/404/],
    ['-c conf apply', 2, qr/expected -f and a file/],
    ['-c conf apply -f broken.json', 2, qr/^ratelimitctl: broken\.json: /],
    ['-c conf apply -f absent.json', 2, qr/^ratelimitctl: absent\.json: /],
    ['-c conf apply -f rules.json', 2, qr{422 .*\n  /rules/0/params/limit \(a\): must be}],
    ['-c conf diff -f mine.json --owner me', 1, qr{^\+ /rules/a: .*"owner":"me"}],
    ['-c conf apply -f mine.json --owner me', 0, qr/^\z/],
    ['-c conf diff -f mine.json --owner me', 0, qr/^\z/],
    ['-c conf apply -f document.json --owner me', 2, qr/an array of rules/],
    ['-c conf apply -f document.json --dry-run --json', 0, qr/^\{"version":\d+,"changes":\[/],
    ['-c conf apply -f document.json', 0, qr/^\z/],
    ['-c conf deny', 0, qr/\nsha256:\w+ +- +-\n\z/],
    ['-c bad nodes', 2, qr/401, expected the right token_file in bad$/],
    ['-c none nodes', 2, qr/expected -g, or a line "gateway/],
    ["-c none -g $url/rl nodes", 0, qr/ api +/],
    ["-c conf -g $url/plain who k", 2, qr/200 no answer of an endpoint$/],
    ['-c absent nodes', 2, qr/^ratelimitctl: absent: there is no such file$/],
    ['-c typo nodes', 2, qr/^ratelimitctl: typo:2: "tokenfile" is not known/],
    ['-c no-token nodes', 2, qr/empty: there is no token in it/],
    ['-c away nodes', 2, qr{^ratelimitctl: http://127\.0\.0\.1:1/rl/status: .*connect}],
    ['-c conf nodes --for', 2, qr/--for: expected a value/],
    ['-c conf nodes --none', 2, qr/--none is not known/],
    ['-c conf none', 2, qr/"none" is not known/],
) {
    my ($arguments, $status, $shows) = @$_;
    my $got = qx(cd '$dir' && '$program' $arguments 2>&1);
    is($? >> 8, $status, "$arguments: the status");
    like($got, $shows, "$arguments: what it prints");
}

my $arguments = $gateway->read('arguments');
like($arguments, qr{/rl/status}, 'the arguments of curl');
unlike($arguments, qr/a-token-of/, 'have no token');

$gateway->stop;
