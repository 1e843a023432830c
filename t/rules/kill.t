# Workers and whole gateways killed while a change is written, at random moments:
# the rules are the old ones or the new ones, on every worker and on disk, and
# what was answered is not lost.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::Rules;

use POSIX ();
use Time::HiRes qw( sleep time );

my $ROUNDS = 12;
my $rounds = 0;
my $port = redis_start();
my $prefix = key_prefix();

sub gateway {
    my ($redis) = @_;
    return t::Gateway->limited(workers => 2, api => 1,
                               zone => 'state=rules.state',
                               $redis ? (redis => $port) : ());
}

# A document with some weight, so that there is a time while it is written.
sub document {
    my $limit = shift;
    my %keys = map { sprintf('key%05d', $_) => 'free' } 1 .. 2000;
    return { %{ t::Rules::rules($limit) }, tier_of => { keys => \%keys } };
}

# A change in a process of its own; the file it writes its status to, where it
# was said to be on disk: a slow one would have it later.
sub change {
    my ($gateway, $version, $name) = @_;
    my $pid = t::Gateway::beside(sub {
        my $answer = t::Rules::change($gateway, $version, document(10 + $version));
        my $saved = header($answer, 'X-RateLimit-Saved') eq '';
        $gateway->write($name, $saved ? $answer->{status} : 'not saved');
    });
    return $pid;
}

# The records of a state file: each whole, the newest first.
sub versions_of {
    my ($text, $what) = @_;
    my @versions;
    while (length $text) {
        my ($head, $bytes) = $text =~ /^(\{.*"bytes":(\d+).*\}\n)/ or last;
        my $document = substr $text, length $head, $bytes;
        my ($from, $digest) = $head =~ /^(.*),"sha256":"(\w+)"\}\n/;
        last if Digest::SHA::sha256_hex($from . $document) ne $digest;
        push @versions, t::Rules::version($head);
        substr $text, 0, length($head) + $bytes, '';
    }
    is($text, '', "$what: the file is whole");
    return @versions;
}

sub round {
    my ($gateway, $n, $version, $what, $kill) = @_;
    my $name = "answer$n";
    my $pid = change($gateway, $version, $name);
    # at some moment of the change or, every other time, right behind its answer
    if (++$rounds % 2) {
        sleep rand 0.12;
    } else {
        waitpid $pid, 0;
    }
    $kill->();
    waitpid $pid, 0;
    my $answered = $gateway->read($name) =~ /^20/;
    my $now;
    ok(wait_for(sub {
        $now = t::Rules::api($gateway, 'GET /document');
        return $now->{status} == 200;
    }), "$what: it answers");
    # of what is in Redis the file may be behind, for a moment
    if ($gateway->{http} =~ /redis=/) {
        my $current = t::Rules::current($port, $prefix, 'z');
        wait_for(sub {
            $now = t::Rules::api($gateway, 'GET /document');
            return header($now, 'ETag') =~ /^"$current\b/;
        });
    }
    my ($is) = header($now, 'ETag') =~ /(\d+)/;
    my ($limit) = $now->{body} =~ /"limit":(\d+)/;
    ok($is == $version || $is == $version + 1,
       "$what: version $version or the next, not $is");
    is($is, $version + 1, "$what: what was answered is there") if $answered;
    is($limit // 0, $is ? 9 + $is : 0, "$what: with its rules");
    ok(t::Rules::follows($gateway, $is), "$what: on all workers");
    return $is;
}

for my $redis (0, 1) {
    my $gateway = gateway($redis);
    my $with = $redis ? 'with Redis' : 'without Redis';
    my $version = 0;
    for my $n (1 .. $ROUNDS) {
        my $what = "$with, workers $n";
        $version = round($gateway, $n, $version, $what, sub {
            kill KILL => $gateway->workers;
        });
        ok(wait_for(sub {
            $gateway->read('rules.state') =~ /^\S+"version":$version,/
        }), "$what: on disk") if $version;
    }
    for my $n (1 .. $ROUNDS / 2) {
        my $what = "$with, all $n";
        $version = round($gateway, "all$n", $version, $what, sub {
            $gateway->kill;
            for my $file ('rules.state', 'rules.state.old') {
                my $text = $gateway->read($file);
                versions_of($text, "$what: $file") if $text ne '';
            }
            $gateway->start;
        });
    }
    cmp_ok($version, '>', 2, "$with: some changes were taken: $version");
    my $got = t::Rules::api($gateway, 'GET /versions')->{body};
    my @history = $got =~ /"version":(\d+),"time"/g;
    is("@history", join(' ', reverse 1 .. $version), "$with: none is lost");
    $gateway->stop('QUIT', qr/exited on signal 9$/);
}
