function fibonacci(n) {
  if (!(n in known)) known[n] = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2)
  return known[n]
}

BEGIN {
  for (n = 0; n <= 10; n++) printf "%s%d", n ? " " : "", fibonacci(n)
  print ""
  print fibonacci(70)
}
