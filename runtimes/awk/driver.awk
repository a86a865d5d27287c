# Runs programs in this Awk on behalf of the guest (protocol: docs/DRIVERS.md).
#
# Awk reads the whole of a program before it runs any, and cannot read more later. So there are two processes with
# this file: the first waits for the order, then starts the second as `gawk -f driver.awk -f main.awk`, in which the
# driver's BEGIN binds the variables before the program's own. Mode last only: a second run never comes.
#
# Descriptors of the first: 3 and 5 the channel, to read and to write; 4 and 6 the program's standard output and input.
# The second has the standard ones, and 7, from which it reads the variables, and no channel.
#
# Holds: variables are bound as values; of what the caller gave only checked names become source text.

@namespace "palisade"

BEGIN {
    if (role == "program") bind()
    else drive()
}

# -- the first process ----------------------------------------------------------------------------------

function drive(    total, at, fields) {
    printf "1%cready%c", 0, 0 > "/dev/fd/5"
    fflush("/dev/fd/5")
    RS = "\0"
    total = receive(fields)
    # The environment of the run that follows: Awk passes it on to the process that it starts.
    if (fields[1] == "given") {
        for (at = 2; at < total; at += 2) ENVIRON[fields[at]] = fields[at + 1]
        total = receive(fields)
    }
    if (fields[1] != "run") exit 0
    start(fields, total)
}

function receive(fields,    total, at) {
    delete fields
    if ((getline total < "/dev/fd/3") <= 0) exit 0
    for (at = 1; at <= total; at++) {
        if ((getline fields[at] < "/dev/fd/3") <= 0) exit 0
    }
    return total
}

function start(fields, total,    program, at, status) {
    program = command(fields)
    # A program that cannot be read ends before it takes its variables: its own words say why.
    PROCINFO[program, "NONFATAL"] = 1
    for (at = 7; at <= total; at++) printf "%s%c", fields[at], 0 |& program
    close(program, "to")
    status = pass_on_words(program, fields[4])
    if (status != 0 && message != "") send_failure(fields[2], status)
    exit status
}

# Starts the program with its own streams; its standard error comes here. The shell says when it ended, because what it
# left behind in the background may hold that stream open.
function command(fields,    source, names) {
    source = word(fields[4])
    names = "BEGIN {" arrays(fields) " }"
    # Standard output line by line: what was printed before a kill is kept.
    return "exec 3>&- 5>&- 7<&0; stdbuf=$(PATH=/usr/local/bin:/usr/bin:/bin; command -v stdbuf); " \
        "${stdbuf:+\"$stdbuf\" -oL} " word(PROCINFO["argv"][0]) " -v palisade::role=program -f " word(PROCINFO["argv"][2]) \
        " -e " word(names) " -f " source " 0<&6 2>&1 >&4 4>&- 6<&-; printf '\\001%d\\001\\n' $?"
}

function word(text) {
    gsub(/'/, "'\\''", text)
    return "'" text "'"
}

# An array has to be named in source text to be made: a line for each, in the order of the values.
function arrays(fields,    at, end, text) {
    end = 8 + fields[7]
    for (at = 8; at < end; at += 3 + fields[at + 2]) {
        if (fields[at + 1] !~ /^[am]$/ || fields[at] !~ /^[A-Za-z_][A-Za-z_0-9]*$/) continue
        text = text " palisade::fill(" fields[at] ", \"" fields[at] "\");"
    }
    return text
}

# Everything that comes is the program's; the last complaint of Awk about `source` is remembered. Gives the exit status.
function pass_on_words(program, source,    text, found) {
    RS = "\n"
    while ((program |& getline text) > 0) {
        if (match(text, /\001[0-9]+\001$/)) {
            found = substr(text, RSTART + 1) + 0
            printf "%s", substr(text, 1, RSTART - 1) > "/dev/stderr"
            return found
        }
        print text > "/dev/stderr"
        fflush("/dev/stderr")
        remember(text, source)
    }
    return 1
}

# `gawk: /path/main.awk:3: (FILENAME=- FNR=1) fatal: ...`, or a caret below the place that cannot be read.
function remember(text, source,    begin) {
    begin = index(text, source ":")
    if (text !~ /^g?awk: / || !begin) return
    text = substr(text, begin + length(source) + 1)
    if (match(text, /^[0-9]+: (\(FILENAME=.* FNR=[0-9]+\) )?(fatal|error): / ) || match(text, /^[0-9]+: +\^ /)) {
        line = text + 0
        message = substr(text, RLENGTH + 1)
    }
}

function send_failure(id, status) {
    printf "10%cdone%c%s%cerror%c%d%c%s%c%d%c%c%c%c%c", 0, 0, id, 0, 0, status, 0, substr(message, 1, 16384), 0, line, 0, 0, 0, 0, 0 > "/dev/fd/5"
    fflush("/dev/fd/5")
}

# -- the second process -----------------------------------------------------------------------------------

# Scalars that the program names are set here, the others cannot be seen by it. Arrays wait for `fill`.
function bind(    kept, left, name, kind, count, at, key, value) {
    kept = RS
    RS = "\0"
    getline left < "/dev/fd/7"
    while (left > 0) {
        getline name < "/dev/fd/7"
        getline kind < "/dev/fd/7"
        getline count < "/dev/fd/7"
        left -= 3 + count
        value = ""
        for (at = 1; at <= count; at++) {
            getline value < "/dev/fd/7"
            if (kind == "a") waiting[name][at] = value
            else if (kind == "m" && at % 2) key = value
            else if (kind == "m") waiting[name][key] = value
        }
        if (kind !~ /^[am]$/ && name in SYMTAB) SYMTAB[name] = value
    }
    for (ARGC = 1; (getline value < "/dev/fd/7") > 0; ARGC++) ARGV[ARGC] = value
    close("/dev/fd/7")
    RS = kept
    RT = ""
    # What stdbuf put behind what was there.
    sub(/:?[^:]*libstdbuf\.so$/, "", ENVIRON["LD_PRELOAD"])
    if (ENVIRON["LD_PRELOAD"] == "") delete ENVIRON["LD_PRELOAD"]
    delete ENVIRON["_STDBUF_O"]
}

function fill(array, name,    key) {
    delete array
    if (!(name in waiting)) return
    for (key in waiting[name]) array[key] = waiting[name][key]
    delete waiting[name]
}
