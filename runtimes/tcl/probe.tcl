# Describes this Tcl to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

if {![package vsatisfies [info tclversion] 8.6-]} {
    puts stderr "Tcl 8.6 or newer is needed, this is [info patchlevel]"
    exit 1
}

proc quote {text} {
    return "\"[string map {\\ \\\\ \" \\\"} $text]\""
}

# The running file itself, whatever links led to it.
set executable [file readlink /proc/self/exe]
set binds {}
foreach folder [list [file dirname $executable] [file normalize [info library]]] {
    if {![string match /usr/* $folder] && ![string match /bin* $folder]} {
        lappend binds [quote $folder]
    }
}
puts "{\"version\":[quote [info patchlevel]],\"executable\":[quote $executable],\"binds\":\[[join $binds ,]\],\"env\":{},\"packages\":{}}"
