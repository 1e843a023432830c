# What all t/*.t share: strict, warnings, Test::More, and
#
#     redis_port()      the port of a server that the files of a run share
#     cluster_ports()   the ports of a cluster that they share and do not change
#     cluster_start()   those of a cluster of this file alone
#     redis_start(...)  a server of this file alone, to be stopped, killed, or
#                       given arguments; returns its port
#     redis_stop($port)
#     redis_pid($port)
#     redis_cli($port, @args)   what redis-cli printed; dies on an error
#     redis_try($port, @args)   the same, errors too
#
# Each Redis is on loopback and gone at the end of the file or of the run.
#
# key_prefix() is another one in each file and run, so that files that share a
# server do not meet in it.

package t::RateLimit;

use strict;
use warnings;

use Cwd ();
use File::Path ();
use File::Spec ();
use POSIX ();
use Test::More;

use parent 'Exporter';

use t::Ports ();

my ($root, $tmp, $prefix, %redis, $own_cluster, $pid);

BEGIN {
    $root = Cwd::abs_path('.');
    -e "$root/t/RateLimit.pm"
        or die "run it in the repository: prove -I. t/x.t\n";
    $pid = $$;
    $ENV{RATELIMIT_LOGS} =
        File::Spec->rel2abs($ENV{RATELIMIT_LOGS} || 'build/t');
    $tmp = "$ENV{RATELIMIT_LOGS}/$$";
    File::Path::make_path($tmp);
    my $nginx = -x '/usr/sbin/nginx' ? '/usr/sbin/nginx' : 'nginx';
    $ENV{TEST_NGINX_BINARY} ||= $nginx;
    $ENV{TEST_NGINX_SERVROOT} ||= "$tmp/servroot";
    $ENV{TEST_NGINX_PORT} ||= t::Ports::free_port();
    $ENV{TEST_NGINX_TIMEOUT} ||= 10;
    $ENV{TEST_NGINX_LOG_LEVEL} ||= 'info';
    if (!$ENV{RATELIMIT_STATIC}) {
        $ENV{TEST_NGINX_LOAD_MODULES} ||=
            "$root/build/ngx_http_ratelimit_module.so";
    }
    # reports go to files: a leak is reported when no log is open any more
    for my $name (qw(ASAN UBSAN LSAN)) {
        $ENV{"${name}_OPTIONS"} = join ':',
            grep { defined } $ENV{"${name}_OPTIONS"},
            "log_path=$tmp/sanitizer", 'print_stacktrace=1';
    }
    $ENV{LSAN_OPTIONS} .= ":suppressions=$root/tools/leaks.ignore"
                          . ':print_suppressions=0';
}

# Runs after the END of Test::Nginx, which ends nginx: the last defined is first.
END {
    if (defined $pid && $pid == $$) {
        # prove would call a file that dies before its first test skipped
        fail("the file runs to its end") if $?;
        local $?;
        reports_check();
        redis_stop($_) for keys %redis;
        if (defined $own_cluster) {
            system("$root/tools/redis-cluster.sh", 'stop', "$tmp/cluster",
                   $own_cluster);
        }
        # what failed can be looked into
        if (Test::More->builder->is_passing) {
            File::Path::remove_tree($tmp);
        } else {
            diag("logs are in $tmp");
        }
    }
}

our @EXPORT = qw(redis_port cluster_ports cluster_start redis_start redis_stop
                 redis_pid redis_cli redis_try key_prefix);

sub import {
    my ($class, @plan) = @_;
    strict->import;
    warnings->import;
    $class->export_to_level(1, $class);
    @_ = ('Test::More', @plan);
    goto &{ Test::More->can('import') };
}

sub reports_check() {
    my @reports = glob("$tmp/sanitizer*") or return;
    for my $report (@reports) {
        open my $in, '<', $report or die "$report: $!";
        local $/;
        fail("a sanitizer reports nothing");
        diag(<$in>);
    }
}

# The folder of this file, removed when it passes.
sub folder() { return $tmp }

