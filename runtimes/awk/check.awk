# Looks at a program without running it: `check.awk INTERPRETER SOURCE` (docs/DRIVERS.md, "The check").
# A pretty-printing Awk reads the program, and runs nothing of it.

function shell_word(text) {
    gsub(/'/, "'\\''", text)
    return "'" text "'"
}

function say_error(line, text) {
    printf "4%cerror%c%s%c%c%s%c", 0, 0, line, 0, 0, text, 0
}

function say_note(text) {
    printf "2%cnote%c%s%c", 0, 0, text, 0
}

BEGIN {
    source = ARGV[2]
    reading = "exec " shell_word(ARGV[1]) " -o/dev/null -f " shell_word(source) " 2>&1 </dev/null"
    while ((reading | getline words) > 0) {
        # `gawk: /path/main.awk:3: ...`; first the line that is repeated, then a caret and what is wrong.
        start = index(words, source ":")
        if (!start) continue
        words = substr(words, start + length(source) + 1)
        if (!match(words, /^[0-9]+: +/)) continue
        line = words + 0
        text = substr(words, RLENGTH + 1)
        if (text ~ /cannot open source file/) say_note("line " line ": " text)
        else if (text ~ /^\^ /) { said = 1; say_error(line, substr(text, 3)) }
        else if (text ~ /^(fatal|error): /) { said = 1; sub(/^[a-z]+: /, "", text); say_error(line, text) }
        else if (text ~ /^warning: /) say_note("line " line ": " substr(text, 10))
        else last_line = line
        if (text ~ /cannot open source file/) missing = 1
    }
    if (close(reading) != 0 && !said && !missing) say_error(last_line, "awk cannot read the program")
    exit 0
}
