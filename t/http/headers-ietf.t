# "ratelimit_headers ietf": RateLimit-Policy and RateLimit, lists of Structured
# Fields with an item for each rule that is enforced.

use IO::Socket::INET;
use MIME::Base64 qw( decode_base64 );

use t::RateLimit 'no_plan';
use t::Clock qw( advance );
use t::Gateway qw( header wait_for );

my $redis = redis_port();

# an API that answers when the test says so
my $slow = IO::Socket::INET->new(Listen => 9, LocalAddr => '127.0.0.1')
    or die "listen: $!";

# the longest lists that there are
my @long = map { sprintf 'rule-%02d-%s', $_, 'n' x 56 } 1 .. 16;

# and with names that need their zone's
my ($y, $z) = ('y' x 64, 'z' x 64);
my @twins = map { my $zone = $_; map { [$zone, sprintf 'twin-%02d-%s', $_,
                                                       't' x 56] } 1 .. 8 }
            $y, $z;

my @conf = (
    redis => { r => $redis, gone => 'server 127.0.0.1:1; timeout 200ms' },
    zone => {
        (map { ($_ => '') } $y, $z, qw( read write test long kinds dry )),
        api => 'rate=30r/m',
        day => 'rate=1r/d',
        fleet => 'rate=20r/h redis=r',
        lost => 'rate=5r/h redis=gone',
        cost => 'rate=2r/h cost=3',
    },
    rules => [
        (map { "$_->[1] zone=$_->[0] rate=1073741824r/s capacity=1000000000" }
         @twins, map { ['long', $_] } @long),
        'per_key zone=read rate=5r/h',
        'own zone=read rate=6r/h',
        'per_key zone=write rate=50r/h',
        'own zone=test rate=50r/h dry_run',
        'user zone=api rate=7r/m capacity=10 key=$arg_u',
        'deep.path-1_x zone=api rate=100r/h match=/two',
        'tenant zone=fleet rate=2r/h key=$arg_t',
        'flight zone=kinds algorithm=concurrency limit=1',
        'bucket zone=kinds rate=9r/d',
        'leaky zone=kinds algorithm=leaky_bucket rate=1r/m burst=4 nodelay',
        'try zone=dry rate=1r/h dry_run',
        'real zone=dry rate=3r/h',
        'try-two zone=dry rate=2r/h dry_run',
    ],
    server => 'ratelimit_headers ietf;',
    locations => {
        '/one' => 'ratelimit zone=api rule=api;',
        '/two' => 'ratelimit zone=api;',
        '/twins' => "ratelimit zone=$y; ratelimit zone=$z;",
        '/read-write' => 'ratelimit zone=read; ratelimit zone=write;'
                         . 'ratelimit zone=test;',
        (map { ("/$_" => "ratelimit zone=$_;") }
         qw( long read fleet lost dry cost )),
        '/both' => 'ratelimit zone=fleet; ratelimit zone=day;',
        '/half' => 'ratelimit zone=lost; ratelimit zone=day;',
        '/kinds' => 'ratelimit zone=kinds; limit_rate 200;',
        '/all-dry' => 'ratelimit zone=dry; ratelimit_dry_run on;'
                      . 'proxy_pass http://127.0.0.1:%%PORT%%/origin;',
        '/dry-lost' => 'ratelimit zone=lost; ratelimit_dry_run on;',
        '/slow' => 'ratelimit zone=day; proxy_pass http://127.0.0.1:'
                   . $slow->sockport . ';',
        '/via' => 'ratelimit zone=day;'
                  . 'proxy_pass http://127.0.0.1:%%PORT%%/origin;',
        '/origin' => <<'CONF',
            add_header RateLimit theirs;
            add_header ratelimit-policy theirs;
            add_header RateLimit-Limit 77;
            add_header X-RateLimit-Limit 76;
            return 200 "origin\n";
CONF
    });

my $gateway = t::Gateway->limited(@conf);

t::Clock::stop();

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
sub shown {
    my $answer = shift;
    return join ' | ', map {
        join ', ', map {
            my ($name, $of) = @$_;
            join ';', $name, map { "$_=$of->{$_}" } grep { $_ ne 'pk' }
                             sort keys %$of;
        } items(header($answer, $_))
    } 'RateLimit-Policy', 'RateLimit';
}

