# A file of ratelimit_jwt_key that changes: each worker reads it without a
# reload; one that is invalid or gone leaves the old keys.

use t::RateLimit 'no_plan';
use t::Gateway qw( header wait_for );
use t::JWT;

my $SECRET = 'secret-of-exactly-32-bytes------';

my $gateway = t::Gateway->new(http => '');
my $dir = $gateway->{dir};

my (%key, %token);

for (qw( one two three )) {
    $key{$_} = t::JWT::key($dir, $_, 'P-256');
    $token{$_} = t::JWT::signed(t::JWT::content({ alg => 'ES256', kid => $_ },
                                                { sub => $_ }), $key{$_});
}

$token{secret} = t::JWT::hs256(t::JWT::content({ alg => 'HS256' },
                                               { sub => 'secret' }), $SECRET);

# A whole file in place of the old one.
sub replace {
    my ($name, $text) = @_;
    $gateway->write("$name.new", $text);
    rename "$dir/$name.new", "$dir/$name" or die "$name: $!";
}

sub set { return t::JWT::jwks(map { t::JWT::jwk($key{$_}, kid => $_) } @_) }

replace('a.jwks', set('one'));
replace('b.pub', $gateway->read('one.pub'));
replace('secret', t::JWT::jwks(t::JWT::oct($SECRET)));

$gateway->configure(workers => 2, http => t::Gateway::limited_http(
    listen => 'reuseport',
    zone => 'key=$ratelimit_jwt_sub rate=1r/h',
    server => 'add_header X-Got "$pid [$ratelimit_jwt_sub]" always;',
    locations => { map { ("/$_" => "ratelimit_jwt_key $_; return 204;") }
                   qw( a.jwks b.pub secret ) }))->start;

# The worker that answers, and whose valid token it is.
sub ask {
    my ($file, $name) = @_;
    return split ' ', header($gateway->get("/$file",
                                 "Authorization: Bearer $token{$name}"),
                             'X-Got');
}

# Whether all workers take the tokens of these keys alone.
sub takes {
    my ($file, @names) = @_;
    my %is = map { $_ => "[$_]" } @names;
    ok(wait_for(sub {
        my %seen;
        for my $name (sort keys %token) {
            for (1 .. 8) {
                my ($pid, $got) = ask($file, $name);
                return 0 if $got ne ($is{$name} // '[]');
                $seen{$pid} = 1;
            }
        }
        return keys %seen == 2;
    }), "$file with @names");
}

# Changes the file; both workers say why they keep the old keys, once.
sub keeps {
    my ($file, $says, $change, @names) = @_;
    my $from = length $gateway->log;
    my $line = qr/\[error\] .*"ratelimit_jwt_key" keeps the old keys of "\Q$dir\E\/\Q$file\E", expected $says/;
    my $lines = sub { scalar(() = substr($gateway->log, $from) =~ /$line/g) };
    $change->();
    ok(wait_for(sub { $lines->() >= 2 }), "$file: $says");
    takes($file, @names);
    is($lines->(), 2, 'once for each worker');
}

takes('a.jwks', 'one');
replace('a.jwks', set('one', 'two'));
takes('a.jwks', 'one', 'two');
replace('a.jwks', set('two'));
takes('a.jwks', 'two');
like($gateway->log, qr/\[notice\] .*"ratelimit_jwt_key" has read "\Q$dir\E\/a\.jwks": 1 keys, 0 ignored/,
     'the log says so');

# what is no set of keys
my $whole = set('three');
my $KEY = 'a JWK Set, a JWK \(of type "oct" for a secret\) or a public key in PEM';

for (['', $KEY],
     [substr($whole, 0, length($whole) - 2), 'a JWK Set that is valid JSON'],
     ['{"keys":[]}', 'a JWK Set with a key that verifies signatures'],
     ['x' x 65537, 'one of at most 65536 bytes'],
     ['<html>' . 'x' x 100, $KEY],
     [$SECRET, $KEY],
     [$gateway->read('one.pem'), 'a public key, no private key'])
{
    my ($text, $says) = @$_;
    keeps('a.jwks', $says, sub { replace('a.jwks', $text) }, 'two');
}

keeps('a.jwks', 'a file', sub { unlink "$dir/a.jwks" or die }, 'two');
keeps('a.jwks', 'a file', sub { mkdir "$dir/a.jwks" or die }, 'two');
rmdir "$dir/a.jwks" or die;
keeps('a.jwks', 'a file', sub { system('mkfifo', "$dir/a.jwks") == 0 or die },
      'two');
replace('a.jwks', $whole);
takes('a.jwks', 'three');

# in place, half of it first
keeps('a.jwks', 'a JWK Set that is valid JSON', sub {
    $gateway->write('a.jwks', substr set('one', 'two'), 0, 200) }, 'three');
$gateway->write('a.jwks', set('one', 'two'));
takes('a.jwks', 'one', 'two');

replace('b.pub', $gateway->read('two.pub'));
takes('b.pub', 'two');

# a secret, too
takes('secret', 'secret');
replace('secret', set('one'));
replace('b.pub', $gateway->read('three.pub'));
takes('b.pub', 'three');
takes('secret', 'one');

# a worker that comes later, and a reload, have the keys that are there now
$gateway->kill_workers;
takes('a.jwks', 'one', 'two');
takes('b.pub', 'three');
$gateway->reload;
takes('a.jwks', 'one', 'two');
takes('secret', 'one');

$gateway->stop('QUIT', qr/\[alert\] .* exited on signal 9$/);
