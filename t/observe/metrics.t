# What "ratelimit_metrics" tells Prometheus: every line of it, as both formats
# are read; counts of all workers, kept through a reload; who may ask, and how.
# counts.t has what is counted of decisions.

use t::RateLimit 'no_plan';
use t::Gateway qw( header tally wait_for );
use t::FakeRedis;

my @RESULTS = qw( ok breaker_open unreachable timeout lost protocol );
my @ERRORS = qw( moved ask tryagain clusterdown masterdown loading readonly
                 noscript busy oom misconf noreplicas noauth noperm wrongtype
                 error );
my %TYPES = (
    ratelimit_redis_calls_total => 'counter',
    ratelimit_redis_error_replies_total => 'counter',
    ratelimit_redis_refreshes_total => 'counter',
    ratelimit_redis_reconnects_total => 'counter',
    ratelimit_redis_tls_handshakes_total => 'counter',
    ratelimit_redis_tls_resumed_total => 'counter',
    ratelimit_redis_breaker_opened_total => 'counter',
    ratelimit_redis_breaker_state => 'gauge',
    ratelimit_redis_connected => 'gauge',
    ratelimit_redis_topology_age_seconds => 'gauge',
    ratelimit_gateways => 'gauge',
    ratelimit_peers_connected => 'gauge',
    ratelimit_peers_with_redis => 'gauge',
    ratelimit_peers_received_messages_total => 'counter',
    ratelimit_peers_sent_messages_total => 'counter',
    ratelimit_peers_received_bytes_total => 'counter',
    ratelimit_peers_sent_bytes_total => 'counter',
    ratelimit_peers_refused_total => 'counter',
    ratelimit_peers_dropped_total => 'counter',
    ratelimit_peers_replaced_versions_total => 'counter',
    ratelimit_peers_lost_changes_total => 'counter',
    ratelimit_requests_total => 'counter',
    ratelimit_cost_total => 'counter',
    ratelimit_wait_seconds => 'histogram',
    ratelimit_delay_seconds => 'histogram',
    ratelimit_penalties_total => 'counter',
    ratelimit_new_keys_exceeded_total => 'counter',
    ratelimit_rules_not_counted_total => 'counter',
    ratelimit_penalties_active => 'gauge',
    ratelimit_table_places => 'gauge',
    ratelimit_table_used => 'gauge',
    ratelimit_table_evicted_total => 'counter',
    ratelimit_lease_places => 'gauge',
    ratelimit_lease_used => 'gauge',
    ratelimit_lease_tokens => 'gauge',
    ratelimit_lease_refused_total => 'counter',
    ratelimit_lease_calls_total => 'counter',
    ratelimit_lease_calls_saved_total => 'counter',
    ratelimit_state_lost_total => 'counter',
    ratelimit_redis_call_seconds => 'histogram',
    ratelimit_redis_clock_offset_seconds => 'gauge',
    ratelimit_top_key_requests_per_second => 'gauge',
    ratelimit_rules_uncounted => 'gauge',
    ratelimit_rules_version => 'gauge',
    ratelimit_rules_age_seconds => 'gauge',
    ratelimit_rules_reachable => 'gauge',
    ratelimit_rules_saved => 'gauge',
    ratelimit_rules_refused_version => 'gauge',
    ratelimit_rules_skipped => 'gauge',
    ratelimit_rules_skipped_info => 'gauge',
);
my $PROMTOOL = grep { -x "$_/promtool" } split /:/, $ENV{PATH};
my $GOOD = "*4\r\n:1\r\n:9\r\n:360000\r\n:0\r\n";

