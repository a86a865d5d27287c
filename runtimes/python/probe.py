"""Describes this interpreter to the host, once, outside any sandbox: `probe.py DRIVER OUT_PYC`.

Prints one JSON object (docs/DRIVERS.md, "The probe") and compiles the driver to OUT_PYC. The host turns
"binds" into read-only mounts, so a directory is named only if the interpreter cannot work without it:
never "/", never a home, never what a .pth file happened to add to sys.path.
"""

import sys

sys.dont_write_bytecode = True
if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or newer is needed, this is %d.%d" % sys.version_info[:2])
# The folder of this file is on sys.path; nothing in it is meant to be imported.
del sys.path[0]

import json
import os
import site
import sysconfig

PACKAGES_MAX = 500
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
TOO_WIDE = {"/", "/home", "/root", "/etc", "/var", "/tmp", "/run", "/proc", "/sys", "/dev", "/srv", "/mnt", "/media"}


def homes():
    found = {os.environ.get("HOME") or "/"}
    try:
        import pwd

        found.add(pwd.getpwuid(os.getuid()).pw_dir)
    except (ImportError, KeyError):
        pass
    return {os.path.normpath(home) for home in found} | {os.path.realpath(home) for home in found}


def is_too_wide(folder, own_homes):
    """A home, anything that contains one, or a top-level directory of the system."""
    if folder in TOO_WIDE or os.path.dirname(folder) == "/home":
        return True
    return any(home == folder or home.startswith(folder.rstrip("/") + "/") for home in own_homes)


def links(path):
    """The path and every path its symbolic links lead through: all must exist in the sandbox."""
    chain = [path]
    while os.path.islink(path) and len(chain) < 40:
        path = os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
        chain.append(path)
    return chain


def executable():
    """A virtual environment is found through its own path; everything else through the real one."""
    path = os.path.abspath(sys.executable)
    return path if sys.prefix != sys.base_prefix else os.path.realpath(path)


def user_site():
    try:
        folder = site.getusersitepackages() if site.ENABLE_USER_SITE else None
    except Exception:
        return None
    return folder if folder and os.path.isdir(folder) else None


def binds(program):
    wanted = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    wanted += [os.path.dirname(link) for link in links(program)]
    wanted += [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    wanted += [path for path in sys.path if os.path.basename(path) in PACKAGE_FOLDERS]
    wanted += [user_site()]
    wanted = [os.path.abspath(path) for path in wanted if path]
    wanted += [os.path.realpath(path) for path in wanted] + [os.path.dirname(os.path.realpath(program))]
    own_homes = homes()
    kept = []
    for folder in sorted(set(wanted), key=lambda path: (path.count("/"), path)):
        inside = any(folder.startswith(other + "/") for other in kept)
        if not inside and os.path.isdir(folder) and not is_too_wide(folder, own_homes):
            kept.append(folder)
    return kept


def packages():
    found = {}
    try:
        from importlib.metadata import distributions

        for distribution in distributions():
            try:
                name, version = distribution.metadata["Name"], distribution.version
            except Exception:
                continue
            if isinstance(name, str) and isinstance(version, str) and name:
                # The first one on sys.path is the one an import finds.
                found.setdefault(name, version)
    except Exception:
        pass
    return {name: found[name] for name in sorted(found, key=str.lower)[:PACKAGES_MAX]}


def import_lines():
    """The lines of .pth files that `site` executes, in its order."""
    lines = []
    for folder in sys.path[1:]:
        if os.path.basename(folder) not in PACKAGE_FOLDERS or not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".pth") or name.startswith("."):
                continue
            try:
                with open(os.path.join(folder, name), encoding="utf-8-sig") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            lines += [line for line in text.splitlines() if line.startswith(("import ", "import\t"))]
    return lines


def compile_driver(driver, out):
    """Compiles the driver with what `site` found out in this very process, so that it need not ask again."""
    import marshal
    import py_compile
    import zlib

    with open(driver, encoding="utf-8") as file:
        text = file.read()
    parts = {}
    for name in ("data", "displays", "missing", "notebook", "zygote"):
        with open(os.path.join(os.path.dirname(driver), name + ".py"), encoding="utf-8") as file:
            code = marshal.dumps(compile(file.read(), "<%s>" % name, "exec", 0, True, 2))
        # A library more in a zygote is one more in each of its copies.
        parts[name] = code if name == "zygote" else zlib.compress(code, 9)
    known = (sys.path[1:], sys.prefix, sys.exec_prefix, import_lines())
    filled = out + ".py"
    with open(filled, "w", encoding="utf-8") as file:
        text = text.replace("\nSITE = None\n", "\nSITE = %r\n" % (known,), 1)
        for name, code in parts.items():
            text = text.replace("\n%s = None\n" % name.upper(), "\n%s = %r\n" % (name.upper(), code), 1)
        file.write(text)
    # Without docstrings, which take time to load. Unchecked: the sandbox has no source to compare with. The name keeps the host's paths out.
    py_compile.compile(
        filled, cfile=out, dfile="<driver>", doraise=True, optimize=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    os.remove(filled)
    os.chmod(out, 0o644)


def tools(program, folders):
    """The commands of this interpreter for programs of all languages."""
    folder = os.path.dirname(program)
    commands = {}
    for name in ("python", "python3"):
        path = os.path.join(folder, name)
        commands[name] = path if os.path.exists(path) and os.path.samefile(path, program) else program
    for name in ("pip", "pip3"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            commands[name] = path
    return {"commands": commands, "binds": folders}


def main():
    program = executable()
    env = {}
    if user_site():
        env["PYTHONUSERBASE"] = site.getuserbase()
    if len(sys.argv) > 2:
        compile_driver(sys.argv[1], sys.argv[2])
    folders = binds(program)
    answer = {
        "version": "%d.%d.%d" % sys.version_info[:3],
        "executable": program,
        "binds": folders,
        "tools": tools(program, folders),
        "env": env,
        "packages": packages(),
    }
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")


main()
