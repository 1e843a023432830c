# A gateway under test: a real nginx, master and workers, with a folder and a
# port of its own; the requests that tests send to it, one or hundreds at once;
# and what its error log must never hold. For tests that one request after the
# other in Test::Nginx's blocks cannot be: reloads, signals, two gateways.
#
#     use t::RateLimit 'no_plan';
#     use t::Gateway;
#
#     my $gateway = t::Gateway->new(http => '...')->start;
#     is(t::Gateway::tally($gateway->burst(5, '/')), '3 x 200, 2 x 429');
#     $gateway->stop;

package t::Gateway;

use strict;
use warnings;

use Cwd qw( abs_path );
use Errno qw( EAGAIN EINTR );
use File::Basename qw( dirname );
use File::Path qw( make_path );
use IO::Poll qw( POLLIN POLLOUT POLLHUP POLLERR );
use IO::Socket::INET;
use POSIX qw( WNOHANG );
use Socket qw( MSG_NOSIGNAL );
use Test::More ();
use Time::HiRes qw( sleep time );

use t::Ports qw( free_port );

# what a test waits for at most: a sanitizer's nginx is slow
our $PATIENCE = 20;

my $ROOT = dirname(dirname(abs_path(__FILE__)));
my $BAD = qr/\[(?:alert|emerg|crit)\]|Sanitizer|runtime error:|open socket/;

my ($made, %running) = (0);


# A folder of this test program's own, which t::RateLimit removes.
sub dir {
    my $name = shift;

    my $dir = "$ROOT/$ENV{RATELIMIT_LOGS}/$$/$name";

    make_path("$dir/temp");

    return $dir;
}


# http: the inside of http {}, where %%PORT%% is the gateway's port and
# %%DIR%% its folder. main: lines before events {}; events: lines inside.
# workers: their number.
sub new {
    my ($class, %self) = @_;

    my $self = bless { workers => 1, main => '', events => '', %self }, $class;

    $self->{name} //= 'gateway' . ++$made;
    $self->{dir} = dir($self->{name});
    $self->{port} //= free_port();
    $self->configure(%self);

    return $self;
}


# Writes the configuration anew, with what has changed.
sub configure {
    my ($self, %change) = @_;

    %$self = (%$self, %change);

    my $dir = $self->{dir};
    my $user = $> == 0 ? "user root;\n" : '';
    my $modules = join '', map { "load_module $_;\n" }
                           split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
    my $log = $self->{http} =~ /^\s*access_log/m ? '' : 'access_log off;';
    my $temp = join '', map { "    ${_}_temp_path $dir/temp/$_;\n" }
                        qw( client_body proxy fastcgi uwsgi scgi );

    my $conf = <<"CONF";
${user}${modules}daemon off;
worker_processes $self->{workers};
pid $dir/nginx.pid;
error_log $dir/error.log info;
$self->{main}
events {
    worker_connections 2048;
    $self->{events}
}
http {
$log
$temp
$self->{http}
}
CONF

    $conf =~ s/%%PORT%%/$self->{port}/g;
    $conf =~ s/%%DIR%%/$dir/g;

    $self->write('nginx.conf', $conf);

    return $self;
}


sub write {
    my ($self, $name, $text) = @_;

    open my $file, '>', "$self->{dir}/$name" or die "$name: $!";
    print $file $text;
    close $file or die "$name: $!";

    return "$self->{dir}/$name";
}


sub read {
    my ($self, $name) = @_;

    open my $file, '<', "$self->{dir}/$name" or return '';
    local $/;

    return scalar <$file> // '';
}


sub log { return $_[0]->read('error.log') }


sub command {
    my $self = shift;

    return ($ENV{TEST_NGINX_BINARY} || 'nginx', '-p', "$self->{dir}/",
            '-c', "$self->{dir}/nginx.conf", '-e', "$self->{dir}/error.log",
            @_);
}


# nginx -t: whether it accepts, and all that it prints.
sub check {
    my $self = shift;

    my @command = $self->command('-t');
    my $pid = open my $out, '-|';

    if (!$pid) {
        open STDERR, '>&', \*STDOUT;
        exec @command or die "$command[0]: $!";
    }

    my $text = do { local $/; <$out> } // '';
    close $out;

    return ($? == 0, $text);
}


sub start {
    my $self = shift;

    my @command = $self->command;

    unlink "$self->{dir}/error.log";

    $self->{pid} = fork // die "fork: $!";

    if ($self->{pid} == 0) {
        open STDOUT, '>', "$self->{dir}/out.log";
        open STDERR, '>&', \*STDOUT;
        exec @command or POSIX::_exit(127);
    }

    $running{$self->{pid}} = $self;

    wait_for(sub {
        $self->exited and die "nginx exited:\n" . $self->read('out.log')
                              . $self->log;
        return $self->workers >= $self->{workers}
               && IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                        PeerPort => $self->{port});
    }) or die "nginx does not listen:\n" . $self->log;

    return $self;
}


# The workers' pids; those of an old configuration that still drain too.
sub workers {
    my $self = shift;

    open my $file, '<',
         "/proc/$self->{pid}/task/$self->{pid}/children" or return;

    return split ' ', <$file> // '';
}


