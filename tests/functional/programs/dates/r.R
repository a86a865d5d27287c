day <- as.Date("2024-02-29")
cat(as.integer(day - as.Date("2000-01-01")), "\n", sep = "")
cat(format(day, "%A"), "\n", sep = "")
cat(format(day + 100), "\n", sep = "")
years <- c(1900, 2000, 2023, 2024)
leap <- (years %% 4 == 0 & years %% 100 != 0) | years %% 400 == 0
cat(paste(years, ifelse(leap, "yes", "no")), sep = " ")
cat("\n")
