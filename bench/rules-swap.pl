#!/usr/bin/perl
#
# How long a worker answers nobody while it takes a large document: requests one
# after the other, of which the slowest tells, while the document is swapped in
# again and again; and the same without. And how long the longest turns of its
# event loop were, in time of the processor (turns.c). Then the same turns of the
# worker that is asked by the endpoint to read and to change the largest one. One
# worker, one Redis, all on loopback.
#
#   rules-swap.pl [<swaps>]
#
# MODULE, NGINX  the module and the nginx to load it into
# ONLY           a regex: the documents whose name matches, the endpoint's
#                requests that do

use strict;
use warnings;

use Cwd qw( abs_path );
use Digest::SHA qw( sha256_hex );
use File::Basename qw( dirname );
use File::Temp ();
use IO::Socket::INET;
use Socket qw( IPPROTO_TCP TCP_NODELAY MSG_NOSIGNAL );
use Time::HiRes qw( sleep time );

my $SWAPS = $ARGV[0] // 10;
my $ROOT = dirname(dirname(abs_path(__FILE__)));
my $MODULE = $ENV{MODULE} // "$ROOT/build/ngx_http_ratelimit_module.so";
my $NGINX = delete $ENV{NGINX} // '/usr/sbin/nginx';
my $DIR = File::Temp->newdir;
my ($PORT, $REDIS) = (18365, 18366);

my (%pids, $own);
$own = $$;
$SIG{$_} = sub { exit 1 } for qw( INT TERM HUP );

END {
    local $?;
    if ($own == $$) {
        kill TERM => keys %pids;
        waitpid $_, 0 for keys %pids;
    }
}

sub start {
    my @command = @_;

    my $pid = fork // die "fork: $!";

    if (!$pid) {
        open STDOUT, '>', '/dev/null';
        exec @command or die "$command[0]: $!";
    }

    $pids{$pid} = 1;
    return $pid;
}

sub connection {
    my $port = shift;

    for (1 .. 100) {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                           PeerPort => $port);
        if ($socket) {
            setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
            return $socket;
        }

        sleep 0.1;
    }

    die "no connection to port $port\n";
}

sub redis {
    my $socket = connection($REDIS);
    my $text = '*' . @_ . "\r\n"
               . join '', map { '$' . length($_) . "\r\n$_\r\n" } @_;

    while (length $text) {
        my $n = send($socket, $text, MSG_NOSIGNAL) or die "redis: $!\n";
        substr $text, 0, $n, '';
    }

    my $line = <$socket> // die "redis: no answer\n";
    die "redis: $line" if $line =~ /^-/;
}

sub record {
    my ($version, $document) = @_;

    $document .= "\n";

    my $head = sprintf '{"format":"1.0","version":%d,"id":"%016x",'
               . '"time":"2026-11-20T10:00:00.000Z","author":"","reason":"",'
               . '"bytes":%d', $version, $version, length $document;

    return "$head,\"sha256\":\"" . sha256_hex($head . $document) . "\"}\n"
           . $document;
}

sub put {
    my ($version, $document) = @_;

    my $key = 'rl:{rules:z}';

    redis('HSET', $key, 'version', $version, 'id', sprintf('%016x', $version),
          'record', record($version, $document));
    redis('PUBLISH', 'rl:rules:z', $version);
}

my $LIMIT = '"params":{"limit":1000000,"window":60},"algorithm":"fixed_window"';

sub rule {
    my ($i, $match) = @_;
    return "{\"id\":\"r$i\",\"key\":\"\$arg_k\",$LIMIT,\"match\":{$match}}";
}

