digits <- 1
for (n in 2:30) {
  digits <- digits * n
  i <- 1
  while (i <= length(digits)) {
    if (digits[i] > 9) {
      if (i == length(digits)) digits <- c(digits, 0)
      digits[i + 1] <- digits[i + 1] + digits[i] %/% 10
      digits[i] <- digits[i] %% 10
    }
    i <- i + 1
  }
}
cat(rev(digits), "\n", sep = "")
cat(sum(digits), "\n", sep = "")
