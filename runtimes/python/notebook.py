"""What people write in notebooks and Python does not know: `%magic`, `!command`, `%%cell`, indented cells, and the
module IPython.display. Loaded by driver.py when a program does not compile, or imports IPython; other programs never
pay for it.

A program is translated only where it does not compile: the line that the compiler names is replaced, and the program is
compiled again. Lines keep their numbers, and valid Python is never changed.
"""

import re
import sys

# So many lines of a program are translated.
LINES_MAX = 500
# Settings of a notebook's own interface: there is nothing to set here.
IGNORED = frozenset((
    "alias_magic", "autoreload", "autosave", "automagic", "colors", "config", "doctest_mode", "gui", "load_ext",
    "matplotlib", "precision", "pprint", "pylab", "reload_ext", "unload_ext", "xmode",
))
INSTALLERS = re.compile(r"\s*(?:sudo\s+)?(?:(?:python[\d.]*|\S*/python[\d.]*)\s+-m\s+)?(?:uv\s+)?(?:pip[\d.]*|conda|mamba)\s+install\b(.*)", re.S)
SHELLS = ("bash", "sh", "script", "!")
SHOWN = {"html": "text/html", "HTML": "text/html", "markdown": "text/markdown", "latex": "text/latex",
         "svg": "image/svg+xml", "SVG": "image/svg+xml"}

# `pip install x` without a sign in front is a command of notebooks, too.
BARE = re.compile(r"(\s*)((?:python[\d.]*\s+-m\s+)?(?:uv\s+)?pip[\d.]*\s+install\s.*)$", re.S)
# Options of an installation that change nothing here. The server reads the same ones.
IDLE = frozenset((
    "-q", "-qq", "-qqq", "--quiet", "-U", "--upgrade", "--user", "-y", "--yes", "--no-cache-dir", "--no-input",
    "--force-reinstall", "--break-system-packages", "--disable-pip-version-check", "--no-warn-script-location",
    "--prefer-binary", "--root-user-action=ignore", "--system",
))
REDIRECT = re.compile(r"[12&]?>")
LINE = re.compile(r"(\s*)(?:%(\w+)[ \t]*(.*)|(!!?)(.*))$", re.S)
ASSIGNED = re.compile(r"(\s*[\w.,\s\[\]'\"]*?[\w\]]\s*=\s*)(?:!(.*)|%(\w+)[ \t]*(.*))$", re.S)
HELP = re.compile(r"(\s*)\?{0,2}([A-Za-z_][\w.]*)\?{0,2}\s*$")
CELL = re.compile(r"%%(\w+|!)[ \t]*(.*)$")


class UsageError(Exception):
    """A notebook command that is not available here. Its text says what to do instead."""


UsageError.__module__ = "builtins"


# -- translation --


def translate(code, attempt, error):
    """What `attempt` makes of the program once it is Python; else the error that is left. `attempt` gets the text and
    a function that gives the nodes of its tree the columns of the program as it was written."""
    lines = code.split("\n")
    written = lines[:]
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    cell = CELL.match(lines[first].strip())
    margin = 0
    if cell:
        lines = translate_cell(lines, first, *cell.groups())
    else:
        margin = dedent(lines)
    changed = {first} if cell else set()
    is_changed = "\n".join(lines) != code
    for _ in range(LINES_MAX):
        try:
            return attempt("\n".join(lines), lambda tree: place(tree, written, changed, margin))
        except SyntaxError as again:
            number = again.lineno
            if not number or number > len(lines) or not translate_line(lines, number - 1):
                raise as_written(again if is_changed else error, written, margin) from None
            is_changed = True
            changed.add(number - 1)
    raise error


def dedent(lines):
    """A program that is indented as a whole. Gives back by how much."""
    margins = [line[: len(line) - len(line.lstrip())] for line in lines if line.strip()]
    margin = min(margins, key=len, default="")
    if not margin or not all(line.startswith(margin) for line in margins):
        return 0
    lines[:] = [line[len(margin):] if line.startswith(margin) else line for line in lines]
    return len(margin)


