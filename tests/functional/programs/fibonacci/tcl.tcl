set known {0 0 1 1}
proc fibonacci {n} {
  global known
  if {![dict exists $known $n]} {
    dict set known $n [expr {[fibonacci [expr {$n - 1}]] + [fibonacci [expr {$n - 2}]]}]
  }
  return [dict get $known $n]
}

set first {}
for {set n 0} {$n <= 10} {incr n} { lappend first [fibonacci $n] }
puts $first
puts [fibonacci 70]
