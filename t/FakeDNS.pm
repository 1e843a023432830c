# A name server that says what a test wants, over UDP on loopback.
#
#     use t::FakeDNS;
#     my $dns = t::FakeDNS->new('redis.test' => '127.0.0.1');
#
#     $dns->{port}
#     $dns->set(name => 'address', ...)  from now on: addresses with blanks
#                  between, or NXDOMAIN, SERVFAIL, SILENCE; a name never named
#                  is NXDOMAIN
#     $dns->asked(name)                  how often, for its IPv4 addresses
#     $dns->stop

package t::FakeDNS;

use strict;
use warnings;

use File::Temp ();
use IO::Socket::INET;
use POSIX ();

use constant { A => 1, NXDOMAIN => 3, SERVFAIL => 2 };

my %running;

sub new {
    my ($class, %names) = @_;
    my $socket = IO::Socket::INET->new(Proto => 'udp',
        LocalAddr => '127.0.0.1') or die "dns: $!";
    my $self = bless { port => $socket->sockport, names => {},
                       dir => File::Temp->newdir }, $class;
    $self->set(%names);
    $self->{pid} = fork // die "fork: $!";
    if ($self->{pid} == 0) {
        $SIG{TERM} = 'DEFAULT';
        eval { serve($self, $socket) };
        warn $@ if $@;
        POSIX::_exit(0);
    }
    $running{$self->{pid}} = 1;
    return $self;
}

sub set {
    my ($self, %names) = @_;
    %{ $self->{names} } = (%{ $self->{names} }, %names);
    open my $file, '>', "$self->{dir}/new" or die;
    print $file map { "$_ $self->{names}{$_}\n" } keys %{ $self->{names} };
    close $file;
    rename "$self->{dir}/new", "$self->{dir}/names" or die;
}

sub asked {
    my ($self, $name) = @_;
    open my $file, '<', "$self->{dir}/asked" or return 0;
    return scalar grep { $_ eq "$name\n" } <$file>;
}

sub stop {
    my $self = shift;
    return if !delete $running{$self->{pid}};
    kill KILL => $self->{pid};
    waitpid $self->{pid}, 0;
}

END {
    local $?;
    for (keys %running) {
        kill KILL => $_;
        waitpid $_, 0;
    }
}

sub serve {
    my ($self, $socket) = @_;
    open my $asked, '>>', "$self->{dir}/asked" or die;
    while (defined(my $peer = recv $socket, my $query, 4096, 0)) {
        my $at = 12;
        my @labels;
        while (my $length = ord substr $query, $at, 1) {
            push @labels, lc substr $query, $at + 1, $length;
            $at += 1 + $length;
        }
        my $name = join '.', @labels;
        my $type = unpack 'n', substr $query, $at + 1, 2;
        my $question = substr $query, 12, $at + 5 - 12;
        my $says = $self->says($name);
        syswrite $asked, "$name\n" if $type == A;
        next if $says eq 'SILENCE';
        my $code = $says eq 'NXDOMAIN' ? NXDOMAIN
                   : $says eq 'SERVFAIL' ? SERVFAIL : 0;
        my @addresses = $code || $type != A ? () : split ' ', $says;
        # answers point to the name in the question; no time to live
        send $socket, substr($query, 0, 2)
             . pack('n5', 0x8180 | $code, 1, scalar @addresses, 0, 0)
             . $question
             . join('', map { pack 'n3 N n C4', 0xc00c, A, 1, 0, 4,
                              split /\./ } @addresses),
             0, $peer;
    }
}

sub says {
    my ($self, $name) = @_;
    open my $file, '<', "$self->{dir}/names" or die;
    for (<$file>) {
        chomp;
        return $1 if /^\Q$name\E (.*)/;
    }
    return 'NXDOMAIN';
}

1;
