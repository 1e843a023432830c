# Changes under load: no request is lost or wrongly denied, what was used stays
# used, and the memory of old documents comes back.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::Rules;

use POSIX ();
use Time::HiRes qw( sleep time );

sub gateway {
    return t::Gateway->limited(workers => 2, @_, zone => { 'z:8m' => '' },
                               api => 1);
}

# Two rules, in another order each time: one that nobody reaches, and one of 5.
sub document {
    my $n = shift;
    my ($many) = @{ t::Rules::rules(100_000 + $n, id => 'many')->{rules} };
    my ($few) = @{ t::Rules::rules(5, id => 'few',
                       match => { endpoint_regex => '^/few' })->{rules} };
    return { rules => $n % 2 ? [$many, $few] : [$few, $many] };
}

# 100 changes under load
{
    my $gateway = gateway();
    my ($version, $requests, %got) = (0, 0);
    is(t::Rules::change($gateway, $version++, document(0))->{status}, 201,
       'the first document');
    ok(t::Rules::follows($gateway, 1), 'is followed');
    is(scalar(grep { $_->{status} == 200 } $gateway->burst(10, '/few?k=used')),
       5, 'five pass');
    my $stop = $gateway->{dir} . '/stop';
    my $load = t::Gateway::beside(sub {
        my (%n, %few);
        until (-e $stop) {
            for my $answer ($gateway->burst(40, '/?k=load')) {
                $n{$answer->{status}}++;
            }
            $few{$_->{status}}++ for $gateway->burst(5, '/few?k=used');
        }
        $gateway->write('load', join ' ', map({ "$_:$n{$_}" } sort keys %n),
                        map { "few$_:$few{$_}" } sort keys %few);
    });
    for my $n (1 .. 100) {
        my $answer = t::Rules::change($gateway, $version, document($n));
        $got{$answer->{status}}++;
        $version++;
        sleep 0.02;
    }
    $gateway->write('stop', '');
    waitpid $load, 0;
    is_deeply(\%got, { 200 => 100 }, '100 changes are taken');
    my %load = map { split /:/ } split ' ', $gateway->read('load');
    is(join(' ', sort keys %load), '200 few429',
       'under load: none is lost, none wrongly denied or let through');
    cmp_ok($load{200}, '>', 200, "of $load{200}");
    ok(t::Rules::follows($gateway, $version), 'all workers follow the last');
    # each change was another limit; what was used stays used
    my $used = $load{200} + 1;
    is(header($gateway->get('/?k=load'), 'X-RateLimit-Remaining'),
       100_100 - $used, 'all have counted');
    # a request that began before stays whole: a reload, too
    $gateway->reload;
    ok(t::Rules::follows($gateway, $version), 'a reload keeps the document');
    is(header($gateway->get('/?k=load'), 'X-RateLimit-Remaining'),
       100_099 - $used, 'and the counters');
    $gateway->stop;
}

# memory: 200 changes of a document of 4,000 keys and rules with expressions
SKIP: {
    skip 'a sanitizer keeps what is freed' if $ENV{SAN} || $ENV{RATELIMIT_STATIC};
    my $gateway = gateway(workers => 1);
    my %keys = map { 'sha256:' . Digest::SHA::sha256_hex($_) => 'free' }
                   1 .. 4_000;
    my @rules = map { t::Rules::rules(7, id => "r$_",
        match => { endpoint_regex => "^/r$_/[0-9]+\$" })->{rules}[0] } 1 .. 100;
    my $big = JSON::PP->new->encode({ rules => \@rules,
                                      tier_of => { keys => \%keys } });
    my $memory = sub {
        my ($pid) = $gateway->workers;
        open my $status, '<', "/proc/$pid/status" or return 0;
        return join('', <$status>) =~ /^RssAnon:\s+(\d+)/m ? $1 / 1024 : 0;
    };
    my @memory;
    for my $n (0 .. 199) {
        my $answer = t::Rules::change($gateway, $n, $big =~ s/"free"/"t$n"/gr);
        if ($answer->{status} !~ /^20/) {
            is($answer->{body}, '', "change $n");
            last;
        }
        # changes in a row would be compiled as one
        t::Rules::follows($gateway, $n + 1);
        push @memory, $memory->() if $n % 20 == 19;
    }
    t::Rules::follows($gateway, 200);
    is(scalar @memory, 10, '200 large changes');
    my $early = (sort { $b <=> $a } @memory[2 .. 4])[0];
    my $late = (sort { $a <=> $b } @memory[7 .. 9])[0];
    # of the 60 documents between the two not even a quarter of each stays
    cmp_ok($late - $early, '<', 60 / 4 * length($big) / 2 ** 20,
           sprintf 'memory stays: %s MB', join ' ', map { int } @memory);
    $gateway->stop;
}
