use strict;
use warnings;
use JSON::PP;
use List::Util qw(sum);

my $json = JSON::PP->new->canonical;
my $data = $json->decode('{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}');
print "$data->{name} ", scalar @{ $data->{values} }, " $data->{ratio}\n";
print $json->encode({ name => $data->{name}, tags => [@{ $data->{tags} }, 'z'], total => sum(@{ $data->{values} }) }), "\n";
