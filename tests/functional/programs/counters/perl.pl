use strict;
use warnings;

package Rectangle;
sub new { my ($class, $width, $height) = @_; return bless { width => $width, height => $height }, $class }
sub name { 'rectangle' }
sub show { my $self = shift; return $self->name . ' ' . $self->{width} * $self->{height} }

package Square;
our @ISA = ('Rectangle');
sub new { my ($class, $side) = @_; return $class->SUPER::new($side, $side) }
sub name { 'square' }

package main;

sub counter {
    my ($step) = @_;
    my $count = 0;
    return sub { $count += $step };
}

my ($ones, $tens) = (counter(1), counter(10));
print join(' ', map { $_->() } $ones, $ones, $tens, $ones, $tens), "\n";
print $_->show, "\n" for Square->new(3), Rectangle->new(2, 5);
