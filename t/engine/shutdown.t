# What ends with a worker's time (worker_shutdown_timeout): the requests that it
# ends give their permits back and pay what they cost, in shared memory and in
# Redis, also where Redis answers late. A worker does not stay for long for a
# Redis that does not answer.

use t::RateLimit 'no_plan';
use t::Gateway qw( header passed told wait_for );

use IO::Socket::UNIX;

my $redis = redis_start();
my $prefix = key_prefix();
my %rules = (local => [qw( permits bytes )],
             fleet => [qw( permits bytes strict )]);

# limits of 7 in flight, and of 100,000 bytes of responses
my $gateway = t::Gateway->new(workers => 2,
    main => 'worker_shutdown_timeout 300ms;', http => <<"CONF");
    ratelimit_redis r { server 127.0.0.1:$redis; timeout 1s; prefix $prefix; }
    ratelimit_zone \$arg_k zone=local:1m;
    ratelimit_zone \$arg_k zone=fleet:1m redis=r;
    @{[map { my $zone = $_; map { "ratelimit_rule $_->[0] zone=$zone $_->[1];" }
             (['permits', 'algorithm=concurrency limit=7'],
              ['bytes', 'algorithm=fixed_window limit=100000 window=1h'
                        . ' cost_end=$body_bytes_sent'],
              $zone eq 'local' ? () : ['strict', 'algorithm=fixed_window limit=100000 window=1h'
                         . ' sync=strict cost_end=$body_bytes_sent']) }
       qw( local fleet )]}
    server {
        listen 127.0.0.1:%%PORT%% backlog=1024;
        add_header X-Status \$ratelimit_status always;
        proxy_buffering off;
        @{[map { my $zone = $_; map { <<"LOCATION" }
            location = /$zone/$_ {
                ratelimit zone=$zone rule=$_;
                proxy_pass http://unix:%%DIR%%/api.sock;
            }
            location = /$zone/$_/now {
                ratelimit zone=$zone rule=$_; empty_gif;
            }
LOCATION
           @{ $rules{$zone} } } qw( local fleet )]}
    }
CONF

# responses that have begun and never end
my $api = IO::Socket::UNIX->new(Listen => 100,
                                Local => "$gateway->{dir}/api.sock")
    or die "api.sock: $!";
my $text = 'x' x 1000;

$gateway->start;

sub stream {
    my ($n, $path) = @_;
    my $begun = $gateway->begin($n, $path);
    my @upstreams;
    for (1 .. $n) {
        my $upstream;
        wait_for(sub {
            t::Gateway::answered($begun);
            local $SIG{ALRM} = sub { die "no request\n" };
            alarm 20;
            $upstream = $api->accept;
            alarm 0;
            return $upstream;
        });
        sysread $upstream, my $request, 65536;
        print $upstream "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n$text";
        $upstream->flush;
        push @upstreams, $upstream;
    }
    return ($begun, @upstreams);
}

sub remaining {
    my $answer = $gateway->get($_[0]);
    return header($answer, 'X-RateLimit-Remaining') // told($answer);
}

my $key = 0;

sub reload_ends_streams {
    my ($during, $what) = @_;
    my @zones = qw( local fleet );
        my $k = 'k=' . ++$key;
    my @open = map { my $zone = $_; map { [stream(7, "/$zone/$_?$k")] }
               @{ $rules{$zone} } } @zones;
    is(told($gateway->get("/$_/permits/now?$k")), '429 REJECTED 0',
       "$what, $_: seven hold their permits")
        for @zones;
    my @old = $gateway->workers;
    $gateway->signal('HUP');
    $during->();
    ok(wait_for(sub {
        my %now = map { $_ => 1 } $gateway->workers;
        !grep { $now{$_} } @old;
    }), "$what: the old workers leave");
    return ($k, @open);
}

for my $case (['a reload', sub { }],
              ['a late answer', sub {
                  kill STOP => redis_pid($redis);
                  $gateway->log_has(qr/shutting down/, 'the worker is told');
                  select undef, undef, undef, 0.6;
                  kill CONT => redis_pid($redis);
              }])
{
    my ($what, $during) = @$case;
    my ($k) = reload_ends_streams($during, $what);
    for my $zone (qw( local fleet )) {
        is(passed($gateway->burst(7, "/$zone/permits/now?$k")), 7,
           "$what, $zone: their permits are free");
        ok(wait_for(sub {
            my $left = remaining("/$zone/$_/now?$k");
            return $left > 100000 - 7000 - 9000 && $left <= 100000 - 7000;
        }), "$what, $zone: what was sent is charged by $_")
            or diag(remaining("/$zone/$_/now?$k"))
            for grep { $_ ne 'permits' } @{ $rules{$zone} };
    }
}

# Redis does not answer at all
my ($k) = reload_ends_streams(sub { kill STOP => redis_pid($redis) },
                              'without Redis');
kill CONT => redis_pid($redis);
$gateway->stop;
