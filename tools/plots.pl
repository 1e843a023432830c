#!/usr/bin/perl
#
# What `make plots` does: sends the same requests to one location for each
# algorithm of a real nginx, all at once, and draws what was admitted when; and
# what the simulator says of leases.
#
#   tools/plots.pl
#
# OUT           the folder that the SVGs go to (docs/plots)
# QUICK=1       a tenth of all times: to see that it works
# NGINX         the nginx to run
# MODULE        what it loads; empty where it is built in

use strict;
use warnings;

use Cwd qw( abs_path );
use File::Basename qw( dirname );
use File::Path qw( make_path remove_tree );
use IO::Select;
use IO::Socket::INET;
use POSIX qw( WNOHANG fmod );
use Time::HiRes qw( clock_gettime sleep time CLOCK_MONOTONIC );

use lib dirname(abs_path(__FILE__)), dirname(dirname(abs_path(__FILE__)));
use PlotsLeases;
use PlotsSVG;
use t::Ports qw( free_port );

my $ROOT = dirname(dirname(abs_path(__FILE__)));
my $OUT = $ENV{OUT} || "$ROOT/docs/plots";
my $MODULE = $ENV{MODULE} // "$ROOT/build/ngx_http_ratelimit_module.so";
my $NGINX = $ENV{NGINX} || (-x '/usr/sbin/nginx' ? '/usr/sbin/nginx' : 'nginx');

# All times are in tenths of the window, which nginx takes in whole seconds.
my $WINDOW = $ENV{QUICK} ? 1 : 10;
my $UNIT = $WINDOW / 10;

my $LIMIT = 20;
my $SLOTS = 8;
my $HELD = 3;         # for how long an upload holds its slot
my $EDGE = 5;         # a window ends so long after the start, and each 10 later
my $END = 36;         # of the picture

# When requests are sent: two bursts, one on each side of a window's edge, then
# twice what the limit allows. The picture's words for them stand beside.
my $BURST = 30;
my @TIMES = ((3) x $BURST, (7) x $BURST, map { 17 + $_ / 4 } 0 .. 63);

# In the order of the overview. clock is what a window's edges stand on.
my @VARIANTS = (
    { name => 'token_bucket', says => "rate=${LIMIT}r/${WINDOW}s" },
    { name => 'leaky_bucket', file => 'leaky_bucket',
      says => "rate=${LIMIT}r/${WINDOW}s burst=10 delay=4" },
    { name => 'leaky_bucket', file => 'leaky_bucket_nodelay',
      says => "rate=${LIMIT}r/${WINDOW}s burst=10 nodelay" },
    { name => 'fixed_window', says => "limit=$LIMIT window=${WINDOW}s",
      clock => 'wall' },
    { name => 'sliding_window', says => "limit=$LIMIT window=${WINDOW}s",
      clock => 'monotonic' },
    { name => 'sliding_log', says => "limit=$LIMIT window=${WINDOW}s" },
    { name => 'concurrency', says => "limit=$SLOTS", held => $HELD,
      note => sprintf('each takes %g s', $HELD * $UNIT) },
);

my $dir = "$ROOT/build/plots/$$";
my $nginx;


# Only this program's child; nothing else of its name.
sub stop {
    return if !$nginx;

    kill TERM => $nginx;

    for (1 .. 100) {
        if (waitpid($nginx, WNOHANG) != 0) {
            undef $nginx;
            return;
        }

        sleep 0.05;
    }

    kill KILL => $nginx;
    waitpid $nginx, 0;
    undef $nginx;
}

END {
    local $?;

    stop();
    remove_tree($dir) if defined $dir;
}

$SIG{$_} = sub { die "plots: stopped by a signal\n" } for qw( INT TERM HUP );
$SIG{ALRM} = sub { die "plots: took too long\n" };


# An upload is held by its client: nginx waits for the body before it asks
# the API, which here is a second server.
sub conf {
    my ($port, $api) = @_;

    my $user = $> == 0 ? "user root;\n" : '';
    my $load = $MODULE eq '' ? '' : "load_module $MODULE;\n";
    my $temp = join '', map { "${_}_temp_path $dir/temp;\n" }
                        qw( client_body proxy fastcgi uwsgi scgi );
    my ($zones, $locations) = ('', '');

    for (@VARIANTS) {
        my $zone = $_->{file};
        my $does = $_->{held} ? "proxy_pass http://127.0.0.1:$api;"
                              : 'empty_gif;';

        $zones .= "ratelimit_zone all zone=$zone:64k algorithm=$_->{name} "
                  . "$_->{says};\n";
        $locations .= "location = /$zone { ratelimit zone=$zone; $does }\n";
    }

    return <<"CONF";
${user}${load}daemon off;
worker_processes 1;
pid $dir/nginx.pid;
error_log $dir/error.log warn;
events { worker_connections 4096; }
http {
log_format plots '\$uri \$msec \$request_time \$status';
access_log $dir/access.log plots;
$temp
$zones
server { listen 127.0.0.1:$port backlog=4096; $locations }
server { listen 127.0.0.1:$api; access_log off; location / { return 204; } }
}
CONF
}


