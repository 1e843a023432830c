# A Redis that does a change of a counter in part, or whose answer is lost: the
# answer says that it may have been done. A reset may be sent once more.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use t::FakeRedis;
use t::Api;

# an answer for each HDEL or ZREMRANGEBYSCORE, for each reset of the script of documents, and for
# each call of the check script; patch: the body, else it is a reset
sub told {
    my ($name, $said, $hdel, $reset, %more) = @_;
    my ($deletes, $resets, $checks) = (0, 0, 0);
    my $fake = t::FakeRedis->new(sub {
        my @command = @_;
        return $hdel->[$deletes++] if $command[0] =~ /^(?:HDEL|ZREMRANGEBYSCORE)$/i;
        if ($command[0] =~ /^EVAL$/i) {
            my $operation = $command[3 + $command[2]];
            return "*3\r\n\$1\r\n0\r\n\$1\r\n0\r\n\$1\r\n0\r\n"
                if $operation eq 'get';
            return $reset->[$resets++] if $operation eq 'reset';
        }
        return $checks < @{ $more{checks} // [] } ? $more{checks}[$checks++]
                                                  : left(2)
            if $command[0] eq 'EVALSHA';
        return "+OK\r\n";
    });
    my $gateway = t::Gateway->limited(
        redis => $fake->{port}, timeout => '1s', api => 1,
        rules => ['one match=/one rate=6r/d',
                  'three match=/three rate=6r/d sync=strict shards=3',
                  'log match=/log algorithm=sliding_log limit=6 window=1d']);
    my $api = t::Api->new($gateway);
    my $rule = $more{rule} // 'one';
    my $answer = $api->send($more{patch} ? 'PATCH' : 'DELETE',
                            "/counters?rule=$rule&key=a", $more{patch});
    if ($said eq '200') {
        is($answer->{status}, 200, $name) or diag($answer->{body});
    } else {
        t::Api::problem_ok($answer, $said, $name);
        like($answer->{json}{detail}, $more{why}, "$name: why") if $more{why};
    }
    # the connection may have broken: the next one comes soon
    ok(wait_for(sub { $api->delete("/counters?rule=$rule&key=a")->{status} == 200 }),
       "$name: once more") if $more{again};
    is(scalar(grep { $_->[2] =~ /^(?:HDEL|ZREM.*)$/ } $fake->heard), $more{deletes},
       "$name: $more{deletes} deletes") if $more{deletes};
    my $log = $gateway->log;
    my ($first) = $log =~ /\[notice\] .*: ((?:perhaps )?a counter [^:]*): "/;
    is($first // 'nothing',
       $said eq '503 unavailable' ? 'nothing'
       : ($said =~ /^504/ ? 'perhaps ' : '')
         . ($more{patch} ? $more{patch}{add} ? 'a counter gets 3 more'
                                             : 'a counter is set to 3 used'
                         : 'a counter is reset'),
       "$name: the log");
    $gateway->stop;
    $fake->stop;
}

sub left { return "*4\r\n:0\r\n:$_[0]\r\n:1000\r\n:0\r\n" }

my $ONE = ":1\r\n";
my $AT = "*1\r\n\$16\r\n1795000000000001\r\n";

told('all well', '200', [$ONE], [$AT], deletes => 1);
told('three parts', '200', [($ONE) x 3], [$AT], rule => 'three', deletes => 3);
told('a set', '200', [$ONE], [$AT], rule => 'log', deletes => 1);

told('cut off', '504 unknown-outcome', [undef, $ONE], [$AT], again => 0,
     why => qr/reset it once more/);
told('refused', '503 unavailable', ["-NOAUTH x\r\n"], [$AT],
     why => qr/nothing is changed: noauth$/);
told('no right', '503 unavailable',
     ["-NOPERM this user has no permissions to run the 'hdel' command\r\n"],
     [$AT], why => qr/nothing is changed: noperm$/);
told('no such command', '503 unavailable',
     ["-ERR unknown command 'HDEL', with args beginning with: 'k'\r\n"],
     [$AT], why => qr/nothing is changed: error$/);
told('refused, the second part', '504 unknown-outcome',
     [$ONE, "-NOAUTH x\r\n", ($ONE) x 3], [$AT], rule => 'three',
     why => qr/in part.*: noauth$/, again => 1, deletes => 5);
told('not told', '504 unknown-outcome', [$ONE, $ONE],
     ["-OOM command not allowed\r\n", $AT], why => qr/not on all nodes.*: oom$/,
     again => 1);
told('told something else', '504 unknown-outcome', [$ONE, $ONE],
     ["*1\r\n\$1\r\nx\r\n", $AT], why => qr/: protocol$/, again => 1);
told('told nothing', '504 unknown-outcome', [$ONE, $ONE], ["*0\r\n", $AT],
     why => qr/: protocol$/, again => 1);

my %add = (patch => { add => 3 });
my $REFUSED = "-NOAUTH x\r\n";
my $changed = qr/may be changed, in part.*: read it, and decide again: /;

told('more', '200', [], [$AT], %add, checks => [left(2), left(5)]);
told('more, the look refused', '503 unavailable', [], [$AT], %add,
     checks => [$REFUSED], why => qr/nothing is changed: noauth$/);
told('more, refused', '503 unavailable', [], [$AT], %add,
     checks => [left(2), $REFUSED], why => qr/nothing is changed: noauth$/);
told('more, cut off', '504 unknown-outcome', [], [$AT], %add,
     checks => [left(2), undef], why => qr/${changed}lost$/);
told('more, late', '200', [], [$AT], %add,
     checks => [left(2), [('') x 300, left(5)]]);
told('more, the look late', '503 unavailable', [], [$AT], %add,
     checks => [[('') x 300, left(2)]],
     why => qr/nothing is changed: timeout$/);
told('more, the second part refused', '504 unknown-outcome', [], [$AT], %add,
     rule => 'three', checks => [left(1), left(2), $REFUSED],
     why => qr/${changed}noauth$/);
told('more, not told', '504 unknown-outcome', [], ["-OOM x\r\n"], %add,
     checks => [left(2), left(5)], why => qr/${changed}oom$/);
told('more where nothing is used, not told', '503 unavailable', [],
     ["-OOM x\r\n"], %add, checks => [left(6)],
     why => qr/nothing is changed: oom$/);
told('used, cut off behind the reset', '504 unknown-outcome', [$ONE], [$AT],
     patch => { used => 3 }, checks => [undef], why => qr/${changed}lost$/);
