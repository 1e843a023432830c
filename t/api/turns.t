# One edit at a time for each worker: the others wait for their turn, not too
# many and not too long. A request that is gone, or has waited for too long,
# leaves nothing behind.

use Time::HiRes qw( sleep );
use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header tally wait_for );
use t::Api;

my %WAITING = (change => 32, validation => 8);

# while it is there, the thread that edits does nothing
my $hold = t::Gateway::dir('threads') . '/hold';

$ENV{RATELIMIT_THREADS_WAIT} = $hold;

t::Clock::stop();

my $gateway = t::Gateway->limited(api => 1);
my $api = t::Api->new($gateway);
my %edit = (
    change => [PUT => '/document', { rules => [] }, 'If-Match: *'],
    validation => [POST => '/document/validate', { rules => [] }]);

sub hold { open my $file, '>', $hold or die "$hold: $!" }
sub go_on { unlink $hold or die "$hold: $!" }

# Begins n edits, and waits until the gateway has read them.
sub begin {
    my ($n, $of) = @_;
    my $before = $gateway->waiting;
    my $begun = t::Gateway::begin_all([map { $api->request(@{ $edit{$of} }) }
                                       1 .. $n]);
    wait_for(sub {
        t::Gateway::answered($begun);
        return $gateway->waiting == $before + $n;
    }) or diag('they are not read');
    return $begun;
}

# So many may wait beside those that wait now, and no more.
sub room_ok {
    my ($name, $of) = @_;
    my ($begun, $answer) = begin($WAITING{$of}, $of);
    $answer = $api->send(@{ $edit{$of} });
    t::Api::problem_ok($answer, '503 unavailable', "$name: no more than that");
    is($answer->{json}{detail}, 'too many changes or validations wait, nothing '
                                . 'is changed', "$name: why");
    is(t::Gateway::answered($begun), 0, "$name: $WAITING{$of} wait");
    return $begun;
}

is($api->send(@{ $edit{change} })->{status}, 201, 'a document');

for my $of (sort keys %edit) {
    # the first one edits, so many wait
    hold();
    my $first = begin(1, $of);
    my $waiting = room_ok("the first $of", $of);
    is($api->get('/status')->{status}, 200, 'what is no edit does not wait');
    go_on();
    is(tally(t::Gateway::finish($first), t::Gateway::finish($waiting)),
       1 + $WAITING{$of} . ' x 200', 'one after the other');
    # 30 seconds: all are answered, and their places are free. The thread still
    # has the edit of a request that is gone
    hold();
    $first = begin(1, $of);
    $waiting = begin($WAITING{$of}, $of);
    advance(29);
    sleep 0.1;
    is(t::Gateway::answered($waiting), 0, 'they wait for 29 seconds');
    advance(2);
    for (t::Gateway::finish($first), t::Gateway::finish($waiting)) {
        my $answer = t::Api::answer($_);
        t::Api::problem_ok($answer, '503 unavailable', 'too long');
        is($answer->{json}{detail}, 'it took too long, nothing is changed',
           'too long: why');
    }
    $waiting = room_ok('behind them', $of);
    go_on();
    is(tally(t::Gateway::finish($waiting)), "$WAITING{$of} x 200",
       'they are made when the thread goes on');
}

# validations need no right to write: they keep no change out, and it goes first
hold();

my $validations = begin(1, 'validation');
my $more = room_ok('validations', 'validation');
my $changes = room_ok('changes behind them', 'change');

go_on();
is(tally(t::Gateway::finish($changes)), "$WAITING{change} x 200", 'changes');
is(tally(t::Gateway::finish($validations), t::Gateway::finish($more)),
   1 + $WAITING{validation} . ' x 200', 'and validations');

hold();
$edit{change}[2] = { deny => ['somebody'] };
$validations = begin(1, 'validation');
$more = begin($WAITING{validation}, 'validation');
$changes = begin(1, 'change');
go_on();

my ($made) = t::Gateway::finish($changes);

# the next ones may begin while it is stored
my ($version) = header($made, 'ETag') =~ /(\d+)-/;
my @same = grep { header($_, 'ETag') =~ /\b$version-/ }
           t::Gateway::finish($more);
cmp_ok(@same, '>', 0,
   'validations that came before it are of its version');
t::Gateway::finish($validations);

# clients that leave
hold();

my $first = begin(1, 'change');
my $waiting = begin($WAITING{change}, 'change');

close $_->{socket} for map { values %{ $_->{open} } } $first, $waiting;
ok(wait_for(sub { $gateway->waiting == 0 }), 'all leave');
$waiting = room_ok('behind those that left', 'change');
go_on();
is(tally(t::Gateway::finish($waiting)), "$WAITING{change} x 200",
   'their places were free');

# a body that does not come: its right ends, too
my $text = '{"allow":["late*"]}';
my $socket = $gateway->connect_to;

print $socket join("\r\n", 'PUT /rl/document HTTP/1.1', 'Host: localhost',
                   $t::Gateway::TOKEN, 'If-Match: *',
                   'Content-Type: application/json',
                   'Content-Length: ' . length $text, '', substr $text, 0, 5);
$socket->flush;
ok(wait_for(sub { $gateway->waiting == 1 }), 'half a body');
advance(29);
is($api->get('/status')->{status}, 200, 'after 29 seconds');
print $socket substr $text, 5, 5;
$socket->flush;
ok(wait_for(sub { $gateway->waiting == 1 }), 'more of it');
advance(2);
is(do { local $/; <$socket> } // '', '', 'no answer behind 30 seconds');
is($api->get('/document')->{json}{version}, 2, 'and no change');

$gateway->stop;
