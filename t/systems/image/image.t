# The image of "make image": its bytes come out the same twice, and a container
# of runc runs it as its user, with a read-only root and no network but loopback.

use t::RateLimit 'no_plan';
use t::Gateway qw( wait_for );
use File::Temp qw( tempdir );
use JSON::PP ();

my $work = tempdir(CLEANUP => 1);
my $id = "ratelimit-$$";

# what a shell's command printed, and its result
sub said {
    my $said = qx((@_) 2>&1 < /dev/null);
    return $said, $? >> 8;
}

sub works {
    my ($command, $name) = @_;
    my ($said, $result) = said($command);
    return is($result, 0, $name) || (diag($said), 0);
}

sub file {
    my ($name, $text) = @_;
    open my $file, '>', "$work/$name" or die "$work/$name: $!";
    print $file $text;
    close $file;
}

sub json {
    open my $file, '<', shift or die $!;
    local $/;
    return JSON::PP->new->decode(<$file>);
}

works("tools/image.sh $work/again", 'made again') or exit;
works("cmp build/image/*.tar $work/again/*.tar", 'the same bytes');
works("mkdir -p $work/b/rootfs && tar -xf $work/again/*.tar -C $work "
      . "&& cd $work/blobs/sha256 && for f in *; do echo \$f \$f; done "
      . '| sha256sum -c', 'each blob has the sum that is its name');
my ($named) = @{ json("$work/manifest.json") };
my $image = json("$work/$named->{Config}");
my ($layer) = said("zcat $work/$named->{Layers}[0] | sha256sum | cut -d' ' -f1");
chomp $layer;
is_deeply($image->{rootfs}{diff_ids}, ["sha256:$layer"], 'the layer');

SKIP: {
    skip 'only root may run a container', 1 if $> != 0;
    works("tar -xzpf $work/$named->{Layers}[0] -C $work/b/rootfs", 'unpacked');
    my ($uid, $gid) = $image->{config}{User} =~ /^(\d+):(\d+)$/;
    isnt($uid, 0, 'not root');
    mkdir "$work/$_" for qw( templates state );
    chown $uid, $gid, "$work/state";
    file('resolv.conf', "nameserver 192.0.2.1\nnameserver 2001:db8::1\n");
    file('templates/tokens.template', 'ann:${TOKEN}');
    file('templates/limit.conf.template', <<'END');
resolver ${NGINX_LOCAL_RESOLVERS};
ratelimit_zone $arg_k zone=z:1m rate=${RATE} state=/state/z.rules;
server {
    listen 8080;
    location = /healthz { return 200; }
    location /rl/ { ratelimit_api zone=z write token_file=conf.d/tokens; }
    location / { ratelimit zone=z; add_header X-Path $uri; empty_gif; }
}
END
    my @tmpfs = (type => 'tmpfs', source => 'tmpfs', options => ['mode=1777']);
    my $bind = sub {
        return { destination => $_[1], type => 'none', source => "$work/$_[0]",
                 options => [ 'bind', $_[2] // 'ro' ] };
    };
    my %config = (
        ociVersion => '1.0.2',
        process => {
            user => { uid => int $uid, gid => int $gid }, cwd => '/',
            args => [ @{ $image->{config}{Entrypoint} },
                      @{ $image->{config}{Cmd} } ],
            env => [ @{ $image->{config}{Env} }, 'RATE=2r/h',
                     'TOKEN=a-token-of-the-tests-0123456789',
                     'NGINX_ENTRYPOINT_LOCAL_RESOLVERS=1' ],
            noNewPrivileges => JSON::PP::true },
        root => { path => 'rootfs', readonly => JSON::PP::true },
        mounts => [
            { destination => '/proc', type => 'proc', source => 'proc' },
            { destination => '/dev', @tmpfs }, { destination => '/tmp', @tmpfs },
            { destination => '/etc/nginx/conf.d', @tmpfs,
              options => ["uid=$uid"] },
            $bind->('resolv.conf', '/etc/resolv.conf'),
            $bind->('templates', '/etc/nginx/templates'),
            $bind->('state', '/state', 'rw') ],
        linux => { namespaces => [ map { { type => $_ } }
                                   qw( pid mount ipc uts network ) ] });
    file('b/config.json', JSON::PP->new->encode(\%config));
    my $runc = "runc --root $work/runc";
    my $in = "$runc exec $id";
    my $url = 'http://127.0.0.1:8080';
    my $pid = fork // die "fork: $!";
    exec "cd $work/b && exec $runc run $id > $work/out 2> $work/err < /dev/null"
        if !$pid;
    my ($cmd, @check) = @{ $image->{config}{Healthcheck}{Test} };
    ok(wait_for(sub { !(said("$in @check"))[1] }, 60), 'healthy')
        or diag((said("cat $work/err"))[0]);
    my ($rendered) = said("$in cat /etc/nginx/conf.d/limit.conf");
    like($rendered, qr/resolver 192\.0\.2\.1 \[2001:db8::1\];\n.* rate=2r\/h /,
         'the template, with what the environment has');
    like($rendered, qr/X-Path \$uri;/, "and nginx's own variables");
    works("$in nginx -t", 'nginx -t');
    my @told = map { (said("$in wget -S -O /dev/null '$url/?k=a'"))[0]
                     =~ m{HTTP/1.1 (\d+)} } 1 .. 3;
    is("@told", '200 200 429', 'limited');
    isnt((said("$in touch /etc/x"))[1], 0, 'the root is read-only');
    works("$in wget -q -O - --header 'If-Match: *' --header "
          . "'Content-Type: application/json' --header 'Authorization: Bearer "
          . "a-token-of-the-tests-0123456789' --post-data "
          . "'[\"192.0.2.7\"]' $url/rl/deny", 'a change');
    ok(wait_for(sub { -s "$work/state/z.rules" }), 'is kept in the volume');
    works("$runc kill $id $image->{config}{StopSignal}", 'told to stop');
    waitpid $pid, 0;
    is($?, 0, 'and ended well');
    works("grep -q '\"GET /?k=a HTTP/1.1\" 429 ' $work/out", 'log of access');
    works("grep -q 'gracefully shutting down' $work/err", 'log of errors');
    works("! grep -E '\\[(alert|emerg|crit)\\]' $work/err", 'without alarm');
}
