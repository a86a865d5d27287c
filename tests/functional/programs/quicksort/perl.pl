use strict;
use warnings;

sub quicksort {
    my ($pivot, @rest) = @_;
    return () unless defined $pivot;
    return (quicksort(grep { $_ < $pivot } @rest), $pivot, quicksort(grep { $_ >= $pivot } @rest));
}

print join(' ', quicksort(33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13)), "\n";
