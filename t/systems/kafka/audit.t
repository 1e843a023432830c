# The whole way of an audit: decisions and changes, by examples/audit, from nginx
# over rsyslog to a Kafka broker and back. Nothing is lost, also while rsyslog or
# the broker stands still.

use Digest::SHA qw( sha256_hex );
use JSON::PP ();
use Time::HiRes qw( sleep time );
use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( connect_to wait_for );
use t::Ports qw( free_port );
use t::Rules;
use t::systems::Program qw( example listens );

use constant { KEYS => 50, RATE => 1000, ROUNDS => 30, A_ROUND => 100 };

my $port = free_port();
my $dir = t::Gateway::dir('rsyslogd');

# librdkafka's mock broker lives as long as the client that made it
my $broker = t::systems::Program->start(
    'broker', 'kcat', '-P', '-X', 'test.mock.num.brokers=1', '-b', 'mock',
    '-t', 'none');
my $address = $broker->says(qr/replaced with (\S+)/);
my @here = ('127.0.0.1:9092' => $address, 5140 => $port,
            '/var/spool/rsyslog' => $dir);
my ($decisions, $changes) = map {
    t::systems::Program->start($_, 'kcat', '-C', '-u', '-q', '-b', $address,
                               '-t', "ratelimit-$_", '-o', 'beginning',
                               '-X', 'topic.metadata.refresh.interval.ms=500')
} 'decisions', 'changes';

my $rsyslog = t::systems::Program->start(
    'rsyslog', 'rsyslogd', '-n', '-i', "$dir/pid", '-f',
    t::Gateway::write({ dir => $dir }, 'rsyslog.conf',
                      "\$WorkDirectory $dir\n"
                      . example('audit/rsyslog.conf', @here)));

wait_for(sub { listens($port) }) or die $rsyslog->read;

my $gateway = t::Gateway->limited(
    workers => 2, api => 1,
    main => "error_log syslog:server=127.0.0.1:$port,"
            . 'tag=ratelimit_change notice;',
    zone => { z => 'key=$ratelimit_api_key rate=2r/h state=rules.state' },
    rules => ['try zone=z rate=1r/h key=$arg_try dry_run'],
    http => example('audit/nginx.conf', @here),
    server => 'ratelimit_api_key header:X-Key;'
              . 'add_header X-Id $request_id always;',
);

sub records {
    return map { JSON::PP->new->utf8->decode($_) } split /^/, shift->read;
}

# Requests over one connection, one behind the other. Their answers:
# {status, X-Id => value, ...}.
sub pipelined {
    my @requests = @_;
    my $text = join '', map { "$_\r\nHost: api.test\r\n\r\n" } @requests;
    $text =~ s/\r\n\r\n\z/\r\nConnection: close\r\n\r\n/;
    return map { { /^([\w-]+): (.*?)\r$/mg, status => /^(\d+)/ } }
           grep { $_ ne '' } split /^HTTP\/1\.1 /m, $gateway->raw($text);
}

# Rejections, at the rate; what each must be in Kafka, by its id.
sub rejections {
    my ($rounds, $seldom) = @_;
    my ($n, %sent) = (0);
    for my $round (1 .. $rounds) {
        my $next = time + A_ROUND / RATE;
        my @is = map { { method => ($n % 3 ? 'GET' : 'POST'),
                         uri => '/orders/' . $n++, key => 'k' . $n % KEYS } }
                 1 .. A_ROUND;
        my @answers = pipelined(
            map { "$_->{method} $_->{uri}?secret=s HTTP/1.1\r\nX-Key: $_->{key}"
                  . ($_->{method} eq 'POST' ? "\r\nContent-Length: 0" : '') } @is);
        for (@is) {
            my $answer = shift @answers // last;
            $sent{$answer->{'X-Id'}} = {
                %$_, key => t::Api::sha($_->{key}), route => '/orders/{id}',
                zone => 'z', rule => 'z', status => 'REJECTED', source => 'local',
                algorithm => 'token_bucket', cost => 1, delay => '',
                penalty => '',
                reason => '', address => '127.0.0.1', client => '127.0.0.1',
                host => 'api.test', http_status => $answer->{status},
                limit => $answer->{'X-RateLimit-Limit'},
                remaining => $answer->{'X-RateLimit-Remaining'},
                reset => $answer->{'X-RateLimit-Reset'},
                retry_after => $answer->{'Retry-After'} };
        }
        $seldom->($round) if $seldom;
        sleep $next - time if $next > time;
    }
    return \%sent;
}

