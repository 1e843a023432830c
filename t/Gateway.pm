# A gateway under test: a real nginx, master and workers, with a folder and a
# port of its own; the requests that tests send to it, one or hundreds at once;
# and what its error log must never hold. For tests that Test::Nginx's blocks
# cannot express: reloads, signals, several gateways.
#
#     use t::RateLimit 'no_plan';
#     use t::Gateway qw( tally );
#
#     my $gateway = t::Gateway->limited(zone => 'rate=3r/h');
#     is(tally($gateway->burst(5, '/?k=a')), '3 x 200, 2 x 429');
#     $gateway->stop;

package t::Gateway;

use strict;
use warnings;

use Errno qw( EAGAIN EINTR );
use Exporter qw( import );
use File::Basename qw( dirname );
use File::Path qw( make_path );
use IO::Poll qw( POLLIN POLLOUT POLLHUP POLLERR );
use IO::Socket::INET;
use POSIX qw( WNOHANG );
use Socket qw( MSG_NOSIGNAL );
use Test::More ();
use Time::HiRes qw( sleep time );

use t::Ports qw( free_port );
use t::Sockets qw( connections tcp unread );

our @EXPORT_OK = qw( connect_to header output passed tally told wait_for );

# what a test waits for at most: a sanitizer's nginx is slow
our $PATIENCE = 20;

# the token of %%WRITE%%: requests to /rl/ have it, and those of t::Api
our $TOKEN = 'Authorization: Bearer a-token-of-the-tests-0123456789';

# what wait_for() does between two looks
our $BETWEEN = sub { };

my $BAD = qr/\[(?:alert|emerg|crit)\]|Sanitizer|runtime error:|open socket/;

my ($made, %running) = (0);

# A folder of this test program's own, which t::RateLimit removes.
sub dir {
    my $name = shift;
    my $dir = "$ENV{RATELIMIT_LOGS}/$$/$name";
    make_path("$dir/temp");
    return $dir;
}

# http: the inside of http {}, where %%PORT%% is the gateway's port, %%DIR%% its
# folder, and %%WRITE%% "write" with the token of the tests. main: lines before
# events {}; events: lines inside. workers: their number.
sub new {
    my ($class, %self) = @_;
    my $self = bless { workers => 1, main => '', events => '', %self }, $class;
    $self->{name} //= 'gateway' . ++$made;
    $self->{dir} = dir($self->{name});
    $self->{port} //= free_port();
    $self->configure(%self);
    return $self;
}

