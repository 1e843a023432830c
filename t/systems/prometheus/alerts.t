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


# With a user for each gateway.
sub redis_server {
    my $server = redis_start();

    redis_cli($server, 'acl', 'setuser', $_, 'on', 'nopass', '~*', '&*',
              '+@all') for 'one', 'two';

    return $server;
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
                  strict => 'redis=r sync=strict rate=1000r/s' },
        http => $map,
        locations => { map { ("/$_" => "ratelimit zone=$_;") }
                       qw( z strict ) });
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


sub load_end {
    my $pid = shift;

    kill KILL => $pid;
    waitpid $pid, 0;
    @beside = grep { $_ != $pid } @beside;
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


sub instance { return (instance => "127.0.0.1:$_[0]{port}") }

# A document with these rules, by that key.
sub rules {
    my ($key, @ids) = @_;

    return { rules => [map { { id => $_, key => $key,
                               params => { rate => '500r/s' } } } @ids] };
}


# all is well

is($api->change(PUT => '/rules', rules('$arg_k', 'a'))->{status}, 201,
   'a document');
load('/z?k=a', '/strict?k=%s');
$prometheus = t::systems::Prometheus->start($one, $two);
%untested = map { $_->{name} => 1 } map { @{ $_->{rules} } }
            @{ $prometheus->api('rules')->{groups} };

my $scrapes = 'sum(count_over_time(ratelimit_rules_version[5m]))';

ok(wait_for(sub { ($prometheus->query($scrapes)->[0]{value}[1] // 0) > 40 }),
   'gateways are scraped');
is_deeply($prometheus->firing, {}, 'all is well: no alert');

# the document

fires({ RulesSkipped => { instance($two), zone => 'z' } },
      sub { $api->change(PUT => '/rules', rules('$plan_key', 'a', 'b')) },
      sub { $api->change(PUT => '/rules', rules('$arg_k', 'a')) });
fires({ RulesDiffer => { zone => 'z' },
        RulesUnreachable => { instance($two), zone => 'z' },
        RedisErrors => { instance($two), error => 'noperm' } },
      sub {
          redis_cli($port, 'acl', 'setuser', 'two', 'resetkeys');
          $api->change(PUT => '/rules', rules('$arg_k', 'c'));
      },
      sub { redis_cli($port, 'acl', 'setuser', 'two', '~*') });

# Redis

fires({ BreakerOpen => { instance($one), redis => 'r' },
        Degraded => { instance($two), redis => 'r' } },
      sub { kill STOP => redis_pid($port) },
      sub { kill CONT => redis_pid($port) });

is_deeply([sort keys %untested], [qw( RatelimitBreakerFlaps RatelimitRulesRefused )],
          'all alerts are tested, but some by promtool alone');
$_->stop for $one, $two;