sub start {
    my $port = free_port();
    my $api = free_port();

    $MODULE eq '' || -e $MODULE or die "plots: no $MODULE; make build\n";

    make_path($dir);
    open my $file, '>', "$dir/nginx.conf" or die "plots: nginx.conf: $!\n";
    print $file conf($port, $api);
    close $file or die "plots: nginx.conf: $!\n";

    $nginx = fork // die "plots: fork: $!\n";

    if ($nginx == 0) {

        # to nginx the variable would name sockets to inherit
        delete $ENV{NGINX};

        exec $NGINX, '-p', "$dir/", '-c', "$dir/nginx.conf",
             '-e', "$dir/error.log" or POSIX::_exit(127);
    }

    for (1 .. 100) {
        if (waitpid($nginx, WNOHANG) != 0) {
            undef $nginx;
            die "plots: nginx does not start\n" . slurp('error.log');
        }

        return $port if connected($port);

        sleep 0.05;
    }

    die "plots: nginx does not listen\n";
}


sub connected {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => shift);
}


sub slurp {
    my $name = shift;

    open my $file, '<', "$dir/$name" or return '';
    local $/;

    return <$file> // '';
}


# When a variant starts: its next window's edge is $EDGE later. Those without
# windows start with fixed_window.
sub begin {
    my ($variant, $now, $uptime) = @_;

    my $clock = ($variant->{clock} // '') eq 'monotonic' ? $uptime : $now;
    my $edge = $clock + 0.5 + $EDGE * $UNIT;

    return $now + 0.5 + $WINDOW - fmod($edge, $WINDOW);
}


# All that is to be done, in its order: [when, variant, socket]. With a socket,
# the rest of an upload.
sub plan {
    my ($now, $uptime) = (time, clock_gettime(CLOCK_MONOTONIC));
    my @plan;

    for my $variant (@VARIANTS) {
        $variant->{begin} = begin($variant, $now, $uptime);
        push @plan, map { [$variant->{begin} + $_ * $UNIT, $variant] } @TIMES;
    }

    return sort { $a->[0] <=> $b->[0] } @plan;
}


sub send_request {
    my ($port, $variant) = @_;

    my $socket = connected($port) or die "plots: no connection: $!\n";
    my ($method, $length) = $variant->{held} ? ('POST', 1) : ('GET', 0);

    syswrite $socket, "$method /$variant->{file} HTTP/1.0\r\n"
                      . "Content-Length: $length\r\n\r\n";

    return $socket;
}


# Sends all requests, reads their answers to the end, and forgets them: what
# counts is nginx's access log.
sub run {
    my $port = shift;

    my @plan = plan();
    my $open = IO::Select->new;

    local $SIG{PIPE} = 'IGNORE';    # a denied upload's connection is closed

    while (@plan || $open->count) {
        my $wait = @plan ? $plan[0][0] - time : 1;

        for ($open->can_read($wait > 0 ? $wait : 0)) {
            $open->remove($_) if !sysread $_, my $answer, 65536;
        }

        sleep $wait if !$open->count && $wait > 0;

        while (@plan && $plan[0][0] <= time) {
            my ($at, $variant, $upload) = @{ shift @plan };

            if ($upload) {
                syswrite $upload, 'x';
                next;
            }

            my $socket = send_request($port, $variant);

            $open->add($socket);

            if ($variant->{held}) {
                push @plan, [$at + $HELD * $UNIT, $variant, $socket];
                @plan = sort { $a->[0] <=> $b->[0] } @plan;
            }
        }
    }
}


# The access log as, for each variant, its requests {sent, done, admitted}, in
# units since its start; both times are nginx's own.
sub requests {
    my %variants = map { $_->{file} => $_ } @VARIANTS;
    my %requests;

    for (split /^/, slurp('access.log')) {
        my ($name, $at, $took, $status)
            = m{^/(\w+) ([\d.]+) ([\d.]+) (\d+)$} or die "plots: log: $_";
        my $variant = $variants{$name};

        $status =~ /^(?:200|204|429)$/
            or die "plots: $name answered a request with $status\n";

        my $done = ($at - $variant->{begin}) / $UNIT;

        push @{ $requests{$name} }, { sent => $done - $took / $UNIT,
                                      done => $done,
                                      admitted => $status != 429 };
    }

    for (@VARIANTS) {
        my $n = @{ $requests{$_->{file}} // [] };

        $n == @TIMES or die "plots: $_->{file} has answered $n requests of "
                            . @TIMES . "\n";
    }

    return \%requests;
}


sub draw {
    my $requests = shift;

    my %frame = (unit => $UNIT, window => $WINDOW, limit => $LIMIT,
                 slots => $SLOTS, end => $END, edge => $EDGE,
                 burst => $BURST);
    my @plots = map { { %$_, requests => $requests->{$_->{file}} } } @VARIANTS;

    make_path($OUT);
    save('overview', PlotsSVG::overview(\%frame, @plots));
    save($_->{file}, PlotsSVG::figure(\%frame, $_)) for @plots;
}


sub save {
    my ($name, $svg) = @_;

    open my $file, '>', "$OUT/$name.svg" or die "plots: $name.svg: $!\n";
    print $file $svg;
    close $file or die "plots: $name.svg: $!\n";
}


$_->{file} //= $_->{name} for @VARIANTS;

alarm 180;
run(start());
stop();

my @errors = split /^/, slurp('error.log');
die "plots: nginx wrote to its error log:\n", @errors > 5 ? @errors[0 .. 4]
                                                          : @errors if @errors;

draw(requests());
save('leases', PlotsLeases::draw($ROOT));
