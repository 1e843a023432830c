#!/usr/bin/perl
#
# Breaks the code on purpose and looks whether a test notices: one condition or
# constant at a time, in a copy of the tree (build/mutate).
#
#   tools/mutate.pl <number> <seed> [<folder or file>...]
#
# The same seed picks the same places of the same tree. A mutant that does not
# build is none: another one takes its place. One whose tests take too long is
# found. MINUTES ends the run earlier (90). UNIT=only leaves the gateways out.

use strict;
use warnings;

use File::Basename qw( basename dirname );
use File::Compare qw( compare );
use File::Copy qw( copy );
use File::Path qw( make_path );
use List::Util qw( shuffle uniq );
use Time::HiRes qw( time );

my ($number, $seed, @where) = @ARGV;

@where = qw( src/core src/engine src/rules lua ) if !@where;

my $TREE = 'build/mutate';
my @UNIT = (qw( make -s -C t/unit ), 'FLAGS=-O1 -Wno-maybe-uninitialized');
my $END = time + 60 * ($ENV{MINUTES} // 90);

# which files of t/ test a source, besides the unit tests that link it
my @TESTS = (
    [qr{core/lease/ngx_rl_ledger|lua/grant},
     qw( engine/lease engine/async engine/give-back )],
    [qr{remote/ngx_rl_parts}, 'engine/shards'],
    [qr{core/algorithm|lua/.*(?:window|log|bucket|check)},
     qw( engine/algorithm engine/leaky-bucket )],
    [qr{core/ngx_rl_breaker}, 'redis/breaker'],
    [qr{core/ngx_rl_tally}, 'api/top'],
    [qr{core/match}, qw( http/route http/rule-match http/evade )],
    [qr{penalt}, qw( http/penalty engine/penalty-fleet )],
    [qr{remote/ngx_rl_leased},
     qw( engine/lease engine/async engine/give-back engine/strict-rejected
         engine/fail-local )],
    [qr{remote/ngx_rl_(?:strict|script)},
     qw( engine/strict-rejected engine/concurrency http/settle )],
    [qr{engine/ngx_rl_permits|lua/concurrency},
     qw( engine/concurrency engine/concurrency-outage )],
    [qr{engine/ngx_rl_(?:check|counter)},
     qw( http/settle http/dry-run engine/give-back engine/fail-mode
         observe/counts )],
    [qr{engine/ngx_rl_look}, qw( api/counters api/decisions http/look )],
    [qr{engine/ngx_rl_local}, qw( engine/local engine/fail-local http/settle )],
    [qr{engine/ngx_rl_notes},
     qw( http/new-keys http/replay engine/retry-growth )],
    [qr{rules/sync|lua/rules}, qw( rules/lineage rules/redis rules/script )],
    [qr{rules/(?:document|edit)}, qw( api/rules rules/state )],
    [qr{rules/policy}, qw( rules/policy rules/index http/rule-match http/tier )],
);

-e or die "mutate: no $_\n" for map { my (undef, @names) = @$_; map { "t/$_.t" } @names } @TESTS;

# a pattern, and what takes its place; a number is made one more or one less
my @CHANGES = (
    [qr/ (?:<=|>=|<|>) /, sub { { ' <= ' => ' < ', ' >= ' => ' > ',
                                  ' < ' => ' <= ', ' > ' => ' >= ' }->{$_[0]} }],
    [qr/==|!=/, sub { $_[0] eq '==' ? '!=' : '==' }],
    [qr/~=/, sub { '==' }],
    [qr/&&|\|\|/, sub { $_[0] eq '&&' ? '||' : '&&' }],
    [qr/ [+-]=? /, sub { $_[0] =~ tr/+-/-+/r }],
    [qr/\b(?:and|or)\b/, sub { $_[0] eq 'and' ? 'or' : 'and' }],
    [qr/!(?=[\w(])|\bnot /, sub { '' }],
    [qr/(?<![\w.:%#])\d+(?![\w.])/,
     sub { $_[0] == 0 || rand() < 0.5 ? $_[0] + 1 : $_[0] - 1 }],
);


# Runs a command in the copy, for so many seconds: whether it was successful.
sub runs {
    my ($seconds, @command) = @_;

    my $pid = fork // die "fork: $!";

    if ($pid == 0) {
        chdir $TREE or die "$TREE: $!";
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', 'build/mutate.log';
        open STDERR, '>&', \*STDOUT;
        exec 'timeout', '-k', 20, int $seconds, @command;
    }

    waitpid $pid, 0;

    return $? == 0;
}


sub text {
    my ($file, $new) = @_;

    if (defined $new) {
        open my $out, '>', $file or die "$file: $!";
        print $out $new;
        close $out;
    }

    open my $in, '<', $file or die "$file: $!";
    local $/;

    return scalar <$in>;
}


# Files that have not changed keep their time, so that little is built anew.
sub tree_copy {
    my %is = map { ($_ => 1) } grep { -f } split /\n/, qx(git ls-files -co --exclude-standard);

    for my $file (sort keys %is) {
        my $to = "$TREE/$file";

        make_path(dirname($to));
        next if -e $to && compare($file, $to) == 0;
        copy($file, $to) or die "$to: $!";
        chmod +(stat $file)[2] & 07777, $to;
    }

    for (split /\n/, qx(cd $TREE && find src lua t tools -type f)) {
        unlink "$TREE/$_" if !$is{$_};
    }
}


# The code of a file: comments, texts, directives, declarations, which nginx's
# style writes with two blanks, and what stands at the left margin, where no code
# of a function does, become blanks.
sub code {
    my ($file, $text) = @_;

    my $blank = sub { $_[0] =~ s/[^\n]/ /gr };

    if ($file =~ /\.lua$/) {
        $text =~ s/(--[^\n]*|'[^'\n]*')/$blank->($1)/ge;
        return $text;
    }

    $text =~ s{(/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\]|\\.)+')}{$blank->($1)}gse;
    $text =~ s/^(\#(?:[^\n]*\\\n)*[^\n]*|\S[^\n]*| +[\w ]*\w  +[^\n=]*;$)/$blank->($1)/gme;

    return $text;
}


# All places: [file, offset, what stands there, what becomes of it].
sub places {
    my @places;

    for my $file (split /\n/, qx(cd $TREE && find @where -name '*.c' -o -name '*.lua' | sort)) {
        my $code = code($file, text("$TREE/$file"));

        for my $change (@CHANGES) {
            push @places, [$file, $-[0], $&, $change->[1]] while $code =~ /$change->[0]/g;
        }
    }

    return @places;
}


# The unit tests whose programs have the file's functions; those with the fewest
# files beside it are the first.
my (%linked, %parts);

sub units {
    my $file = shift;

    my $name = basename($file);

    if ($name =~ s/\.lua$//) {
        $name = 'lua_' . ($name =~ /^(?:rules|penalties)$/ ? $name : 'check') . '.c';
    }

    if (!%linked) {
        for my $program (grep { -x && /test_\w+$/ } glob "$TREE/build/unit/test_*") {
            my @parts = qx(readelf -Ws $program) =~ /FILE +LOCAL .* (\S+\.c)$/mg;

            $parts{basename($program)} = @parts;
            push @{ $linked{$_} }, basename($program) for @parts;
        }
    }

    return sort { $parts{$a} <=> $parts{$b} } uniq @{ $linked{$name} // [] };
}


sub gateway_tests {
    my $file = shift;

    return if ($ENV{UNIT} // '') eq 'only';
    return uniq map { my ($like, @names) = @$_;
                      $file =~ $like ? map { "t/$_.t" } @names : () } @TESTS;
}


my %seconds;


# Runs what must be successful as it is; again, if others disturb. Returns how
# long it may take with a change.
sub without {
    my ($again, @command) = @_;

    my $begin = time;

    runs(3600, @command) || $again && runs(3600, @command)
        or die "mutate: without a change fails: @command\n", text("$TREE/build/mutate.log");

    return 60 + 5 * (time - $begin);
}


sub builds {
    my $file = shift;

    return $file =~ /\.lua$/
           || runs(300, @UNIT, '../../build/lib/unit/' . $file =~ s{^src/(.*)c$}{$1o}r);
}


# Which test fails, or undef. A busy machine may disturb one of a gateway, and
# hardly twice.
sub found {
    my $file = shift;

    my @units = units($file);

    runs($seconds{unit}, @UNIT, @units)
        or return text("$TREE/build/mutate.log") =~ /(test_\w+\.c:\d+): error/ ? $1 : 'a unit test'
        if @units;

    my @tests = grep { $seconds{$_} } gateway_tests($file) or return;

    runs(600, qw( make -s build )) or return 'make build';

    for my $test (sort { $seconds{$a} <=> $seconds{$b} } @tests) {
        runs($seconds{$test}, 'tools/test.sh', $test)
            || runs($seconds{$test}, 'tools/test.sh', $test) or return $test;
    }

    return;
}


$| = 1;
$ENV{CC_OPT} //= '-O0 -g -fPIC';
srand $seed;

make_path("$TREE/build");
tree_copy();

my @all = shuffle places();
my @picked = splice @all, 0, int 1.5 * $number;
my @files = uniq map { $_->[0] } @picked;

print 'mutate: ', @all + @picked, " places in @where; first the tests without a change\n";

without(0, @UNIT, '-j4', 'build');

my @units = uniq map { units($_) } @files;
$seconds{unit} = without(1, @UNIT, '-j2', @units) if @units;

my @tests = uniq map { gateway_tests($_) } @files;

without(0, qw( make -s build )) if @tests;
$seconds{$_} = without(1, 'tools/test.sh', $_) for @tests;

my ($made, $found) = (0, 0);

for my $place (@picked) {
    last if $made == $number || time > $END;

    my ($file, $at, $was, $change) = @$place;
    my $text = text("$TREE/$file");
    my $becomes = $change->($was);
    my ($before, $after) = (substr($text, 0, $at), substr $text, $at + length $was);
    my $line = 1 + $before =~ tr/\n//;

    text("$TREE/$file", "$before$becomes$after");

    if (builds($file)) {
        my $how = found($file);

        $made++;
        $found += defined $how;
        printf "%-8s %s:%d  %s  # %s\n", defined $how ? 'found' : 'survived', $file, $line,
               ($before =~ /([^\n]*)\z/)[0] =~ s/^\s+//r . $becomes . ($after =~ /\A([^\n]*)/)[0],
               $how // "\"$was\" before";
    }

    text("$TREE/$file", $text);
}

printf "mutate: %d of %d found, %.0f %%\n", $found, $made, $made ? 100 * $found / $made : 0;