my %DOCUMENTS = (
    'one rule' => sub { '{"rules":[' . rule(0, '') . ']}' },
    '10,000 rules' => sub {
        return '{"rules":[' . join(',', map {
            rule($_, "\"route\":\"/v1/r$_/{id}/**\"")
        } 1 .. 10_000) . ']}';
    },
    '10,000 expressions' => sub {
        return '{"rules":[' . join(',', map {
            rule($_, "\"endpoint_regex\":\"^/v1/r$_/[0-9]+(/[a-z]+)?\$\"")
        } 1 .. 10_000) . ']}';
    },
    '100,000 overrides, tiers' => sub {
        my $keys = join ',', map {
            '"sha256:' . sha256_hex("key$_") . '":"t' . $_ % 4 . '"'
        } 1 .. 100_000;
        my $overrides = join ',', map {
            "{\"id\":\"o$_\",\"key\":\"sha256:" . sha256_hex("key$_")
            . '","type":"multiplicative","value":2}'
        } 1 .. 100_000;

        return '{"rules":[' . rule(0, '') . "],\"tier_of\":{\"keys\":{$keys}},"
               . "\"overrides\":[$overrides]}";
    },
);

start('redis-server', '--bind', '127.0.0.1', '--port', $REDIS, '--save', '',
      '--dir', "$DIR", '--client-query-buffer-limit', '256mb');

open my $conf, '>', "$DIR/nginx.conf" or die;
print $conf <<"CONF";
load_module $MODULE;
env TURNS;
daemon off;
user root;
pid nginx.pid;
error_log error.log info;
events {}
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    ratelimit_redis one { server 127.0.0.1:$REDIS; }
    ratelimit_zone \$arg_k zone=z:1m redis=one state=$DIR/rules.state;
    server {
        listen 127.0.0.1:$PORT;
        location / { return 204; }
        location /metrics { ratelimit_metrics; add_header X-Pid \$pid; }
        location /rl/ { ratelimit_api zone=z write; }
    }
}
CONF
close $conf;

system($ENV{CC} // 'cc', '-O2', '-Wall', '-shared', '-fPIC', '-o',
       "$DIR/turns.so", "$ROOT/bench/turns.c", '-ldl') == 0
    or die "turns.c needs cc\n";

$ENV{TURNS} = "$DIR/turns";
$ENV{LD_PRELOAD} = "$DIR/turns.so";

my $nginx = start($NGINX, '-p', "$DIR/", '-c', "$DIR/nginx.conf",
                  '-e', "$DIR/error.log");

delete $ENV{LD_PRELOAD};

my $socket = connection($PORT);

# those since it was asked last
sub turns {
    open my $file, '+<', "$DIR/turns" or return 0;
    chomp(my @turns = <$file>);
    truncate $file, 0;

    return @turns ? @turns : 0;
}

sub ask {
    my ($path, $method, $content) = @_;

    $method //= 'GET';
    $content //= '';

    syswrite $socket, "$method $path HTTP/1.1\r\nHost: localhost\r\nIf-Match: *\r\n"
                      . "Content-Type: application/json\r\nContent-Length: "
                      . length($content) . "\r\n\r\n$content";

    my $in = '';
    until ($in =~ /\r\n\r\n/) {
        sysread $socket, $in, 65536, length $in or die "nginx has gone\n";
    }

    my ($head, $body) = split /\r\n\r\n/, $in, 2;
    my $wanted = $head =~ /^Content-Length: (\d+)/m ? $1 : 0;

    while (length $body < $wanted) {
        sysread $socket, $body, 65536, length $body or die;
    }

    return ($body, $head);
}

sub version {
    my ($body) = ask('/metrics');
    return $body =~ /^ratelimit_rules_version\{zone="z"\} (\d+)$/m ? $1 : 0;
}

sub worker {
    my (undef, $head) = ask('/metrics');
    return $head =~ /^X-Pid: (\d+)/m ? $1 : die "no worker\n";
}

sub memory {
    my ($what) = @_;

    open my $status, '<', '/proc/' . worker() . '/status' or return 0;
    my ($kb) = join('', <$status>) =~ /^$what:\s+(\d+)/m;
    return $kb / 1024;
}

# the peak begins anew
sub forget_peak {
    open my $file, '>', '/proc/' . worker() . '/clear_refs' or return;
    print $file '5';
    close $file;
}

# Requests one after the other while the condition holds: the waits, in ms.
sub load {
    my ($until) = @_;

    my ($n, @waits) = (0);

    for (;;) {
        my $begin = time;
        ask('/');
        push @waits, 1000 * (time - $begin);
        last if ++$n % 50 == 0 && $until->();
    }

    return @waits;
}

