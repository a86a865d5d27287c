# Looks at a program without running it: `check.R --args SOURCE` (docs/DRIVERS.md, "The check").
# R parses the program, which runs nothing of it; packages that it names and that are not there are told.

say <- function(...) {
  fields <- c(...)
  bytes <- unlist(lapply(c(length(fields), fields), function(text) c(charToRaw(enc2utf8(as.character(text))), as.raw(0))))
  out <- pipe("exec cat", "wb")
  writeBin(bytes, out)
  close(out)
}

REMEDY <- "install it on the server, or do without it"

# library(name), require(name), name::thing: what a reader of the program can see.
packages <- function(program) {
  data <- getParseData(program)
  words <- data[data$terminal, ]
  is_call <- words$token == "SYMBOL_FUNCTION_CALL" & words$text %in% c("library", "require", "requireNamespace", "loadNamespace")
  at <- which(is_call) + 2L
  at <- at[at <= nrow(words)]
  named <- words[at[words$token[at] %in% c("SYMBOL", "STR_CONST")], ]
  named <- rbind(named, words[words$token == "SYMBOL_PACKAGE", ])
  data.frame(name = gsub("[\"']", "", named$text), line = named$line1)
}

source <- commandArgs(TRUE)[1]
program <- tryCatch(parse(source, keep.source = TRUE, encoding = "UTF-8"), error = function(problem) {
  message <- conditionMessage(problem)
  found <- regmatches(message, regexec("^[^\n]*?:([0-9]+):([0-9]+): ([^\n]*)", message, perl = TRUE))[[1]]
  if (length(found)) say("error", found[2], found[3], found[4]) else say("error", "", "", message)
  NULL
})
if (length(program)) {
  wanted <- packages(program)
  wanted <- wanted[!duplicated(wanted$name), ]
  for (i in seq_len(nrow(wanted))) {
    if (!nzchar(system.file(package = wanted$name[i]))) say("missing", wanted$name[i], wanted$line[i], REMEDY)
  }
}
