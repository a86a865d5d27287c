proc primes_below {limit} {
  set primes {}
  for {set n 2} {$n < $limit} {incr n} {
    if {[info exists crossed($n)]} continue
    lappend primes $n
    for {set m [expr {$n * $n}]} {$m < $limit} {incr m $n} { set crossed($m) 1 }
  }
  return $primes
}

puts [primes_below 50]
puts [llength [primes_below 10000]]
