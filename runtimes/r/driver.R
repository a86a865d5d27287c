# Runs programs in this R on behalf of the guest (protocol: docs/DRIVERS.md).
#
# Mode last only: a second run never comes. R by itself can open files and start commands, but has no way to
# descriptor 3: small commands read and write the channel for it. They also mean that what a program executes
# inherits the channel, on which nobody believes it anything.
#
# Holds: variables are bound as values, never as text; what the driver defines is in an environment of its own, and
# the global environment has nothing but the program's variables. What a program shows at its top level is printed,
# as Rscript does.

local({
  FIELD_BYTES_MAX <- 65536L
  # Together with the first question, because each command takes a millisecond.
  # Their place does not depend on the PATH that the program was given.
  path <- "PATH=/usr/local/bin:/usr/bin:/bin "
  ready <- "printf '1\\0ready\\0' >&3; "
  pending <- raw(0)

  more <- function() {
    channel <- pipe(paste0(ready, path, "exec dd bs=65536 count=1 <&3 2>/dev/null"), "rb")
    ready <<- ""
    part <- readBin(channel, "raw", 65536L)
    close(channel)
    if (!length(part)) quit("no")
    pending <<- c(pending, part)
  }

  # Whole messages only: the bytes are split once, when enough of them are there.
  receive <- function() {
    repeat {
      ends <- which(pending == as.raw(0))
      if (length(ends)) {
        count <- as.integer(rawToChar(pending[seq_len(ends[1] - 1L)]))
        if (length(ends) > count) break
      }
      more()
    }
    fields <- vapply(seq_len(count), function(i) {
      bytes <- pending[seq.int(ends[i] + 1L, length.out = ends[i + 1L] - ends[i] - 1L)]
      text <- rawToChar(bytes)
      Encoding(text) <- "UTF-8"
      text
    }, "")
    pending <<- pending[-seq_len(ends[count + 1L])]
    fields
  }

  send <- function(fields) {
    fields <- vapply(fields, function(text) {
      text <- enc2utf8(as.character(text))
      while (nchar(text, "bytes") > FIELD_BYTES_MAX) text <- substr(text, 1L, nchar(text) * 0.9)
      text
    }, "")
    bytes <- unlist(lapply(c(length(fields), fields), function(text) c(charToRaw(as.character(text)), as.raw(0))))
    channel <- pipe(paste0(path, "exec cat >&3 2>/dev/null"), "wb")
    writeBin(bytes, channel)
    close(channel)
  }

  # -- variables: JSON as R would have written it --

  ESCAPES <- c(b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", `"` = '"', `\\` = "\\", `/` = "/")
  TOKEN <- '"[^"\\\\]*+(?:\\\\.[^"\\\\]*+)*+"|[-+0-9.eE]++|true|false|null|[\\[\\]{},:]'

  unescape <- function(text) {
    if (!grepl("\\", text, fixed = TRUE)) return(text)
    pieces <- regmatches(text, gregexpr("\\\\u[0-9a-fA-F]{4}|\\\\.|[^\\\\]+", text))[[1]]
    codes <- strtoi(ifelse(startsWith(pieces, "\\u"), substr(pieces, 3, 6), "0"), 16L)
    for (i in which(startsWith(pieces, "\\"))) {
      if (!nzchar(pieces[i])) {
        next # the second half of a pair
      } else if (!startsWith(pieces[i], "\\u")) {
        pieces[i] <- ESCAPES[[substr(pieces[i], 2, 2)]]
      } else if (codes[i] >= 0xD800L && codes[i] < 0xDC00L && i < length(pieces) && codes[i + 1] >= 0xDC00L) {
        pieces[i] <- intToUtf8(0x10000L + (codes[i] - 0xD800L) * 0x400L + codes[i + 1] - 0xDC00L)
        pieces[i + 1] <- ""
      } else {
        # No string of R can hold NUL.
        pieces[i] <- if (codes[i] == 0L) "\uFFFD" else intToUtf8(codes[i])
      }
    }
    paste(pieces, collapse = "")
  }

  # A number is R's usual one; an integer that it cannot hold exactly is a string of its digits.
  number <- function(word) {
    value <- as.numeric(word)
    if (grepl("[.eE]", word) || abs(value) < 2^53) value else word
  }

  # A list of scalars of one kind is a vector, null in it is NA; everything else stays a list.
  simplify <- function(items) {
    scalar <- vapply(items, function(item) is.null(item) || (is.atomic(item) && length(item) == 1L && is.null(names(item))), TRUE)
    if (!length(items) || !all(scalar)) return(items)
    kinds <- unique(unlist(lapply(items, typeof)))
    kinds <- setdiff(kinds, "NULL")
    if (length(kinds) != 1L) return(items)
    vapply(items, function(item) if (is.null(item)) as.vector(NA, kinds) else item, as.vector(NA, kinds))
  }

  parse_json <- function(text) {
    tokens <- regmatches(text, gregexpr(TOKEN, text, perl = TRUE))[[1]]
    Encoding(tokens) <- "UTF-8"
    at <- 0L
    value <- function() {
      at <<- at + 1L
      token <- tokens[at]
      switch(substr(token, 1, 1),
        "{" = items("}"), "[" = simplify(items("]")),
        "\"" = unescape(substr(token, 2, nchar(token) - 1L)),
        t = TRUE, f = FALSE, n = NULL, number(token))
    }
    items <- function(close) {
      found <- list()
      keys <- character()
      while (tokens[at + 1L] != close) {
        if (tokens[at + 1L] == ",") at <<- at + 1L
        if (close == "}") {
          at <<- at + 2L
          keys <- c(keys, unescape(substr(tokens[at - 1L], 2, nchar(tokens[at - 1L]) - 1L)))
        }
        # A wrapped assignment, because NULL would take the place away.
        found[length(found) + 1L] <- list(value())
      }
      at <<- at + 1L
      if (close == "}") names(found) <- keys
      found
    }
    value()
  }

  # -- the program --

  # Its own arguments, and a stack that begins with it.
  disguise <- function(source, args) {
    interpreter <- base::commandArgs()[1]
    all <- c(interpreter, "--no-echo", "--no-restore", paste0("--file=", source), "--args", args)
    fake <- function(trailingOnly = FALSE) if (trailingOnly) args else if (length(args)) all else all[1:4]
    for (place in list(baseenv())) {
      unlockBinding("commandArgs", place)
      assign("commandArgs", fake, place)
      lockBinding("commandArgs", place)
    }
    assign("sys.nframe", function() sys.parent(), attach(NULL, name = "palisade", warn.conflicts = FALSE))
  }

  line_of <- function(reference, source) {
    file <- if (is.null(reference)) NULL else attr(reference, "srcfile")
    if (!is.null(file) && identical(file$filename, source)) as.character(reference[1]) else NULL
  }

  # The innermost call that was written in the program; else the expression of the top level.
  place <- function(source, top) {
    for (call in rev(sys.calls())) {
      line <- line_of(attr(call, "srcref"), source)
      if (!is.null(line)) return(line)
    }
    line <- line_of(top, source)
    if (is.null(line)) "" else line
  }

  # As Rscript prints it: the call is left out where it is the driver's.
  show <- function(problem) {
    message <- conditionMessage(problem)
    call <- conditionCall(problem)
    is_own <- is.null(call) || identical(call[[1]], quote(eval)) || identical(call[[1]], quote(withVisible))
    if (is_own) return(paste0("Error: ", message, "\n"))
    words <- paste0("Error in ", deparse(call, nlines = 1L)[1], " : ")
    if (nchar(words) + nchar(message) > 77L) words <- paste0(words, "\n  ")
    paste0(words, message, "\n")
  }

  fail <- function(text, message, line, column, id) {
    cat(text, "Execution halted\n", sep = "", file = stderr())
    send(c("done", id, "error", "1", message, line, column, "", "", ""))
    quit("no", status = 1L, runLast = FALSE)
  }

  read_program <- function(source, id) {
    tryCatch(parse(source, keep.source = TRUE, encoding = "UTF-8"), error = function(problem) {
      message <- conditionMessage(problem)
      found <- regmatches(message, regexec("^[^\n]*?:([0-9]+):([0-9]+): ([^\n]*)", message, perl = TRUE))[[1]]
      if (!length(found)) found <- c("", "", "", message)
      column <- if (nzchar(found[3])) found[3] else ""
      fail(paste0("Error: ", message, "\n"), found[4], found[2], column, id)
    })
  }

  run <- function(program, references, source, id) {
    top <- NULL
    withCallingHandlers(
      for (i in seq_along(program)) {
        top <- references[[i]]
        shown <- withVisible(eval(program[[i]], globalenv()))
        if (shown$visible) print(shown$value)
      },
      error = function(problem) {
        message <- conditionMessage(problem)
        line <- place(source, top)
        fail(show(problem), message, line, "", id)
      })
  }

  message <- receive()
  # The environment of the run that follows.
  if (message[1] == "given") {
    odd <- seq(2L, length(message), by = 2L)
    do.call(Sys.setenv, setNames(as.list(message[odd + 1L]), message[odd]))
    message <- receive()
  }
  if (message[1] != "run") quit("no")
  count <- as.integer(message[7])
  if (count > 0L) list2env(parse_json(message[8]), globalenv())
  disguise(message[4], if (length(message) > 7L + count) message[seq.int(8L + count, length(message))] else character())
  options(warn = 1, showErrorCalls = FALSE)
  program <- read_program(message[4], message[2])
  run(program, attr(program, "srcref"), message[4], message[2])
})
