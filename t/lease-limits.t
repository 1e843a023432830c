# Leases of a counter whose limit depends on the request: what is in hand under
# one limit goes back under that one, and pays nothing of another.

use strict;
use warnings;

use t::RateLimit 'no_plan';
use t::Gateway;

use Time::HiRes qw( sleep time );

my $port = redis_start();

my $gateway = t::Gateway->new(workers => 2, http => <<"CONF")->start;
    ratelimit_redis one { server 127.0.0.1:$port; timeout 5s; }

    ratelimit_zone \$arg_k zone=z:1m redis=one;
    ratelimit_rule bucket zone=z rate=\$arg_r match=/bucket;
    ratelimit_rule window zone=z algorithm=fixed_window limit=\$arg_r
                   window=calendar:month match=/window;

    server {
        listen 127.0.0.1:%%PORT%% backlog=2048;
        location / { ratelimit zone=z; empty_gif; }
    }
CONF


sub passed { return scalar grep { $_->{status} == 200 } @_ }


# so many, while the other limit is worth a lease
sub mixed {
    my ($path, $large, $small, $enough) = @_;

    my %passed = (large => 0, small => 0);
    my $end = time + 15;

    for my $i (1 .. 60) {
        $passed{large} += passed($gateway->burst(20, "$path&r=$large"));
        $passed{small} += passed($gateway->burst(1, "$path&r=$small"))
            if $i % 3 == 0;
        last if time > $end;
    }

    return \%passed;
}


# Of buckets each limit sees the share that is used: the large one takes at most
# 1,200 of 10,000 a day, an eighth, and the small one that of 10.

my $got = mixed('/bucket?k=a', '10000r/d', '10r/d');

cmp_ok($got->{large}, '>', 0, "bucket: $got->{large} pass by the large limit");
cmp_ok($got->{small}, '<=', 10,
       'bucket: by the small one no more than it has');

# A window counts requests, by either limit.

$got = mixed('/window?k=a', 600, 60);

is($got->{large} + $got->{small}, 600, 'window: together no more, nor less');
cmp_ok($got->{small}, '<=', 60, 'window: the small one is the lower bound');

$gateway->stop;
