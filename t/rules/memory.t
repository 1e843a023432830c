# What a worker has taken for large documents comes back.

use t::RateLimit;
use t::Gateway qw( wait_for );
use t::Rules;

plan(skip_all => 'a sanitizer keeps what is freed')
    if $ENV{SAN} || $ENV{RATELIMIT_STATIC};
plan('no_plan');

my $CHANGES = 20;

# MB that stay at most: malloc() keeps some of what is freed behind the last
# change. Without anything freed it would be eight for each change.
my $SPARE = 16;

my $gateway = t::Gateway->limited(workers => 1, api => 1,
                                  zone => { 'z:8m' => '' });

# MB of the worker's own
sub memory {
    my ($pid) = $gateway->workers;
    open my $status, '<', "/proc/$pid/status" or return 0;
    return join('', <$status>) =~ /^RssAnon:\s+(\d+)/m ? $1 / 1024 : 0;
}

# Waits until the worker has no more than that.
sub memory_ok {
    my ($most, $name) = @_;
    wait_for(sub { memory() < $most });
    my $memory = memory();
    cmp_ok($memory, '<', $most, sprintf '%s: %.1f MB', $name, $memory);
}

# 800 KB in many small pieces
sub document {
    my $n = shift;
    return { rules => [map {
        my $rule = $_;
        t::Rules::rules(7, id => "r$rule-$n", limits_by_api_key => { map {
            ("key-$rule-$_-$n" => { limit => 5, window => 60 }) } 1 .. 9
        }, match => { endpoint_regex => "^/r$rule/[0-9]+\$" })->{rules}[0]
    } 1 .. 800] };
}

my $before = memory();

for my $n (0 .. $CHANGES - 1) {
    my $answer = t::Rules::change($gateway, $n, document($n));
    like("$answer->{status} $answer->{body}",
         qr/^20[01] /, "change $n") or last;
    t::Rules::follows($gateway, $n + 1);
}

memory_ok($before + 8 + $SPARE, 'after large documents');
t::Rules::change($gateway, $CHANGES, { rules => [] });
t::Rules::follows($gateway, $CHANGES + 1);
memory_ok($before + $SPARE, sprintf 'after a small one, of %.1f', $before);
$gateway->stop;
