# The documents are true: nginx accepts every configuration they show, a
# gateway answers as their transcripts say, every link leads somewhere, and
# what the module has by the code is what the reference and the runbook know.
#
# Blocks are classified by what stands behind the fence:
#
#     nginx main | http | server | location
#         A configuration, or the inside of that block. The zones, Redis blocks,
#         variables and log formats that it uses and does not define are those
#         of the blocks above it on the page.
#     console
#         A transcript: "$ command", "> its next line", what it printed. A
#         command with curl, python3 or ratelimitctl is run, against a fresh gateway with the
#         nginx block above it. Any other must be known, and show no output.
#     console fleet
#         The same with two gateways, 8080 and 8081, a Redis at 6379 and an API
#         at 9000.
#     console feed
#         A transcript that t/systems/postgres/page.t runs.
#     python
#         A program, which its first line names: the next transcript may run it.
#     json    is parsed.
#     text    is not read.

use Cwd qw( getcwd );
use File::Basename qw( basename dirname );
use JSON::PP ();
use t::RateLimit 'no_plan';
use t::Gateway;
use t::JWT;

my @PAGES = sort glob 'docs/*.md *.md';

# programs of commands that are run, with or without a gateway
my $RUN = qr/\b(?:curl|python3|ratelimitctl)\b/;

# programs of commands that are not run
my $PROGRAMS = qr/^(?:sudo[ ])?(?:apt|callgrind_annotate|install|kill|nginx|
                    openssl|umask|valgrind)\b/x;

# what a fragment stands in
my %WRAP = (
    main => "%s\n",
    http => "http {\n%s\n}\n",
    server => "http {\nserver {\nlisten 127.0.0.1:8080;\n%s\n}\n}\n",
    location => "http {\nserver {\nlisten 127.0.0.1:8080;\n"
                . "location / {\n%s\n}\n}\n}\n",
);

# What uses a name, and the statement that defines it: in both, $1 or the text
# given is the name.
my @NAMES = (
    [ qr/\bratelimit(?:_(?:rule|penalty) \S+|_api)?\s[^;]*?\bzone=([\w.-]+)(?=[\s;])/,
      sub { qr/\bratelimit_zone\s[^;]*?\bzone=\Q$_[0]\E:[^;]*;/ } ],
    [ qr/\bratelimit\s[^;]*?\brule=([\w.-]+)/,
      sub { qr/\bratelimit_rule\s+\Q$_[0]\E\s[^;]*;/ } ],
    [ qr/\bredis=([\w.-]+)/,
      sub { qr/\bratelimit_redis\s+\Q$_[0]\E\s*\{[^}]*\}/ } ],
    [ qr/\bpeers=([\w.-]+)/,
      sub { qr/\bratelimit_peers\s+\Q$_[0]\E\s*\{[^}]*\}/ } ],
    [ qr/\$(\w+)/, sub { qr/\bmap\s+\S+\s+\$\Q$_[0]\E\s*\{[^}]*\}/ } ],
    [ qr/\baccess_log\s+\S+\s+(\w+)[\s;]/,
      sub { qr/\blog_format\s+\Q$_[0]\E\s[^;]*;/ } ],
);

