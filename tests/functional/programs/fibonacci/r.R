known <- new.env()
fibonacci <- function(n) {
  if (n < 2) return(n)
  key <- as.character(n)
  if (is.null(known[[key]])) known[[key]] <- fibonacci(n - 1) + fibonacci(n - 2)
  known[[key]]
}

cat(sapply(0:10, fibonacci), sep = " ")
cat("\n", format(fibonacci(70), digits = 16), "\n", sep = "")
