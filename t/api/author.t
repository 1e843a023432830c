# Who has changed what: each change through the endpoint is a line of the error
# log, and stands in the history with its author, address, method, path and
# reason. An API key stands in neither.

use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( wait_for );

my $ANN = 'token-of-ann-0123456789';
my $DEPLOY = 'token:of:deploy-01234567';
my $NONE = 'token-of-nobody-0123456';
my $ANY = 'If-Match: *';
my $TOKEN = $t::Gateway::TOKEN;

my $gateway = t::Gateway->limited(
    zone => { one => 'key=$http_x_api_key state=%%DIR%%/rules.state',
              clear => 'key=$http_x_api_key keys_in_clear=on' },
    files => { tokens => "# a comment\nann\@example.com:$ANN\n"
                         . "deploy:$DEPLOY\n$NONE\n" },
    locations => {
        '/rl/' => 'ratelimit_api zone=one %%WRITE%%;',
        '/clear/' => 'ratelimit_api zone=clear %%WRITE%%;',
        '/token/' => 'ratelimit_api zone=one write token_file=tokens;'
                     . 'set_real_ip_from 127.0.0.1; real_ip_header X-From;',
        '/author/' => 'ratelimit_api zone=one write token_file=tokens'
                      . ' author=$http_x_subject;',
    });

my ($rl, $token, $author, $clear) = map { t::Api->new($gateway, $_) }
                                    qw( /rl /token /author /clear );

sub bearer { return "Authorization: Bearer $_[0]" }

# The last change, as the log and as the history have it.
sub logged {
    my $zone = shift // 'one';
    wait_for(sub { $gateway->log =~ /zone "$zone": version/ });
    return ($gateway->log =~ /\[notice\] [^\n]*ratelimit zone "$zone": (version[^\n]*)/g)[-1];
}

sub newest {
    my $api = shift // $rl;
    my $newest = $api->get('/versions')->{json}{versions}[0];
    return join '|', map { $newest->{$_} }
                     qw( version author address method path reason );
}

