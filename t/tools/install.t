# What a new user runs first: the packages that a build needs, and the module in
# the folder that an nginx names, which need not exist.

use strict;
use warnings;

use File::Temp qw( tempdir );
use Test::More;

my $NAME = 'ngx_http_ratelimit_module.so';

my $dir = tempdir(CLEANUP => 1);

sub program {
    my ($path, $text) = @_;
    open my $file, '>', $path or die "$path: $!";
    print $file "#!/bin/sh\n$text\n";
    close $file;
    chmod 0755, $path;
}

# what a shell's command printed, and its result
sub said {
    my $said = qx((@_) 2>&1);
    return $said, $? >> 8;
}

mkdir "$dir/bin";
mkdir "$dir/apt";
mkdir "$dir/deps";
mkdir "$dir/deps/tools";

my $deps = "$dir/deps/tools/deps.sh";
system('cp', 'tools/deps.sh', $deps) == 0 or die;

for my $name (qw( awk dirname env id mkdir sh )) {
    my ($path) = grep { -x } map { "$_/$name" } qw( /usr/bin /bin );
    symlink $path, "$dir/bin/$name";
}

my ($said, $result) = said("PATH=$dir/bin NGX_SRC=/src/nginx $deps build");

is($result, 0, 'a system without apt-get: the build goes on');
like($said, qr/\bhiredis\b.*\bjansson\b/s, 'and is told what it needs');

($said, $result) = said("PATH=$dir/bin NGX_SRC= $deps build");

ok($result == 1 && $said =~ /make build NGX_SRC=/,
   'not without a source tree of nginx');

# a Debian that has none of the packages
program("$dir/apt/dpkg-query", 'exit 1');
program("$dir/apt/id", 'echo 1000');
program("$dir/apt/apt-get", 'exit 1');
program("$dir/apt/sudo", "echo \"\$*\" >> $dir/sudo.log");

for my $source ('', '/src/nginx') {
    unlink "$dir/sudo.log";
    ($said, $result) = said("cd $dir/deps && PATH=$dir/apt:\$PATH "
                            . "NGX_SRC=$source tools/deps.sh build");
    is($result, 0, "NGX_SRC=$source: installed") or diag($said);
    open my $log, '<', "$dir/sudo.log" or die;
    my $packages = join '', grep { /apt-get install/ } <$log>;
    like($packages, qr/ libhiredis-dev /, 'hiredis');
    is($packages =~ / nginx-dev\b/ ? 'yes' : 'no', $source ? 'no' : 'yes',
       'headers of the distribution, where they are used');
}

SKIP: {
    skip 'the module is linked in', 7 if $ENV{RATELIMIT_STATIC};
    my $nginx = $ENV{TEST_NGINX_BINARY}
                // (-x '/usr/sbin/nginx' ? '/usr/sbin/nginx' : 'nginx');
    my $install = "make -s install DESTDIR=$dir/root";
    program("$dir/own", "[ \"\$1\" != -V ] || exec echo "
                        . "configure arguments: --prefix=/opt/nginx\n"
                        . "exec $nginx \"\$@\"");
    program("$dir/other", 'echo "is not binary compatible" >&2; exit 1');
    my ($modules) = qx($nginx -V 2>&1) =~ /--modules-path=(\S+)/;
    for my $case ([$nginx, $modules // '/usr/share/nginx/modules'],
                  ["$dir/own", '/opt/nginx/modules'])
    {
        my ($program, $path) = @$case;
        ($said, $result) = said("$install NGINX=$program");
        is($result, 0, "$path: installed") or diag($said);
        like($said, qr/^load_module \Q$path\E\/$NAME;$/m,
             'the line to load it');
        is(qx(stat -c %a $dir/root$path/$NAME), "644\n", 'for all to read');
    }
    qx(rm -rf $dir/root);
    ($said, $result) = said("$install NGINX=$dir/other");
    ok($result != 0 && $said =~ /not binary compatible/ && !-e "$dir/root",
       'not for an nginx that does not load it');
}

done_testing();
