set product 1
for {set n 2} {$n <= 30} {incr n} { set product [expr {$product * $n}] }
puts $product
puts [expr [join [split $product ""] +]]
