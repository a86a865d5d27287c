quicksort <- function(items) {
  if (length(items) < 2) return(items)
  pivot <- items[1]
  rest <- items[-1]
  c(quicksort(rest[rest < pivot]), pivot, quicksort(rest[rest >= pivot]))
}

cat(quicksort(c(33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13)))
cat("\n")
