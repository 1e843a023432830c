# The endpoint of a gateway under test, as a script would use it: a body is data
# that becomes JSON, an answer has what it says as data again.
#
#     my $api = t::Api->new($gateway, '/rl');
#                                      (..., $port) of another server of it
#     my $answer = $api->put('/document', { rules => [] }, 'If-Match: "0"');
#     is("$answer->{status} $answer->{version}", '201 1');
#     is($answer->{json}{version}, 1);

package t::Api;

use strict;
use warnings;

use Digest::SHA qw( sha256_hex );
use JSON::PP ();
use Test::More ();
use t::Gateway qw( header wait_for );

my $JSON = JSON::PP->new->canonical->allow_nonref->utf8;

sub new {
    my ($class, $gateway, $base, $port) = @_;
    return bless { gateway => $gateway, base => $base // '/rl',
                   to => $port // $gateway }, $class;
}

sub get { my $self = shift; return $self->send('GET', shift, undef, @_) }
sub put { my $self = shift; return $self->send('PUT', @_) }
sub post { my $self = shift; return $self->send('POST', @_) }
sub patch { my $self = shift; return $self->send('PATCH', @_) }
sub delete { my $self = shift; return $self->send('DELETE', shift, undef, @_) }

# body: data; a reference to a text: that text; undef: none. Headers stand
# behind it.
sub send {
    my ($self, $method, $path, $body, @headers) = @_;
    return ($self->send_all([$method, $path, $body, @headers]))[0];
}

sub request {
    my ($self, $method, $path, $body, @headers) = @_;
    if (defined $body) {
        my $text = ref $body eq 'SCALAR' ? $$body : $JSON->encode($body);
        push @headers, 'Content-Type: application/json'
            if !grep { /^Content-Type:/i } @headers;
        # behind the empty line that ends the headers; two bytes too many there
        push @headers, 'Content-Length: ' . length($text) . "\r\n\r\n$text";
    }
    return [$self->{to}, "$method $self->{base}$path",
            t::Gateway::with_token(@headers)];
}

# Requests [method, path, body, headers...] all at once.
sub send_all {
    my ($self, @requests) = @_;
    return map { answer($_) }
           t::Gateway::send_all([map { $self->request(@$_) } @requests], 60);
}

sub answer {
    my $answer = shift;
    $answer->{etag} = header($answer, 'ETag');
    $answer->{version} = $answer->{etag} =~ /^"(0|[1-9]\d*(?=-[0-9a-f]{16}"))/
                         ? $1 : '';
    $answer->{type} = header($answer, 'Content-Type');
    $answer->{json} = eval { $JSON->decode($answer->{body}) };
    return $answer;
}

# A change of what is there now: whatever its version is.
sub change {
    my ($self, $method, $path, $body, @headers) = @_;
    return $self->send($method, $path, $body, 'If-Match: *', @headers);
}

# An answer in short: '422 invalid: /rules/0/params/capacity must be > 0'.
sub said {
    my $answer = shift;
    my $json = $answer->{json};
    return $answer->{status} if $answer->{type} ne 'application/problem+json';
    my $errors = join '; ', map { "$_->{pointer} $_->{detail}" }
                            @{ $json->{errors} // [] };
    return "$answer->{status} " . $json->{type} =~ s/^urn:ratelimit:problem://r
           . ($errors ne '' ? ": $errors" : '');
}

# An API key as a document stores it.
sub sha { return 'sha256:' . sha256_hex(shift) }

# Until all workers of the gateway go by this version. False when the test's
# patience ends.
sub follows {
    my ($self, $version) = @_;
    my %said;
    my $gateway = $self->{gateway};
    return wait_for(sub {
        for ($self->send_all(([GET => '/status']) x 10)) {
            $said{$_->{json}{gateway}{worker}} = $_->{json}{in_use};
        }
        return keys %said == $gateway->{workers}
               && !grep { $_ != $version } values %said;
    });
}

# "If-Match" with the tag of a version, the current one or one of the history.
sub if_match {
    my ($self, $version) = @_;
    for my $path ('/document', "/versions/$version") {
        my $answer = $self->get($path);
        return "If-Match: $answer->{etag}" if $answer->{version} eq $version;
    }
    return "If-Match: \"$version\"";
}

# That a problem is one, whole.
sub problem_ok {
    my ($answer, $said, $name) = @_;
    my $json = $answer->{json} // {};
    Test::More::is(said($answer), $said, $name);
    return if $answer->{type} ne 'application/problem+json';
    Test::More::is_deeply(
        [map { defined $json->{$_} && $json->{$_} ne '' ? 1 : 0 }
         qw( type title status detail )], [1, 1, 1, 1],
        "$name: with all of its members");
    Test::More::is($json->{status}, $answer->{status}, "$name: its status");
}

1;
