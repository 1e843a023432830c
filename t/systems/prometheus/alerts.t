# Each alert of examples/prometheus, in a real Prometheus that reads two gateways
# under load: its fault is made, the alert fires; the fault is mended, it ends.

use JSON::PP ();
use Time::HiRes qw( sleep );
use t::RateLimit 'no_plan';
use t::Api;
use t::Gateway qw( output wait_for );
use t::systems::Prometheus;

$SIG{$_} = sub { exit 1 } for qw( INT TERM HUP );

# of alerts that fire, and that end
use constant PATIENCE => 40;

like(output('promtool', 'test', 'rules', 'examples/prometheus/alerts.test.yml'),
     qr/SUCCESS/, 'promtool test rules');

my $port = redis_server();
my ($one, $two) = map { gateway($_) } 'one', 'two';
my $api = t::Api->new($one);
my $prometheus;
my (@beside, %untested);

END {
    local $?;
    kill KILL => @beside;
    kill CONT => redis_pid($port) if $port && redis_pid($port);
}

# With a clock of its own, and a user for each gateway.
sub redis_server {
    set_clock(0);
    local $ENV{LD_PRELOAD} = t::RateLimit::clock_library();
    local $ENV{RATELIMIT_CLOCK} = clock_file();
    my $server = redis_start();
    redis_cli($server, 'acl', 'setuser', $_, 'on', 'nopass', '~*', '&*',
              '+@all') for 'one', 'two';
    return $server;
}

sub clock_file { return t::RateLimit::folder() . '/redis.clock' }

# Redis' clock goes so many seconds before that of the gateways.
sub set_clock {
    my $before = shift;
    open my $out, -e clock_file() ? '+<' : '>', clock_file() or die "clock: $!";
    binmode $out;
    syswrite $out, pack 'q3', $before * 1e9, 0, 0;
    close $out or die "clock: $!";
}

sub gateway {
    my $name = shift;
    # gateway "two" does not know the key of a rule
    my $map = $name eq 'one' ? 'map $arg_k $plan_key { default $arg_k; }' : '';
    return t::Gateway->limited(
        name => $name, workers => 2, api => 1, timeout => '1s',
        redis => "server 127.0.0.1:$port; username $name; password_file none",
        files => { none => "none\n" },
        zone => { z => 'redis=r rate=1000r/s',
                  strict => 'redis=r sync=strict rate=1000r/s',
                  quota => 'redis=r limit=200 window=1d algorithm=fixed_window',
                  small => 'limit=9999 window=4s algorithm=fixed_window',
                  'tiny:64k' => 'limit=9999 window=4s algorithm=fixed_window',
                  leaky => 'rate=50r/s burst=50 algorithm=leaky_bucket',
                  limited => 'limit=1 window=1d algorithm=fixed_window',
                  hot => 'rate=100000r/s' },
        rules => ['try zone=small rate=1r/d dry_run'],
        http => $map,
        locations => { '/' => 'ratelimit zone=z;',
                       '/api-hot' => 'ratelimit_api zone=hot;',
                       map { ("/$_" => "ratelimit zone=$_;") }
                       qw( strict quota small tiny leaky limited hot ) });
}

# A process that sends requests to both gateways, again and again: these paths at
# once, where "%s" is a new number.
sub load {
    my @paths = @_;
    my $n = 0;
    my $pid = t::Gateway::beside(sub {
        while (1) {
            t::Gateway::send_all(
                [map { my $path = $_;
                       map { [$_, $path =~ s/%s/$n++/er] } $one, $two } @paths],
                2);
            sleep 0.05;
        }
    });
    push @beside, $pid;
    return $pid;
}

# A process that sends 2,500 requests a second with one key to a gateway.
sub hot_key {
    my $gateway = shift;
    my $get = "GET /hot?k=hot HTTP/1.1\r\nHost: a\r\n";
    push @beside, t::Gateway::beside(sub {
        while (1) {
            $gateway->raw("$get\r\n" x 249 . "${get}Connection: close\r\n\r\n");
            sleep 0.1;
        }
    });
    return $beside[-1];
}

sub load_end {
    my $pid = shift;
    kill KILL => $pid;
    waitpid $pid, 0;
    @beside = grep { $_ != $pid } @beside;
}

# Redis answers each call only some milliseconds later.
sub slow {
    push @beside, t::Gateway::beside(sub {
        exec qw( redis-cli -p ), $port, qw( -r -1 client pause 20 );
    });
    return $beside[-1];
}

# Redis loses a counter again and again. A call right behind an answer proves no
# loss, nor one behind a call of the other gateway.
sub flushes {
    push @beside, t::Gateway::beside(sub {
        for (my $n = 0; 1; $n++) {
            $one->burst(150, "/quota?k=$n");
            sleep 0.2;
            redis_cli($port, 'flushall');
            $one->get("/quota?k=$n");
        }
    });
    return $beside[-1];
}

