# A Redis that does a reset in part, or whose answer is lost: who asked is told
# that it may have been done, and may ask once more; who asks for the state of a
# counter is told no half of it.

use t::RateLimit 'no_plan';
use t::Gateway;
use t::FakeRedis;
use t::Api;

# an answer for each HDEL, and for each reset of the script of documents
sub told {
    my ($name, $said, $hdel, $reset, %more) = @_;

    my ($deletes, $resets) = (0, 0);

    my $fake = t::FakeRedis->new(sub {
        my @command = @_;

        return $hdel->[$deletes++] // '' if $command[0] =~ /^(?:HDEL|DEL)$/i;

        if ($command[0] =~ /^EVAL$/i) {
            return "*3\r\n\$1\r\n0\r\n\$1\r\n0\r\n\$1\r\n0\r\n"
                if $command[5] eq 'get';
            return $reset->[$resets++] // '' if $command[5] eq 'reset';
        }

        return "*4\r\n:0\r\n:2\r\n:1000\r\n:0\r\n" if $command[0] eq 'EVALSHA';
        return "+OK\r\n";
    });

    my $gateway = t::Gateway->limited(
        redis => $fake->{port}, timeout => '1s', api => 1,
        rules => ['one match=/one rate=6r/d',
                  'three match=/three rate=6r/d sync=strict shards=3',
                  'log match=/log algorithm=sliding_log limit=6 window=1d']);

    my $api = t::Api->new($gateway);
    my $rule = $more{rule} // 'one';
    my $answer = $api->delete("/counters?rule=$rule&key=a");

    if ($said eq '200') {
        is($answer->{status}, 200, $name) or diag($answer->{body});

    } else {
        t::Api::problem_ok($answer, $said, $name);
        like($answer->{json}{detail}, $more{why}, "$name: why") if $more{why};
    }

    is($api->delete("/counters?rule=$rule&key=a")->{status}, 200,
       "$name: once more") if $more{again};

    is(scalar(grep { $_->[2] =~ /^H?DEL$/ } $fake->heard), $more{deletes},
       "$name: $more{deletes} deletes") if $more{deletes};

    $gateway->stop;
    $fake->stop;
}

my $ONE = ":1\r\n";
my $AT = "*1\r\n\$16\r\n1795000000000001\r\n";

told('all well', '200', [$ONE], [$AT], deletes => 1);
told('three parts', '200', [($ONE) x 3], [$AT], rule => 'three', deletes => 3);
told('a set', '200', [$ONE], [$AT], rule => 'log', deletes => 1);

told('cut off', '504 unknown-outcome', [undef, $ONE], [$AT], again => 0,
     why => qr/reset it once more/);
told('refused', '503 unavailable', ["-NOAUTH x\r\n"], [$AT],
     why => qr/nothing is changed: noauth$/);
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
