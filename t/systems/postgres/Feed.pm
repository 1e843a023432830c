# A PostgreSQL server with the tables of feeder/schema.sql, feeders that copy
# them to gateways, and what may stand between these.
#
#     my $database = t::systems::postgres::Feed->start;
#     $database->sql('SELECT 1')          what psql prints; dies on an error
#     $database->refuses($sql)            whether it is an error
#     $database->crash; $database->run    the server, with its data
#     my $feeder = $database->feeder($gateway, ...)   gateways, or URLs; then
#                                         options; a t::systems::Program
#     between($port, sub { ... })         the port of a proxy that calls it
#                                         once, before the next PUT

package t::systems::postgres::Feed;

use strict;
use warnings;

use Encode ();
use Exporter qw( import );
use IO::Socket::INET;

use t::Gateway;
use t::Ports qw( free_port );
use t::systems::Program;

our @EXPORT_OK = qw( between );

my $FEEDER = 'build/ratelimit-feed';

my ($test, @beside) = ($$);

sub start {
    my $self = bless { port => free_port(), dir => t::Gateway::dir('database') },
                     shift;
    $self->run;
    $self->psql('-1', '-f', 'feeder/schema.sql');
    return $self;
}

# Until it serves. What a crash has left may take a moment.
sub run {
    my $self = shift;
    t::Gateway::wait_for(sub {
        $self->{server} = t::systems::Program->start(
            'postgres', 'tools/postgres.sh', "$self->{dir}/pg", $self->{port});
        t::Gateway::wait_for(sub {
            waitpid($self->{server}{pid}, POSIX::WNOHANG)
            || eval { $self->sql('SELECT 1') }
        }, 60);
        eval { $self->sql('SELECT 1') } or do { $self->{server}->stop; 0 };
    }, 120) or die "postgres: " . $self->{server}->read;
}

# As when the machine fails: no process of it is left, nothing is written.
sub crash {
    my $self = shift;
    $self->{server}->signal('QUIT');
    $self->{server}->stop;
}

sub psql {
    my ($self, @args) = @_;
    open my $connection, '<', "$self->{dir}/pg/connection"
        or die "connection: $!";
    chomp(my $to = <$connection>);
    open my $out, '-|', 'sh', '-c', 'exec psql "$@" 2>&1', 'sh', '-XqAt', '-v',
        'ON_ERROR_STOP=1', '-d', $to, @args or die "psql: $!";
    my $said = do { local $/; <$out> } // '';
    close $out or die "psql: $said\n";
    chomp $said;
    return $said;
}

sub sql { return $_[0]->psql('-c', Encode::encode_utf8($_[1])) }

sub refuses {
    my ($self, $sql) = @_;
    return !eval { $self->sql($sql); 1 };
}

sub feeder {
    my ($self, @to) = @_;
    my $token = "$self->{dir}/token";
    t::Gateway::write($self, 'token', $t::Gateway::TOKEN =~ s/.* //r . "\n");
    return t::systems::Program->start(
        'feeder' . ++$self->{feeders}, $FEEDER,
        "--database-file=$self->{dir}/pg/connection",
        (grep { /^--token-file/ } @to) ? () : "--token-file=$token",
        map { ref $_ ? "--gateway=http://127.0.0.1:$_->{port}/rl"
                     : /^--/ ? $_ : "--gateway=$_" }
        grep { $_ ne '--token-file=' } @to);
}

# One request over each connection; a thing is done before the first PUT.
sub between {
    my ($port, $what) = @_;
    my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 9)
                   or die "listen: $!";
    push @beside, t::Gateway::beside(sub {
        while (my $client = $listener->accept) {
            my $text = '';
            1 while $text !~ /\r\n\r\n/
                    && sysread $client, $text, 65536, length $text;
            my ($head, $body) = split /\r\n\r\n/, $text, 2;
            my ($length) = $head =~ /^Content-Length: (\d+)/mi;
            1 while length $body < ($length // 0)
                    && sysread $client, $body, 65536, length $body;
            if ($what && $head =~ /^PUT/) {
                $what->();
                undef $what;
            }
            my $gateway = t::Gateway::connect_to($port);
            $head =~ s/^(\S+ \S+) HTTP\/1\.1/$1 HTTP\/1.0/;
            print $gateway "$head\r\n\r\n$body";
            $gateway->flush;
            print $client $_ while defined($_ = readline $gateway);
            close $client;
        }
    });
    return $listener->sockport;
}

END {
    local $?;
    kill KILL => @beside if $$ == $test;
}

1;