# t/clock.c as tools/test.sh has made it, for t::Clock.
sub clock_library() {
    my $library = "$ENV{RATELIMIT_LOGS}/clock.so";
    return -e $library ? $library : die "run it with make test T=t/x.t\n";
}

sub script($$$) {
    my ($action, $dir, $port) = @_;
    system("$root/tools/redis-cluster.sh", $action, $dir, $port) == 0
        or BAIL_OUT("redis: $action on port $port failed");
}

sub redis_port() {
    if (!$ENV{RATELIMIT_REDIS_PORT}) {
        $ENV{RATELIMIT_REDIS_PORT} = redis_start();
    }
    return $ENV{TEST_NGINX_REDIS_PORT} = $ENV{RATELIMIT_REDIS_PORT};
}

sub cluster_named() {
    my @ports = split ' ', $ENV{RATELIMIT_CLUSTER_PORTS};
    $ENV{TEST_NGINX_CLUSTER} = join ' ', map { "127.0.0.1:$_" } @ports;
    return @ports;
}

sub cluster_start() {
    $own_cluster = t::Ports::free_ports(6);
    script('start', "$tmp/cluster", $own_cluster);
    $ENV{RATELIMIT_CLUSTER_PORTS} = join ' ', $own_cluster .. $own_cluster + 5;
    return cluster_named();
}

sub cluster_ports() {
    return $ENV{RATELIMIT_CLUSTER_PORTS} ? cluster_named() : cluster_start();
}

# redis_start(port => n, args => [...]): a port given is used again, after a
# stop for example. sentinel => lines of its file: a sentinel.
sub redis_start(%) {
    my %options = @_;
    my $port = $options{port} || t::Ports::free_port();
    my $dir = "$tmp/redis-$port";
    File::Path::make_path($dir);
    my $child = fork;
    defined $child or die "fork: $!";
    if (!$child) {
        open STDOUT, '>>', "$dir/log";
        open STDERR, '>&', \*STDOUT;
        sentinel_exec($port, $dir, $options{sentinel}) if $options{sentinel};
        { exec 'redis-server', '--port', $port, '--bind', '127.0.0.1',
              '--dir', $dir, '--save', '', '--appendonly', 'no',
              '--shutdown-timeout', 0, @{ $options{args} || [] }; }
        POSIX::_exit(127);
    }
    $redis{$port} = $child;
    for (1 .. 200) {
        my $answer = redis_try($port, 'ping');
        return $port if $answer =~ /PONG|NOAUTH/;
        select undef, undef, undef, 0.05;
    }
    BAIL_OUT("redis: no server on port $port");
}

sub sentinel_exec($$$) {
    my ($port, $dir, $lines) = @_;
    open my $file, '>', "$dir/sentinel.conf" or die;
    print $file "port $port\nbind 127.0.0.1\ndir $dir\n$lines";
    close $file;
    { exec 'redis-server', "$dir/sentinel.conf", '--sentinel'; }
    POSIX::_exit(127);
}

sub redis_pid($) {
    my $port = shift;
    return $redis{$port};
}

sub redis_stop($) {
    my $port = shift;
    my $child = delete $redis{$port} or return;
    # a stopped process (SIGSTOP) ends only by this
    kill 'KILL', $child;
    waitpid $child, 0;
}

sub redis_cli($@) {
    my ($port, @args) = @_;
    my $answer = redis_try($port, @args);
    die "redis-cli -p $port @args: $answer\n" if $?;
    return $answer;
}

# $? is not 0 when the reply is an error, or there is none
sub redis_try($@) {
    my ($port, @args) = @_;
    open my $out, '-|', 'timeout', 60, 'sh', '-c', 'exec redis-cli "$@" 2>&1',
        'sh', '-e', '-h', '127.0.0.1', '-p', $port, @args
        or die "redis-cli: $!";
    local $/;
    my $answer = <$out> // '';
    close $out;
    $answer =~ s/\n+\z//;
    return $answer;
}

sub key_prefix() {
    $prefix //= sprintf 'rl%08x', int(rand(2 ** 31)) ^ $$ ^ time;
    return $ENV{TEST_NGINX_PREFIX} = $prefix;
}

1;
