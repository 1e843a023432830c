# docs/openapi.yaml against a gateway: it has every path and method that the
# endpoint serves, and whatever the endpoint answers to them, well asked or not,
# has a status, a type and members that it names.

use t::RateLimit 'no_plan';
use t::Gateway qw( header );
use t::Api;

# The subset of YAML that the file is written in: maps and lists by indentation,
# scalars that are plain or in single quotes, lists of scalars in brackets.
sub scalar_of {
    my $text = shift;
    return [map { scalar_of($_) } split /,\s*/, $1] if $text =~ /^\[(.*)\]$/;
    return {} if $text eq '{}';
    return $1 =~ s/''/'/gr if $text =~ /^'(.*)'$/s;
    die "not understood: $text" if $text =~ /^[\[{"&*!|>%@`]/;
    return $text;
}

sub block {
    my ($lines, $indent) = @_;
    my $value;
    while (@$lines && $lines->[0][0] >= $indent) {
        my ($at, $text) = @{ shift @$lines };
        die "indentation: $text" if $at != $indent;
        if ($text =~ /^- (.*)/) {
            my $item = $1;
            if ($item =~ /^[\w\$]+:( |$)/) {
                unshift @$lines, [$indent + 2, $item];
                push @$value, block($lines, $indent + 2);
            } else {
                push @$value, scalar_of($item);
            }
        } elsif ($text =~ /^('[^']*'|[^\s:'][^:]*):(?: (.+))?$/) {
            my ($name, $rest) = (scalar_of($1), $2);
            die "twice: $name" if $value && exists $value->{$name};
            # an item of a list may stand as far left as its name
            my $next = @$lines ? $lines->[0][0] : 0;
            $value->{$name} = defined $rest ? scalar_of($rest)
                              : $next > $indent ? block($lines, $next)
                              : die "nothing behind $name";
        } else {
            die "not understood: $text";
        }
    }
    return $value;
}

my $file = do { local (@ARGV, $/) = 'docs/openapi.yaml'; <> };
my @lines = map { /^( *)(.*)/; [length $1, $2] }
            grep { !/^\s*(#|$)/ } split /\n/, $file;
my $spec = block(\@lines, 0);

sub resolve {
    my $value = shift;
    while (ref $value eq 'HASH' && $value->{'$ref'}) {
        my $ref = $value->{'$ref'};
        $value = $spec;
        $value = $value->{$_} // die "no $ref" for split m{/}, $ref =~ s{^#/}{}r;
    }
    return $value;
}

sub refs {
    my $value = shift;
    return map { refs($_) } @$value if ref $value eq 'ARRAY';
    return () if ref $value ne 'HASH';
    return (($value->{'$ref'} // ()), map { refs($_) } values %$value);
}

my %named = map { $_ => 1 } refs($spec);

is(join(' ', grep { !eval { resolve({ '$ref' => $_ }) } } keys %named), '',
   'every reference leads somewhere');

for my $kind (sort keys %{ $spec->{components} }) {
    next if $kind eq 'securitySchemes';
    is(join(' ', grep { !$named{"#/components/$kind/$_"} }
                 sort keys %{ $spec->{components}{$kind} }), '',
       "every one of the $kind is of use");
}

# What is wrong with data by a schema; '' where nothing is.
sub invalid {
    my ($schema, $data, $at) = @_;
    $schema = resolve($schema);
    my $type = !defined $data ? 'null' : JSON::PP::is_bool($data) ? 'boolean'
             : ref $data eq 'HASH' ? 'object' : ref $data eq 'ARRAY' ? 'array'
             : $data =~ /^-?\d+\z/ ? 'integer'
             : $data =~ /^-?\d+(\.\d+)?(e[-+]?\d+)?\z/i ? 'number' : 'string';
    my $types = $schema->{type} // [];
    my %may = map { $_ => 1 } ref $types ? @$types : $types;
    # a text may look like a number
    return "$at is $type" if %may && !$may{$type}
                             && !($type eq 'integer' && $may{number})
                             && !($type =~ /integer|number/ && $may{string});
    return "$at is $data" if $schema->{enum} && defined $data
                             && !grep { $_ eq $data } @{ $schema->{enum} };
    if ($type eq 'object') {
        my $members = $schema->{properties} // {};
        for (@{ $schema->{required} // [] }) {
            return "$at has no $_" if !exists $data->{$_};
        }
        for (sort keys %$data) {
            my $member = $members->{$_};
            my $wrong = $member ? invalid($member, $data->{$_}, "$at/$_")
                      : ($schema->{additionalProperties} // '') eq 'false'
                        ? "$at/$_ is unknown" : '';
            return $wrong if $wrong;
        }
    }
    if ($type eq 'array' && $schema->{items}) {
        for (0 .. $#$data) {
            my $wrong = invalid($schema->{items}, $data->[$_], "$at/$_");
            return $wrong if $wrong;
        }
    }
    return '';
}

# the paths and methods are those of the endpoint
my $gateway = t::Gateway->new(http => <<'CONF');
    ratelimit_zone $ratelimit_api_key zone=api:1m state=%%DIR%%/api.state;
    ratelimit_penalty guesses zone=api after=1r/1h time=1h on=502;
    server {
        listen 127.0.0.1:%%PORT%%;
        location /rl/ { ratelimit_api zone=api %%WRITE%%; }
        location /read/ { ratelimit_api zone=api; }
        location /token/ { ratelimit_api zone=api write token_file=tokens; }
        location /v1/ { ratelimit zone=api; proxy_pass http://127.0.0.1:1; }
    }
CONF

$gateway->write('tokens', "a-token-of-32-bytes-0123456789ab\n");
$gateway->start;

my $api = t::Api->new($gateway);
my $read = t::Api->new($gateway, '/read');
my $without = t::Api->new($gateway, '/token');

my $source = do { local (@ARGV, $/) = 'src/http/api/ngx_rl_api_route.c'; <> };
my ($table) = $source =~ /api_routes\[\] =\n\{(.*?)\n\};/s;
# those of the status page are no JSON
my @routes = sort map { s/\{\*?\}/{}/r }
             $table =~ /ngx_string\("([^"]+)"\)(?!, GET, \w+_PAGE)/g;

is(join(' ', sort map { s{^/}{}r =~ s/\{\w+\}/{}/r } keys %{ $spec->{paths} }),
   "@routes", 'the paths are those of the endpoint');

# parameters of an operation, and what they are in a request
sub asked {
    my ($path, $operation, %set) = @_;
    my (@query, @headers);
    for (map { resolve($_) } @{ $operation->{parameters} // [] }) {
        my $value = $set{$_->{name}} // $_->{example};
        if ($_->{in} eq 'path') {
            $value = $_->{example} if $value eq '';
            $path =~ s/\{$_->{name}\}/$value/;
        } elsif ($_->{in} eq 'query') {
            push @query, "$_->{name}=$value" if defined $value;
        } elsif (defined $value && $value ne '') {
            push @headers, "$_->{name}: $value";
        }
    }
    return ($path . (@query ? '?' . join '&', @query : ''), @headers);
}

my %seen;

# An answer is one of those that the operation names.
sub named_ok {
    my ($what, $operation, $answer) = @_;
    my $response = resolve($operation->{responses}{ $answer->{status} } // {});
    my $type = $answer->{type} // '';
    my $content = $response->{content} // {};
    $seen{"$operation->{operationId} $answer->{status}"}++;
    return ok(0, "$what: $answer->{status} is not named: $answer->{body}")
        if !$response->{description};
    return is("$type$answer->{body}", '', "$what: no body") if !%$content;
    return ok(0, "$what: $answer->{status} with $type is not named")
        if !$content->{$type};
    is(invalid($content->{$type}{schema}, $answer->{json}, ''), '',
       "$what: $answer->{status} as it says");
    for (grep { !/^X-RateLimit-(?:Saved|Warning)$/ }
         sort keys %{ $response->{headers} // {} })
    {
        isnt(header($answer, $_) // '', '', "$what: $_");
    }
}

my %order = (get => 0, put => 1, patch => 2, post => 3, delete => 4);

# something for each of them to be about
my $fill = {
    rules => [{ id => 'orders', params => { limit => 100, window => 60 },
                tiers => { pro => { limit => 200 } } }],
    tier_of => { keys => { sk_1 => 'pro' } }, allow => ['sk_more_*'],
    deny => ['sk_more_*'],
    overrides => [{ id => 'week', key => 'sk_1', type => 'multiplicative',
                    value => 2, reason => 'x' }],
};

named_ok('the first document', $spec->{paths}{'/document'}{put},
         $api->change(PUT => '/document', $fill));

for my $path (sort keys %{ $spec->{paths} }) {
    my $methods = $spec->{paths}{$path};
    my ($url) = asked($path, (values %$methods)[0]);
    my $options = $api->send(OPTIONS => $url =~ s/\?.*//r);
    is(join(', ', sort grep { !/^(HEAD|OPTIONS)$/ } split /, /,
            header($options, 'Allow')),
       join(', ', sort map { uc } keys %$methods), "$path: its methods");
    for my $method (sort { $order{$a} <=> $order{$b} } keys %$methods) {
        my $operation = $methods->{$method};
        my $what = uc($method) . " $path";
        my @types = sort keys %{ ($operation->{requestBody} // {})->{content}
                                 // {} };
        my ($body) = map { $_->{example} }
                     values %{ ($operation->{requestBody} // {})->{content}
                               // {} };
        my %writes = map { $_->{name} => 1 } map { resolve($_) }
                     @{ $operation->{parameters} // [] };
        my $change = $writes{'If-Match'};
        my $send = sub {
            my ($by, $text, %set) = @_;
            my ($to, @headers) = asked($path, $operation, %set);
            push @headers, "Content-Type: $types[0]" if @types;
            named_ok($what, $operation,
                     $by->send(uc $method, $to, defined $text ? \$text : undef,
                               @headers));
        };
        my %good = $change ? ('If-Match' => '*') : ();
        $good{version} = $api->get('/document')->{version};
        # as it should be, after the document is what it was; and what is not
        # there, without a condition, of another version, from a client that
        # may only read, from one without a token
        $api->change(PUT => '/document', $fill);
        $api->delete("/overrides/week", 'If-Match: *')
            if $operation->{operationId} eq 'postOverrides';
        $send->($api, $body, %good);
        $send->($api, $body, %good, map { ($_ => 'other') }
                                    qw( id tier key rule version ));
        $send->($read, $body, %good);
        $send->($without, $body, %good);
        if ($change) {
            $send->($api, $body, 'If-Match' => '');
            $send->($api, $body, 'If-Match' => '"7000"');
            $send->($api, $body, %good, reason => 'x' x 300);
        }
        if (@types && $method ne 'delete') {
            $send->($api, '', %good);
            $send->($api, '{', %good);
            $send->($api, '{"x":{"y":1}}', %good);
            $send->($api, '"' . 'x' x 1100000 . '"', %good);
            my ($to, @headers) = asked($path, $operation, %good);
            named_ok($what, $operation,
                     $api->send(uc $method, $to, \$body, @headers,
                                'Content-Type: text/plain'));
        }
        {
            my ($to, @headers) = asked($path, $operation, %good);
            my $more = $to =~ /\?/ ? '&' : '?';
            named_ok($what, $operation,
                     $api->send(uc $method, "$to${more}nope=1",
                                defined $body ? \$body : undef, @headers,
                                @types ? "Content-Type: $types[0]" : ()));
        }
        $send->($api, $body, 'If-None-Match' => '*')
            if $change && $writes{'If-None-Match'};
        if (!$change && $writes{'If-None-Match'}) {
            my $version = $api->get('/document')->{etag};
            $send->($api, undef, %good, 'If-None-Match' => $_) 
                for $version, '"7000"';
        }
        # no UTF-8, no key, and nothing to say what is to leave
        $send->($api, $body, %good, map { ($_ => 'a%FF') } qw( id tier key ));
        $send->($api, $body, %good, key => $_) for '', 'other';
        $send->($api, $body, %good, tier => 'another');
        if (@types && $method eq 'delete') {
            my ($to, @headers) = asked($path, $operation, %good);
            $send->($api, undef, %good);
            $send->($api, '"' . 'x' x 1100000 . '"', %good);
            named_ok($what, $operation,
                     $api->send(DELETE => $to, \$body, @headers,
                                'Content-Type: text/plain'));
        }
    }
}

# a penalty, so that one can be seen, and ended
$gateway->get('/v1/', 'X-API-Key: guesser') for 1 .. 3;

named_ok("get $_: a penalty", $spec->{paths}{$_}{get},
         $api->get("$_?key=guesser")) for '/rejections', '/counters';
named_ok("$_->[0] /counters: a penalty", $spec->{paths}{'/counters'}{$_->[0]},
         $api->send(uc $_->[0], '/counters?rule=orders&key=guesser', $_->[1]))
    for ['get'], ['patch', { add => 1 }], ['delete'];

for my $method (qw( get delete )) {
    named_ok("$method: a penalty", $spec->{paths}{'/penalties'}{$method},
             $api->$method('/penalties?key=guesser'));
}

# what was seen is most of what is named: not what a broken Redis causes, what
# makes a document invalid or too large by taking away, and a variable's limit
my %named_statuses;

for my $path (values %{ $spec->{paths} }) {
    for my $operation (values %$path) {
        $named_statuses{"$operation->{operationId} $_"} = 1
            for keys %{ $operation->{responses} };
    }
}

my @unseen = grep { !$seen{$_} && !/ (500|503|504)$/
                    && !/^(delete(Override|Rule|Tier|TierOf)|restoreVersion) 4[12]/
                    && !/^(get|validate).* 403$/
                    && $_ ne 'getCounter 422' }
             sort keys %named_statuses;

is("@unseen", '', 'every other status that it names was met');

$gateway->stop;
