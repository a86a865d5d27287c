primes_below <- function(limit) {
  is_prime <- c(FALSE, rep(TRUE, limit - 2))
  for (n in 2:floor(sqrt(limit))) {
    if (is_prime[n]) is_prime[seq(n * n, limit - 1, by = n)] <- FALSE
  }
  which(is_prime)
}

cat(primes_below(50), sep = " ")
cat("\n", length(primes_below(10000)), "\n", sep = "")
