# Describes this Perl to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").
use strict;
use warnings;

if ($] < 5.020) {
    print STDERR "Perl 5.20 or newer is needed, this is $]\n";
    exit 1;
}
unless (eval { require Filter::Util::Call; require JSON::PP; 1 }) {
    print STDERR "this Perl lacks its own modules Filter::Util::Call and JSON::PP: install the whole of Perl (package perl)\n";
    exit 1;
}
require Cwd;

my $home = $ENV{HOME} // '';
my @system = ('/bin', '/sbin', '/lib', '/usr');

sub is_within {
    my ($path, $folder) = @_;
    $folder =~ s{/+\z}{};
    return $path eq $folder || index($path, "$folder/") == 0;
}

# A home, anything that contains one, or the root.
sub is_too_wide {
    my ($folder) = @_;
    return $folder eq '/' || $folder =~ m{\A/home/[^/]+\z} || ($home ne '' && is_within($home, $folder));
}

# The running file itself, whatever links or wrappers led to it.
my $executable = readlink('/proc/self/exe') // Cwd::realpath($^X);
(my $folder = $executable) =~ s{/[^/]+\z}{};
my %seen;
my @wanted = grep { defined && -d && !$seen{$_}++ } map { Cwd::realpath($_) } $folder, grep { !ref && m{\A/} && -d } @INC;
@wanted = grep { my $path = $_; !is_too_wide($path) && !grep { is_within($path, $_) } @system } @wanted;
my @binds = grep { my $path = $_; !grep { $_ ne $path && is_within($path, $_) } @wanted } @wanted;
my $version = join '.', map { int } $] =~ /\A(\d+)\.(\d{3})(\d{3})/;
print JSON::PP->new->utf8->canonical->encode(
    { version => $version, executable => $executable, binds => \@binds, env => {}, packages => {} }), "\n";
