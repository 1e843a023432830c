# A change whose answer is lost: the client gets 504 at once and reads the
# document again. And a Redis that answers what no script gives.

use t::RateLimit 'no_plan';
use t::Clock;
use t::Gateway qw( wait_for );
use t::FakeRedis;
use t::Rules;

use Time::HiRes qw( sleep time );

t::Clock::hurry();

my $NONE = array('0', '0', '0');

sub array {
    return '*' . @_ . "\r\n" . join '', map { '$' . length() . "\r\n$_\r\n" } @_;
}

# A Redis with a document, as far as a gateway asks for it: {version, id,
# record}. What a put gets is up to the test: a function of the server's state,
# of how many puts came before, and of the put, {version, id, record}.
sub fake {
    my ($put, %options) = @_;
    my ($n, %has) = (0, version => 0, id => '0', record => '', history => {});
    return t::FakeRedis->new(sub {
        my ($command, undef, $keys, @args) = @_;
        return "+OK\r\n" if $command ne 'EVAL';
        splice @args, 0, $keys;
        my $what = shift @args;
        return $options{get}->(@args) if $what eq 'get' && $options{get};
        if ($what eq 'get') {
            return array($has{version}, $has{id}, '0')
                if !$has{version} || $has{id} eq $args[1];
            return array(@has{qw( version id )}, '0', $has{record});
        }
        return array($has{history}{$args[0]} // ()) if $what eq 'version';
        return $NONE if $what ne 'put';
        my %new = (version => $args[2], id => $args[3], record => $args[4]);
        return $put->(\%has, $n++, \%new);
    });
}

sub take {
    my ($has, $new) = @_;
    $has->{history}{$new->{version}} = $new->{record};
    @$has{qw( version id record )} = @$new{qw( version id record )};
    return array('1', @$new{qw( version id )});
}

sub gateway {
    return t::Gateway->limited(redis => shift->{port}, timeout => '1s',
                               api => 1);
}

# One change; its answer's status and body, and the version that counts then.
sub lost {
    my ($what, $status, $version, $said, $put) = @_;
    my $fake = fake($put);
    my $gateway = gateway($fake);
    my $answer = t::Rules::change($gateway, 0, t::Rules::rules(10));
    is($answer->{status}, $status, "$what: $status");
    like($answer->{body}, $said, "$what: what is said") if $said;
    ok(t::Rules::follows($gateway, $version), "$what: version $version counts");
    is($gateway->get('/?k=a')->{status}, 200, "$what: requests go on");
    $gateway->stop;
    $fake->stop;
}

lost('taken, and the answer is lost', 504, 1, qr/read before you send it again/, sub {
    my ($has, $n, $new) = @_;
    take($has, $new);
    return undef;
});

# a put that was sent again would be taken
lost('not taken, and the connection ends', 504, 0, qr/read before you send it again/, sub {
    my ($has, $n, $new) = @_;
    return $n ? take($has, $new) : undef;
});

lost('full', 503, 0, qr/oom/, sub { return "-OOM command not allowed\r\n" });

lost('something else under its name', 503, 0, qr/wrongtype/,
     sub { return "-WRONGTYPE Operation against a key\r\n" });

lost('another version', 412, 0, qr/version 0 is current/, sub { return array('0', '0', '0') });

lost('garbage', 504, 0, undef, sub { return array('1', 'x', 'y') });
lost('less', 504, 0, undef, sub { return array('1') });

# whatever the version is: five times anew, of what others have written
for my $others (5, 6) {
    my $fake = fake(sub {
        my ($has, $n, $new) = @_;
        return take($has, $new) if $n == $others;
        my $other = t::Rules::record($has->{version} + 1, t::Rules::rules(11));
        take($has, { version => $has->{version} + 1, record => $other,
                     id => t::Rules::id($other) });
        return array('0', @$has{qw( version id )});
    });
    my $gateway = gateway($fake);
    my $answer = t::Rules::api($gateway, 'PUT /document', t::Rules::rules(10),
                               'If-Match: *');
    is($answer->{status}, $others == 5 ? 200 : 412, "If-Match: *, $others others");
    ok(t::Rules::follows($gateway, 6), "If-Match: *, $others others: six versions");
    $gateway->stop;
    $fake->stop;
}

# a Redis that has lost its last writes
{
    my $is = t::Rules::record(2, t::Rules::rules(11));
    my $fake = fake(sub { return array('0', '1', '00000000000000bb') }, get => sub {
        return array('2', t::Rules::id($is), '0', $_[1] eq t::Rules::id($is) ? () : $is);
    });
    my $gateway = gateway($fake);
    ok(t::Rules::follows($gateway, 2), "behind: version 2");
    my $answer = t::Rules::change($gateway, 2, t::Rules::rules(12));
    is($answer->{status}, 503, 'behind: not done');
    like($answer->{body}, qr/behind/, 'behind: what is said');
    $gateway->stop;
    $fake->stop;
}

# what is asked each few seconds, answered by anybody: nothing changes
for my $answer ("*0\r\n", array('1'), array('x', 'y', 'z'), array('-1', '1', '1'),
                array('99999999999999999999', '1', '1'),
                array('9007199254740993', '1', '1'),
                array('1', 'fffffffffffffffff', '0'), array('1', '1', ''),
                array('1', '00000000000000aa', '0', "{}\n{}\n"),
                array('1', '00000000000000aa', '0', ''),
                array('1', '00000000000000aa', '0', "\0" x 100_000),
                array('1', '00000000000000aa', '0', ('x' x 1000) x 100),
                ":1\r\n", "\$-1\r\n", "+OK\r\n", "*1\r\n*1\r\n:1\r\n")
{
    my $fake = fake(sub { $NONE }, get => sub { $answer });
    my $gateway = gateway($fake);
    my $shown = substr $answer =~ s/[^ -~]+/ /gr, 0, 40;
    ok(wait_for(sub { $gateway->log =~ /\[error\] .*zone "z"/ }),
       "$shown: the log says it");
    ok(t::Rules::follows($gateway, 0), "$shown: changes nothing");
    is($gateway->get('/?k=a')->{status}, 200, "$shown: requests go on");
    cmp_ok(scalar(() = $fake->heard), '<', 60, "$shown: is not asked in a loop");
    $gateway->stop;
    $fake->stop;
}
