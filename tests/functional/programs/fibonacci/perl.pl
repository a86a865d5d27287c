use strict;
use warnings;

my %known = (0 => 0, 1 => 1);
sub fibonacci {
    my ($n) = @_;
    return $known{$n} //= fibonacci($n - 1) + fibonacci($n - 2);
}

print join(' ', map { fibonacci($_) } 0 .. 10), "\n";
print fibonacci(70), "\n";
