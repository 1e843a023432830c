# Documents of zones, as tests give them to gateways: in a state file, or in
# Redis with the script that gateways use. And what gateways make of them.
#
#     use t::Rules;
#     my $record = t::Rules::record(1, { rules => [...] });
#     $gateway->write('rules.state', $record);
#     t::Rules::put($port, 'rl', 'api', 0, $record);
#     ok(t::Rules::follows($gateway, 1));

package t::Rules;

use strict;
use warnings;

use Digest::SHA qw( sha256_hex );
use IO::Socket::INET;
use JSON::PP ();
use Socket qw( MSG_NOSIGNAL );

use t::Gateway;

my $JSON = JSON::PP->new->canonical->latin1;

# A record: head and document, a reference or the JSON itself. What its head has
# else, or instead, may be given: id, lineage, author, reason, format, time. All
# are of one lineage by default; undef: of none, as gateways of before wrote them.
sub record {
    my ($version, $document, %head) = @_;
    $document = $JSON->encode($document) if ref $document;
    $document .= "\n" if $document !~ /\n\z/;
    my %all = (format => '1.1', version => $version,
               id => sprintf('%016x', 1 + int rand 2 ** 52),
               lineage => '00000000000000f1',
               time => '2026-11-20T10:00:00.000Z', author => '', reason => '',
               bytes => length $document, %head);
    delete $all{lineage} if !defined $all{lineage};
    my $text = $JSON->encode(\%all) =~ s/\}\z//r;
    return $text . ',"sha256":"' . sha256_hex($text . $document) . "\"}\n"
           . $document;
}

# One rule that admits so many requests a day, by the argument k.
sub rules {
    my ($limit, %more) = @_;
    return { rules => [ { id => 'r', key => '$arg_k',
                          algorithm => 'fixed_window',
                          params => { limit => $limit, window => 'calendar:day' },
                          %more } ] };
}

sub version { return $_[0] =~ /"version":(\d+)/ ? $1 : die }
sub id { return $_[0] =~ /"id":"(\w+)"/ ? $1 : die }

# What Redis answers, a reference to an array or a text; an error begins with
# "-".
sub redis {
    my ($port, @args) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $port) or die "redis: $!";
    my $text = '*' . @args . "\r\n"
               . join '', map { '$' . length($_) . "\r\n$_\r\n" } @args;
    while (length $text) {
        my $n = send $socket, $text, MSG_NOSIGNAL or die "redis: $!";
        substr $text, 0, $n, '';
    }
    return reply($socket);
}

sub reply {
    my $socket = shift;
    my $line = <$socket> // die 'redis: no reply';
    $line =~ s/\r\n\z//;
    my ($type, $rest) = $line =~ /^(.)(.*)$/s;
    return [map { reply($socket) } 1 .. $rest] if $type eq '*';
    return $type eq '-' ? $line : $rest if $type ne '$';
    return undef if $rest < 0;
    my $text = '';
    while (length $text < $rest + 2) {
        read $socket, $text, $rest + 2 - length $text, length $text
            or die 'redis: half a reply';
    }
    return substr $text, 0, $rest;
}

# The script of documents, with the operation and its arguments.
sub script {
    my ($port, $prefix, $zone, @args) = @_;
    our $script;
    if (!$script) {
        open my $file, '<', 'lua/rules.lua' or die "lua/rules.lua: $!";
        local $/;
        $script = <$file>;
    }
    return redis($port, 'EVAL', $script, 2, key($prefix, $zone),
                 key($prefix, $zone) . ':history', @args);
}

sub key {
    my ($prefix, $zone) = @_;
    return "$prefix:{rules:$zone}";
}

# Makes a record current where the expected version is; whether it was. Nobody
# is told with quiet => 1.
sub put {
    my ($port, $prefix, $zone, $expected, $record, %how) = @_;
    my $channel = $how{quiet} ? "$prefix:nobody" : "$prefix:rules:$zone";
    my $id = redis($port, 'HGET', key($prefix, $zone), 'id') // 0;
    my $got = script($port, $prefix, $zone, 'put', $expected, $id,
                     version($record), id($record), $record, $channel,
                     version($record));
    die $got if !ref $got;
    return $got->[0];
}

# The version that Redis has; 0 for none.
sub current {
    my ($port, $prefix, $zone) = @_;
    return redis($port, 'HGET', key($prefix, $zone), 'version') // 0;
}

# A request of the endpoint, "PUT /document": {status, headers, body}, with a body,
# a reference or the JSON itself, and headers; status 0 without an answer.
sub api {
    my ($gateway, $line, $body, @headers) = @_;
    my ($method, $path) = split ' ', $line;
    my $answer = { status => 0, headers => {}, body => '' };
    $body = $JSON->encode($body) if ref $body;
    $body //= '';
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1',
                                       PeerPort => $gateway->{port},
                                       Timeout => $t::Gateway::PATIENCE)
        or return $answer;
    my $text = join "\r\n", "$method /rl$path HTTP/1.0", 'Host: localhost',
                    $t::Gateway::TOKEN, 'Content-Type: application/json',
                    'Content-Length: ' . length $body, @headers, '', $body;
    while (length $text) {
        my $n = send($socket, $text, MSG_NOSIGNAL) or last;
        substr $text, 0, $n, '';
    }
    my $in = '';
    1 while sysread $socket, $in, 65536, length $in;
    t::Gateway::parse($answer, $in);
    return $answer;
}

# The tag of a version, the current one or one that the history has.
sub tag {
    my ($gateway, $version) = @_;
    for my $path ('/document', "/versions/$version") {
        my $tag = t::Gateway::header(api($gateway, "GET $path"), 'ETag');
        return $tag if $tag =~ /^"$version\b/;
    }
    return "\"$version\"";
}

# A change of all rules, from the expected version on.
sub change {
    my ($gateway, $expected, $document) = @_;
    return api($gateway, 'PUT /document', $document,
               'If-Match: ' . tag($gateway, $expected));
}

# The versions that the workers go by, each once: {pid => version}.
sub versions {
    my ($gateway, $zone) = @_;
    my %versions;
    $zone //= 'z';
    for my $answer ($gateway->burst(8, '/metrics')) {
        next if $answer->{body}
            !~ /^ratelimit_rules_version\{zone="\Q$zone\E"\} (\d+)$/m;
        $versions{t::Gateway::header($answer, 'X-Pid')} = $1;
    }
    return \%versions;
}

# Until all workers go by a version. False when the test's patience ends.
sub follows {
    my ($gateway, $version, $zone, $seconds) = @_;
    my %said;
    return t::Gateway::wait_for(sub {
        my $now = versions($gateway, $zone);
        %said = (%said, %$now);
        my %alive = map { $_ => 1 } $gateway->workers;
        delete @said{grep { !$alive{$_} } keys %said};
        return keys %said >= $gateway->{workers}
               && !grep { $_ != $version } values %said;
    }, $seconds);
}

1;