# A gateway whose whole configuration a page shows; ports become free ones.
{
    package Shown;
    our @ISA = ('t::Gateway');
    sub configure {
        my ($self, %change) = @_;
        %$self = (%$self, %change);
        my $dir = $self->{dir};
        my $user = $> == 0 ? "user root;\n" : '';
        my $modules = join '', map { "load_module $_;\n" }
                               split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
        my $temp = join '', map { "${_}_temp_path $dir/temp/$_;\n" }
                            qw( client_body proxy fastcgi uwsgi scgi );
        my $conf = $self->{conf};
        # the built-in place of this log may not be ours to write
        $temp .= "access_log $dir/access.log;\n";
        $conf =~ s/^load_module [^;]*;\n//mg;
        $conf =~ s/^http \{\n/http {\n$temp/m;
        $conf =~ s{/var/(?:log|cache)/nginx/}{$dir/}g;
        $conf .= "events {}\n" if $conf !~ /^events/m;
        $self->write('nginx.conf', $user . $modules . "daemon off;\n"
                     . "pid $dir/nginx.pid;\nerror_log $dir/error.log info;\n"
                     . $self->ports($conf));
        $self->write($_, "not a secret, no\n") for qw( rl.secret rl.pw peers.key );
        $self->write("$_.tokens", "ann:not-a-secret-0123\n")
            for qw( ratelimit readers metrics );
        $self->write('check.tokens', "billing:not-a-secret-0123 check\n");
        $self->write('ratelimitctl.conf', $self->ports(
            "gateway http://127.0.0.1:8082/ratelimit\ntoken_file token\n"));
        $self->write('token', "Authorization: Bearer not-a-secret-0123\n");
        $self->write('secret.jwk', '{"kty":"oct","k":"' . 'c2VjcmV0' x 8
                                   . "\"}\n");
        $self->certificates;
        $self->tokens;
        return $self;
    }
    sub certificates {
        my $self = shift;
        our $made //= join '', map { qx($_ 2>/dev/null) }
            'openssl req -x509 -newkey rsa:2048 -nodes -days 30 '
            . '-subj /CN=redis -keyout -';
        $self->write($_, $made)
            for qw( redis-ca.pem operators-ca.pem peers-ca.pem gateway.pem gateway.key );
    }
    # the issuer's keys, and a token for each of three users
    sub tokens {
        my $self = shift;
        our $issuer //= t::JWT::key($self->{dir}, 'issuer', 'P-256');
        our %files;
        %files = ('issuer.pub' => $self->read('issuer.pub'),
                  'issuer.jwks' => t::JWT::jwks(t::JWT::jwk($issuer)),
                  map { $_->[0] . '.token' => t::JWT::signed(t::JWT::content(
                            { alg => 'ES256' },
                            { sub => $_->[0], org => { tenant => $_->[1] },
                              iss => 'https://login.example.com',
                              aud => 'https://api.example.com' }), $issuer) }
                      [ alice => 'acme' ], [ bob => 'acme' ], [ carol => 'other' ])
            if !%files;
        $self->write($_, $files{$_}) for keys %files;
    }
    sub ports {
        my ($self, $text) = @_;
        my $ports = $self->{ports} //= { 8080 => $self->{port} };
        # 10.0.0.1 is an address of the gateways that the pages show
        $text =~ s{\b(?:127|10)\.0\.0\.1:(\d+)}
                  {'127.0.0.1:' . ($ports->{$1} //= t::Gateway::free_port())}eg;
        return $text;
    }
}

sub slurp {
    my $name = shift;
    open my $file, '<', $name or die "$name: $!";
    local $/;
    return <$file>;
}

# The blocks of a page, each {at, kind, text}, and the page without them.
sub fences {
    my $page = shift;
    my ($block, $line, @blocks, @prose) = (undef, 0);
    for (split /^/, slurp($page)) {
        $line++;
        if (/^```(.*)$/) {
            push @blocks, $block if $block;
            $block = $block ? undef
                            : { at => basename($page) . ":$line", kind => $1,
                                text => '' };
        } elsif ($block) {
            $block->{text} .= $_;
        } else {
            push @prose, $_;
        }
    }
    die "$page: a block has no end" if $block;
    return \@blocks, join '', @prose;
}

# A whole configuration of a block, with what those above it define.
sub whole {
    my ($kind, $text, @above) = @_;
    my (%seen, $more);
    my $defined = '';
    do {
        $more = 0;
        for (@NAMES) {
            my ($use, $definition) = @$_;
            my $all = $text . $defined;
            while ($all =~ /$use/g) {
                my $is = $definition->($1);
                next if $seen{$is}++ || $all =~ $is;
                my ($above) = grep { $_->{text} =~ $is } reverse @above;
                if ($above && $above->{text} =~ /($is)/) {
                    $defined .= "$1\n";
                    $more = 1;
                }
            }
        }
    } while ($more);
    my $conf = sprintf $WRAP{$kind}, $text;
    $conf =~ s/^http \{\n/http {\n$defined/m;
    return $conf;
}

# A transcript's commands, each [command, what it printed].
sub commands {
    my @commands;
    for (split /^/, shift) {
        if (s/^\$ //) {
            push @commands, [$_, ''];
        } elsif (@commands && s/^> // && $commands[-1][1] eq '') {
            $commands[-1][0] .= $_;
        } else {
            $commands[-1][1] .= $_;
        }
    }
    return @commands;
}

# Text with what each run has of its own: dates, versions, instants, keys. Seconds
# to wait may be one less: the clock has gone on since the bucket was emptied.
sub lasting {
    my $text = shift;
    $text =~ s/\r//g;
    $text =~ s/^Date: \w{3}, .* GMT$/Date: */mgi;
    $text =~ s{^Server: nginx/[\d.]+$}{Server: *}mg;
    $text =~ s/^(X-RateLimit-Reset: )\d{10}$/$1*/mgi;
    $text =~ s{;pk=:[\w+/]{12}:}{;pk=:*:}g;
    $text =~ s/("reset_at":")\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"/$1*"/g;
    $text =~ s/ \K\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?= )/*/g;
    return $text;
}

sub waits {
    my $text = shift;
    my @waits;
    $text =~ s/(\n(?:Retry-After|RateLimit-Reset):[ ]|"retry_after_seconds":
                |;t=|try[ ]again[ ]in[ ])(\d+)/
               push @waits, $2; "$1*"/egix;
    $text =~ s/^Content-Length: 2\d\d$/Content-Length: 2**/m if @waits;
    return $text, @waits;
}

# Gateways that run a configuration: one; or a fleet of two with a Redis and an
# API. A command runs in the folder of the first.
sub gateways {
    my ($config, $fleet) = @_;
    return Shown->new(name => 'transcript', conf => $config)->start if !$fleet;
    my $redis = redis_start();
    my $api = "server { listen 127.0.0.1:9000; return 200; }";
    # a busy machine may be slow to answer
    $config =~ s/\bserver 127\.0\.0\.1:6379;/server 127.0.0.1:$redis; timeout 9s;/;
    my %ports = (map({ $_ => t::Gateway::free_port() } 8080, 8081, 9000),
                 $redis => $redis);
    my @conf = ($config =~ s/\n\}\s*\z/\n$api\n}\n/r,
                $config =~ s/(listen 127\.0\.0\.1:)8080;/${1}8081;/r);
    return map { Shown->new(name => "fleet$_", conf => $conf[$_],
                            ports => \%ports, port => $ports{8080 + $_})
                     ->start } 0, 1;
}

sub transcript {
    my ($block, $config, $fleet, @files) = @_;
    my @gateways;
    for (commands($block->{text})) {
        my ($command, $shown) = @$_;
        my $name = "$block->{at}: $command";
        chomp $name;
        if ($command !~ $RUN) {
            ok(known($command) && $shown eq '',
               "$name: is known, and shows no output that nobody has checked");
            next;
        }
        if (!$config) {
            fail("$name: a configuration stands above it");
            next;
        }
        if (!@gateways) {
            @gateways = gateways($config, $fleet);
            $gateways[0]->write(@$_) for @files;
        }
        my $dir = $gateways[0]{dir};
        $gateways[0]->write('command', $gateways[0]->ports($command));
        local $ENV{PATH} = getcwd() . "/ctl:$ENV{PATH}";
        local $ENV{RATELIMITCTL} = "$dir/ratelimitctl.conf";
        my $got = `cd '$dir' && bash command 2>&1`;
        is_transcript($got, $shown, $name);
    }
    $_->stop for @gateways;
}

sub is_transcript {
    my ($got, $shown, $name) = @_;
    my ($got_text, @got) = waits(lasting($got));
    my ($text, @shown) = waits(lasting($shown));
    my @off = grep { $got[$_] > $shown[$_] || $got[$_] < $shown[$_] - 3 }
                   0 .. $#shown;
    $got_text eq $text && @off
        ? is("@got", "@shown", "$name: waits")
        : is($got_text, $text, $name);
}

# Commands that are not run: make with a target there is, or a known program.
sub known {
    my $command = shift =~ s/^sudo (?=make )//r;
    return $command =~ $PROGRAMS if $command !~ /^make(?: (?:-\S+|\w+=\S+))*\b/;
    my @targets = grep { !/=|^-/ } split ' ', substr $command, 4;
    my $makefile = slurp("Makefile");
    return !grep { $makefile !~ /^(?:[\w-]+ )*\Q$_\E(?: [\w-]+)*:/m } @targets;
}

sub page {
    my $page = shift;
    my ($blocks, $prose) = fences($page);
    my ($config, @above, @files);
    for my $block (@$blocks) {
        my ($at, $kind, $text) = @$block{qw( at kind text )};
        if ($kind =~ /^nginx (main|http|server|location)$/) {
            $config = whole($1, $text, @above);
            push @above, $block;
            my $gateway = Shown->new(name => 'page', conf => $config);
            my ($ok, $said) = $gateway->check;
            ok($ok, "$at: nginx accepts it") or diag($said, $config);
            is_deeply([warnings($kind, $said)], [], "$at: and warns of nothing");
        } elsif ($kind =~ /^console( fleet)?$/) {
            transcript($block, $config, $1, @files);
        } elsif ($kind eq 'console feed') {
            is($at =~ s/:.*//r, 'postgres.md', "$at: another test runs it");
        } elsif ($kind eq 'python') {
            push @files, [$text =~ /^# (\S+)/, $text];
        } elsif ($kind eq 'json') {
            ok(eval { JSON::PP->new->decode($text) }, "$at: JSON");
        } elsif ($kind ne 'text') {
            fail("$at: a block of a known kind, not \"$kind\"");
        }
    }
    links($page, $prose);
}

# A part of a configuration need not use the zones that it defines. And what
# nginx 1.22 knows, 1.25 may call deprecated.
sub warnings {
    my ($kind, $said) = @_;
    return grep { ($kind eq 'nginx main' || !/ limits nothing, /)
                  && !/"listen ... http2" directive is deprecated/ }
                $said =~ /\[warn\] (.*)/g;
}

# Each link to a file, and to a heading of one, finds it.
sub links {
    my ($page, $prose) = @_;
    while ($prose =~ /\]\(([^)\s]*)\)/g) {
        my $link = $1;
        next if $link =~ /^https?:/;
        my ($file, $anchor) = split /#/, $link, 2;
        my $target = $file eq '' ? $page : dirname($page) . "/$file";
        my $found = -e $target;
        if ($found && defined $anchor) {
            my ($blocks, $text) = fences($target);
            $found = grep { $_ eq $anchor } headings($text);
        }
        ok($found, basename($page) . ": link to $link");
    }
}

# The headings of a text as the names of their anchors.
sub headings {
    return map { s/[^\w\s-]//gr =~ s/\s/-/gr }
           map { lc } shift =~ /^#+ (.*)$/mg;
}

# The reference has all that the code has, and no more.
sub reference {
    my $page = slurp("docs/directives.md");
    my ($table) = slurp("ngx_http_ratelimit_module.c")
        =~ /ngx_command_t  ngx_http_ratelimit_commands\[\] = \{(.*?)^\};/ms;
    my %contexts = $table =~ /ngx_string\("(\w+)"\),\s+([\w|]+),/g;
    same([keys %contexts], [$page =~ /^## (ratelimit\w*)$/mg], 'directives');
    for (sort keys %contexts) {
        my ($shown) = $page
            =~ /^## $_\n.*?^Syntax:   $_[ ;].*?^Context:  ([\w, ]+)$/ms;
        is($shown, contexts($contexts{$_}), "$_: Syntax, Default and Context");
    }
    my %lines = map { $_ => 1 } map {
        my ($lines) = slurp("src/http/conf/ngx_rl_${_}_conf.c")
            =~ /${_}_rows\[\] =\s*\{(.*?)^\};/ms;
        $lines =~ /ngx_string\("(\w+)"\)/g
    } 'redis', 'peers';
    my ($tls) = slurp("src/http/conf/ngx_rl_conf.h")
        =~ /define NGX_RL_TLS_ROWS(.*?)\n\n/s;
    $lines{$_} = 1 for $tls =~ /ngx_string\("(\w+)"\)/g;
    same([keys %lines], [$page =~ /^`(\w+) [^`=]*;`$/mg], 'lines of blocks');
    my ($parameters) = slurp("src/rules/policy/ngx_rl_param.c")
        =~ /rl_params\[\] =\s*\{(.*?)^\};/ms;
    my %parameters = map { $_ => 1 } $parameters =~ /\{ NGX_\w+, "(\w+=?)"/g;
    ($parameters) = slurp("src/http/conf/ngx_rl_penalty_conf.c")
        =~ /penalty_rows\[\] =\s*\{(.*?)^\};/ms;
    $parameters{$_} = 1 for $parameters =~ /ngx_string\("(\w+=)"\)/g;
    my @parameters = grep { $_ ne 'rule=' } keys %parameters;
    my $flags = join '|', grep { !/=$/ } @parameters;
    same(\@parameters,
         [$page =~ /^`(\w+=|(?:$flags)(?=`))[^`]*`/mg], 'parameters');
    my ($variables) = slurp("src/http/observe/ngx_rl_variables.c")
        =~ /ngx_rl_variables\[\] = \{(.*?)^\};/ms;
    same([$variables =~ /ngx_string\("(\w+)"\)/g],
         [$page =~ /^\| `\$(\w+)` \|/mg], 'variables');
}

sub contexts {
    my $flags = shift =~ s/NGX_RL_ANY/NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF/r;
    return join ', ', map { $flags =~ /NGX_HTTP_$_->[0]_CONF/ ? $_->[1] : () }
                          [MAIN => 'http'], [SRV => 'server'],
                          [LOC => 'location'];
}

sub same {
    my ($code, $page, $what) = @_;
    my %unique = map { $_ => 1 } @$page;
    ok(@$code, "$what: the code has some");
    is_deeply([sort keys %unique], [sort @$code],
              "$what: the reference has those of the code");
}

# The runbook's tables have every message of level warn and above in their first
# column, where "..." stands for what differs. A row may name the directive of a
# message that fills it in.
sub runbook {
    my @known = map { join('.+', map { quotemeta } split /\.\.\./, $_, -1)
                          =~ s/^(\\"ratelimit_\w+\\")/(?:$1|"\\.\\.\\.")/r }
                slurp('docs/runbook.md') =~ /^\| `([^`]*[\w"][^`]*)` \|/mg;
    my ($n, %met) = (0);
    for my $file (glob('*.c src/*/*.c src/*/*/*.c')) {
        for my $message (messages(slurp($file))) {
            my @rows = grep { $message =~ /^$_$/ } @known;
            $n++;
            ok(@rows > 0, basename($file) . ": runbook: $message");
            $met{$_} = 1 for @rows;
        }
    }
    ok($n > 40, "found the messages of the code: $n");
    ok($met{$_}, "runbook: the code still says $_") for @known;
}

# The messages of a source file. src/redis has a function of its own, which
# begins them all, and the breaker's are a table.
sub messages {
    my $code = shift;
    my $string = qr/(?:(?:ngx_\w+_n|"(?:[^"\\]|\\.)*")\s*)+/;
    my $level = qr/NGX_LOG_(?:WARN|ERR|CRIT|ALERT|EMERG)|severity/;
    my @messages;
    while ($code =~ /\bngx_(?:conf_)?log_error\(\s*$level,
                     [^"]*?,[^"]*?,\s*($string)([^;]*;)/gx)
    {
        my ($format, $values) = ($1, $2);
        # how many lines were suppressed
        $format =~ s/%s(?="\s*\z)// if $values =~ /\bnote\);\z/;
        # those of directives, below, have one text for all of it
        push @messages, message($format) unless $format =~ /%\*s/;
    }
    # of a directive: its name stands before the text, or its place behind it
    push @messages, map { '"..." ' . message($_) }
        $code =~ /\bngx_rl_wrong\(cf,\s*($string)/g;
    push @messages, map { message($_) . ' in ...:...' }
        $code =~ /\bngx_rl_wrong_at\(cf,[^";]*?,\s*($string)/g;
    push @messages, map { 'ratelimit peers "...", "...": ' . message($_) }
        $code =~ /peers_log\([^;"]*\bNGX_LOG_(?:ERR|WARN),[^;"]*?,\s*($string)/g;
    push @messages, map { message($_) }
        $code =~ /ngx_rl_request_log\([^;"]*\b$level,\s*($string)/g;
    # of a Redis node: what stands before its name, and one or more of what
    # stands behind it
    my @nodes = map { '"" "%V"' . $_ } $code =~ /(" answered %s with ")/;
    while ($code =~ /redis_node_log\([^;{"]*("[^"]*")([^;]*);/g) {
        my ($what, $rest) = ($1, $2);
        push @nodes, map { $what . '"%V"' . $_ } $rest =~ /("[^"]+")/g;
    }
    push @messages, map { 'ratelimit redis "...": ' . message($_) }
        (grep { /\w\w/ } $code =~ /redis_log\([^;"]*\b$level,[^;"]*?,\s*($string)/g),
        (map { qq{$_"%V"} } @nodes),
        $code =~ /("breaker of %V opens(?:[^"\\]|\\.)*")/;
    return @messages;
}

# The text of a C format, what it fills in as "...".
sub message {
    my %names = (ngx_open_file_n => 'open()', ngx_read_fd_n => 'read()',
                 ngx_close_file_n => 'close()');
    my $text = join '', map { /^ngx/ ? $names{$_} // '...' : s/^"|"$//gr }
                        shift =~ /ngx_\w+_n|"(?:[^"\\]|\\.)*"/g;
    $text =~ s/%(?:uL|uD|uz|ui|[Visd])/.../g;
    return $text =~ s/\\"/"/gr;
}

# Each alert leads to its section of the runbook.
sub alerts {
    my ($blocks, $text) = fences('docs/runbook.md');
    my %there = map { $_ => 1 } headings($text);
    my $alerts = slurp('examples/prometheus/alerts.yml');
    is(join(' ', map { '#' . lc } $alerts =~ /- alert: (\w+)/g),
       join(' ', $alerts =~ /runbook_url: \S+(#\w+)$/mg),
       'each alert has the address of its own section');
    ok($there{lc $_}, "runbook: a section $_")
        for $alerts =~ /- alert: (\w+)/g;
}

# The table of codes has all that a refusal may bear, and no other.
sub codes {
    my ($table) = slurp('docs/statuses.md') =~ /^(\| status .*?)\n\n/ms;
    same([slurp('src/http/request/ngx_rl_answer.c')
          =~ /"([A-Z]+(?:_[A-Z]+)*)(?:"|\\",)/g],
         [$table =~ /^\| \d{3} \| `(\w+)`/mg], 'codes of a refusal');
}

# The files and the names of the code that the pages for contributors name are
# there, except for those that the guides of docs/development.md would make.
sub names {
    my %made_up = map { $_ => 1 } qw( t/unit/test_stairs.c NGX_RL_STAIRS
                                      NGX_RL_PARAM_NOTE NGX_RL_COUNTS_SEEN
                                      ngx_rl_source_address );
    my @sources = grep { /\.[ch]$/ } split /\n/, qx(find src *.c);
    my %there = map { basename($_) => 1 } @sources;
    for (map { slurp($_) } @sources) {
        $there{$_} = 1 for /\b((?:ngx_rl|NGX_RL|ngx_http_ratelimit)\w*)/g;
    }
    for my $page (grep { -e } 'CONTRIBUTING.md', 't/README.md',
                  map { "docs/$_.md" } qw( architecture development ))
    {
        my ($blocks, $prose) = fences($page);
        my $text = join "\n", $prose =~ /`([^`]+)`/g,
                   map { $_->{text} } grep { $_->{kind} eq 'text' } @$blocks;
        my @paths = $text =~ m{(?<![\w./])((?:src|t|lua|page|bench|tools|examples)
                               /[\w/-]+(?:\.\w+)?)(?![\w*])}gx;
        my @names = $text =~ /\b((?:ngx_rl|NGX_RL)_\w+(?:\.[ch])?)(?!\w)/g;
        is_deeply([grep { !$made_up{$_} && !-e } @paths],
                  [], "$page: files");
        is_deeply([grep { !$made_up{$_} && !$there{$_} } @names],
                  [], "$page: names of the code");
    }
}

page($_) for @PAGES;
names();
reference();
runbook();
alerts();
codes();