# A fault, the alerts that fire with it, each with labels that one of them must
# have, and how the fault is mended.
sub fires {
    my ($alerts, $fault, $mended) = @_;
    my $names = join ', ', sort keys %$alerts;
    my $missing = sub {
        my $firing = $prometheus->firing;
        return join ' ', grep { my $labels = $alerts->{$_};
            !grep { my $is = $_; !grep { $is->{$_} ne $labels->{$_} }
                                      keys %$labels }
                  @{ $firing->{"Ratelimit$_"} // [] }
        } sort keys %$alerts;
    };
    my $firing = sub {
        return join ' ', grep { $prometheus->firing->{"Ratelimit$_"} }
                         sort keys %$alerts;
    };
    delete @untested{map { "Ratelimit$_" } keys %$alerts};
    wait_for(sub { !$firing->() }, PATIENCE);
    is($firing->(), '', "$names: well before");
    my $made = $fault->();
    wait_for(sub { !$missing->() }, PATIENCE);
    is($missing->(), '', "$names: fires");
    $mended->($made);
    wait_for(sub { !$firing->() }, PATIENCE);
    is($firing->(), '', "$names: ends");
}

# What the dashboard asks, with its variables as they are for "All".
sub dashboard {
    open my $file, '<', 'examples/grafana/ratelimit.json' or die $!;
    my $dashboard = JSON::PP->new->utf8->decode(do { local $/; <$file> });
    my %is = (__rate_interval => '1m',
              map { $_->{name} => '.+' } @{ $dashboard->{templating}{list} });
    for my $panel (@{ $dashboard->{panels} }) {
        for my $target (@{ $panel->{targets} // [] }) {
            my $query = $target->{expr} =~ s/\$(\w+)/$is{$1}/gr;
            my @values = map { $_->{value}[1] } @{ $prometheus->query($query) };
            ok((grep { $_ ne 'NaN' } @values), "$panel->{title}: has data")
                or diag("$query: @values");
        }
    }
    for (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} }) {
        my ($metric, $label) = $_->{query} =~ /^label_values\((\w+), (\w+)\)$/;
        ok((grep { $_->{metric}{$label} } @{ $prometheus->query($metric) }),
           "$_->{name}: has values");
    }
}

sub instance { return (instance => "127.0.0.1:$_[0]{port}") }

# A document with these rules, by that key.
sub rules {
    my ($key, @ids) = @_;
    return { rules => [map { { id => $_, key => $key,
                               params => { rate => '500r/s' } } } @ids] };
}

# all is well
is($api->change(PUT => '/document', rules('$arg_k', 'a'))->{status}, 201,
   'a document');
load('/?k=a', '/strict?k=%s', '/small?k=a', '/tiny?k=a', ('/leaky?k=a') x 3);
$prometheus = t::systems::Prometheus->start($one, $two);
%untested = map { $_->{name} => 1 } map { @{ $_->{rules} } }
            @{ $prometheus->api('rules')->{groups} };

my $scrapes = 'sum(count_over_time(ratelimit_rules_version[5m]))';

ok(wait_for(sub { ($prometheus->query($scrapes)->[0]{value}[1] // 0) > 40 }),
   'gateways are scraped');
wait_for(sub { !%{ $prometheus->firing } }, PATIENCE);
is_deeply($prometheus->firing, {}, 'all is well: no alert');

# who is limited
fires({ Rejects => { zone => 'limited', rule => 'limited' } },
      sub { load('/limited?k=a') }, \&load_end);
fires({ TableFull => { instance($one), zone => 'tiny' },
        Evicts => { instance($two), zone => 'tiny' } },
      sub { load(('/tiny?k=%s') x 100) }, \&load_end);

fires({ HotKey => { instance($one), zone => 'hot' } },
      sub { hot_key($one) }, \&load_end);

# the document
fires({ RulesSkipped => { instance($two), zone => 'z' } },
      sub { $api->change(PUT => '/document', rules('$plan_key', 'a', 'b')) },
      sub { $api->change(PUT => '/document', rules('$arg_k', 'a')) });
fires({ RulesDiffer => { zone => 'z' },
        RulesUnreachable => { instance($two), zone => 'z' },
        RedisErrors => { instance($two), error => 'noperm' } },
      sub {
          redis_cli($port, 'acl', 'setuser', 'two', 'resetkeys');
          $api->change(PUT => '/document', rules('$arg_k', 'c'));
      },
      sub { redis_cli($port, 'acl', 'setuser', 'two', '~*') });

# Redis
fires({ RedisSlow => { instance($one), redis => 'r' } }, \&slow, \&load_end);
fires({ ClockOff => { instance($one), redis => 'r' } },
      sub { set_clock(0.7) }, sub { set_clock(0) });
fires({ StateLost => { zone => 'quota' } },
      \&flushes, \&load_end);
fires({ BreakerOpen => { instance($one), redis => 'r' },
        Degraded => { instance($two), zone => 'strict' } },
      sub { kill STOP => redis_pid($port) },
      sub { kill CONT => redis_pid($port) });

dashboard();
is_deeply([sort keys %untested], [qw( RatelimitBreakerFlaps RatelimitLeasesRefused
                                     RatelimitRulesMissing
                                     RatelimitRulesNotCounted RatelimitRulesNotSaved
                                     RatelimitRulesRefused
                                     RatelimitTopologyOld )],
          'all alerts are tested, but some by promtool alone');
$_->stop for $one, $two;
