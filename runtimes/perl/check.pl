# Looks at a program without running it: `check.pl SOURCE` (docs/DRIVERS.md, "The check").
#
# Only Perl can read Perl, and to do so it runs BEGIN blocks and the modules that are used; that happens here, in the
# sandbox of the check, and not where the program will run. Everything else of the program is left alone.
use strict;
use warnings;

my $source = $ARGV[0];
my $remedy = 'install it in the sandbox, send it as an input file, or do without it';

sub say_message {
    my @fields = @_;
    tr/\0//d for @fields;
    print scalar(@fields), "\0", map { "$_\0" } @fields;
}

open(my $words, '-|', "exec '$^X' -Mutf8 -c '$source' 2>&1 </dev/null") or exit 1;
my @lines = <$words>;
close $words;
my $status = $?;
my $told;
for (@lines) {
    chomp;
    next if /\A(\Q$source\E (syntax OK|had (too many|compilation) errors)|Execution of|BEGIN (failed|not safe)|Compilation failed)/;
    if (/\ACan't locate \S+ in \@INC \(you may need to install the (\S+) module\).* at \Q$source\E line (\d+)/) {
        say_message('missing', $1, $2, $remedy);
        $told = 1;
    } elsif (/\AGlobal symbol "(\W\w+)" requires explicit package name .* at \Q$source\E line (\d+)/) {
        # It may come as a variable of the run.
        say_message('note', "line $2: $1 is not declared: it must come as a variable of the run");
        $told = 1;
    } elsif ($status && /\A(.*) at \Q$source\E line (\d+)(.*)\z/) {
        say_message('error', $2, '', "$1$3");
        $told = 1;
    } elsif (/\A(.*) at \Q$source\E line (\d+)\.\z/) {
        say_message('note', "line $2: $1");
    }
}
say_message('error', '', '', $lines[0] // 'Perl cannot read the program') if $status && !$told;