# the keys of one of them
sub keys_of {
    my ($answer, $name) = @_;
    return map { $_->[1]{pk} } items(header($answer, $name));
}

# one rule
my $answer = $gateway->get('/one?k=a');

like(header($answer, 'RateLimit-Policy'),
     qr{^"api";q=30;w=60;pk=:[\w+/]{12}:$}, 'the form of RateLimit-Policy');
like(header($answer, 'RateLimit'),
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

is(shown($answer), 'api;q=30;w=60, user;q=10;w=86, '
   . 'deep.path-1_x;q=100;w=3600 | '
   . 'api;r=20;t=20, user;r=0;t=9, deep.path-1_x;r=90;t=360',
   'three rules: of an empty one the next token');

my @policy = keys_of($answer, 'RateLimit-Policy');

is_deeply([keys_of($answer, 'RateLimit')], \@policy, 'their keys are in both');
is($policy[2], $policy[0], 'rules that count by one key have one');
isnt($policy[1], $policy[0], 'by another, another');

# one denies: no other is charged, and Retry-After is not before its t
$answer = $gateway->get('/two?k=c&u=u');

is($answer->{status}, 429, 'the second rule denies');
is(shown($answer), 'api;q=30;w=60, user;q=10;w=86, '
   . 'deep.path-1_x;q=100;w=3600 | '
   . 'api;r=20;t=20, user;r=0;t=9, deep.path-1_x;r=90;t=360',
   'what was not charged is shown');
is(header($answer, 'Retry-After'),
   (items(header($answer, 'RateLimit')))[1][1]{t},
   'Retry-After is the t of the rule that denies');

# as many as there can be
$answer = $gateway->get('/long?k=d');

is(shown($answer), join(' | ',
                       join(', ', map { "$_;q=1000000000;w=1" } @long),
                       join(', ', map { "$_;r=999999999;t=1" } @long)),
   'sixteen rules with the longest names');

# rules of two zones that have one name
is(shown($gateway->get('/read-write?k=d')),
   'read/per_key;q=5;w=3600, own;q=6;w=3600, write/per_key;q=50;w=3600 | '
   . 'read/per_key;r=4;t=720, own;r=5;t=600, write/per_key;r=49;t=72',
   'their zones tell them apart; a dry run is not there');
is(shown($gateway->get('/read?k=e')),
   'per_key;q=5;w=3600, own;q=6;w=3600 | '
   . 'per_key;r=4;t=720, own;r=5;t=600', 'one of them alone has its name');

$answer = $gateway->get('/twins?k=d');

is(shown($answer), join(' | ',
                  join(', ', map { "$_->[0]/$_->[1];q=1000000000;w=1" } @twins),
                  join(', ', map { "$_->[0]/$_->[1];r=999999999;t=1" } @twins)),
   'sixteen of the longest names');

# each kind of limit; requests in flight have no window
my $begun = $gateway->begin(2, '/kinds?k=k');

wait_for(sub { $gateway->waiting == 2 });
advance(60);

my @kinds = sort { $a->{status} <=> $b->{status} } t::Gateway::finish($begun);

is("$kinds[0]{status} $kinds[1]{status}", '200 429', 'one in flight');

for my $kind (@kinds) {
    is(shown($kind),
       'flight;q=1;qu=concurrent-requests, bucket;q=9;w=86400, '
       . 'leaky;q=5;w=300 | flight;r=0, bucket;r=8;t=9600, leaky;r=4;t=60',
       "$kind->{status}: requests in flight have no window");
}

is(header($kinds[1], 'Retry-After'), 1, 'a retry in a second may pass');

# what is tried is not shown
is(shown($gateway->get('/dry?k=k')),
   'real;q=3;w=3600 | real;r=2;t=1200', 'the rule that is enforced');
$answer = $gateway->get('/dry?k=k');
is(shown($answer), 'real;q=3;w=3600 | real;r=1;t=2400',
   'a dry run denies: it is not shown');
is("$answer->{status} " . header($answer, 'Retry-After'), '200 ',
   'nor a Retry-After');
$gateway->get('/dry?k=k');
$answer = $gateway->get('/dry?k=k');
is($answer->{status} . ' ' . shown($answer),
   '429 real;q=3;w=3600 | real;r=0;t=1200', 'the enforced one denies too');

$answer = $gateway->get('/all-dry?k=k');
is(join(' ', map { header($answer, $_) }
             'RateLimit', 'RateLimit-Policy'), 'theirs theirs',
   'only dry runs: nothing of ours, and an upstream\'s stay');
$answer = $gateway->get('/dry-lost?k=k');
is(join(' ', grep { /ratelimit/ } keys %{ $answer->{headers} }), '',
   'a dry run without an answer is not shown either');

# a cost that can never be paid
$answer = $gateway->get('/cost?k=k');
is($answer->{status} . ' ' . shown($answer), '429 cost;q=2;w=3600 | '
   . 'cost;r=2;t=0', 'more than the limit');
is(header($answer, 'Retry-After'), '',
   'no retry will pass, and none is promised');

# time that has passed meanwhile
$begun = $gateway->begin(1, '/slow?k=e');

my $asked = $slow->accept;
advance(2);
print $asked "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nslow\n";
close $asked;
is(shown(t::Gateway::finish($begun)), 'day;q=1;w=86400 | day;r=0;t=86398',
   't counts from the response');

# an upstream's go
$answer = $gateway->get('/via?k=f');

is(shown($answer), 'day;q=1;w=86400 | day;r=0;t=86400',
   'an upstream\'s are replaced');
is(join(' ', map { header($answer, $_) }
             'RateLimit-Limit', 'X-RateLimit-Limit'), ' ',
   'and so are its other headers of limits');

# in Redis: a client's key is the same on all nodes
my $other = t::Gateway->limited(@conf);
my @both = map { $_->get('/fleet?k=g&t=t') } $gateway, $other;

is_deeply([keys_of($both[1], 'RateLimit-Policy')],
          [keys_of($both[0], 'RateLimit-Policy')],
          'two gateways of a fleet tell one key');
is(scalar(grep { length $_ == 9 } keys_of($both[0], 'RateLimit')), 2,
   'of each rule');
is(shown($both[1]), 'fleet;q=20;w=3600, tenant;q=2;w=3600 | '
   . 'fleet;r=18;t=360, tenant;r=0;t=1800', 'what is left in Redis');

# another client in Redis denies: what this one gets back is shown
$answer = $gateway->get('/fleet?k=h&t=t');

is($answer->{status}, 429, 'a rule in Redis denies');
like(shown($answer), qr/\| fleet;r=20;t=\d+, tenant;r=0;t=\d+$/,
     'the other has what it had');
$other->stop;

# not asked: a rule of this node has denied before
$gateway->get('/both?k=i&t=i');
$answer = $gateway->get('/both?k=i&t=i');

is($answer->{status}, 429, 'a rule of this node denies');
is(shown($answer), 'fleet;q=20;w=3600, tenant;q=2;w=3600, '
   . 'day;q=1;w=86400 | day;r=0;t=86400',
   'what was not asked has a policy, and no limit');
is_deeply([map { defined ? length : 'none' }
           keys_of($answer, 'RateLimit-Policy')],
          ['none', 'none', 9], 'and no key');

# degraded
$answer = $gateway->get('/lost?k=j');

is("$answer->{status} " . shown($answer), '200 lost;q=5;w=3600 | ',
   'without an answer there is a policy');
is(join(' ', grep { /ratelimit/ } keys %{ $answer->{headers} }),
   'ratelimit-policy', 'and no RateLimit');
is(shown($gateway->get('/half?k=j')),
   'lost;q=5;w=3600, day;q=1;w=86400 | day;r=0;t=86400',
   'of two rules the one that has answered');

$answer = $gateway->get('/half?k=j');
is(shown($answer), 'lost;q=5;w=3600, day;q=1;w=86400 | '
   . 'day;r=0;t=86400', 'a denial beside it');
is($answer->{status}, 429, 'is one');
isnt(header($answer, 'Retry-After'), '', 'with Retry-After');

# nothing that a client sends is shown
$answer = $gateway->get('/two?k=%22%0d%0aX-Evil:1&u=evil%22;q=1',
                        'X-Evil: evil');
unlike(join("\n", map { "$_: @{ $answer->{headers}{$_} }" }
                  keys %{ $answer->{headers} }), qr/evil/i,
       'a key is not echoed');

$gateway->stop;
