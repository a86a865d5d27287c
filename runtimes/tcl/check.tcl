# Looks at a program without running it: `check.tcl SOURCE` (docs/DRIVERS.md, "The check").
# Tcl knows whether a text is complete; what its commands mean shows only when they run.

set source [lindex $argv 0]
set file [open $source]
fconfigure $file -encoding utf-8
set program [read $file]
close $file

fconfigure stdout -translation binary
proc say {args} {
    puts -nonewline "[llength $args]\0"
    foreach text $args { puts -nonewline "[encoding convertto utf-8 [string map [list \0 {}] $text]]\0" }
}

# The first command that never ends begins where complete ones stop.
set command ""
set begin 1
set number 0
foreach line [split $program \n] {
    incr number
    append command $line \n
    if {[info complete $command]} {
        set command ""
        set begin [expr {$number + 1}]
    }
}
if {$command ne "" && ![info complete $command]} {
    say error $begin "" "a brace, bracket or quote that is opened here is never closed"
}
say note "Tcl finds most mistakes only when a line runs"
