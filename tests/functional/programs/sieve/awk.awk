function primes_below(limit, primes,    n, m, count, crossed) {
  for (n = 2; n < limit; n++) {
    if (n in crossed) continue
    primes[++count] = n
    for (m = n * n; m < limit; m += n) crossed[m]
  }
  return count
}

BEGIN {
  count = primes_below(50, small)
  for (i = 1; i <= count; i++) printf "%d%s", small[i], i < count ? " " : "\n"
  print primes_below(10000, large)
}
