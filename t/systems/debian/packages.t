# The packages of "make deb": lintian has nothing to say of them, and a fresh
# Debian of this machine's release installs, serves, upgrades and purges them.

use t::RateLimit 'no_plan';
use t::Ports qw( free_port );
use File::Temp qw( tempdir );

my $NAME = 'libnginx-mod-http-ratelimit';

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

works('lintian --fail-on error,warning build/deb/*.changes', 'lintian');

my ($depends) = said("dpkg-deb -f build/deb/${NAME}_*.deb Depends");
like($depends, qr/\bnginx-abi-/, 'only for the nginx that loads it');

SKIP: {
    skip 'only root makes a chroot', 12 if $> != 0;
    # apt itself says where this machine's packages come from
    my $format = q('deb $(REPO_URI) $(RELEASE) $(COMPONENT)');
    my ($sources) = said("apt-get indextargets --format $format "
                         . "'Created-By: Packages' 'Origin: Debian' | sort -u");
    my ($suite) = said('. /etc/os-release; echo $VERSION_CODENAME');
    chomp $suite;
    my $work = tempdir(CLEANUP => 1);
    my $root = "$work/root";
    open my $list, '>', "$work/sources.list" or die;
    print $list $sources;
    close $list;
    works("mmdebstrap --variant=apt --include=nginx --skip=cleanup/apt "
          . "--aptopt='Acquire::Check-Valid-Until false' "
          . "$suite $root $work/sources.list", "a fresh $suite") or last;
    my $in = "chroot $root env LC_ALL=C DEBIAN_FRONTEND=noninteractive";
    my $apt = "$in apt-get -y --no-install-recommends";
    my $loads = "$in nginx -t";
    my $enabled = "$root/etc/nginx/modules-enabled";
    my $port = free_port();
    # no service starts
    open my $policy, '>', "$root/usr/sbin/policy-rc.d" or die;
    print $policy "#!/bin/sh\nexit 101\n";
    close $policy;
    chmod 0755, "$root/usr/sbin/policy-rc.d";
    works("cp /etc/resolv.conf $root/etc/ && cp build/deb/*.deb $root/tmp/",
          'the packages are there');
    my @debs = map { s{.*/}{/tmp/}r } grep { !/-dbgsym_/ } glob "$root/tmp/*.deb";
    works("$apt install @debs", 'installed');
    ok(-e "$root/usr/share/man/man8/ratelimit-feed.8.gz"
       && -x "$root/usr/sbin/ratelimit-feed", 'the feeder, with its page');
    open my $conf, '>', "$root/etc/nginx/conf.d/limit.conf" or die;
    print $conf "ratelimit_zone \$arg_k zone=z:1m rate=2r/h;\n"
                . "server { listen 127.0.0.1:$port;\n"
                . "location / { ratelimit zone=z; empty_gif; } }\n";
    close $conf;
    unlink "$root/etc/nginx/sites-enabled/default";
    my $ask = "curl -s -o /dev/null -w '%{http_code} ' "
              . "'http://127.0.0.1:$port/?k=";
    my $serves = sub {
        my ($key, $name) = @_;
        works($loads, "$name: nginx accepts it");
        works("$in nginx", "$name: nginx starts");
        my ($told) = said(join ';', ("$ask$key'") x 3);
        is($told, '200 200 429 ', "$name: and limits");
        works("$in nginx -s quit; "
              . "while [ -e $root/run/nginx.pid ]; do sleep 0.1; done",
              "$name: nginx ends");
    };
    $serves->('a', 'installed');
    works("$apt install --reinstall @debs", 'installed again');
    $serves->('b', 'upgraded');
    unlink "$root/etc/nginx/conf.d/limit.conf";
    works("$apt purge $NAME ratelimit-tools", 'purged');
    is_deeply([grep { /ratelimit/ } glob "$enabled/*"], [], 'nothing is left');
    works($loads, 'and nginx goes on without it');
}
