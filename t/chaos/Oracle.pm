# What is right. The load has noted each request; here each is compared with
# what a single perfect counter could have said.
#
# When a request was counted is not known, only that it was between "sent" and
# "done". So a check looks for an answer that no counting in that time explains.
#
# Families of keys, each key at twenty requests a second:
#
#     known   a fixed window of a year, a limit never reached, in Redis
#     local   the same without Redis: each gateway counts for itself
#     quota   a fixed window of a year, a limit reached in the midst of a fault
#     bucket  a token bucket, ten tokens a second, twice as many requests
#     lease   as quota, one key at a hundred a second, with sync=lease: what is
#             left is what that gateway knows, so only who passed is judged
#
# Wrong is
#
#     - any status but 200 and 429; 5xx and requests without an answer are
#       counted apart
#     - a header against the rest: PASSED without a Remaining from 0 to the
#       limit less 1, REJECTED without a Remaining of 0 and a Retry-After,
#       DEGRADED that is no 200 with a Remaining of -1, an answer from Redis in
#       "local" that says so
#     - in a window, used (limit less Remaining) above the requests that can have
#       been counted: those sent before this answer came. A request without an
#       answer from Redis, or whose client left, may have been counted: too few
#       tokens are permitted, also for good
#     - in a window, used below the requests that passed before this one was
#       sent, itself included; unless the fault loses what was written
#     - 429 from a window that cannot have been used up, by the same count; so
#       any in "known" and "local"
#     - 429 from a bucket that had more than three tokens, although all requests
#       that may have been counted took one, as late as they can have; in the
#       ten seconds before it each of the key was answered by Redis
#     - passed above the limit (see below), unless the fault loses writes
#
# Overage: of a window, passed above the limit. Of a bucket, requests that passed
# where capacity and refilling since give no token, each minute difference
# granted: the longest wait of a request of the key is added to the time. What
# was DEGRADED is not in it. In per cent of what passed rightly. A fault that
# loses writes: an asynchronous failover those that were not yet replicated,
# a restart without data all. A client may then have its limit once more.

package t::chaos::Oracle;

use strict;
use warnings;

use List::Util qw( max );

our %FAMILIES = (
    known  => { limit => 1_000_000 },
    local  => { limit => 1_000_000 },
    quota  => { limit => 80 },                  # in the full form
    bucket => { limit => 10, rate => 10 },
    lease  => { limit => 400, leased => 1 },
);

use constant { QUIET_S => 10, FEW => 3, LATE_S => 0.12, WAITED_S => 0.05 };

# The requests of a file that load wrote, of these paths; and for how long it
# stood still, in seconds.
sub read_load {
    my ($file, @paths) = @_;
    my ($stall, @records) = (0);
    open my $in, '<', $file or die "$file: $!";
    while (<$in>) {
        if (/^stall (\d+)/) {
            $stall = $1 / 1e6;
            next;
        }
        my %r;
        @r{qw( sent done gateway path status told left retry end )} = split;
        $_ /= 1e6 for @r{qw( sent done )};
        $r{path} = $paths[$r{path}];
        push @records, \%r;
    }
    return (\@records, $stall);
}

# loses: what may be lost, see Faults.pm. Returns
#
#     requests, failed, closed, degraded   how many of them
#     wrong         what is wrong, a text each
#     over, right   passed as checked above the limits, and within them
#     again         what all keys may have once more where all is lost
#     longest       the longest wait in seconds
#     late          how many took LATE_S or longer: the timeout and 20 ms
#     waited        how many were DEGRADED after WAITED_S or longer
#     resets        how often a window began anew, where it may
#     unlimited_at  when the last one that was DEGRADED was sent
sub judge {
    my ($records, $loses) = @_;
    my %sums = (requests => scalar @$records, failed => 0, closed => 0,
                degraded => 0, wrong => [], over => 0, right => 0,
                longest => 0, late => 0, waited => 0, resets => 0,
                again => 0);
    my %keys;
    for my $r (sort { $a->{sent} <=> $b->{sent} } @$records) {
        count($r, \%sums);
        my ($family) = $r->{path} =~ m{^/(\w+)};
        my $key = $r->{path} . ($family eq 'local' ? " $r->{gateway}" : '');
        push @{ $keys{$family}{$key} }, $r;
    }
    for my $family (sort keys %keys) {
        my $is = $FAMILIES{$family};
        my $lost = $loses && ($loses eq 'local') == ($family eq 'local');
        for my $key (sort keys %{ $keys{$family} }) {
            my $of = $keys{$family}{$key};
            my @wrong = (headers($of, $is, $family),
                         $is->{rate} ? bucket($of, $is, $lost, \%sums) :
                         $is->{leased} ? above($of, $is, $lost, \%sums)
                                       : window($of, $is, $lost, \%sums));
            $sums{again} += $is->{limit};
            push @{ $sums{wrong} }, map { "$key: $_" } @wrong;
        }
    }
    return \%sums;
}

