# Active times of rules: outside of them a rule does not apply. In nginx.conf
# and in a document, by the example of docs/rules.md; and changes of them.

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header told wait_for );
use t::Api;

use JSON::PP qw( decode_json );
use Time::Local qw( timegm );

my $TOKEN = 'a-token-of-32-bytes-0123456789ab';
my $DAY = 86400;

# next year's last Sunday of March, 00:00 UTC: an hour later, Berlin's clock is
# put forward
my $sunday = timegm(0, 0, 0, 31, 2, 1901 + (gmtime t::Clock::now())[5]);
$sunday -= $DAY * (gmtime $sunday)[6];

# from 1 January 1970 on, days are counted from that Sunday
sub at {
    my ($day, $time) = @_;
    my ($h, $m, $s) = split /:/, $time;
    advance($sunday + $day * $DAY + $h * 3600 + $m * 60 + ($s // 0)
            - t::Clock::now());
}

# the example of the page
open my $page, '<', 'docs/rules.md' or die "docs/rules.md: $!";
local $/;
my ($example) = <$page> =~ /^### Active times\n+```json\n(.*?)^```/ms;
my $rules = decode_json($example)->{rules};

# its rule in nginx.conf
sub conf {
    my $rule = shift;
    my $active = $rule->{active} // {};
    my $times = join ',', grep { defined } $active->{days},
                $active->{from} && "$active->{from}-$active->{to}",
                $active->{tz};
    return join ' ', "$rule->{id} zone=conf group=$rule->{group}",
                "rate=$rule->{params}{rate}",
                $rule->{priority} ? "priority=$rule->{priority}" : (),
                $times ? "active=$times" : ();
}

t::Clock::stop();
at(-2, '07:00');
t::Clock::go();

my $port = redis_start();

my $gateway = t::Gateway->limited(
    redis => { r => $port },
    zone => { conf => '', document => 'state=%%DIR%%/document.state',
              quota => '', edited => 'state=%%DIR%%/edited.state',
              leases => 'redis=r' },
    rules => [(map { conf($_) } @$rules),
              'quota zone=quota limit=3 window=366d algorithm=fixed_window '
              . 'active=mon',
              'leased zone=leases limit=100000 window=366d '
              . 'algorithm=fixed_window sync=lease active=mon'],
    files => { tokens => "ops:$TOKEN\n" },
    http => 'ratelimit_explain token_file=tokens;',
    locations => {
        '/named' => 'ratelimit zone=quota rule=quota;',
        '/api/' => 'ratelimit_api zone=document %%WRITE%%;',
        '/edit/' => 'ratelimit_api zone=edited %%WRITE%%;',
        '/look/' => 'ratelimit_api zone=leases;',
        map { ("/$_" => "ratelimit zone=$_;") }
            qw( conf document quota edited leases ),
    });

my $api = t::Api->new($gateway, '/api');

is($api->put('/document', { rules => $rules }, 'If-Match: *')->{status}, 201,
   'the example of the page is a document');
ok($api->follows(1), 'and the gateway goes by it');

sub because {
    my $answer = t::Api::answer($gateway->get(shift,
                                              "X-RateLimit-Explain: $TOKEN"));
    return join ', ', map { "$_->{rule} " . ($_->{because} // 'applies') }
                      @{ $answer->{json}{zones}[0]{rules} };
}

# The clock stands: it shows the seconds that are asked for.
t::Clock::stop();

for (# Friday and Saturday, an hour behind Berlin
     [-2, '07:59:59', 'else'], [-2, '08:00:00', 'office'],
     [-2, '15:59:59', 'office'], [-2, '16:00:00', 'else'],
     [-2, '20:59:59', 'else'], [-2, '21:00:00', 'night'],
     [-1, '04:59:59', 'night'], [-1, '05:00:00', 'else'],
     [-1, '12:00:00', 'else'], [-1, '23:30:00', 'night'],
     # from Sunday on two hours: 05:59:59 there, and 06:00
     [0, '03:59:59', 'night'], [0, '04:00:00', 'else'],
     [1, '06:59:59', 'else'], [1, '07:00:00', 'office'],
     [1, '14:59:59', 'office'], [1, '15:00:00', 'else'])
{
    my ($day, $time, $rule) = @$_;
    at($day, $time);
    is(join(' ', map { header($gateway->get("/$_?k=$day$time"), 'X-Rule') }
                 qw( conf document )), "$rule $rule", "$day $time: $rule");
}

is(because('/document?k=1'),
   'office not_active, night not_active, else applies', 'explained');
at(1, '20:00');
is(because('/conf?k=1'), 'office not_active, night applies, else group',
   'by night');

# A Monday, a Tuesday, and a week later
is(join(', ', map { told($gateway, "/$_?k=1") } qw( quota named )),
   '200 PASSED 2, 200 PASSED 1', 'what a client has used');
at(2, '00:00');
is(join(', ', map { told($gateway, "/$_?k=1") } qw( quota named )),
   '200 BYPASSED , 200 BYPASSED ',
   'is not counted, whether a location names the rule or not');
at(8, '00:00');
is(join(', ', map { told($gateway, "/$_?k=1") } qw( named quota )),
   '200 PASSED 0, 429 REJECTED 0', 'and meets it when it is active again');

t::Clock::go();

# what PUT says is what GET says, and PATCH changes
my $edit = t::Api->new($gateway, '/edit');
my %rule = (id => 'r', params => { rate => '1r/h' });

my $active = { from => '09:00', to => '09:00' };

t::Api::problem_ok($edit->put('/document', { rules => [{ %rule,
                                                      active => $active }] },
                              'If-Match: *'),
                   '422 invalid: /rules/0/active/to '
                   . 'expected two different times', 'no time at all');

$active = { days => 'sun-mon', tz => 'UTC' };

is($edit->put('/rules/r', { %rule, active => $active }, 'If-None-Match: *')
   ->{status}, 201, 'a rule is made');
is_deeply($edit->get('/rules/r')->{json}, { %rule, active => $active },
          'as written');
ok($edit->follows(1), 'and used');

is(told($gateway, '/edited?k=1'), '200 PASSED 0', 'on a Monday');

is($edit->change('PATCH', '/rules/r', { active => { days => 'tue',
                                                    from => '10:00' } })
   ->{status}, 200, 'other days');
is_deeply($edit->get('/rules/r')->{json},
          { %rule, active => { days => 'tue', from => '10:00', tz => 'UTC' } },
          'all else stays');
ok($edit->follows(2), 'they are used');
is(told($gateway, '/edited?k=1'), '200 BYPASSED ',
   'on that Monday it does not apply');

is($edit->change('PATCH', '/rules/r', { active => undef })->{status}, 200,
   'no active times');
is_deeply($edit->get('/rules/r')->{json}, \%rule, 'they are gone');
ok($edit->follows(3), 'and so it is used');
is(told($gateway, '/edited?k=1'), '429 REJECTED 0',
   'at any time, with the counter that it had');

# what a gateway holds when the time ends goes back
my ($sent, %sources) = (0);

t::Clock::stop();
at(8, '23:59:59.9');

wait_for(sub {
    my @answers = $gateway->burst(20, '/leases?k=1');
    $sent += @answers;
    $sources{header($_, 'X-Source')}++ for @answers;
    return $sources{lease};
});
ok($sources{lease}, 'tokens are reserved');

at(9, '00:00');
is(told($gateway, '/leases?k=1'), '200 BYPASSED ', 'the time ends');

ok(t::Clock::wait_for(sub {
    my $json = t::Api->new($gateway, '/look')
               ->get('/counters?rule=leased&key=1')->{json};
    return $json->{remaining} == 100000 - $sent;
}), 'what was not spent goes back');

$gateway->stop;