# of: author, address, "METHOD /path", reason. The log has the query, too, where
# the history has none, and escapes quotes.
sub change_ok {
    my ($name, $answer, $request, %of) = @_;
    my $by = $of{by} // '';
    my $from = $of{from} // '127.0.0.1';
    my $reason = $of{reason} // '';
    my ($method, $path) = split ' ', $request;
    my ($by_quoted, $reason_quoted) = map { s/(["\\])/\\$1/gr } $by, $reason;
    like($answer->{status}, qr/^20[01]$/, $name);
    is(newest(), "$answer->{version}|$by|$from|$method|$path|$reason",
       "$name: the history");
    is(logged(), "version $answer->{version} of its rules was made: \"$request\" "
                 . "by \"$by_quoted\" from $from, reason \"$reason_quoted\"",
       "$name: the log");
}

my %rule = (algorithm => 'fixed_window', params => { limit => 1, window => 60 },
            tiers => { pro => { limit => 5 } });

change_ok('nobody in particular', $rl->put('/rules/r', \%rule, $ANY),
          'PUT /rules/r');
change_ok('a reason',
          $rl->put('/rules/s?reason=launch%20week', \%rule, $ANY),
          'PUT /rules/s', reason => 'launch week');
change_ok('a token with a name',
          $token->delete('/tiers/pro?rule=s', $ANY, bearer($ANN),
                         'X-From: 127.0.0.5'),
          'DELETE /tiers/pro?rule=s', by => 'ann@example.com',
          from => '127.0.0.5');
change_ok('a token with colons',
          $token->post('/versions/1/restore', undef, $ANY, bearer($DEPLOY)),
          'POST /versions/1/restore', by => 'deploy');
change_ok('a token without a name',
          $token->put('/allow', ['a*'], $ANY, bearer($NONE)),
          'PUT /allow');
change_ok('a variable',
          $author->put('/allow', ['b*'], $ANY, bearer($ANN),
                       'X-Subject: CN=ann,O=x'),
          'PUT /allow', by => 'CN=ann,O=x');
change_ok('an empty variable',
          $author->put('/allow', ['c*'], $ANY, bearer($DEPLOY)),
          'PUT /allow', by => 'deploy');

is($token->put('/allow', ['x*'], $ANY, bearer("deploy:$DEPLOY"))->{status},
   401, 'the name is no part of a token');

# what a client sends stays in its quotes
change_ok('quotes',
          $author->put('/allow', ['d*'], $ANY, bearer($DEPLOY),
                       'X-Subject: a" by "b',
                       'X-RateLimit-Reason: c", reason "\\d'),
          'PUT /allow', by => 'a" by "b', reason => 'c", reason "\\d');
change_ok('no UTF-8', $author->put('/allow', ['e*'], $ANY, bearer($DEPLOY),
                                   "X-Subject: ann\xff"),
          'PUT /allow', by => 'ann');

# a reset makes no version; its line has no key
$author->delete('/counters?rule=r&key=sk_secret', bearer($DEPLOY));
like($gateway->log,
     qr{\[notice\] .*zone "one": a counter is reset: "DELETE /counters\?rule=r" by "deploy" from 127\.0\.0\.1, reason ""$}m,
     'a reset');

# API keys
my $sha = t::Api::sha('sk_secret');

change_ok('a key', $rl->put('/tier_of/sk_secret', { tier => 'pro' }, $ANY),
          "PUT /tier_of/$sha");
change_ok('its digest', $rl->delete("/tier_of/$sha", $ANY),
          "DELETE /tier_of/$sha");
$rl->post('/allow', ['sk_secret'], $ANY);
change_ok('a key in the query', $rl->delete('/allow?key=sk_secret', $ANY),
          'DELETE /allow');
unlike(join('', grep { !/ request: "/ } $gateway->log =~ /^.*$/mg), qr/sk_secret/,
       'the log has no key');
unlike($gateway->read('rules.state'), qr/sk_secret/, 'nor has the state file');

$clear->put('/tier_of/sk_secret', { tier => 'pro' }, $ANY);
is(newest($clear), '1||127.0.0.1|PUT|/tier_of/sk_secret|', 'keys_in_clear=on');

# what changes nothing is no line; nor what is refused
my $before = () = $gateway->log =~ /of its rules was made/g;

for ($rl->get('/document'), $rl->put('/allow', $rl->get('/allow')->{json}, $ANY),
     $rl->put('/document', [], $ANY), $rl->put('/rules/r', \%rule, 'If-Match: "1"'),
     $rl->post('/document/validate', { rules => [] }))
{
    cmp_ok($_->{status}, '>', 0, "answered: $_->{status}");
}

is(() = $gateway->log =~ /of its rules was made/g, $before, 'no line without a change');

# who does not wait for the answer has made a change, too
my $body = '["gone*"]';
my $socket = $gateway->connect_to;

print $socket join "\r\n", 'PUT /rl/allow?reason=gone HTTP/1.1',
    'Host: localhost', $TOKEN, $ANY, 'Content-Type: application/json',
    'Content-Length: ' . length $body, '', $body;
close $socket;

wait_for(sub { newest() =~ /\|gone$/ }, 1);
ok(wait_for(sub { newest() =~ /\|gone$/ == logged() =~ /reason "gone"$/ }),
   'nobody waits: the log has it, if it was made');

# an outcome that nobody knows is a line, too: see t/rules/lost.t

# Redis: the same, through a fleet
my @fleet = t::Gateway->limited(gateways => 2, redis => redis_start(),
    zone => { one => 'key=$http_x_api_key redis=r' },
    locations => { '/rl/' => 'ratelimit_api zone=one %%WRITE%%'
                             . ' author=$http_x_subject;' });
my @api = map { t::Api->new($_) } @fleet;

ok(wait_for(sub {
       $api[0]->put('/rules/r', \%rule, $ANY, 'X-Subject: ann')->{version} eq 1
   }), 'a fleet');
is(newest($api[1]), '1|ann|127.0.0.1|PUT|/rules/r|', 'each gateway knows by whom');
like($fleet[0]->log, qr/version 1 of its rules was made: "PUT \/rules\/r" by "ann"/,
     'the gateway that made it has the line');
unlike($fleet[1]->log, qr/was made/, 'the other one has not');

$_->stop for @fleet;
$gateway->stop;
