# The state file of a zone that follows a document: a gateway begins with it,
# also where it was damaged, and through what may happen to its workers.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( header wait_for );
use t::Rules;

use Time::HiRes qw( sleep time );

sub gateway {
    my (%self) = @_;
    return t::Gateway->limited(workers => 2, start => 0, api => 1, %self,
        zone => 'state=rules.state ' . ($self{zone} // ''));
}

sub passes {
    my ($gateway, $key) = @_;
    return scalar grep { $_->{status} == 200 } $gateway->burst(30, "/?k=$key");
}

# Whether a change was answered as one that is in the file. A disk that is too
# slow for that is waited for.
sub saved {
    my ($gateway, $answer, $version) = @_;
    return 1 if header($answer, 'X-RateLimit-Saved') eq '';
    wait_for(sub {
        $gateway->read('rules.state') =~ /^\S+"version":$version,/
    });
    return 0;
}

my @records = map { t::Rules::record($_, t::Rules::rules(10 + $_)) } 1 .. 3;

# no file: no rules
{
    my $gateway = gateway()->start;
    ok(t::Rules::follows($gateway, 0), 'no file: no version');
    is(passes($gateway, 'a'), 30, 'no file: no limit');
    my ($ok, $said) = $gateway->check;
    ok($ok, 'no file: nginx -t');
    ok(!-e "$gateway->{dir}/rules.state", 'and none is made');
    $gateway->stop;
}

# a file: its newest version counts from the first request on
{
    my $gateway = gateway();
    my $text = join '', reverse @records;
    $gateway->write('rules.state', $text);
    $gateway->start;
    is(passes($gateway, 'a'), 13, 'a file: its newest version');
    ok(t::Rules::follows($gateway, 3), 'on all workers');
    like($gateway->log, qr/\[notice\] .*zone "z" begins with version 3 of its rules, from ".*rules\.state"/,
         'and the log says so');
    t::Clock::pass(1);
    is($gateway->read('rules.state'), $text, 'it stays as it is');
    # through a reload, where nothing is read again
    $gateway->write('rules.state', 'x');
    $gateway->reload;
    is(passes($gateway, 'b'), 13, 'a reload keeps the rules');
    is($gateway->read('rules.state'), 'x', 'and reads no file');
    $gateway->stop;
}

# what was changed here is there after a restart
{
    my $gateway = gateway()->start;
    my $saved = 0;
    for my $version (0 .. 2) {
        my $answer = t::Rules::change($gateway, $version,
                                      t::Rules::rules(11 + $version));
        like($answer->{status}, qr/^20[01]$/, "a change: $version");
        $saved += saved($gateway, $answer, $version + 1);
        is($gateway->read('rules.state') =~ /"version":(\d+)/ ? $1 : 0,
           $version + 1, 'which is the first of the records in the file');
    }
    cmp_ok($saved, '>=', 1, 'when it is answered');
    is(t::Rules::change($gateway, 1, t::Rules::rules(1))->{status}, 412,
       'a change of what is no more is refused');
    ok(t::Rules::follows($gateway, 3), 'all workers follow');
    is(passes($gateway, 'a'), 13, 'and enforce it');
    $gateway->stop;
    $gateway->start;
    is(passes($gateway, 'a'), 13, 'a restart keeps the rules');
    is(t::Rules::api($gateway, 'GET /versions')->{body}
       =~ s/.*"versions"//sr =~ s/"version":(\d+),"time":"[^"]*"/v$1/gr
       =~ tr/v//, 3, 'and the versions');
    is(t::Rules::change($gateway, 3, t::Rules::rules(20))->{status}, 200,
       'and they can be changed');
    $gateway->stop;
}

# another file, by a reload: it has the rules though none has changed
{
    my $gateway = gateway()->start;
    t::Rules::change($gateway, 0, t::Rules::rules(11));
    my $text = $gateway->read('rules.state');
    $gateway->configure(http => $gateway->{http} =~ s/rules\.state/other.state/r);
    $gateway->reload;
    ok(wait_for(sub { $gateway->read('other.state') ne '' }),
       'another file: it is written');
    is($gateway->read('other.state'), $text, 'with the rules there are');
    $gateway->stop;
    $gateway->start;
    is(passes($gateway, 'a'), 11, 'and a restart begins with it');
    $gateway->stop;
}

# a link: the file that it leads to is written, and not the link
{
    my $gateway = gateway();
    my $dir = $gateway->{dir};
    mkdir "$dir/disk" or die;
    symlink 'disk/link', "$dir/rules.state" or die;
    symlink "$dir/disk/there", "$dir/disk/link" or die;
    my ($ok, $said) = $gateway->check;
    ok($ok, 'a link that leads to no file yet');
    $gateway->start;
    for my $version (0 .. 1) {
        my $answer = t::Rules::change($gateway, $version,
                                      t::Rules::rules(11 + $version));
        like($answer->{status}, qr/^20[01]$/, 'a link: a change');
        ok(wait_for(sub {
            $gateway->read('disk/there') =~ /^\S+"version":@{[$version + 1]},/
        }), 'is where the link leads to');
    }
    ok(-l "$dir/rules.state" && -l "$dir/disk/link", 'which stays a link');
    is($gateway->read('disk/there.old') =~ /^\S+"version":(\d+),/ ? $1 : 0, 1,
       'the one before stands beside the file');
    $gateway->stop;
    unlink "$dir/disk/there" or die;
    $gateway->start;
    is(passes($gateway, 'a'), 11, 'a restart finds that one');
    $gateway->stop;
    # what is no document may be anybody's: it is not touched
    $gateway->write('disk/there', "root:x:0\n");
    $gateway->start;
    ok(wait_for(sub { -f "$dir/rules.state" }), 'a link to something else');
    is($gateway->read('disk/there'), "root:x:0\n", 'which is left alone');
    ok(-l "$dir/rules.state.corrupt", 'the link is set aside');
    $gateway->stop;
    # one that leads to itself
    unlink "$dir/rules.state" or die;
    symlink 'rules.state', "$dir/rules.state" or die;
    ($ok, $said) = $gateway->check;
    ok(!$ok, 'a link to itself');
    like($said, qr/\[emerg\] open\(\) of ratelimit state ".*" failed/,
         'which nginx -t says');
}

# what was answered is there also where all are killed just then
{
    my $gateway = gateway()->start;
    for my $version (0 .. 4) {
        my $answer = t::Rules::change($gateway, $version,
                                      t::Rules::rules(11 + $version));
        saved($gateway, $answer, $version + 1);
        $gateway->kill;
        like($answer->{status}, qr/^20[01]$/, "killed after change $version");
        $gateway->start;
        is(passes($gateway, 'a'), 11 + $version, 'the rules are the new ones');
    }
    $gateway->stop;
}

# damaged files
sub damaged {
    my ($what, $limit, $version, $files, $said, $aside) = @_;
    my $gateway = gateway(workers => 1);
    $gateway->write($_, $files->{$_}) for keys %$files;
    my ($ok, $text) = $gateway->check;
    ok($ok, "$what: nginx -t");
    is($gateway->read($_), $files->{$_}, "$what: which changes no $_")
        for sort keys %$files;
    $gateway->start;
    is(passes($gateway, 'a'), $limit, "$what: what counts");
    ok(t::Rules::follows($gateway, $version), "$what: version $version");
    like($gateway->log, $said, "$what: the log says it");
    is(-e "$gateway->{dir}/rules.state.corrupt" ? 1 : 0, $aside,
       "$what: set aside");
    if ($version) {
        ok(wait_for(sub {
            my $now = $gateway->read('rules.state');
            return $now ne '' && t::Rules::version($now) == $version;
        }), "$what: the file is there again");
    }
    $gateway->stop;
}

my $all = join '', reverse @records;
my $half = substr $records[2], 0, length($records[2]) / 2;

damaged('half of the first', 12, 2,
        { 'rules.state' => $half, 'rules.state.old' => $records[1] },
        qr/is not whole, from byte 0 on.*is set aside.*is read instead/s, 1);
damaged('half of the first, and no other', 30, 0, { 'rules.state' => $half },
        qr/is not whole, from byte 0 on.*is set aside/s, 1);
damaged('a bit in the first', 11, 1,
        { 'rules.state' => $records[2] =~ s/calendar/calendir/r . $records[1],
          'rules.state.old' => $records[0] },
        qr/its digest does not fit.*is read instead/s, 1);
damaged('half of the second', 13, 3,
        { 'rules.state' => $records[2] . substr($records[1], 0, -9) },
        qr/is not whole, from byte \d+ on: it is cut/, 0);
damaged('killed between two renames', 12, 2,
        { 'rules.state.old' => $records[1], 'rules.state.tmp' => $half },
        qr/is read instead/, 0);
damaged('empty', 30, 0, { 'rules.state' => '' }, qr/is set aside/, 1);
damaged('a document that nobody can use', 30, 0,
        { 'rules.state' => t::Rules::record(7, { format => '2.0', rules => [] }) },
        qr/\[error\] .*version 7 of its rules is not used: \/format/, 0);

{
    my $gateway = gateway();
    mkdir "$gateway->{dir}/rules.state" or die;
    my ($ok, $said) = $gateway->check;
    ok(!$ok, 'a folder is no file');
    like($said, qr/\[emerg\] .*ratelimit state ".*rules\.state" failed.*directory/,
         'which nginx -t says');
}

# a folder that is not there yet
{
    my $gateway = gateway();
    my $conf = $gateway->{http} =~ s{state=rules}{state=later/rules}r;
    $gateway->configure(http => $conf);
    like(($gateway->check)[1], qr/\[warn\] .*"z" has "state=\S+later.rules\.state", expected a file in a folder where .*No such file/,
         'no folder: nginx -t says so');
    $gateway->start;
    my $answer = t::Rules::change($gateway, 0, t::Rules::rules(15));
    is($answer->{status}, 201, 'no folder: a change is taken');
    is(header($answer, 'X-RateLimit-Saved'), 'false',
       'and the answer says that it is not saved');
    is(passes($gateway, 'a'), 15, 'and counts');
    t::Clock::pass(3);
    is(() = $gateway->log =~ /\[error\] .*zone "z": the state file ".*" could not be written: open\(\) failed/g,
       1, 'and the log says it once');
    $gateway->reload;
    is(passes($gateway, 'b'), 15, 'a reload keeps what is not saved');
    mkdir "$gateway->{dir}/later" or die;
    ok(wait_for(sub {
        $gateway->read('later/rules.state') =~ /"version":1,/
    }), 'the folder is there: it is saved');
    $gateway->stop;
}

# a folder of others; a path begins where nginx.conf stands
{
    my $gateway = gateway();
    my $conf = $gateway->{http} =~ s{state=rules}{state=theirs/rules}r;
    my $group = getgrgid((getpwnam 'nobody')[3]);
    mkdir "$gateway->{dir}/theirs" or die;
    $gateway->configure(http => $conf);
    $gateway->write('nginx.conf',
                    $gateway->read('nginx.conf') =~ s/^user root;/user nobody $group;/mr);
    for ([0777, '', 'a folder of all'], [0555, 'Permission denied', 'of others']) {
        my ($mode, $why, $name) = @$_;
        chmod $mode, "$gateway->{dir}/theirs" or die;
        my ($ok, $text) = $gateway->check;
        ok($ok, "$name: nginx -t accepts it") or diag($text);
        is($text =~ /\[warn\] .*"state=.*may write \(\d+: (.*)\)/ ? $1 : '', $why,
           "$name: and says that the workers cannot write");
    }
}

# rules that Redis alone keeps
{
    my $gateway = t::Gateway->limited(start => 0, api => 1,
                                      redis => redis_port(), zone => '');
    like(($gateway->check)[1], qr/\[warn\] .*"z" has no "state=": after a restart/,
         'redis= alone: nginx -t says what a restart forgets');
}
