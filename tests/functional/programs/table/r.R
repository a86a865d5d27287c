rows <- data.frame(name = c("apple", "pear", "watermelon"), price = c(1.5, 0.25, 12), count = c(10L, 4L, 1L))
cat(sprintf("%-12s|%8.2f|%4d\n", rows$name, rows$price, rows$count), sep = "")
cat(sprintf("%-12s %7.2f\n", "total", sum(rows$price * rows$count)))
cat(sprintf("%07d %x\n", 255L, 255L))
