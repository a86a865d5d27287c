# Describes this Awk to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

function quote(text) {
    gsub(/[\\"]/, "\\\\&", text)
    return "\"" text "\""
}

function refuse(why) {
    print why > "/dev/stderr"
    exit 1
}

BEGIN {
    # Only GNU Awk has this array.
    version = PROCINFO["version"]
    if (version + 0 < 5) refuse("GNU Awk 5.0 or newer is needed, this is " (version == "" ? "another awk" : version))

    # The running file itself, whatever links led to it: the shell's parent is this process.
    if (("exec readlink /proc/$PPID/exe" | getline executable) != 1) refuse("the path of this Awk is unknown")
    if (executable ~ /[[:cntrl:]]/) refuse("the path of Awk has control characters")

    # One file that needs nothing beyond the system's libraries; somebody's own build is shown with its folder.
    folder = executable
    sub("/[^/]+$", "", folder)
    outside = folder !~ "^/(usr|bin)(/|$)"
    if (outside) sub("/bin$", "", folder)
    printf "{\"version\":%s,\"executable\":%s,\"binds\":[%s],\"env\":{},\"packages\":{}}\n",
        quote(version), quote(executable), outside ? quote(folder) : ""
}
