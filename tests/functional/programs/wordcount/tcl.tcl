foreach word {the cat and the dog and the bird} { dict incr counts $word }
set pairs {}
dict for {word count} $counts { lappend pairs [list $word $count] }
foreach pair [lsort -command {apply {{a b} {
  expr {[lindex $a 1] != [lindex $b 1] ? [lindex $b 1] - [lindex $a 1] : [string compare [lindex $a 0] [lindex $b 0]]}
}}} $pairs] { puts $pair }
