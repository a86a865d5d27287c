"""What every Python attack needs: the two words a verdict may begin with, and raw system calls.

The runner places this file beside the attack in the workspace. HOST, a variable of the attack, names what the
test opened on the host for it.
"""

import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x80
UNSHARE, MOUNT, PTRACE, SETNS = 272, 165, 101, 308


def say(line):
    os.write(1, (line + "\n").encode())


def escaped(detail):
    say("ESCAPED: %s" % detail)
    os._exit(0)


def held(detail):
    say("HELD: %s" % detail)
    os._exit(0)


def name_of(number):
    return errno.errorcode.get(number, "errno %d" % number)


def call(number, *arguments):
    """One raw system call: the result, or the name of the error."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *given)
    return name_of(ctypes.get_errno()) if result == -1 else result


def attempt(work):
    """What a piece of work gave, or the name of the error."""
    try:
        return work()
    except OSError as error:
        return name_of(error.errno)


def judge(tries):
    """Tries each (label, work) once: anything but the name of an error is a way out.

    The first one ends the attack, unless the runner says that it is of a kernel that belongs to the sandbox: then it
    is told, and the rest is tried, too.
    """
    seen = []
    for label, work in tries:
        result = attempt(work)
        if not isinstance(result, str):
            detail = "%s gave %r" % (label, result)
            if not any(words in detail for words in HOST.get("own", [])):
                escaped(detail)
            say("ESCAPED: %s" % detail)
        seen.append("%s %s" % (label, result))
    held(", ".join(seen))


def places(path):
    """Where a path of the host would be seen: in its place, and where a test build shows the host's root."""
    return [path, "/host" + path]


def outside():
    """A nested user namespace with all others in it, the usual first step towards the kernel."""
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWIPC
    return call(UNSHARE, flags)


HOST = getattr(sys.modules.get("__main__"), "HOST", {})
