use strict;
use warnings;
use POSIX qw(strftime);
use Time::Local qw(timegm);

my $day = timegm(0, 0, 0, 29, 1, 2024);
print +($day - timegm(0, 0, 0, 1, 0, 2000)) / 86_400, "\n";
print strftime('%A', gmtime $day), "\n";
print strftime('%Y-%m-%d', gmtime($day + 100 * 86_400)), "\n";
sub is_leap { my $year = shift; return $year % 4 == 0 && $year % 100 != 0 || $year % 400 == 0 }
print join(' ', map { "$_ " . (is_leap($_) ? 'yes' : 'no') } 1900, 2000, 2023, 2024), "\n";
