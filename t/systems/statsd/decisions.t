# Decisions as StatsD counters, by examples/statsd: from nginx over rsyslog to
# collectd.

use t::RateLimit 'no_plan';
use t::Gateway qw( tally wait_for );
use t::Ports qw( free_port );
use t::systems::Program qw( example listens );

my %port = map { $_ => free_port() } 5141, 8125;
my $dir = t::Gateway::dir('collectd');

# what it has is printed each second
my $collectd = t::systems::Program->start(
    'collectd', 'stdbuf', '-oL', 'collectd', '-f', '-C',
    t::Gateway::write({ dir => $dir }, 'collectd.conf', <<"CONF"));
Hostname "here"
BaseDir "$dir"
PIDFile "$dir/pid"
Interval 1
LoadPlugin csv
<Plugin csv>
    DataDir "stdout"
</Plugin>
@{[ example('statsd/collectd.conf', %port) ]}
CONF
my $rsyslog = t::systems::Program->start(
    'rsyslog', 'rsyslogd', '-n', '-i', "$dir/rsyslog.pid", '-f',
    t::Gateway::write({ dir => $dir }, 'rsyslog.conf',
                      "\$WorkDirectory $dir\n"
                      . example('statsd/rsyslog.conf', %port)));

wait_for(sub { listens($_->[1]) }) or die $_->[0]->read
    for [$collectd, $port{8125}], [$rsyslog, $port{5141}];

# here, each request that passed is of the sample
my $gateway = t::Gateway->limited(
    workers => 2,
    zone => { z => 'rate=3r/h', other => 'rate=1r/h' },
    rules => ['try zone=other rate=1r/d key=$arg_try dry_run'],
    http => example('statsd/nginx.conf', %port, '1%' => '100%'),
    locations => { '/' => 'ratelimit zone=z;',
                   '/other' => 'ratelimit zone=other;',
                   '/free' => 'return 204;' });

# What collectd has last said of each counter.
sub counters {
    my %of = $collectd->read
             =~ m{^PUTVAL here/statsd/derive-(\S+) interval=\S+ \S+?:(\S+)$}mg;
    return join ', ', map { "$_ $of{$_}" } sort keys %of;
}

is(tally($gateway->burst(40, '/?k=a')), '3 x 200, 37 x 429', 'the limit');
is($gateway->statuses('/other?try=a&k=b', '/other?try=a&k=c', '/other?k=c',
                      '/free', '/'), '200 200 429 204 200', 'others');

my $wanted = 'ratelimit.other.other.PASSED 100, '
             . 'ratelimit.other.other.REJECTED 1, '
             . 'ratelimit.other.try.REJECTED_DRY_RUN 1, '
             . 'ratelimit.z.z.PASSED 300, ratelimit.z.z.REJECTED 37';

wait_for(sub { counters() eq $wanted });
is(counters(), $wanted, 'all are counted, one of a sample for a hundred');
$gateway->stop;
