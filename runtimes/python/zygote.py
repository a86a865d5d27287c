"""Makes this interpreter a zygote: it loads what programs often want, then serves, and its copies go on as interpreters.

Outside any sandbox, but behind a wall of its own (docs/SECURITY.md, "Zygotes"): it sees no program and has no network, no
files but read-only ones, no identity on the host. What a copy must not share with its siblings is renewed in it.
"""

import sys

REQUESTS_FD = 3
LIBRARY_FD = 4
# Of the standard library: what programs import most, as far as it brings no large library with it: every page and every
# mapping of a zygote is one more for each copy to set up.
ORDINARY = (
    "os", "re", "json", "math", "time", "random", "datetime", "collections", "itertools", "functools", "string", "io",
    "select", "atexit",
)
# Libraries for linear algebra start threads when they are loaded, and a copy has only the one that made it. So packages are
# loaded ahead only for sandboxes of one processor.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Of a package, the part that programs use.
PARTS = {"matplotlib": "matplotlib.pyplot"}
KEPT = []


def become(packages):
    """True in a copy that goes on as an interpreter; False when there will be no more."""
    import ctypes
    import gc

    load(packages)
    library = ctypes.PyDLL("/proc/self/fd/%d" % LIBRARY_FD)
    import os

    os.close(LIBRARY_FD)
    if len(os.listdir("/proc/self/task")) != 1:
        return False
    gc.collect()
    gc.freeze()
    # Looked up here, and not in every copy. Kept for good: to let go of something is to write to it.
    serve, after_fork = library.palisade_serve_zygote, ctypes.pythonapi.PyOS_AfterFork_Child
    KEPT.extend((library, serve, after_fork))
    # What is done before a fork is done once, what is done after it in every copy.
    ctypes.pythonapi.PyOS_BeforeFork()
    if not serve(REQUESTS_FD):
        os._exit(0)
    after_fork()
    renew()
    return True


def load(packages):
    import os

    for name in ORDINARY:
        load_one(name)
    if packages:
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    for name in packages:
        load_one(PARTS.get(name, name))


def load_one(name):
    try:
        __import__(name)
    except Exception:
        pass  # a program that imports it will be told


def renew():
    """What Python itself does not renew after a fork: `random` reseeds itself, the system's sources need not."""
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    names = sys.modules.get("tempfile")
    if names is not None:
        names._name_sequence = None
        names.tempdir = None
