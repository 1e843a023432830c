# A worker makes a thread when there is a document to compile or a file to write,
# and has none otherwise. Where no thread can be made, as under a limit of tasks,
# the event loop does the work: no worker ends, also at a reload.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::Rules;

my $no_threads = t::Gateway::dir('limits') . '/no-threads';

$ENV{LD_PRELOAD} = t::RateLimit::clock_library();
$ENV{RATELIMIT_NO_THREADS} = $no_threads;

my $gateway = t::Gateway->limited(
    start => 0, workers => 2, api => 1, zone => 'state=%%DIR%%/rules.state');

# The tasks of all workers, once they are at rest.
sub tasks {
    my ($tasks, @of) = 0;
    wait_for(sub {
        @of = map { glob "/proc/$_/task/*" } $gateway->workers;
        return @of == $gateway->workers;
    });
    return scalar @of;
}

# A change, which all workers follow, and which is in the state file.
sub change {
    my ($rules, $name) = @_;
    my $version = $rules - 1;
    is(t::Rules::change($gateway, $version, t::Rules::rules($rules))->{status},
       $version ? 200 : 201, "$name: version $rules");
    ok(t::Rules::follows($gateway, $rules), "$name: it is followed");
}

$gateway->start;
is(tasks(), 2, 'a task for each worker');

change(1, 'with threads');
is(tasks(), 2, 'again when the document is compiled');

open my $file, '>', $no_threads or die "$no_threads: $!";

my @old = $gateway->reload;
my @new = $gateway->workers;

is(@new, 2, 'a reload where no thread can be made: two workers');
is($gateway->get('/')->{status}, 200, 'they serve');

change(2, 'without threads');
is("@{[ sort $gateway->workers ]}", "@{[ sort @new ]}", 'by the same workers');

# a sanitizer's nginx does not see what is preloaded
like($gateway->log, qr/no thread for the rules/, 'the log says so')
    if !$ENV{RATELIMIT_STATIC};

ok(wait_for(sub { $gateway->read('rules.state') =~ /"version":2\b/ }),
   'the state file is written');

$gateway->stop;
