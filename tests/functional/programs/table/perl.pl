use strict;
use warnings;

my @rows = (['apple', 1.5, 10], ['pear', 0.25, 4], ['watermelon', 12, 1]);
my $total = 0;
for my $row (@rows) {
    printf "%-12s|%8.2f|%4d\n", @$row;
    $total += $row->[1] * $row->[2];
}
printf "%-12s %7.2f\n", 'total', $total;
printf "%07d %x\n", 255, 255;
