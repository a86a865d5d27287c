# attack: has the kernel compile a filter for a socket or a process; thousands of them, freed at once, deadlock the whole machine
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *
import socket
import struct

SO_ATTACH_FILTER, SO_LOCK_FILTER, SO_ATTACH_REUSEPORT_CBPF = 26, 44, 51
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PRCTL = 22, 2, 157
RETURN_ALL = struct.pack("HBBI", 6, 0, 0, 0x7FFF0000)
# One filter is asked for, never more. What thousands do is seen only in a virtual machine that may be lost.
code = ctypes.create_string_buffer(RETURN_ALL)
program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(code))


def option(number, content):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        way.setsockopt(socket.SOL_SOCKET, number, content)


seen = [
    attempt(lambda: option(SO_ATTACH_FILTER, program)),
    attempt(lambda: option(SO_ATTACH_REUSEPORT_CBPF, program)),
    attempt(lambda: option(SO_LOCK_FILTER, struct.pack("i", 1))),
    call(PRCTL, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_char_p(program)),
]
if seen != ["ENOPROTOOPT"] * 3 + ["EINVAL"]:
    escaped("compiled: %s" % seen)
held(" ".join(seen))
