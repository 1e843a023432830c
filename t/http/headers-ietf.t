# "ratelimit_headers ietf": RateLimit-Policy and RateLimit, lists of Structured
# Fields with an item for each rule that is enforced.

use strict;
use warnings;

use IO::Socket::INET;
use MIME::Base64 qw( decode_base64 );

use t::RateLimit 'no_plan';
use t::Gateway;

my $redis = redis_port();
my $prefix = key_prefix();

# answers what it is asked after two seconds

my $slow = IO::Socket::INET->new(Listen => 9, LocalAddr => '127.0.0.1')
    or die "listen: $!";
my $slow_port = $slow->sockport;
my $slow_pid = fork // die "fork: $!";

if (!$slow_pid) {
    while (my $client = $slow->accept) {
        sysread $client, my $request, 65536;
        sleep 2;
        print $client "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nslow\n";
        close $client;
    }

    require POSIX;
    POSIX::_exit(0);
}

END {
    if ($slow_pid) {
        local $?;
        kill KILL => $slow_pid;
        waitpid $slow_pid, 0;
    }
}

# the longest lists that there are

my @long = map { sprintf 'rule-%02d-%s', $_, 'n' x 56 } 1 .. 16;
my $long = join '', map { "    ratelimit_rule $_ zone=long rate=1073741824r/s"
                          . " capacity=1000000000;\n" } @long;

# and with names that need their zone's

my @twins = map { my $zone = $_; map { [$zone, sprintf 'twin-%02d-%s', $_,
                                                       't' x 56] } 1 .. 8 }
            'y' x 64, 'z' x 64;
my $twins = join '', map { "    ratelimit_rule $_->[1] zone=$_->[0] "
                           . "rate=1073741824r/s capacity=1000000000;\n" }
                         @twins;

my $conf = <<"CONF";
    ratelimit_zone \$arg_k zone=@{['y' x 64]}:1m;
    ratelimit_zone \$arg_k zone=@{['z' x 64]}:1m;
$twins
    ratelimit_zone \$arg_k zone=read:1m;
    ratelimit_zone \$arg_k zone=write:1m;
    ratelimit_zone \$arg_k zone=test:1m;
    ratelimit_rule per_key zone=read rate=5r/h;
    ratelimit_rule own zone=read rate=6r/h;
    ratelimit_rule per_key zone=write rate=50r/h;
    ratelimit_rule own zone=test rate=50r/h dry_run;
    ratelimit_zone \$arg_k zone=api:1m rate=30r/m;
    ratelimit_rule user zone=api rate=7r/m capacity=10 key=\$arg_u;
    ratelimit_rule deep.path-1_x zone=api rate=100r/h match=/two;
    ratelimit_zone \$arg_k zone=day:1m rate=1r/d;
    ratelimit_zone \$arg_k zone=long:1m;
