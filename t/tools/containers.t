# nginx accepts the configurations in examples/containers: that of the manifest as
# the entry point of the image makes it of the template.

use t::RateLimit 'no_plan';
use t::Gateway;

sub slurp {
    local (@ARGV, $/) = shift;
    return scalar <>;
}

my $example = slurp('examples/containers/kubernetes.yaml');
my ($template) = $example =~ /^  (\S+\.template: \|\n(?:    .*\n|\n)+)/m;
ok($template =~ s/^(\S+)\.template.*\n// && $template =~ s/^    //mg,
   'the template');
my $gateway = t::Gateway->new(http => 'include conf/*.conf;');
my $dir = $gateway->{dir};
mkdir "$dir/conf";
mkdir "$dir/templates";
$template =~ s{/etc/ratelimit/}{$dir/}g;
$gateway->write('templates/limit.conf.template',
                $template =~ s/8080;/127.0.0.1:$gateway->{port};/r);
$gateway->write('peers.key', "not a secret, no\n");
$gateway->write('metrics.tokens', "prometheus:not-a-secret-0123\n");
{
    local %ENV = (%ENV, NGINX_ENVSUBST_TEMPLATE_DIR => "$dir/templates",
                  NGINX_ENVSUBST_OUTPUT_DIR => "$dir/conf",
                  NGINX_LOCAL_RESOLVERS => '127.0.0.1',
                  POD_IP => '127.0.0.1', POD_NAMESPACE => 'default',
                  UPSTREAM => '127.0.0.1:9000');
    is(system('tools/image/docker-entrypoint.d/20-envsubst-on-templates.sh'), 0,
       'the entry point');
}
my ($ok, $said) = $gateway->check;
ok($ok, 'nginx accepts it') || diag($said);
unlike($said, qr/\[warn\]/, 'and warns of nothing');
unlike($gateway->read('conf/limit.conf'), qr/\$\{/, 'no variable is left');

# what the values of charts put into main, http and location
for my $values (glob 'examples/containers/*.values.yaml') {
    my ($text, %part) = slurp($values);
    $part{$2} = $3
        while $text =~ /^( +)(\w+)-snippets?: \|\n((?:\1  .*\n)+)/mg;
    $part{main} =~ s/.*load_module \S+;\n//;
    $part{http} =~ s/\S+(?=:6379)/127.0.0.1/;
    my $with = t::Gateway->new(main => $part{main}, http => $part{http}
                   . "server { listen 127.0.0.1:%%PORT%%; location / {\n"
                   . "$part{location} proxy_pass http://127.0.0.1:9000; } }");
    my ($accepted, $told) = $with->check;
    ok($accepted, "nginx accepts $values") || diag($told);
}