sub count {
    my ($r, $sums) = @_;
    if ($r->{end} eq '-') {
        my $wait = $r->{done} - $r->{sent};
        $sums->{longest} = max($sums->{longest}, $wait);
        $sums->{late}++ if $wait >= LATE_S;
        $sums->{failed}++ if $r->{status} >= 500;
        if ($r->{told} eq 'D') {
            $sums->{degraded}++;
            $sums->{waited}++ if $wait >= WAITED_S;
            $sums->{unlimited_at} = $r->{sent};
        }
    } elsif ($r->{end} =~ /[ck]/) {
        $sums->{closed}++;
    } elsif ($r->{end} ne 'a') {
        $sums->{failed}++;
    }
}

sub text {
    my $r = shift;
    return sprintf '%d %s left %d retry %d, %.3f after %.1f ms', @$r{qw( status
        told left retry sent )}, 1000 * ($r->{done} - $r->{sent});
}

# Whether each answer agrees with itself.
sub headers {
    my ($of, $is, $family) = @_;
    my @wrong;
    for my $r (@$of) {
        next if $r->{end} ne '-' || $r->{status} >= 500;
        my $is_right =
            $r->{told} eq 'P' ? $r->{status} == 200 && $r->{left} >= 0
                                && $r->{left} < $is->{limit} :
            $r->{told} eq 'R' ? $r->{status} == 429 && $r->{left} == 0
                                && $r->{retry} > 0 :
            $r->{told} eq 'D' ? $r->{status} == 200 && $r->{left} == -1
                                && $family ne 'local' :
            0;
        push @wrong, 'contradicts itself: ' . text($r) if !$is_right;
    }
    return @wrong;
}

# Of a key's window: whether what is left agrees with who was there.
sub window {
    my ($of, $is, $loses, $sums) = @_;
    my @by_done = sort { $a->{done} <=> $b->{done} } @$of;
    my @passed = grep { $_->{told} eq 'P' } @by_done;
    my @charged = grep { $_->{told} ne 'R' } @$of;
    my ($limit, $lost, @wrong) = ($is->{limit}, 0);
    # in the order of sent: who passed for sure before this one was sent
    my ($n, %before) = (0);
    for my $r (@$of) {
        $n++ while $n < @passed && $passed[$n]{done} < $r->{sent};
        $before{$r} = $n;
    }
    # in the order of done: who may have been counted by then, itself included
    $n = 0;
    for my $r (@by_done) {
        $n++ while $n < @charged && $charged[$n]{sent} <= $r->{done};
        my $used = $limit - $r->{left};
        if ($r->{told} eq 'P') {
            push @wrong, "more used than $n: " . text($r) if $used > $n;
            my $least = $before{$r} + 1 - $lost;
            if ($used < $least) {
                push @wrong, "less used than $least: " . text($r) if !$loses;
                $lost += $least - $used;
                $sums->{resets}++;
            }
        } elsif ($r->{told} eq 'R') {
            push @wrong, "rejected at $n: " . text($r) if $n < $limit;
        }
    }
    return @wrong, above($of, $is, $loses, $sums);
}

# Of a key's window: how many passed that should not.
sub above {
    my ($of, $is, $loses, $sums) = @_;
    my $passed = grep { $_->{told} eq 'P' } @$of;
    my $over = max(0, $passed - $is->{limit});
    $sums->{over} += $over;
    $sums->{right} += $passed - $over;
    return $over && !$loses ? "$over passed above the limit" : ();
}

# Of a key's bucket: who passed without a token, who was rejected with some.
sub bucket {
    my ($of, $is, $loses, $sums) = @_;
    my @by_done = sort { $a->{done} <=> $b->{done} } @$of;
    my $slack = $is->{rate} * max(0, map { $_->{done} - $_->{sent} } @by_done);
    my $over = passed_without(\@by_done, $is, $slack);
    my @wrong = rejected_with(\@by_done, $is, $slack);
    $sums->{over} += $over;
    $sums->{right} += grep({ $_->{told} eq 'P' } @by_done) - $over;
    push @wrong, "$over passed without a token" if $over && !$loses;
    return @wrong;
}

# How many passed that found no token, whenever the others were counted.
sub passed_without {
    my ($by_done, $is, $slack) = @_;
    my ($used, $last, $over) = (0, 0, 0);
    for my $r (grep { $_->{told} eq 'P' } @$by_done) {
        $used = max(0, $used - $is->{rate} * ($r->{done} - $last)) + 1;
        $last = $r->{done};
        if ($used > $is->{limit} + $slack) {
            $over++;
            $used--;
        }
    }
    return $over;
}

# Who was rejected though there were tokens, even if all those took one that may
# have been counted.
sub rejected_with {
    my ($by_done, $is, $slack) = @_;
    my ($used, $last, $unsure, @wrong) = (0, 0, 0);
    for my $r (@$by_done) {
        if ($r->{told} ne 'R') {
            $used = max(0, $used - $is->{rate} * ($r->{done} - $last)) + 1;
            $used = $is->{limit} if $used > $is->{limit};
            $last = $r->{done};
            $unsure = $last if $r->{told} ne 'P';
            next;
        }
        next if $unsure > $r->{sent} - QUIET_S;
        my $left = $is->{limit}
                   - max(0, $used - $is->{rate} * max(0, $r->{sent} - $last));
        push @wrong, sprintf 'rejected with %.1f tokens: %s', $left, text($r)
            if $left > FEW + $slack;
    }
    return @wrong;
}

1;