def as_written(error, written, margin):
    """A syntax error with the line of the program and its column there."""
    if margin and error.lineno and error.lineno <= len(written):
        error.text = written[error.lineno - 1] + "\n"
        error.offset = error.offset and error.offset + margin
        if getattr(error, "end_offset", None) and error.end_offset > 0:
            error.end_offset += margin
    return error


def place(tree, written, changed, margin):
    """Nodes of a translated line cover the line as it was written; others are moved to where they were."""
    from ast import walk

    for node in walk(tree):
        line = getattr(node, "lineno", None)
        if line is None:
            continue
        if line - 1 in changed:
            text = written[line - 1]
            node.col_offset = len(text[: len(text) - len(text.lstrip())].encode())
            node.end_lineno, node.end_col_offset = line, len(text.rstrip().encode("utf-8", "replace"))
        elif margin:
            node.col_offset += margin
            node.end_col_offset += margin


def translate_line(lines, index):
    """Replaces a line by Python, with the lines that it continues on; False if it is nothing of a notebook."""
    line, last = lines[index], index
    while line.endswith("\\") and last + 1 < len(lines):
        last += 1
        line = line[:-1] + lines[last].strip()
    new = python_of(line)
    if new is None:
        return False
    lines[index: last + 1] = [new] + [""] * (last - index)
    return True


def python_of(line):
    found = LINE.match(line)
    if found:
        margin, magic, rest, _, command = found.groups()
        if magic is not None:
            return "%s__notebook__.magic(%r, %r)" % (margin, magic, rest)
        return "%s__notebook__.shell(%r)" % (margin, command)
    found = BARE.match(line)
    if found:
        return "%s__notebook__.shell(%r)" % found.groups()
    found = ASSIGNED.match(line)
    if found:
        target, command, magic, rest = found.groups()
        if command is not None:
            return "%s__notebook__.capture(%r)" % (target, command)
        return "%s__notebook__.magic(%r, %r)" % (target, magic, rest)
    found = HELP.match(line)
    if found and "?" in line:
        return "%shelp(%s)" % found.groups()
    return None


def translate_cell(lines, first, name, rest):
    """A cell magic rules over the whole program."""
    body = lines[first + 1:]
    if name in ("time", "capture", "python", "python3"):
        begin = "__notebook__.begin_time()" if name == "time" else ""
        return lines[:first] + [begin] + body
    call = "__notebook__.cell(%r, %r, %r)" % (name, rest, "\n".join(body))
    return lines[:first] + [call]


# -- what the translation calls --