$long
    ratelimit_redis r {
        server 127.0.0.1:$redis; prefix $prefix; timeout 5s;
    }
    ratelimit_zone \$arg_k zone=fleet:1m rate=20r/h redis=r;
    ratelimit_rule tenant zone=fleet rate=2r/h key=\$arg_t;

    ratelimit_redis gone { server 127.0.0.1:1; timeout 200ms; }
    ratelimit_zone \$arg_k zone=lost:1m rate=5r/h redis=gone;

    ratelimit_zone \$arg_k zone=kinds:1m;
    ratelimit_rule flight zone=kinds algorithm=concurrency limit=1;
    ratelimit_rule bucket zone=kinds rate=9r/d;
    ratelimit_rule leaky zone=kinds algorithm=leaky_bucket rate=1r/m burst=4
                   nodelay;

    ratelimit_zone \$arg_k zone=dry:1m;
    ratelimit_rule try zone=dry rate=1r/h dry_run;
    ratelimit_rule real zone=dry rate=3r/h;
    ratelimit_rule try-two zone=dry rate=2r/h dry_run;
    ratelimit_zone \$arg_k zone=cost:1m rate=2r/h cost=3;

    server {
        listen 127.0.0.1:%%PORT%%;
        ratelimit_headers ietf;

        location /one { ratelimit zone=api rule=api; empty_gif; }
        location /two { ratelimit zone=api; empty_gif; }
        location /long { ratelimit zone=long; empty_gif; }
        location /twins {
            ratelimit zone=@{['y' x 64]}; ratelimit zone=@{['z' x 64]};
            empty_gif;
        }
        location /read-write {
            ratelimit zone=read; ratelimit zone=write; ratelimit zone=test;
            empty_gif;
        }
        location /read { ratelimit zone=read; empty_gif; }
        location /fleet { ratelimit zone=fleet; empty_gif; }
        location /both { ratelimit zone=fleet; ratelimit zone=day; empty_gif; }
        location /lost { ratelimit zone=lost; empty_gif; }
        location /half { ratelimit zone=lost; ratelimit zone=day; empty_gif; }

        location /kinds { ratelimit zone=kinds; limit_rate 200; empty_gif; }
        location /dry { ratelimit zone=dry; empty_gif; }
        location /all-dry {
            ratelimit zone=dry;
            ratelimit_dry_run on;
            proxy_pass http://127.0.0.1:%%PORT%%/origin;
        }
        location /dry-lost {
            ratelimit zone=lost;
            ratelimit_dry_run on;
            empty_gif;
        }
        location /cost { ratelimit zone=cost; empty_gif; }

        location /slow {
            ratelimit zone=day;
            proxy_pass http://127.0.0.1:$slow_port;
        }
        location /via {
            ratelimit zone=day;
            proxy_pass http://127.0.0.1:%%PORT%%/origin;
        }
        location /origin {
            add_header RateLimit theirs;
            add_header ratelimit-policy theirs;
            add_header RateLimit-Limit 77;
            add_header X-RateLimit-Limit 76;
            return 200 "origin\\n";
        }
    }
CONF

my $gateway = t::Gateway->new(http => $conf)->start;

