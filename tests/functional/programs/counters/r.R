rectangle <- function(width, height, class = character()) structure(list(width = width, height = height), class = c(class, "rectangle"))
square <- function(side) rectangle(side, side, "square")
print.rectangle <- function(x, ...) cat(class(x)[1], " ", x$width * x$height, "\n", sep = "")

counter <- function(step) {
  count <- 0
  function() {
    count <<- count + step
    count
  }
}

ones <- counter(1)
tens <- counter(10)
cat(ones(), ones(), tens(), ones(), tens(), sep = " ")
cat("\n")
square(3)
rectangle(2, 5)
