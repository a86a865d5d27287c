set total 0
foreach {name price count} {apple 1.5 10 pear 0.25 4 watermelon 12 1} {
  puts [format "%-12s|%8.2f|%4d" $name $price $count]
  set total [expr {$total + $price * $count}]
}
puts [format "%-12s %7.2f" total $total]
puts [format "%07d %x" 255 255]