sub longest {
    return join ' ', map { sprintf '%6.1f', $_ // 0 }
                     (sort { $b <=> $a } @_)[0 .. 2];
}

my $version = 0;

printf "%-26s %9s %9s  %-21s %-21s %-21s %8s\n", 'document', 'bytes',
       'taken ms', 'longest turns, ms', 'longest waits, ms', 'without, ms',
       'RssAnon';

for my $name (sort { length $a <=> length $b } keys %DOCUMENTS) {
    next if $ENV{ONLY} && $name !~ /$ENV{ONLY}/;

    my $document = $DOCUMENTS{$name}->();
    my (@with, @without, @taken);

    for (1 .. $SWAPS) {
        my $end = time + 0.5;
        push @without, load(sub { time > $end });

        my $pid = fork // die;
        if (!$pid) {
            put($version + 1, $document);
            require POSIX;
            POSIX::_exit(0);
        }

        my $begin = time;
        my $limit = $begin + 60;
        $version++;
        push @with, load(sub {
            die "version $version is not taken\n" if time > $limit;
            return version() == $version;
        });
        push @taken, 1000 * (time - $begin);
        waitpid $pid, 0;

        # the state file
        $end = time + 0.5;
        push @with, load(sub { time > $end });
    }

    @taken = sort { $a <=> $b } @taken;

    printf "%-26s %9d %9.0f  %-21s %-21s %-21s %5.0f MB\n", $name,
           length $document, $taken[@taken / 2], longest(turns()), longest(@with),
           longest(@without), memory('RssAnon');
}

# What the endpoint is asked, by the worker's own client: the change of something
# small, and the answers that are large.
my $key = 'sha256:' . sha256_hex('key1');

my @REQUESTS = (
    ['GET', '/rules', ''],
    ['GET', '/overrides', ''],
    ['GET', "/tier-of/$key", ''],
    ['GET', '/versions/{n}', ''],
    ['PATCH', '/rules/r0', '{"priority":{n}}'],
    ['PUT', "/tier-of/$key", '{"tier":"new{n}"}'],
    ['PATCH', '/tier-of', "{\"keys\":{\"$key\":\"t{n}\"}}"],
    ['POST', '/versions/{n}/restore', ''],
);

@REQUESTS = grep { !$ENV{ONLY} || "$_->[0] $_->[1]" =~ /$ENV{ONLY}/ }
            @REQUESTS;
exit if !@REQUESTS;

put(++$version, $DOCUMENTS{'100,000 overrides, tiers'}->());
load(sub { version() == $version });

printf "\n%-26s %9s %11s  %-21s %8s\n", 'request', 'bytes', 'answered ms',
       'longest turns, ms', 'peak RSS';

for my $request (@REQUESTS) {
    my ($method, $path, $content) = @$request;
    my (@taken, $bytes);

    my $end = time + 2;
    load(sub { time > $end });
    turns();
    forget_peak();

    for (1 .. $SWAPS) {
        my $begin = time;
        my ($body, $head) = ask('/rl' . $path =~ s/\{n\}/$version/r, $method,
                                $content =~ s/\{n\}/$version/r);

        push @taken, 1000 * (time - $begin);
        $bytes = length $body;
        die "$method $path: $head\n$body\n" if $head !~ m{^HTTP/1.1 200};
        $version = $1 if $head =~ /^ETag: "(\d+)"/m && $method ne 'GET';

        # its workers go by it, and the state file has it
        my $limit = time + 60;
        load(sub {
            die "version $version is not taken\n" if time > $limit;
            return version() == $version;
        });
        $end = time + 0.5;
        load(sub { time > $end });
    }

    @taken = sort { $a <=> $b } @taken;
    $path =~ s/sha256:\w+/{key}/;

    printf "%-26s %9d %11.0f  %-21s %5.0f MB\n", "$method $path", $bytes,
           $taken[@taken / 2], longest(turns()), memory('VmHWM');
}