# What Kafka has of these: how many are missing, not as they were sent, or twice.
sub kafka_has {
    my ($sent, $name) = @_;
    my (%got, @differ);
    my $twice = 0;
    local $t::Gateway::BETWEEN = sub { sleep 0.2 };
    wait_for(sub { (() = $decisions->read =~ /\n/g) >= keys %$sent }, 60);
    for my $record (records($decisions)) {
        my $id = delete $record->{request_id};
        $twice++ if $got{$id};
        $got{$id} = $record if $sent->{$id};
    }
    my @missing = grep { !$got{$_} } keys %$sent;
    for my $id (keys %got) {
        my ($is, $wanted) = ($got{$id}, $sent->{$id});
        push @differ, map { "$_: $is->{$_}, not $wanted->{$_}" }
                      grep { $is->{$_} ne $wanted->{$_} } keys %$wanted;
        push @differ, "check_time: $is->{check_time}"
            if $is->{check_time} !~ /^\d+\.\d+$/;
    }
    is(@missing, 0, "$name: nothing is lost");
    is($twice, 0, "$name: nothing comes twice");
    is_deeply([@differ[0 .. ($#differ < 5 ? $#differ : 5)]], [],
              "$name: all is as it was sent");
}

# the second request of a key, and each after it, is rejected
pipelined(map { "GET /orders/0 HTTP/1.1\r\nX-Key: k$_" } (0 .. KEYS - 1) x 2);

my $sent = rejections(ROUNDS);

is(keys %$sent, ROUNDS * A_ROUND, 'all requests are answered');
is_deeply([grep { $_->{http_status} != 429 } values %$sent], [], 'with 429');
kafka_has($sent, '1,000 a second');

# rsyslog has no processor for a while, then the broker
$sent = { %$sent, %{ rejections(10, sub {
    $rsyslog->signal('STOP') if $_[0] == 2;
    $rsyslog->signal('CONT'), $broker->signal('STOP') if $_[0] == 7;
}) } };
$broker->signal('CONT');
kafka_has($sent, 'both stand still');

is_deeply([$decisions->read =~ /secret|"PASSED"|"k\d+"/g], [],
          'no key in clear, no arguments, no request that passed');

# other decisions, and bytes of any kind
is($gateway->get('/%22%5C%01%7f%ff%c3%a9/?try=a', "X-Key: $_")->{status}, 200,
   "$_ passes") for 'new', 'newer';
wait_for(sub { $decisions->read =~ /REJECTED_DRY_RUN/ });

my ($try) = grep { $_->{rule} eq 'try' } records($decisions);
is($try->{status}, 'REJECTED_DRY_RUN', 'a dry run');
is($try->{uri}, "/\"\\\x01\x7f \xe9/", 'what was no UTF-8 is a blank');

my $long = '/' . '%01' x 2500;

$gateway->get($long, 'X-Key: k1');
wait_for(sub { $decisions->read =~ /(?:\\u0001){2500}/ });
is((records($decisions))[-1]{uri}, "/" . "\x01" x 2500, 'a long path is whole');

# changes
my $api = t::Api->new($gateway);
my $rule = { key => '$arg_new', params => { rate => '5r/s' } };

is($api->change(PUT => '/rules/orders?reason=launch%20%22week%22%20%5C', $rule)
       ->{status}, 201, 'a change');
is($api->change(DELETE => '/counters?rule=z&key=k1')->{status}, 200, 'a reset');
forge($_) for 1 .. 4;
wait_for(sub { (() = $gateway->log =~ /by "eve"/g) >= 4
               && (() = $changes->read =~ /\n/g) >= 2 }, 60);

my ($made, $reset, @others) = records($changes);

is_deeply([map { delete $_->{time}; delete $_->{gateway}; $_ } $made, $reset],
          [{ zone => 'z', change => 'version 1 of its rules was made',
             request => 'PUT /rules/orders', author => '',
             address => '127.0.0.1', reason => 'launch "week" \\' },
           { zone => 'z', change => 'a counter is reset', author => '',
             request => 'DELETE /counters?rule=z', address => '127.0.0.1',
             reason => '' }],
          'the changes');
is_deeply(\@others, [], 'and nothing that a client wrote');

# A rejected request, whose line in the error log looks like that of a change.
sub forge {
    $gateway->raw("GET /x?$_[0] HTTP/1.0\r\nX-Key: k2\r\nHost: a\r\nReferer: "
                  . '2026/11/22 10:00:00 [notice] 1#1: ratelimit zone "z": a: '
                  . "\"x\" by \"eve\" from 1, reason \"\"\r\n\r\n");
}

$gateway->stop;