class Notebook:
    """The name `__notebook__` of translated programs."""

    def __init__(self, screen):
        self.screen = screen
        self.began = None

    def shell(self, command):
        command = expand(command, sys._getframe(1))
        packages = INSTALLERS.match(command)
        if packages:
            return self.install(packages.group(1))
        flush()
        from subprocess import call

        status = call(command, shell=True, executable=shell_program())
        if status:
            print("the command ended with status %d" % status, file=sys.stderr)

    def capture(self, command):
        """The lines of a command's output."""
        command = expand(command, sys._getframe(1))
        flush()
        from subprocess import PIPE, run

        done = run(command, shell=True, executable=shell_program(), stdout=PIPE, text=True, errors="replace")
        return done.stdout.splitlines()

    def magic(self, name, rest):
        frame = sys._getframe(1)
        rest = expand(rest, frame).strip()
        if name in IGNORED:
            return None
        action = getattr(self, "do_" + name, None)
        if action is None:
            raise unknown("%" + name)
        return action(rest, frame.f_globals)

    def cell(self, name, rest, body):
        frame = sys._getframe(1)
        if name in SHELLS:
            flush()
            from subprocess import run

            words = rest.split() if name == "script" and rest else [shell_program()]
            status = run(words, input=body, text=True).returncode
            if status:
                raise UsageError("the %%%%%s cell ended with status %d" % (name, status))
        elif name in ("writefile", "file"):
            words = rest.split()
            mode = "a" if "-a" in words else "w"
            names = [word for word in words if word != "-a"]
            if len(names) != 1:
                raise UsageError("%%%%%s needs the name of one file" % name)
            with open(expand(names[0], frame), mode, encoding="utf-8") as file:
                file.write(body)
            print("Writing %s" % names[0])
        elif name in SHOWN:
            self.screen.open().put(SHOWN[name], body)
        else:
            raise unknown("%%" + name)

    # -- magics that do something --

    def do_cd(self, rest, names):
        import os

        os.chdir(os.path.expanduser(rest or "~"))
        print(os.getcwd())

    def do_pwd(self, rest, names):
        import os

        return os.getcwd()

    def do_ls(self, rest, names):
        self.shell("ls " + rest)

    def do_env(self, rest, names):
        import os

        name, equals, value = rest.partition("=")
        if not rest:
            return dict(os.environ)
        if not equals:
            name, _, value = rest.partition(" ")
            if not value:
                return os.environ.get(name)
        os.environ[name.strip()] = value.strip()

    do_set_env = do_env

    def do_time(self, rest, names):
        # At its place in the program, for tracebacks.
        frame = sys._getframe(2)
        file, margin = frame.f_code.co_filename, "\n" * (frame.f_lineno - 1)
        try:
            code = compile(margin + rest, file, "eval")
        except SyntaxError:
            code = compile(margin + rest, file, "exec")
        self.begin_time()
        try:
            return eval(code, names)
        finally:
            self.end_time()

    def do_timeit(self, rest, names):
        from timeit import Timer

        timer = Timer(re.sub(r"^(?:-[nrp]\s*\d+\s+|-[cotqv]\s+)+", "", rest), globals=names)
        count, _ = timer.autorange()
        best = min(timer.repeat(3, count)) / count
        print("%.3g s per loop (best of 3, %d loops each)" % (best, count))

    def do_run(self, rest, names):
        import runpy
        import shlex

        path, *arguments = shlex.split(rest)
        before = sys.argv[:]
        sys.argv[:] = [path, *arguments]
        try:
            found = runpy.run_path(path, run_name="__main__")
        finally:
            sys.argv[:] = before
        names.update({name: value for name, value in found.items() if not name.startswith("__")})

    def do_who(self, rest, names):
        print("  ".join(sorted(name for name in names if not name.startswith("_"))))

    def do_pip(self, rest, names):
        rest = re.sub(r"^pip\s+", "", rest)
        word, _, packages = rest.partition(" ")
        if word == "install":
            return self.install(packages)
        self.shell("%s -m pip %s" % (sys.executable, rest))

    do_conda = do_mamba = do_uv = do_pip

    def install(self, packages):
        """Nothing can be fetched here. What a line at top level names was brought before the program began, and what is
        there already is enough for most programs that ask."""
        import shlex

        asked, options = [], []
        for word in shlex.split(packages, comments=True):
            if REDIRECT.match(word):
                break
            (options if word.startswith("-") else asked).append(word)
        others = [word for word in options if word not in IDLE]
        if others:
            raise UsageError("pip install cannot take %s here; name each package instead" % " ".join(others))
        forget_absent()
        missing = [word for word in asked if not is_installed(word)]
        if missing:
            raise UsageError("cannot install %s: a sandbox has no network" % ", ".join(missing))
        if asked:
            print("Successfully installed %s" % " ".join(map(with_version, asked)))

    def begin_time(self):
        from time import perf_counter, process_time

        self.began = perf_counter(), process_time()

    def end_time(self):
        from time import perf_counter, process_time

        if self.began is not None:
            wall, cpu = perf_counter() - self.began[0], process_time() - self.began[1]
            self.began = None
            print("CPU time: %.3g s, wall time: %.3g s" % (cpu, wall))


def is_known(word, is_cell):
    """Whether `%word`, or `%%word` if it is for a whole cell, does something here."""
    if is_cell:
        return word in SHELLS or word in SHOWN or word in ("writefile", "file")
    return word in IGNORED or hasattr(Notebook, "do_" + word)


def unknown(word):
    return UsageError("%s is a command of notebooks that is not available here; use Python, or ! for a shell command" % word)


