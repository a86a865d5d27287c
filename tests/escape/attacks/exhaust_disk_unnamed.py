# attack: holds 96 MB of deleted files by sockets, mappings and descriptors of threads, with 16 MB allowed
# family: exhaustion
# walls: scratch, rlimits
# limits: --disk-mb 16 --timeout 20s
# without: escaped
from attack import *
import array
import mmap
import socket
import threading
import time

PIECE, PIECES = 8 << 20, 12
kept = []


def file():
    path = "/workspace/.unnamed"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.unlink(path)
    for _ in range(PIECE >> 20):
        os.write(descriptor, b"x" * (1 << 20))
    return descriptor


def in_socket(descriptor):
    pair = socket.socketpair()
    rights = array.array("i", [descriptor])
    pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(descriptor)
    kept.append(pair)


def in_mapping(descriptor):
    # One page of it is enough to hold the whole file. The module would keep a descriptor, so the call is made without it.
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    kept.append(address)


def in_thread():
    # A thread with descriptors of its own: what it opens would be in no list of its process.
    ready = threading.Event()

    def hold():
        CLOSE_RANGE, UNSHARE = 436, 2
        libc.syscall(CLOSE_RANGE, 100000, 100001, UNSHARE)
        file()
        ready.set()
        time.sleep(60)

    threading.Thread(target=hold, daemon=True).start()
    ready.wait(10)


def fill():
    for number in range(PIECES):
        if number % 3 == 2:
            in_thread()
        else:
            hide = in_socket if number % 3 else in_mapping
            hide(file())
        # The host looks at intervals. Who is quicker than that gets a little further.
        time.sleep(0.15)
    time.sleep(1.5)


word = attempt(fill)
if word is None:
    escaped("%d MB are held without a name" % (PIECE * PIECES >> 20))
held(str(word))
