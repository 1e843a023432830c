# For a file of blocks:
#
#     use t::Blocks 'no_plan';
#     run_tests();
#     __DATA__
#     === TEST 1: ...
#
# Test::Nginx::Socket as it is, on the module as it was built. A block fails on
# an [alert], [emerg] or [crit] and on a sanitizer's report in the error log,
# while it runs and when its nginx ends. A block that expects one of them
# names it:
#
#     --- allow_error_log
#     [crit]
#
# A block without "--- config" gets a location with the limits of zone "z", whose
# answers have X-Status and X-Rule. "$TEST_NGINX_REDIS_PORT",
# "$TEST_NGINX_CLUSTER" (host:port of each node) and "$TEST_NGINX_PREFIX" stand
# for what redis_port(), cluster_ports() and key_prefix() of t::RateLimit return,
# once called.

package t::Blocks;

use strict;
use warnings;

use t::RateLimit ();

use Test::Nginx::Socket -Base;

my @forbidden = ('[alert]', '[emerg]', '[crit]', 'Sanitizer', 'runtime error:');

no_long_string();
no_shuffle();
master_on();

add_block_preprocessor(sub {
    my $block = shift;
    $block->set_value('config', <<'CONF') if !defined $block->config;
    location / {
        ratelimit zone=z;
        add_header X-Status $ratelimit_status always;
        add_header X-Rule $ratelimit_rule always;
        empty_gif;
    }
CONF
    return if defined $block->must_die;
    my %allowed = map { $_ => 1 } split /\n+/, $block->allow_error_log // '';
    my @lines = grep { !$allowed{$_} } @forbidden;
    for my $section (qw(no_error_log no_shutdown_error_log)) {
        my $own = $block->$section;
        my @own = !defined $own ? ()
                  : ref $own eq 'ARRAY' ? @$own
                  : ref $own ? ($own)
                  : split /\n+/, $own;
        my %own = map { $_ => 1 } @own;
        $block->set_value($section, [@own, grep { !$own{$_} } @lines]);
    }
});

1;
