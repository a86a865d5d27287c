proc quicksort {items} {
  if {[llength $items] < 2} { return $items }
  set rest [lassign $items pivot]
  set below {}
  set above {}
  foreach x $rest { if {$x < $pivot} { lappend below $x } else { lappend above $x } }
  return [list {*}[quicksort $below] $pivot {*}[quicksort $above]]
}

puts [quicksort {33 -4 15 0 99 7 7 -21 58 2 41 13}]
