# A gateway as docs/under-attack.md configures it, in front of an API that says
# what the test wants.
#
#     my $gateway = t::hostile::Attack::gateway('1. Passwords', $api);

package t::hostile::Attack;

use strict;
use warnings;

use t::Gateway;
use t::Ports qw( free_port );

# The configuration below the heading that begins so. api: the lines of the
# API's server {}; more: without: a part of it that is left out, small: its zone
# has 1 MiB, http: lines of http {}; the rest is that of t::Gateway->new().
sub gateway {
    my ($heading, $api, %more) = @_;
    open my $in, '<', 'docs/under-attack.md' or die "docs: $!";
    my $page = do { local $/; <$in> };
    my ($http) = $page =~ /^## \Q$heading\E.*?^```nginx http\n(.*?)^```/ms
        or die "under-attack.md: no configuration below $heading";
    my ($port, $operators) = (free_port(), free_port());
    if (my $without = delete $more{without}) {
        $http =~ s/$without// or die "under-attack.md: no $without";
    }
    $http =~ s/:16m\b/:1m/ if delete $more{small};
    $http =~ s/127\.0\.0\.1:8080\b/127.0.0.1:%%PORT%% backlog=2048/g;
    $http =~ s/127\.0\.0\.1:9000\b/127.0.0.1:$port/g;
    # where the test reads and changes rules
    $http =~ s/\bwrite token_file=\S+;/%%WRITE%%;/g;
    $http =~ s/127\.0\.0\.1:8082\b/127.0.0.1:$operators/g;
    $http .= "server { listen 127.0.0.1:$port; $api }\n" . ($more{http} // '')
             . "server { listen 127.0.0.1:@{[ free_port() ]}; }\n";
    # where the test reads the metrics
    $http =~ s/^(server \{\n)/$1    location = \/metrics { ratelimit_metrics; }\n/m;
    return t::Gateway->new(workers => 2, %more, http => $http,
                           operators => $operators)->start;
}

1;
