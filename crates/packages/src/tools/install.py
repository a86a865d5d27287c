"""Runs the installer behind the wall, and compiles what it installed. Arguments: the product's directory, the command.

Modules in directories of tests are left out. They are about half of what scientific packages have, and hardly ever imported;
Python compiles them in memory if they are. The files of a layer all have the same time, so a time cannot say whether code has
changed: nothing is checked when code is loaded.
"""

import os
import sys
from py_compile import PycInvalidationMode, compile

UNCOMPILED = frozenset(("__pycache__", "test", "tests"))


def modules(top):
    for folder, inside, names in os.walk(top):
        inside[:] = [name for name in inside if name not in UNCOMPILED]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".py") and not os.path.islink(path):
                yield os.path.getsize(path), path


def compile_all(paths):
    for path in paths:
        try:
            compile(path, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        except Exception:
            # Code for another version of Python, or no code at all.
            pass


def main():
    product, *command = sys.argv[1:]
    status = os.spawnv(os.P_WAIT, command[0], command)
    if status < 0:
        os.kill(os.getpid(), -status)
    if status != 0:
        sys.exit(status)
    # The largest first, so that all workers end at about the same time.
    paths = [path for _, path in sorted(modules(product), reverse=True)]
    count = len(os.sched_getaffinity(0))
    workers = []
    for number in range(1, count):
        worker = os.fork()
        if worker == 0:
            compile_all(paths[number::count])
            os._exit(0)
        workers.append(worker)
    compile_all(paths[0::count])
    for worker in workers:
        os.waitpid(worker, 0)


main()
