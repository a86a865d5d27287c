use strict;
use warnings;

my %counts;
$counts{$_}++ for split ' ', 'the cat and the dog and the bird';
print "$_ $counts{$_}\n" for sort { $counts{$b} <=> $counts{$a} || $a cmp $b } keys %counts;
