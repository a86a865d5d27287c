# Runs programs in this Tcl on behalf of the guest (protocol: docs/DRIVERS.md).
#
# Mode last only: a second run never comes. Tcl by itself can open files and start commands, but has no way to
# descriptor 3: small commands read and write the channel for it. They also mean that what a program executes
# inherits the channel, on which nobody believes it anything.
#
# Holds: variables are bound as values, never as text; the driver's names are in a namespace of its own.

namespace eval ::palisade {
    variable pending {}
    variable ready "printf '1\\0ready\\0' >&3; "
    # Where the small commands are, whatever the program's own PATH.
    variable path /usr/local/bin:/usr/bin:/bin

    # One read of the channel. The first one says that the driver is ready: each command takes a millisecond.
    proc more {} {
        variable pending
        variable ready
        variable path
        set channel [open |[list /bin/sh -c "${ready}PATH=$path exec dd bs=65536 count=1 <&3 2>/dev/null"] rb]
        set ready ""
        set part [read $channel]
        close $channel
        if {$part eq ""} { exit 0 }
        append pending $part
    }

    proc field {} {
        variable pending
        while {[set at [string first \0 $pending]] < 0} { more }
        set text [string range $pending 0 $at-1]
        set pending [string range $pending $at+1 end]
        return [encoding convertfrom utf-8 $text]
    }

    proc receive {} {
        set fields {}
        for {set count [field]} {$count > 0} {incr count -1} { lappend fields [field] }
        return $fields
    }

    proc send {args} {
        variable path
        set data "[llength $args]\0"
        foreach text $args {
            append data [string range [string map [list \0 ""] $text] 0 16383] \0
        }
        catch {
            set channel [open |[list /bin/sh -c "PATH=$path exec cat >&3 2>/dev/null"] wb]
            puts -nonewline $channel [encoding convertto utf-8 $data]
            close $channel
        }
    }

    # name, kind, count, values: a string, a list, or a dictionary of the top level.
    proc bind {fields} {
        while {[llength $fields]} {
            set values [lassign $fields name kind count]
            set fields [lrange $values $count end]
            set values [lrange $values 0 $count-1]
            set ::$name [expr {$kind in {a m} ? $values : [lindex $values 0]}]
        }
    }

    # The program's line: of the innermost frame that its own file is said to have.
    proc line_of {trace source} {
        if {[regexp {\(file "[^\n]*" line (\d+)\)} $trace -> line]} { return $line }
        return ""
    }

    proc run {} {
        set message [receive]
        # The environment of the run that follows.
        if {[lindex $message 0] eq "given"} {
            foreach {name value} [lrange $message 1 end] { set ::env($name) $value }
            set message [receive]
        }
        if {[lindex $message 0] ne "run"} { exit 0 }
        lassign $message - id - source - - count
        bind [lrange $message 7 6+$count]
        set ::argv [lrange $message 7+$count end]
        set ::argc [llength $::argv]
        set ::argv0 $source
        info script $source
        # What a program said before it was stopped is worth more than the writes saved.
        fconfigure stdout -buffering line -encoding utf-8
        fconfigure stderr -encoding utf-8
        fconfigure stdin -encoding utf-8
        encoding system utf-8
        if {[catch {uplevel #0 [list source -encoding utf-8 $source]} problem options]} {
            set trace [dict get $options -errorinfo]
            # The last lines of the trace are the driver's.
            set last [string first "\n    invoked from within\n\"source -encoding" $trace]
            if {$last < 0} { set last [string first "\n    invoked from within\n\"uplevel" $trace] }
            catch { puts stderr [expr {$last < 0 ? $trace : [string range $trace 0 $last-1]}] }
            send done $id error 1 $problem [line_of $trace $source] "" "" "" ""
            exit 1
        }
        exit 0
    }
}
::palisade::run
