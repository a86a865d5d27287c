use strict;
use warnings;

sub primes_below {
    my ($limit) = @_;
    my @crossed;
    my @primes;
    for my $n (2 .. $limit - 1) {
        next if $crossed[$n];
        push @primes, $n;
        for (my $m = $n * $n; $m < $limit; $m += $n) { $crossed[$m] = 1 }
    }
    return @primes;
}

print join(' ', primes_below(50)), "\n";
print scalar(() = primes_below(10_000)), "\n";
