function row(name, price, count) {
  printf "%-12s|%8.2f|%4d\n", name, price, count
  total += price * count
}

BEGIN {
  row("apple", 1.5, 10)
  row("pear", 0.25, 4)
  row("watermelon", 12, 1)
  printf "%-12s %7.2f\n", "total", total
  printf "%07d %x\n", 255, 255
}