sub signal {
    my ($self, $name) = @_;

    kill $name => $self->{pid};
}


# HUP, and until the new workers serve alone. The old ones' pids are returned.
sub reload {
    my $self = shift;

    my @old = $self->workers;

    $self->signal('HUP');

    wait_for(sub {
        my %now = map { $_ => 1 } $self->workers;
        return !grep({ $now{$_} } @old) && keys %now >= $self->{workers};
    }) or Test::More::diag("old workers are still there");

    return @old;
}


# Whether the master has ended.
sub exited {
    my $self = shift;

    return 1 if !$running{$self->{pid}};
    return 0 if waitpid($self->{pid}, WNOHANG) == 0;

    delete $running{$self->{pid}};

    return 1;
}


# Ends nginx and tests how: in time, and with nothing bad in the log but what
# the test has caused.
sub stop {
    my ($self, $signal, $caused) = @_;

    $self->signal($signal // 'QUIT');

    my $in_time = wait_for(sub { $self->exited });

    Test::More::ok($in_time, "$self->{name} ends in time");
    $self->kill unless $in_time;
    $self->log_ok($caused);
}


sub log_ok {
    my ($self, $caused) = @_;

    my @bad = grep { /$BAD/ && !($caused && /$caused/) }
              split /^/, $self->log . $self->read('out.log');

    Test::More::is("@bad", '', "$self->{name} has a clean error log");
}


# All of it at once, and until nobody listens any more.
sub kill {
    my $self = shift;

    return if !delete $running{$self->{pid}};

    my @workers = $self->workers;

    CORE::kill KILL => $self->{pid}, @workers;
    waitpid $self->{pid}, 0;

    wait_for(sub { !grep { alive($_) } @workers });
}


# Who is dead and waited for by nobody has no files any more.
sub alive {
    my $pid = shift;

    open my $file, '<', "/proc/$pid/stat" or return 0;

    return (<$file> // '') =~ /\) [^ZX]/;
}


END {
    local $?;
    $_->kill for values %running;
}


# Does something in a process of its own, which ends with it and touches nothing
# that is the test's; its pid is returned.
sub beside {
    my $what = shift;

    my $pid = fork // die "fork: $!";

    return $pid if $pid;

    $SIG{$_} = sub { POSIX::_exit(1) } for qw( HUP INT TERM );
    eval { $what->(); 1 } or warn $@;
    POSIX::_exit($@ ? 1 : 0);
}


# The TCP connections on this machine, each end of its own: {port, peer, unread,
# inode, open}: the ports of this end and of the other, the bytes not read here,
# and whether neither end has closed it.
sub tcp {
    my @ends;

    open my $file, '<', '/proc/net/tcp' or die "/proc/net/tcp: $!";

    <$file>;

    while (defined(my $line = <$file>)) {
        my @field = split ' ', $line;
        my ($state, $queues, $inode) = @field[3, 4, 9];

        next if $state eq '0A';     # listens

        push @ends, {
            (map { $_->[0] => hex $field[$_->[1]] =~ s/.*://r }
                 ['port', 1], ['peer', 2]),
            unread => hex $queues =~ s/.*://r, inode => $inode,
            open => $state eq '01' };
    }

    return @ends;
}


# How many bytes the server on a port has not read.
sub unread {
    my ($port, $n) = (shift, 0);

    $n += $_->{unread} for grep { $_->{port} == $port } tcp();

    return $n;
}


# How many open connections the gateway has taken, and read all that came.
sub waiting {
    my $self = shift;

    return scalar grep { $_->{port} == $self->{port} && $_->{inode}
                         && $_->{open} && !$_->{unread} } tcp();
}


# Until what the one worker has sent to a Redis server behind its answers is
# done there, and the reply is read: the worker's turn that sent it is over when
# the next request is answered, and a server's when it answers another client.
sub settled {
    my ($self, $port) = @_;

    $self->get('/');
    wait_for(sub { !unread($port) });
    t::RateLimit::redis_cli($port, 'ping');
    wait_for(sub { !grep { $_->{peer} == $port && $_->{unread} } tcp() });
    $self->get('/');
}


# The file descriptors of a process that are connections to a port, or from one
# port to another.
sub connections {
    my ($pid, $port, $from) = @_;

    my %inode = map { $_->{inode} => 1 }
                grep { $_->{peer} == $port && (!$from || $_->{port} == $from) }
                tcp();

    return map { m{/(\d+)$} }
           grep { (readlink($_) // '') =~ /^socket:\[(\d+)\]$/ && $inode{$1} }
           glob "/proc/$pid/fd/*";
}


# Calls until it returns true; false when the test's patience ends.
sub wait_for {
    my ($what, $seconds) = @_;

    my $end = time + ($seconds // $PATIENCE);

    while (time < $end) {
        my $got = $what->();
        return $got if $got;
        sleep 0.02;
    }

    return;
}


# One request. The answer: {status, headers => {lower case => [values]},
# body, seconds}; status 0 when the connection ended without one.
sub get {
    my ($self, $path, @headers) = @_;

    return (send_all([[$self, $path, @headers]]))[0];
}


# n of the same request at once, each over a connection of its own.
sub burst {
    my ($self, $n, $path, @headers) = @_;

    return send_all([map { [$self, $path, @headers] } 1 .. $n]);
}


# How many answers of each status: "100 x 200, 400 x 429".
sub tally {
    my %n;
    $n{$_->{status}}++ for @_;

    return join ', ', map { "$n{$_} x $_" } sort keys %n;
}


sub header {
    my ($answer, $name) = @_;

    return join ', ', @{ $answer->{headers}{lc $name} // [] };
}


# An answer in short: "200 PASSED 99", where X-Status shows $ratelimit_status.
sub told {
    my $answer = shift;

    return join ' ', $answer->{status}, header($answer, 'X-Status'),
                     header($answer, 'X-RateLimit-Remaining');
}


# Until all workers say this status, which X-Status shows, with $pid in X-Pid:
# each finds out by itself that Redis is there, or gone. "%s" in the path or in a
# header is a key of each request's own. False when the test's patience ends.
sub becomes {
    my ($self, $status, @request) = @_;

    my (%said, $n);

    return wait_for(sub {
        my @requests = map {
            my $key = 'w' . ++$n;
            [$self, map { s/%s/$key/r } @request]
        } 1 .. 10;

        for my $answer (send_all(\@requests)) {
            $said{header($answer, 'X-Pid')} = header($answer, 'X-Status');
        }

        return keys %said >= $self->{workers}
               && !grep { $_ ne $status } values %said;
    });
}


# Requests [gateway, path, headers...] all at once; "POST /path" is one too.
# HTTP/1.0: the end of the connection is the end of the answer.
sub send_all {
    my ($requests, $seconds) = @_;

    return finish(begin_all($requests), $seconds);
}


# Sends n of a request and waits for no answer: finish() does, or answered().
sub begin {
    my ($self, $n, $path, @headers) = @_;

    return begin_all([map { [$self, $path, @headers] } 1 .. $n]);
}


sub begin_all {
    my $requests = shift;

    my $begun = { poll => IO::Poll->new, open => {}, answers => [] };

    for my $request (@$requests) {
        my ($gateway, $path, @headers) = @$request;

        $path = "GET $path" if $path !~ /^[A-Z]+ /;

        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
            PeerPort => ref $gateway ? $gateway->{port} : $gateway,
            Blocking => 0);
        my $answer = { status => 0, headers => {}, body => '' };

        push @{ $begun->{answers} }, $answer;

        next if !$socket;

        $begun->{open}{fileno $socket} = {
            socket => $socket, answer => $answer, in => '',
            begin => time,
            out => join("\r\n", "$path HTTP/1.0",
                        (grep { /^Host:/i } @headers) ? () : 'Host: localhost',
                        @headers) . "\r\n\r\n" };

        $begun->{poll}->mask($socket => POLLOUT);
    }

    turn($begun, 0);

    return $begun;
}


# Reads and writes what is ready, and waits so long for something to be.
sub turn {
    my ($begun, $seconds) = @_;

    my ($poll, $open) = @$begun{qw( poll open )};

    $poll->poll($seconds);

    for my $one (values %$open) {
        my $events = $poll->events($one->{socket}) or next;

        next if step($one, $events, $poll);

        delete $open->{fileno $one->{socket}};
        $poll->remove($one->{socket});
        $one->{answer}{seconds} = time - $one->{begin};
        parse($one->{answer}, $one->{in});
    }
}


# How many of the requests that were begun have been answered by now.
sub answered {
    my $begun = shift;

    turn($begun, 0);

    return @{ $begun->{answers} } - keys %{ $begun->{open} };
}


# All answers, in the order of the requests.
sub finish {
    my ($begun, $seconds) = @_;

    my $end = time + ($seconds // $PATIENCE);

    turn($begun, 1) while %{ $begun->{open} } && time < $end;

    return @{ $begun->{answers} };
}


# Writes or reads what it can; false when the connection has ended.
sub step {
    my ($one, $events, $poll) = @_;

    if ($events & POLLOUT && length $one->{out}) {
        my $n = send $one->{socket}, $one->{out}, MSG_NOSIGNAL;

        substr $one->{out}, 0, $n, '' if $n;
        $poll->mask($one->{socket} => POLLIN) if !length $one->{out};
    }

    return 1 if !($events & (POLLIN | POLLHUP | POLLERR));

    my $n = sysread $one->{socket}, $one->{in}, 65536, length $one->{in};

    return $n || (!defined $n && ($! == EAGAIN || $! == EINTR));
}


sub parse {
    my ($answer, $text) = @_;

    my ($head, $body) = split /\r\n\r\n/, $text, 2;

    return if !defined $head;

    my ($line, @lines) = split /\r\n/, $head;

    return if $line !~ m{^HTTP/1\.\d (\d{3})};

    $answer->{status} = $1;
    $answer->{body} = $body // '';

    for (@lines) {
        my ($name, $value) = split /:\s*/, $_, 2;
        push @{ $answer->{headers}{lc $name} }, $value;
    }
}


1;
