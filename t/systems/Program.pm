# A program that a test starts beside its gateways, and that ends with the test.
#
#     my $kcat = t::systems::Program->start('kcat', 'kcat', '-C', ...);
#     $kcat->read                   what it has printed
#     $kcat->signal('STOP')
#     $kcat->stop
#
#     listens($port)                whether somebody has this UDP port
#     example('audit/nginx.conf', '127.0.0.1:9092' => $address, ...)
#                                   the text of a file of examples/, with these
#                                   texts in place of those

package t::systems::Program;

use strict;
use warnings;

use Exporter qw( import );
use POSIX ();

use t::Gateway;

our @EXPORT_OK = qw( example listens );

my %running;

sub listens {
    my $wanted = sprintf '^ *\d+: [0-9A-F]+:%04X ', shift;
    open my $file, '<', '/proc/net/udp' or die "/proc/net/udp: $!";
    return grep { /$wanted/ } <$file>;
}

sub example {
    my ($name, %with) = @_;
    open my $file, '<', "examples/$name" or die "$name: $!";
    my $text = do { local $/; <$file> };
    my $these = join '|', map { quotemeta } sort keys %with;
    return $text =~ s/($these)/$with{$1}/gr;
}

# It has a folder of its own, and an input that nobody writes to.
sub start {
    my ($class, $name, @command) = @_;
    my $self = bless { name => $name, dir => t::Gateway::dir($name) }, $class;
    pipe my $in, $self->{in} or die "pipe: $!";
    $self->{pid} = fork // die "fork: $!";
    if ($self->{pid} == 0) {
        open STDIN, '<&', $in;
        open STDOUT, '>>', "$self->{dir}/out.log";
        open STDERR, '>&', \*STDOUT;
        close $self->{in};
        delete $ENV{LD_PRELOAD};
        { exec @command; }
        POSIX::_exit(127);
    }
    return $running{$self->{pid}} = $self;
}

sub read { return t::Gateway::read($_[0], 'out.log') }

sub signal { return kill $_[1] => $_[0]{pid} }

# Until it has printed this; what $1 is.
sub says {
    my ($self, $like) = @_;
    my $said;
    t::Gateway::wait_for(sub { ($said) = $self->read =~ $like })
        or die "$self->{name} does not say $like:\n" . $self->read;
    return $said;
}

sub stop {
    my $self = shift;
    return if !delete $running{$self->{pid}};
    kill CONT => $self->{pid};
    kill TERM => $self->{pid};
    t::Gateway::wait_for(sub { waitpid($self->{pid}, POSIX::WNOHANG) }, 5)
        or kill KILL => $self->{pid};
}

END {
    local $?;
    $_->stop for values %running;
}

1;
