# A real Prometheus that reads gateways, with the alerts of examples/prometheus:
# as shipped, but for minutes that are seconds, and 10,000 that are 1,000.
#
#     my $prometheus = t::systems::Prometheus->start(@gateways);
#     $prometheus->query('sum(up)')      [{metric => {...}, value => [...]}]
#     $prometheus->firing                {RatelimitDegraded => [labels, ...]}

package t::systems::Prometheus;

use strict;
use warnings;

use JSON::PP ();

use t::Gateway;
use t::Ports qw( free_port );
use t::systems::Program;

# what is scraped and judged so often in a second
use constant { EACH => '250ms', WINDOW => '3s' };

our $ALERTS = 'examples/prometheus/alerts.yml';

sub start {
    my ($class, @gateways) = @_;
    my $port = free_port();
    my $self = bless { port => $port, dir => t::Gateway::dir('prometheus') },
                     $class;
    my $targets = join ', ', map { "'127.0.0.1:$_->{port}'" } @gateways;
    my ($every, $window) = (EACH, WINDOW);
    open my $file, '<', $ALERTS or die "$ALERTS: $!";
    my $alerts = do { local $/; <$file> };
    $alerts =~ s/\[\d+[mh]\]/[$window]/g;
    $alerts =~ s/^    for: .*/    for: 1s/mg;
    $alerts =~ s/> 10000$/> 1000/mg;
    t::Gateway::write($self, 'alerts.yml', $alerts);
    t::Gateway::write($self, 'prometheus.yml', <<"YML");
global:
  scrape_interval: $every
  scrape_timeout: $every
  evaluation_interval: $every
rule_files: [ alerts.yml ]
scrape_configs:
- job_name: gateways
  static_configs: [ { targets: [ $targets ] } ]
YML
    $self->{program} = t::systems::Program->start(
        'prometheus', 'prometheus', '--log.level=warn',
        "--config.file=$self->{dir}/prometheus.yml",
        "--storage.tsdb.path=$self->{dir}/data",
        "--web.listen-address=127.0.0.1:$port");
    t::Gateway::wait_for(sub {
        ($self->get('/-/ready')->{status} // 0) == 200
        && @{ $self->query('up == 1') } == @gateways
    }, 60) or die "prometheus:\n" . $self->{program}->read;
    return $self;
}

sub get { return (t::Gateway::send_all([[$_[0]{port}, $_[1]]]))[0] }

# The data of an answer of its API.
sub api {
    my ($self, $path) = @_;
    my $answer = $self->get("/api/v1/$path");
    my $json = eval { JSON::PP->new->utf8->decode($answer->{body}) } // {};
    return $json->{data} // die "prometheus: $path: $answer->{status} "
                                . ($json->{error} // '') . "\n";
}

sub query {
    my ($self, $expression) = @_;
    my $query = $expression =~ s/([^\w.-])/sprintf '%%%02X', ord $1/ger;
    return eval { $self->api("query?query=$query")->{result} } // do {
        Test::More::diag($@);
        [];
    };
}

sub firing {
    my $self = shift;
    my %firing;
    for (@{ $self->api('alerts')->{alerts} }) {
        push @{ $firing{$_->{labels}{alertname}} }, $_->{labels}
            if $_->{state} eq 'firing';
    }
    return \%firing;
}

1;