# A list of Structured Fields as these two are: [name, {parameter => value}],
# strictly parsed, a byte sequence as its bytes.
sub items {
    my $text = shift;

    my @items;

    while ($text =~ m{\G"([\w./-]+)"}gc) {
        my $item = [$1, {}];

        while ($text =~ /\G;([a-z]+)=/gc) {
            my $name = $1;

            die "$text: two $name" if exists $item->[1]{$name};

            $item->[1]{$name} = $text =~ /\G(\d{1,15})(?![\d.])/gc ? $1
                              : $text =~ /\G"([a-z-]*)"/gc ? $1
                              : $text =~ m{\G:([\w+/]*={0,2}):}gca
                                ? decode_base64($1)
                              : die "$text: no value of $name";
        }

        push @items, $item;

        last if $text !~ /\G, /gc;
    }

    die "$text: not a list" if (pos $text // 0) != length $text;

    return @items;
}

# both of an answer without their keys: "policies | limits"
sub told {
    my $answer = shift;

    return join ' | ', map {
        join ', ', map {
            my ($name, $of) = @$_;
            join ';', $name, map { "$_=$of->{$_}" } grep { $_ ne 'pk' }
                             sort keys %$of;
        } items(t::Gateway::header($answer, $_))
    } 'RateLimit-Policy', 'RateLimit';
}

# the same, where a second or two may have passed
sub about {
    my ($answer, @seconds) = @_;

    my $text = told($answer);

    for my $s (@seconds) {
        $text =~ s/;t=($s|@{[$s - 1]}|@{[$s - 2]})(?!\d)/;t=~$s/g;
    }

    return $text;
}

# the keys of one of them
sub keys_of {
    my ($answer, $name) = @_;

    return map { $_->[1]{pk} } items(t::Gateway::header($answer, $name));
}

# one rule

my $answer = $gateway->get('/one?k=a');

like(t::Gateway::header($answer, 'RateLimit-Policy'),
     qr{^"api";q=30;w=60;pk=:[\w+/]{12}:$}, 'the form of RateLimit-Policy');
like(t::Gateway::header($answer, 'RateLimit'),
     qr{^"api";r=29;t=2;pk=:[\w+/]{12}:$}, 'the form of RateLimit');
is(join(' ', grep { /ratelimit/ } sort keys %{ $answer->{headers} }),
   'ratelimit ratelimit-policy', 'and none of another set');

# a key: hashed, the same for one client, another for another

my ($alice) = keys_of($answer, 'RateLimit-Policy');
my ($same) = keys_of($gateway->get('/one?k=a'), 'RateLimit');
my ($bob) = keys_of($gateway->get('/one?k=b'), 'RateLimit');

is(length $alice, 9, 'a key has 9 bytes');
is($same, $alice, 'the same in both, and at each request of a client');
isnt($bob, $alice, 'another for another client');

# three rules, in their order; two of them with one key

$gateway->burst(9, '/two?k=c&u=u');
$answer = $gateway->get('/two?k=c&u=u');

is(about($answer, 20, 360, 9), 'api;q=30;w=60, user;q=10;w=86, '
   . 'deep.path-1_x;q=100;w=3600 | '
   . 'api;r=20;t=~20, user;r=0;t=~9, deep.path-1_x;r=90;t=~360',
   'three rules: of an empty one the next token');

my @policy = keys_of($answer, 'RateLimit-Policy');

is_deeply([keys_of($answer, 'RateLimit')], \@policy, 'their keys are in both');
is($policy[2], $policy[0], 'rules that count by one key have one');
isnt($policy[1], $policy[0], 'by another, another');

# one denies: no other is charged, and Retry-After is not before its t

$answer = $gateway->get('/two?k=c&u=u');

is($answer->{status}, 429, 'the second rule denies');
is(about($answer, 20, 360, 9), 'api;q=30;w=60, user;q=10;w=86, '
   . 'deep.path-1_x;q=100;w=3600 | '
   . 'api;r=20;t=~20, user;r=0;t=~9, deep.path-1_x;r=90;t=~360',
   'what was not charged is shown');
is(t::Gateway::header($answer, 'Retry-After'),
   (items(t::Gateway::header($answer, 'RateLimit')))[1][1]{t},
   'Retry-After is the t of the rule that denies');

# as many as there can be

$answer = $gateway->get('/long?k=d');

is(told($answer), join(' | ',
                       join(', ', map { "$_;q=1000000000;w=1" } @long),
                       join(', ', map { "$_;r=999999999;t=1" } @long)),
   'sixteen rules with the longest names');

# rules of two zones that have one name

is(about($gateway->get('/read-write?k=d'), 720, 600, 72),
   'read/per_key;q=5;w=3600, own;q=6;w=3600, write/per_key;q=50;w=3600 | '
   . 'read/per_key;r=4;t=~720, own;r=5;t=~600, write/per_key;r=49;t=~72',
   'their zones tell them apart; a dry run is not there');
is(about($gateway->get('/read?k=e'), 720, 600),
   'per_key;q=5;w=3600, own;q=6;w=3600 | '
   . 'per_key;r=4;t=~720, own;r=5;t=~600', 'one of them alone has its name');

$answer = $gateway->get('/twins?k=d');

is(told($answer), join(' | ',
                  join(', ', map { "$_->[0]/$_->[1];q=1000000000;w=1" } @twins),
                  join(', ', map { "$_->[0]/$_->[1];r=999999999;t=1" } @twins)),
   'sixteen of the longest names');

# each kind of limit; requests in flight have no window

my @kinds = sort { $a->{status} <=> $b->{status} }
            $gateway->burst(2, '/kinds?k=k');

is("$kinds[0]{status} $kinds[1]{status}", '200 429', 'one in flight');

for my $kind (@kinds) {
    is(about($kind, 60, 9600),
       'flight;q=1;qu=concurrent-requests, bucket;q=9;w=86400, '
       . 'leaky;q=5;w=300 | flight;r=0, bucket;r=8;t=~9600, leaky;r=4;t=~60',
       "$kind->{status}: requests in flight have no window");
}

is(t::Gateway::header($kinds[1], 'Retry-After'), 1,
   'a retry in a second may pass');

# what is tried is not shown

is(about($gateway->get('/dry?k=k'), 1200),
   'real;q=3;w=3600 | real;r=2;t=~1200', 'the rule that is enforced');
$answer = $gateway->get('/dry?k=k');
is(about($answer, 2400), 'real;q=3;w=3600 | real;r=1;t=~2400',
   'a dry run denies: it is not shown');
is("$answer->{status} " . t::Gateway::header($answer, 'Retry-After'), '200 ',
   'nor a Retry-After');
$gateway->get('/dry?k=k');
$answer = $gateway->get('/dry?k=k');
is($answer->{status} . ' ' . about($answer, 1200),
   '429 real;q=3;w=3600 | real;r=0;t=~1200', 'the enforced one denies too');

$answer = $gateway->get('/all-dry?k=k');
is(join(' ', map { t::Gateway::header($answer, $_) }
             'RateLimit', 'RateLimit-Policy'), 'theirs theirs',
   'only dry runs: nothing of ours, and an upstream\'s stay');
$answer = $gateway->get('/dry-lost?k=k');
is(join(' ', grep { /ratelimit/ } keys %{ $answer->{headers} }), '',
   'a dry run without an answer is not shown either');

# a cost that can never be paid

$answer = $gateway->get('/cost?k=k');
is($answer->{status} . ' ' . told($answer), '429 cost;q=2;w=3600 | '
   . 'cost;r=2;t=0', 'more than the limit');
is(t::Gateway::header($answer, 'Retry-After'), '',
   'no retry will pass, and none is promised');

# time that has passed meanwhile

is(about($gateway->get('/slow?k=e'), 86398),
   'day;q=1;w=86400 | day;r=0;t=~86398', 't counts from the response');

# an upstream's of these names go, others stay

$answer = $gateway->get('/via?k=f');

is(about($answer, 86400), 'day;q=1;w=86400 | day;r=0;t=~86400',
   'an upstream\'s are replaced');
is(join(' ', map { t::Gateway::header($answer, $_) }
             'RateLimit-Limit', 'X-RateLimit-Limit'), '77 76',
   'and its others stay');

# in Redis: a client's key is the same on all nodes

my $other = t::Gateway->new(http => $conf)->start;
my @both = map { $_->get('/fleet?k=g&t=t') } $gateway, $other;

is_deeply([keys_of($both[1], 'RateLimit-Policy')],
          [keys_of($both[0], 'RateLimit-Policy')],
          'two gateways of a fleet tell one key');
is(scalar(grep { length $_ == 9 } keys_of($both[0], 'RateLimit')), 2,
   'of each rule');
is(about($both[1], 360, 1800), 'fleet;q=20;w=3600, tenant;q=2;w=3600 | '
   . 'fleet;r=18;t=~360, tenant;r=0;t=~1800', 'what is left in Redis');

# another client in Redis denies: what this one gets back is shown

$answer = $gateway->get('/fleet?k=h&t=t');

is($answer->{status}, 429, 'a rule in Redis denies');
like(told($answer), qr/\| fleet;r=20;t=\d+, tenant;r=0;t=\d+$/,
     'the other has what it had');
$other->stop;

# not asked: a rule of this node has denied before

$gateway->get('/both?k=i&t=i');
$answer = $gateway->get('/both?k=i&t=i');

is($answer->{status}, 429, 'a rule of this node denies');
is(about($answer, 86400), 'fleet;q=20;w=3600, tenant;q=2;w=3600, '
   . 'day;q=1;w=86400 | day;r=0;t=~86400',
   'what was not asked has a policy, and no limit');
is_deeply([map { defined ? length : 'none' }
           keys_of($answer, 'RateLimit-Policy')],
          ['none', 'none', 9], 'and no key');

# degraded

$answer = $gateway->get('/lost?k=j');

is("$answer->{status} " . told($answer), '200 lost;q=5;w=3600 | ',
   'without an answer there is a policy');
is(join(' ', grep { /ratelimit/ } keys %{ $answer->{headers} }),
   'ratelimit-policy', 'and no RateLimit');
is(about($gateway->get('/half?k=j'), 86400),
   'lost;q=5;w=3600, day;q=1;w=86400 | day;r=0;t=~86400',
   'of two rules the one that has answered');

$answer = $gateway->get('/half?k=j');
is(about($answer, 86400), 'lost;q=5;w=3600, day;q=1;w=86400 | '
   . 'day;r=0;t=~86400', 'a denial beside it');
is($answer->{status}, 429, 'is one');
isnt(t::Gateway::header($answer, 'Retry-After'), '', 'with Retry-After');

# nothing that a client sends is shown

$answer = $gateway->get('/two?k=%22%0d%0aX-Evil:1&u=evil%22;q=1',
                        'X-Evil: evil');
unlike(join("\n", map { "$_: @{ $answer->{headers}{$_} }" }
                  keys %{ $answer->{headers} }), qr/evil/i,
       'a key is not echoed');

$gateway->stop;