# The text as Prometheus reads it: {name of a series with its labels => value},
# {family => type}, and what is wrong: every line must be one that the format
# knows, and have its place. open: it is OpenMetrics.
sub parse {
    my ($text, $open) = @_;
    my (%series, %help, %type, @wrong, $family);
    my $total = $open ? '_total' : '';
    push @wrong, 'no line end at the end' if $text !~ /\n\z/;
    push @wrong, 'not the end' if $open && $text !~ s/^# EOF\n\z//m;
    for (split /\n/, $text, -1) {
        if (/^# HELP ([a-zA-Z_:][\w:]*) (?:[^\\]|\\[\\n])+$/a) {
            push @wrong, "two: $_" if $help{$1}++;
        } elsif (/^# TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram)$/a) {
            push @wrong, "two, or without HELP: $_" if $type{$1} || !$help{$1};
            $type{$1} = $2;
            $family = $1;
        } elsif (/^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (-?[0-9]+(?:\.[0-9]+)?)$/a) {
            my ($name, $labels, $value) = ($1, $2 // '', $3);
            my $of = $type{$family} eq 'histogram'
                     ? $name =~ s/_(?:bucket|count|sum)$//r
                     : $type{$family} eq 'counter' ? $name =~ s/$total$//r
                                                   : $name;
            push @wrong, "not of the family above: $_" if $of ne $family;
            push @wrong, "a counter without _total: $_"
                if $type{$family} eq 'counter' && $name !~ /_total$/;
            push @wrong, "no number of events: $_"
                if $type{$family} ne 'gauge' && $name !~ /_sum$/ && $value =~ /\D/;
            my %labels;
            while ($labels =~ /\G([a-zA-Z_]\w*)="((?:[^\\"]|\\[\\"n])*)"
                               (?:,|$)/gacx)
            {
                push @wrong, "a label twice: $_" if exists $labels{$1};
                $labels{$1} = $2;
            }
            push @wrong, "labels: $_" if (pos $labels // 0) != length $labels;
            my $key = "$name " . join ',', map { "$_=$labels{$_}" }
                                           sort keys %labels;
            push @wrong, "a series twice: $_" if exists $series{$key};
            $series{$key} = $value;
        } elsif ($_ ne '') {
            push @wrong, "no line of the format: $_";
        }
    }
    push @wrong, buckets(\%series);
    return \%series, \%type, @wrong;
}

# The buckets of each histogram add up, to its count.
sub buckets {
    my $series = shift;
    my (%bounds, @wrong);
    for (keys %$series) {
        push @{ $bounds{"$1 $2$4"} }, [$3 eq '+Inf' ? 9e9 : $3, $series->{$_}]
            if /^(\w+)_bucket (|.*,)le=([^,]+),?(.*)/;
    }
    for (keys %bounds) {
        my @n = map { $_->[1] } sort { $a->[0] <=> $b->[0] } @{ $bounds{$_} };
        my ($name, $labels) = /^(\w+) (.*?),?$/;
        push @wrong, "$_: @n" if "@n" ne join(' ', sort { $a <=> $b } @n)
                                 || $n[-1] != $series->{"${name}_count $labels"}
                                 || !defined $series->{"${name}_sum $labels"};
    }
    return @wrong;
}

# What "promtool check metrics" says of a text: nothing.
sub promtool {
    my $text = shift;
    my $name = t::Gateway::dir('promtool') . '/metrics';
    open my $file, '>', $name or die "$name: $!";
    print $file $text;
    close $file;
    my $said = `promtool check metrics < $name 2>&1`;
    return $? ? "exit $?: $said" : $said;
}

sub series {
    my $gateway = shift;
    return (parse($gateway->get('/metrics')->{body}))[0];
}

sub scrape {
    my ($gateway, $what) = @_;
    my $answer = $gateway->get('/metrics');
    my ($series, $types, @wrong) = parse($answer->{body});
    is($answer->{status}, 200, "$what: 200");
    is(join("\n", @wrong), '', "$what: as the format wants it");
    is_deeply($types, \%TYPES, "$what: the families and their types");
    SKIP: {
        skip 'no promtool (Debian package prometheus)', 1 if !$PROMTOOL;
        is(promtool($answer->{body}), '', "$what: promtool check metrics");
    }
    $answer = $gateway->get('/metrics', 'Accept: application/openmetrics-text;'
                                        . 'version=1.0.0,text/plain;q=0.5');
    my ($open, $open_types, @open_wrong) = parse($answer->{body}, 1);
    is(header($answer, 'Content-Type'), 'application/openmetrics-text; '
       . 'version=1.0.0; charset=utf-8', "$what: OpenMetrics");
    is(join("\n", @open_wrong), '', "$what: as that wants it");
    is(join(' ', sort keys %$open_types),
       join(' ', sort map { $TYPES{$_} eq 'counter' ? s/_total$//r : $_ } keys %TYPES),
       "$what: the same families");
    return $series;
}

# What a scrape has of one Redis that is not 0, breakers apart: "calls ok 3".
sub counted {
    my ($series, $redis) = @_;
    my @counted;
    for (sort grep { $series->{$_} } keys %$series) {
        next if !/^ratelimit_redis_(.*)_total[ ](?:error=(\w+),)?
                  redis=\Q$redis\E(?:,result=(\w+))?$/x;
        push @counted, join ' ', grep { defined } $1, $2 // $3, $series->{$_};
    }
    return join ', ', @counted;
}

sub breakers {
    my ($series, $redis) = @_;
    return join ' ', map { /^ratelimit_redis_breaker_state node=(.*),redis=\Q$redis\E\z/
                           ? "$1:$series->{$_}" : () } sort keys %$series;
}

# two workers, and what Redis may be: answering, full, odd, gone, not used
my %fake = (
    full => t::FakeRedis->new(sub { "-OOM x\r\n" }),
    moved => t::FakeRedis->new(sub { "-MOVED 5 127.0.0.1:1\r\n" }),
    odd => t::FakeRedis->new(sub { "-WHAT x\r\n" }),
    healed => do {
        my $had = 0;
        t::FakeRedis->new(sub { $had++ ? $GOOD : "-NOSCRIPT x\r\n" });
    },
);
my %port = (fleet => redis_port(), idle => redis_port(),
            gone => t::Gateway::free_port(),
            map { $_ => $fake{$_}{port} } keys %fake);
my $prefix = key_prefix();

sub parts {
    my $timeout = shift;
    return (redis => { map { $_ => "server 127.0.0.1:$port{$_}; prefix $prefix.$_;"
                                   . " timeout $timeout" } keys %port },
            zone => { map { $_ => "rate=1000r/h redis=$_ sync=strict" }
                      keys %port },
            listen => 'reuseport',
            server => 'charset utf-8; charset_types *;',
            locations => { map { ("/$_" => "ratelimit zone=$_;") }
                           grep { $_ ne 'idle' } keys %port });
}

my $gateway = t::Gateway->limited(workers => 2, parts('10s'));

# nothing yet
my $series = scrape($gateway, 'at first');

is(join(' ', map { counted($series, $_) } qw( fleet idle full )), '  ',
   'at first all of them are 0');
is_deeply([map { $series->{"ratelimit_redis_calls_total redis=idle,result=$_"} }
           @RESULTS, @ERRORS], [(0) x (@RESULTS + @ERRORS)],
          'every result of a call is there at 0');
is_deeply([grep { /^ratelimit_redis_error_replies_total .*redis=idle$/ }
           sort keys %$series],
          [map { "ratelimit_redis_error_replies_total error=$_,redis=idle" }
           sort @ERRORS], 'every error is there');

ok(wait_for(sub {
       $series = series($gateway);
       return keys %port == grep { breakers($series, $_) } keys %port;
   }), 'each Redis has its breaker');
is(breakers($series, $_), "127.0.0.1:$port{$_}:0", "$_: a breaker, closed")
    for qw( fleet full );

# some of everything, over both workers
my @answers = $gateway->burst(200, '/fleet?k=secret');
my %workers = map { header($_, 'X-Pid') => 1 } @answers;

is(tally(@answers), '200 x 200', 'requests to Redis');
is(keys %workers, 2, 'both workers had some');

$gateway->burst(3, "/$_?k=secret") for qw( full moved odd );
$gateway->get("/$_?k=secret") for qw( healed gone );

$series = scrape($gateway, 'after requests');

is(counted($series, 'fleet'), 'calls ok 200', 'calls of both workers');
is(counted($series, 'full'), 'calls oom 3, error_replies oom 3', 'OOM');
is(counted($series, 'moved'), 'calls moved 3, error_replies moved 3', 'MOVED');
is(counted($series, 'odd'), 'calls error 3, error_replies error 3',
   'an error that is not known');
is(counted($series, 'healed'), 'calls ok 1, error_replies noscript 1',
   'an error that was healed');
is(counted($series, 'gone'), 'breaker_opened 1, calls breaker_open 1', 'no server');
is(counted($series, 'idle'), '', 'no traffic');
unlike($gateway->get('/metrics')->{body}, qr/secret/, 'no key is told');

# a reload
$gateway->configure(http => t::Gateway::limited_http(parts('5s')));
$gateway->reload;
is(counted(scrape($gateway, 'after a reload'), 'fleet'), 'calls ok 200',
   'a reload keeps the counts');
$gateway->get('/fleet?k=secret');
is(counted(scrape($gateway, 'after a reload'), 'fleet'), 'calls ok 201',
   'and goes on');

# methods
my ($get, $head);

# a number may have got one more digit in between
wait_for(sub {
    ($get, $head) = map { $gateway->get("$_ /metrics") } qw( GET HEAD );
    header($head, 'Content-Length') eq header($get, 'Content-Length') });

is(header($get, 'Content-Type'),
   'text/plain; version=0.0.4; charset=utf-8', 'the type');
is(header($get, 'Content-Length'), length $get->{body}, 'the length');
is_deeply([$head->{status}, $head->{body},
           map { header($head, $_) }
           qw( Content-Type Content-Length )],
          [200, '', map { header($get, $_) }
                    qw( Content-Type Content-Length )],
          'HEAD: the same headers alone');

for (qw( POST PUT DELETE OPTIONS )) {
    my $answer = $gateway->get("$_ /metrics");
    is($answer->{status} . ' ' . header($answer, 'Allow'),
       '405 GET, HEAD', "$_: not allowed");
}

# odd ones: a reply that comes after the timeout, a connection that breaks, and
# names that need escapes or are too long, which are told apart
my $had = 0;
my $late = t::FakeRedis->new(sub { [$had++ ? () : ('') x 300, $GOOD] });
my $calls = 0;
my $back = t::FakeRedis->new(sub { $calls++ ? $GOOD : undef });
my $long = '/nowhere/' . 'x' x 90;

my $odd = t::Gateway->limited(
    redis => { late => "server 127.0.0.1:$late->{port}; timeout 1s",
               back => "server 127.0.0.1:$back->{port}; timeout 10s",
               text => "server \"unix:/no\\\"where\\\\\\n\x01\xc3\xa9\"",
               long => "server unix:${long}a", longer => "server unix:${long}b" },
    zone => { late => 'rate=1000r/h redis=late sync=strict',
              back => 'rate=1000r/h redis=back sync=strict',
              none => 'rate=1r/h' },
    server => 'ratelimit zone=none;',
    locations => {
        '/late' => 'ratelimit zone=late;',
        '/back' => 'ratelimit zone=back;',
        '/metrics' => 'ratelimit_metrics;'
                      . 'location /metrics/inside { empty_gif; }',
        '/limited' => 'ratelimit_metrics; ratelimit zone=none;',
        '/guarded' => 'ratelimit_metrics; deny all;',
    });

my $n = 0;

ok(wait_for(sub {
       $n++;
       return header($odd->get('/late?k=a'), 'X-Status') eq 'PASSED';
   }), 'an answer behind the late one');

ok(wait_for(sub {
       return header($odd->get('/back?k=a'), 'X-Status') eq 'PASSED';
   }), 'an answer over another connection');

$series = scrape($odd, 'odd ones');

cmp_ok($series->{'ratelimit_redis_calls_total redis=late,result=timeout'}, '>=',
       1, 'the first was late');
my $sum = 0;

$sum += $series->{"ratelimit_redis_calls_total redis=late,result=$_"}
    for @RESULTS, @ERRORS;
is($sum, $n, 'a call counts once, for the first that became of it');

like(counted($series, 'back'),
     qr/^calls lost 1, calls ok 1,(?: calls unreachable \d+,)? reconnects 1$/,
     'a connection that broke and came back');

is(breakers($series, 'text'), 'unix:/no\\"where\\\\\\n\\\\x01\\\\xc3\\\\xa9:1',
   'escapes');

ok(wait_for(sub {
       $series = series($odd);
       my %ids = map { $_ => 1 } map { breakers($series, $_) } qw( long longer );
       %ids = map { m{^unix:/nowhere/x{49}(~[0-9a-f]{16}):1$} ? ($1 => 1) : () } keys %ids;
       return keys %ids == 2;
   }), 'long names are told apart');
scrape($odd, 'long names');

# limits of the server are not for it, but its own are; access modules guard it
is(join(' ', map { $odd->get("$_?k=b")->{status} }
             qw( /metrics /metrics /metrics/inside /metrics/inside )),
   '200 200 200 429', 'inherited limits do not count it');
is(join(' ', map { $odd->get("$_?k=c")->{status} } qw( /limited /limited )),
   '200 429', 'its own do');
is($odd->get('/guarded')->{status}, 403, 'deny guards it');

$odd->stop;
$_->stop for $late, $back;

# none at all
my $none = t::Gateway->limited(zone => {}, locations => {});

is_deeply(scrape($none, 'without zones'), {}, 'without zones no sample');
$none->stop;

# a Cluster of many nodes takes many buffers
my $map = join '', map {
    my $host = '127.1.' . int($_ / 100) . '.' . ($_ % 100 + 1);
    "*3\r\n:" . $_ * 50 . "\r\n:" . ($_ * 50 + 49) . "\r\n*4\r\n\$"
    . length($host) . "\r\n$host\r\n:1\r\n\$2\r\nid\r\n*0\r\n";
} 0 .. 199;
my $cluster = t::FakeRedis->new(sub { "*200\r\n$map" });

my $many = t::Gateway->limited(zone => {}, locations => {},
    redis => { many => "cluster 127.0.0.1:$cluster->{port}",
               other => 'server 127.0.0.1:1' });

ok(wait_for(sub {
       $series = series($many);
       return 200 == grep { /breaker_state node=.*,redis=many\z/ } keys %$series;
   }), 'many breakers: all of the map are there');
cmp_ok($series->{'ratelimit_redis_refreshes_total redis=many'}, '>=', 1,
       'the Cluster was asked for its map');
scrape($many, 'many breakers');

my $answer = $many->get('/metrics');

is(header($answer, 'Content-Length'), length $answer->{body},
   'and in the length');
$many->stop;
$cluster->stop;

$gateway->stop;
$_->stop for values %fake;
