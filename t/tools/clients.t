# The clients of docs/client-authors.md, run as they stand there: how they wait,
# and when they give up.

use t::RateLimit 'no_plan';
use t::Ports qw( free_ports );

use IO::Socket::INET;

# path => what the first answer is; the second one is 200
my %FIRST = (
    '/seconds' => "429 Busy\r\nRetry-After: 0",
    '/date' => "503 Busy\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT",
    '/odd' => "503 Busy\r\nRetry-After: soon",
    '/none' => '503 Busy',
    '/month' => "429 Busy\r\nRetry-After: 2678400",
    '/later' => "503 Busy\r\nRetry-After: Fri, 31 Dec 2100 23:59:59 GMT",
    '/never' => '429 Busy',
);
my %WAITS = map { $_ => 1 } qw( /seconds /date /odd /none );

my $page = do { local (@ARGV, $/) = 'docs/client-authors.md'; <> };
my ($python) = $page =~ /^```python\n(.*?)^for i in/ms;
my ($script) = $page =~ /^```text\n([^`]*async function.*?)^```/ms;
my ($port) = free_ports(1);
my $api = IO::Socket::INET->new(Listen => 10, LocalAddr => "127.0.0.1:$port",
                                ReuseAddr => 1) or die "listen: $@";

# Serves until the client has ended: how often it asked.
sub asked {
    my ($path, @command) = @_;
    my ($n, $ended) = (0, 0);
    my $pid = open my $said, '-|';
    if (!$pid) {
        exec @command or die "$command[0]: $!";
    }
    $said->blocking(0);
    while (!$ended && $n < 20) {
        my ($read, $bits) = ('', '');
        vec($bits, fileno $_, 1) = 1 for $api, $said;
        select $read = $bits, undef, undef, 60 or last;
        if (vec $read, fileno $said, 1) {
            $ended = !sysread $said, my $text, 1000;
        }
        if (vec $read, fileno $api, 1) {
            my $client = $api->accept;
            local $/ = "\r\n\r\n";
            <$client>;
            print $client 'HTTP/1.1 ', $n++ ? '200 OK' : $FIRST{$path},
                          "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        }
    }
    kill TERM => $pid if !$ended;
    close $said;
    return $n;
}

my %clients = (
    Python => ['python3', '-c', $python . <<'END'],
try:
    fetch(sys.argv[1], "alice")
except (urllib.error.HTTPError, TimeoutError):
    pass
END
    JavaScript => ['node', '-e', $script . 'fetchPatiently(process.argv[1]);'],
);

for my $name (sort keys %clients) {
    SKIP: {
        my ($program) = @{ $clients{$name} };
        skip "$name: no $program here", scalar keys %FIRST
            if !grep { -x "$_/$program" } split /:/, $ENV{PATH};
        is(asked($_, @{ $clients{$name} }, "http://127.0.0.1:$port$_"),
           $WAITS{$_} ? 2 : 1, "$name: $_")
            for sort keys %FIRST;
    }
}
