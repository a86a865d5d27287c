# Runs programs in this Perl on behalf of the guest (protocol: docs/DRIVERS.md).
#
# Mode last only: a second run never comes. What follows this file's BEGIN block, as far as Perl can tell, is the
# program: a source filter hands it over line by line. It is therefore the main program in every respect (caller,
# die, exit, END, DATA), and no name of the driver but its package is in sight.
#
# Holds: variables are bound as values, never as text; a forked child never speaks on the channel; a program that
# breaks the channel still runs to its end with its own status.

BEGIN {
    package Palisade::Driver;
    use strict;
    use warnings;
    require Filter::Util::Call;

    use constant { CONTROL_FD => 3, CONTROL_FD_HOME => 100, F_DUPFD_CLOEXEC => 1030, READ_BYTES => 65_536, FIELD_BYTES_MAX => 65_536 };

    my ($channel, $pending, $id, $source, $program, $failure) = (undef, '', '', '', '', undef);
    my $handed_over = 0;
    my $owner = $$;
    my %packages = (main => 1);

    # Away from the numbers that programs expect to be free, and closed on exec.
    sub open_channel {
        open(my $given, '+<&=', CONTROL_FD) or die "descriptor 3 is not a control channel: $!\n";
        my $fd = fcntl($given, F_DUPFD_CLOEXEC, CONTROL_FD_HOME) or die "descriptor 3 cannot be moved: $!\n";
        open($channel, '+<&=', $fd) or die "descriptor $fd: $!\n";
        binmode($channel, ':raw');
        close $given;
    }

    sub field {
        my $at;
        while (($at = index($pending, "\0")) < 0) {
            sysread($channel, $pending, READ_BYTES, length $pending) or return undef;
        }
        my $field = substr($pending, 0, $at);
        substr($pending, 0, $at + 1) = '';
        return $field;
    }

    sub receive {
        my $count = field();
        return unless defined $count && $count =~ /\A\d+\z/;
        return map { field() } 1 .. $count;
    }

    # What cannot be said is not said: the program may have closed the descriptor.
    sub send_message {
        return unless $$ == $owner;
        my $data = scalar(@_) . "\0";
        for my $field (@_) {
            my $bytes = $field;
            utf8::encode($bytes) if utf8::is_utf8($bytes);
            $bytes =~ tr/\0//d;
            if (length $bytes > FIELD_BYTES_MAX) {
                $bytes = substr($bytes, 0, FIELD_BYTES_MAX);
                $bytes =~ s/[\xC0-\xFF]?[\x80-\xBF]*\z//;
            }
            $data .= "$bytes\0";
        }
        local ($SIG{PIPE}, $!, $@) = ('IGNORE', $!, $@);
        syswrite($channel, $data);
    }

    # Integers that Perl cannot hold become strings of their digits before they are read: JSON::PP would make some of
    # them fractions.
    sub keep_digits {
        my ($json) = @_;
        $json =~ s{("(?:[^"\\]++|\\.)*+")|((-?)(\d{19,}+)(?![.eE]))}{
            my ($text, $number, $sign, $digits) = ($1, $2, $3, $4);
            my $limit = $sign ? '9223372036854775808' : '18446744073709551615';
            defined $text ? $text
                : length $digits > length $limit || length $digits == length $limit && $digits gt $limit ? qq{"$number"} : $number;
        }gse;
        return $json;
    }

    # $name, and for lists and maps @name and %name too: the same data. A reference that is put into a name from
    # another package declares it, so that `use strict` knows it.
    sub bind_variables {
        my ($json) = @_;
        require JSON::PP;
        my $values = JSON::PP->new->utf8->max_depth(100_000)->decode(keep_digits($json));
        no strict 'refs';
        for my $name (grep { /\A[A-Za-z_][A-Za-z0-9_]*\z/ } keys %$values) {
            my $value = $values->{$name};
            *{"main::$name"} = \$value;
            *{"main::$name"} = $value if ref $value eq 'ARRAY' || ref $value eq 'HASH';
        }
    }

    # Read at once: a handle that gave lines would be named in the program's error messages.
    sub read_program {
        open(my $file, '<:raw', $source) or die "$source: $!\n";
        my $bytes = -s $file;
        while (length $program < $bytes) {
            sysread($file, $program, $bytes, length $program) or last;
        }
    }

    # Lines of the program, after two that say where they come from.
    sub hand_over {
        my $begun;
        Filter::Util::Call::filter_add(sub {
            return $_ = "use utf8;\n# line 1 \"$source\"\n", 1 unless $begun++;
            return $_ = '', 0 if $handed_over >= length $program;
            my $end = index($program, "\n", $handed_over);
            $end = length($program) - 1 if $end < 0;
            $_ = substr($program, $handed_over, $end + 1 - $handed_over);
            $handed_over = $end + 1;
            $packages{$1} = 1 if /\A\s*package\s+([\w:]+)/;
            return 1;
        });
    }

    # What follows __END__ or __DATA__: Perl took it to be in this file.
    sub give_data {
        no strict 'refs';
        for my $package (grep { defined *{"${_}::DATA"}{IO} } keys %packages) {
            open(my $file, '<:utf8', $source) or next;
            seek($file, $handed_over, 0);
            *{"${package}::DATA"} = $file;
        }
        $program = '';
    }

    open_channel();
    send_message('ready');
    my ($kind, @message) = receive();
    # The environment of the run that follows.
    if (defined $kind && $kind eq 'given') {
        while (my ($name, $value) = splice @message, 0, 2) { $ENV{$name} = $value }
        ($kind, @message) = receive();
    }
    exit 0 unless @message;
    ($id, my (undef, $path, undef, $stdin, $count)) = @message;
    $source = $path;
    my ($json) = splice @message, 6, $count;
    @ARGV = map { utf8::decode(my $word = $_); $word } @message[6 .. $#message];
    open(STDIN, '<', $stdin) if $stdin ne '';
    bind_variables($json) if defined $json;
    read_program();
    (my $folder = $source) =~ s{/[^/]*\z}{};
    push @INC, $folder;
    $0 = $source;
    # What a program said before it was stopped is worth more than the writes saved.
    $| = 1;
    # Heard for the channel's sake only; a program that sets its own takes this one's place.
    $SIG{__DIE__} = sub { $failure = "$_[0]" unless $^S };
    hand_over();
    # A program that dies ends with this number, if there is one.
    $! = 0;

    # The first END block that Perl sees is the last to run.
    eval 'END { Palisade::Driver::tell() } INIT { Palisade::Driver::give_data() } 1' or die $@;

    sub tell {
        return unless defined $failure && $?;
        my $status = $?;
        my ($line) = $failure =~ /\bat \Q$source\E line (\d+)/;
        (my $message = $failure) =~ s/\n.*//s;
        $message =~ s/ at \Q$source\E line \d+(, <\S+> line \d+)?\.?\z//;
        send_message('done', $id, 'error', $status > 255 ? 255 : $status, $message, $line // '', '', '', '', '');
        $? = $status;
    }
}