def shell_program():
    from os import access, X_OK

    return "/bin/bash" if access("/bin/bash", X_OK) else "/bin/sh"


def flush():
    """What was printed before comes before what the command prints."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def expand(command, frame):
    """`{expression}` and `$name` of the program, where they are known; all else belongs to the shell."""
    def value(found):
        if found.group(1) is not None:
            try:
                return str(eval(found.group(1), frame.f_globals, frame.f_locals))
            except Exception:
                return found.group(0)
        name = found.group(2)
        for names in (frame.f_locals, frame.f_globals):
            if name in names:
                return str(names[name])
        return found.group(0)

    return re.sub(r"\{([^{}\n]+)\}|\$([A-Za-z_]\w*)", value, command)


def forget_absent():
    """What was not there when an import looked may have come since."""
    from importlib import invalidate_caches

    invalidate_caches()


def name_of(requirement):
    return re.split(r"[\s\[<>=!~;@]", requirement, maxsplit=1)[0]


def with_version(requirement):
    """`pandas-2.2.3`, as pip says it."""
    from importlib.metadata import PackageNotFoundError, version

    name = name_of(requirement)
    try:
        return "%s-%s" % (name, version(name))
    except (PackageNotFoundError, ValueError):
        return name


def is_installed(requirement):
    from importlib.util import find_spec
    from importlib.metadata import PackageNotFoundError, version

    name = name_of(requirement)
    try:
        version(name)
        return True
    except (PackageNotFoundError, ValueError):
        pass
    try:
        return find_spec(name.replace("-", "_")) is not None
    except (ImportError, ValueError):
        return False


# -- IPython.display, where IPython is not installed --


class Shown:
    """Something with one form of itself."""

    _mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, metadata=None, **ignored):
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, include=None, exclude=None):
        data = self.data
        if isinstance(data, (bytes, bytearray)) and not self._mime.startswith("image/"):
            data = data.decode("utf-8", "replace")
        return {self._mime: data if data is not None else ""}


class HTML(Shown):
    _mime = "text/html"


class Markdown(Shown):
    _mime = "text/markdown"


class Latex(Shown):
    _mime = "text/latex"


class Math(Latex):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/latex": "$\\displaystyle %s$" % str(self.data).strip("$")}


class SVG(Shown):
    _mime = "image/svg+xml"


class JSON(Shown):
    _mime = "application/json"


class Pretty(Shown):
    _mime = "text/plain"


class Image(Shown):
    def __init__(self, data=None, url=None, filename=None, format=None, **more):
        if isinstance(data, str):
            data, filename = None, data
        super().__init__(data, url, filename, **more)

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {"text/markdown": "![image](%s)" % self.url}
        for magic, mime in ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"),
                            (b"RIFF", "image/webp")):
            if bytes(self.data[:4]).startswith(magic):
                return {mime: bytes(self.data)}
        return {"image/svg+xml": bytes(self.data).decode("utf-8", "replace")}


class IFrame(HTML):
    def __init__(self, src, width, height, **ignored):
        super().__init__('<iframe src="%s" width="%s" height="%s"></iframe>' % (src, width, height))


def clear_output(wait=False):
    """Output that was sent cannot be taken back."""


def submodule(package, name):
    """A part of IPython that a program uses without importing it."""
    if name not in ("core", "display"):
        raise AttributeError("module %r has no attribute %r" % (package, name))
    from importlib import import_module

    return import_module(package + "." + name)


def fill_module(module, displays):
    """Makes a module that stands for IPython, IPython.display or IPython.core.display."""
    module.__path__ = []
    if module.__name__ == "IPython":
        # What packages ask before they use it.
        module.get_ipython, module.version_info, module.__version__ = lambda: None, (8, 24, 0, ""), "8.24.0"
        module.__getattr__ = lambda name: submodule("IPython", name)
        return
    for thing in (HTML, Markdown, Latex, Math, SVG, JSON, Pretty, Image, IFrame, clear_output):
        setattr(module, thing.__name__, thing)
    module.display, module.update_display = displays.display, displays.update_display
    module.publish_display_data = displays.publish_display_data
    module.DisplayObject = Shown
