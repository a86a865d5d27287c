use strict;
use warnings;
use List::Util qw(sum);
use Math::BigInt;

my $product = Math::BigInt->new(30)->bfac;
print "$product\n", sum(split //, "$product"), "\n";