# Gateways with the configuration that most tests want, started. Each part may
# be left out:
#
#     redis      a port, or the lines that name servers; or several blocks,
#                { name => port or lines }. A block without a name is "r".
#                timeout: 5s unless given
#     zone       the parameters of the zone "z", which counts by $arg_k, in that
#                Redis; or those of several, { 'name' or 'name:size' =>
#                parameters }. A zone counts by "key=..." if that comes first
#     rules      [ 'name parameters', ... ], of the zone "z" unless "zone=" says
#     locations  { path => its lines }: empty_gif where they answer nothing. A
#                location "/" with "ratelimit zone=z" unless given
#     api        true: the endpoint of the zone "z" at /rl/
#     server, http, listen   lines of server {} and of http {}, parameters of
#                listen
#     files      { name => text } in the gateway's folder
#     gateways   how many, 1 unless given: a list is returned
#     start      0: they are not started
#
# Others are those of new(). Answers have X-Status, X-Rule, X-Source and X-Pid;
# /metrics has the metrics.
sub limited {
    my ($class, %self) = @_;
    my %own = map { $_ => delete $self{$_} }
              qw( redis timeout zone rules locations api server http listen
                  files gateways start );
    my @gateways;
    for (1 .. $own{gateways} // 1) {
        my $gateway = $class->new(%self, http => limited_http(%own));
        $gateway->write($_, $own{files}{$_}) for keys %{ $own{files} // {} };
        $gateway->start if $own{start} // 1;
        push @gateways, $gateway;
    }
    return wantarray ? @gateways : $gateways[0];
}

# The inside of http {} for these parts, for configure().
sub limited_http {
    my (%of) = @_;
    my $redis = $of{redis} // {};
    my $zones = ref $of{zone} ? $of{zone}
                : { z => ($of{zone} // '')
                         . (defined $of{redis} ? ' redis=r' : '') };
    my $locations = $of{locations} // { '/' => 'ratelimit zone=z;' };
    $redis = { r => $redis } if !ref $redis;
    return join "\n", (map { redis_block($_, $redis->{$_}, $of{timeout}) }
                       sort keys %$redis),
        (map { zone_line($_, $zones->{$_}) } sort keys %$zones),
        (map { /\bzone=/ ? "ratelimit_rule $_;"
                         : 'ratelimit_rule ' . s/ |$/ zone=z /r . ';' }
         @{ $of{rules} // [] }),
        $of{http} // '', <<"CONF";
    server {
        listen 127.0.0.1:%%PORT%% backlog=2048 @{[ $of{listen} // '' ]};
        add_header X-Status \$ratelimit_status always;
        add_header X-Rule \$ratelimit_rule always;
        add_header X-Source \$ratelimit_source always;
        add_header X-Pid \$pid always;
        @{[ $of{server} // '' ]}
        location = /metrics { ratelimit_metrics; }
        @{[ $of{api} ? location('/rl/', 'ratelimit_api zone=z %%WRITE%%;') : '' ]}
        @{[ map { location($_, $locations->{$_}) } sort keys %$locations ]}
    }
CONF
}

sub redis_block {
    my ($name, $servers, $timeout) = @_;
    my $prefix = t::RateLimit::key_prefix();
    $servers = "server 127.0.0.1:$servers" if $servers =~ /^\d+\z/;
    $servers =~ s/;\s*\z//;
    $servers .= '; timeout ' . ($timeout // '5s') if $servers !~ /\btimeout /;
    $servers .= "; prefix $prefix" if $servers !~ /\bprefix /;
    return "ratelimit_redis $name { $servers; }";
}

sub zone_line {
    my ($name, $parameters) = @_;
    my $key = $parameters =~ s/^\s*key=(\S+)// ? $1 : '$arg_k';
    $name .= ':1m' if $name !~ /:/;
    return "ratelimit_zone $key zone=$name $parameters;";
}

# What finds files or runs inside of them is left to nginx's own handler.
sub location {
    my ($path, $lines) = @_;
    my $gif = $lines =~ /\b(?:root|index|ssi)\b/ ? '' : 'empty_gif;';
    return "location $path { $gif $lines }\n";
}

# Writes the configuration anew, with what has changed.
sub configure {
    my ($self, %change) = @_;
    %$self = (%$self, %change);
    my $dir = $self->{dir};
    my $user = $> == 0 ? "user root;\n" : '';
    my $modules = join '', map { "load_module $_;\n" }
                           split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
    # one in a server does not replace nginx's default, which is a file of its own
    my $log = $self->{http} =~ /^ {0,4}access_log/m ? '' : 'access_log off;';
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
    $self->write('api.tokens', $TOKEN =~ s/.* //r . "\n")
        if $conf =~ s{%%WRITE%%}{write token_file=$dir/api.tokens}g;
    $self->write('nginx.conf', $conf);
    return $self;
}

sub write {
    my ($self, $name, $text) = @_;
    make_path(dirname("$self->{dir}/$name"));
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

# What nginx -t says of a configuration: "accepted", or the message without the
# place in the file.
sub verdict {
    my ($self, $http) = @_;
    my ($ok, $text) = $self->configure(http => $http)->check;
    return $ok ? 'accepted' : $text =~ /\[emerg\] (.*) in \S+:\d+$/m ? $1
                                                                    : $text;
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

# Until the error log has a line.
sub log_has {
    my ($self, $like, $name) = @_;
    Test::More::ok(wait_for(sub { $self->log =~ $like }), $name)
        or Test::More::diag($self->log);
}

# Kills workers as the kernel does when memory is out, and waits until the
# master has begun others: all of them, or those given.
sub kill_workers {
    my ($self, @workers) = @_;
    @workers = $self->workers if !@workers;
    CORE::kill KILL => @workers;
    return wait_for(sub {
        my %now = map { $_ => 1 } $self->workers;
        return !grep({ $now{$_} } @workers) && keys %now >= $self->{workers};
    });
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

# A process that is dead and waited for by nobody has no files any more, once all
# its threads are dead.
sub alive {
    my $pid = shift;
    for (glob "/proc/$pid/task/*/stat") {
        open my $file, '<', $_ or next;
        return 1 if (<$file> // '') =~ /\) [^ZX]/;
    }
    return 0;
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
    $self->get('/metrics');
    wait_for(sub { !unread($port) });
    t::RateLimit::redis_cli($port, 'ping');
    wait_for(sub { !grep { $_->{peer} == $port && $_->{unread} } tcp() });
    $self->get('/metrics');
}

# Calls until it returns true; false when the test's patience ends. Where a look
# takes long, there are ten of them.
sub wait_for {
    my ($what, $seconds) = @_;
    my ($end, $looks) = (time + ($seconds // $PATIENCE), 0);
    while (time < $end || $looks++ < 10) {
        my $got = $what->();
        return $got if $got;
        $BETWEEN->();
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

# The statuses of requests one after the other, each a path, or [path, headers]:
# "200 429".
sub statuses {
    my ($self, @requests) = @_;
    return join ' ', map { $self->get(ref $_ ? @$_ : $_)->{status} } @requests;
}

# Their statuses with these headers of each answer, "-" where there is none:
# shown('Limit Remaining X-Rule', ...) is "200/3/2/z 429/3/0/z". Three names
# stand for X-RateLimit-...
sub shown {
    my ($self, $names, @requests) = @_;
    my @names = map { s/^(?=(?:Limit|Remaining|Reset)\z)/X-RateLimit-/r }
                split ' ', $names;
    return join ' ', map {
        my $answer = $self->get(ref $_ ? @$_ : $_);
        join '/', $answer->{status},
                  map { my $value = header($answer, $_);
                        $value eq '' ? '-' : $value } @names;
    } @requests;
}

# A connection to the gateway, or to a port.
sub connect_to {
    my $to = shift;
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                 PeerPort => ref $to ? $to->{port} : $to)
           // die "connect: $!";
}

# Sends text as it is over one connection, and reads to its end, or until the
# answer is like that.
sub raw {
    my ($self, $text, $until) = @_;
    my $socket = $self->connect_to;
    my $answer = '';
    local $SIG{PIPE} = 'IGNORE';
    local $SIG{ALRM} = sub { die "no answer\n" };
    alarm 3 * $PATIENCE;
    print $socket $text;
    $socket->flush;
    1 while !($until && $answer =~ $until)
            && sysread $socket, $answer, 65536, length $answer;
    alarm 0;
    return $answer;
}

# What a command prints.
sub output {
    my @command = @_;
    open my $out, '-|', @command or die "$command[0]: $!";
    local $/;
    return scalar <$out> // '';
}

# The headers, with the token of the tests unless they have another one.
sub with_token {
    my @headers = @_;
    return grep({ /^Authorization:/i } @headers) ? @headers
                                                 : ($TOKEN, @headers);
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

# An answer in short: "200 PASSED 99", where X-Status shows $ratelimit_status,
# and other headers behind that; or, of a gateway, the answer to a request.
sub told {
    my ($answer, @more) = @_;
    ($answer, @more) = $answer->get(@more) if exists $answer->{dir};
    return join ' ', $answer->{status},
                     map { header($answer, $_) }
                     'X-Status', 'X-RateLimit-Remaining', @more;
}

# How many of these answers are 200.
sub passed { return scalar grep { $_->{status} == 200 } @_ }

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
        @headers = with_token(@headers) if $path =~ m{^\S+ /rl/};
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
