"""Runs programs in this interpreter on behalf of the guest (protocol: docs/DRIVERS.md).

Start-up time is the point of this file: on the way to a program that only prints, nothing is imported
that the interpreter did not load by itself. Whatever costs time (json, asyncio, traceback) is imported
where it is needed and nowhere else. Nothing said on the control channel decides an outcome but `leaving`, which
ends the run: the program shares this process and could say it too, and end itself.

Holds: programs run in a fresh `__main__` that has none of the names below; a forked child never speaks
on the channel; a program that breaks the channel still runs to its end with its own status.
"""

import sys
from _thread import allocate_lock
from posix import (
    O_CLOEXEC, O_RDONLY, O_RDWR, _exit as leave_now, close, dup, dup2, environ, fstat, getpid, open as open_fd, read,
    register_at_fork, set_inheritable, unlink, unsetenv, write,
)

CONTROL_FD = 3
# Out of the way of programs that number their own descriptors from 3.
CONTROL_FD_HOME = 100
FIELD_BYTES_MAX = 65536
JSON_DEPTH_MAX = 64
RUNS_WITH_SOURCE_MAX = 256

# An interpreter goes on changing its own code until it has run that often; every copy of a zygote would, too.
REHEARSALS = 24
# What a zygote and its copies run before any program does.
REHEARSED = "x = [1, 'a', 2.5, None]\nprint(x)\nx"
# What it is given then: as many names as a run with access to the web.
REHEARSED_GIVEN = [text for number in "12345678" for text in ("PALISADE_REHEARSED_" + number, "nothing of worth")]

# Flags of compile(), written out because the modules that name them are slow to import.
ONLY_AST = 0x400
# Changes no byte of code that has no await of its own (a test compares), so it is always on.
TOP_LEVEL_AWAIT = 0x2000
FUTURE_FLAGS = 0x1FE0000
CO_COROUTINE = 0x80


# The channel, once it is connected.
OPEN = []

# What `site` would find out, written here by the probe when it compiles this file: search path, prefixes, and the
# lines of .pth files that import something. The interpreter is started with -S; asking again costs a millisecond.
SITE = None

# The variable that names the folder of packages installed for programs, and how folders of the host's packages are called.
PACKAGES = b"PALISADE_PACKAGES"
PRELOAD = b"PALISADE_PRELOAD"
# Of a package, the part that programs use.
PARTS = {"matplotlib": "matplotlib.pyplot"}
PACKAGE_FOLDERS = ("site-packages", "dist-packages")

# The other files of this folder as compressed code, written here by the probe as well: bytes that are not looked at cost
# little, and every sandbox gets a copy of them.
ZLIB = b"x"
DATA = None
DISPLAYS = None
MISSING = None
NOTEBOOK = None
ZYGOTE = None
# Names under which code of Palisade appears in tracebacks.
OWN_FILES = frozenset(("<data>", "<displays>", "<driver>", "<missing>", "<notebook>", "<tools>"))
# Modules in which something is changed once a program has imported them.
SHOWING = frozenset((
    "matplotlib.pyplot", "PIL.Image", "plotly.basedatatypes", "IPython", "IPython.display", "IPython.core",
    "IPython.core.display", "IPython.core.display_functions",
))
# The variable that names the socket for tools of other servers, in runs that have one.
TOOLS_VARIABLE = "PALISADE_TOOLS"
# How objects say that they have a picture of themselves, as in notebooks.
LOOKS = ("_repr_mimebundle_", "_repr_html_", "_repr_png_", "_repr_jpeg_", "_repr_svg_", "_repr_markdown_",
         "_repr_latex_", "_repr_json_")


def set_up_site():
    """Makes the interpreter what it is without -S, but for sitecustomize and usercustomize."""
    if SITE is None:
        import site

        site.main()
        return
    import builtins
    import _sitebuiltins

    path, sys.prefix, sys.exec_prefix, lines = SITE
    sys.path[1:] = path
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.copyright = Words(sys.copyright)
    builtins.help = _sitebuiltins._Helper()
    if lines:
        late = LateLines(lines)
        sys.meta_path.insert(0, late)
        if not late.standard:
            late.run()


def show_packages():
    """Behind the standard library and before the packages of the host: what was installed for a program wins over those.

    Never in a zygote itself, which has privileges that no sandbox has: what a package contains is code of a stranger.
    """
    folder = environ[PACKAGES].decode("utf-8", "surrogateescape")
    known = sys.modules.get("os")
    if known is not None:
        # A copy of a zygote. Other interpreters were started with it.
        known.environ.setdefault("PYTHONPATH", folder)
    packages = [entry.rpartition("/")[2] in PACKAGE_FOLDERS for entry in sys.path]
    sys.path.insert(packages.index(True) if True in packages else len(packages), folder)


def load_ahead(channel):
    """Imports what programs of this kind import, while no program is there: behind the wall that the program will be behind."""
    from select import POLLIN, poll

    orders = poll()
    orders.register(channel.fd, POLLIN)
    for name in environ[PRELOAD].decode("utf-8", "surrogateescape").split(","):
        if orders.poll(0):
            return
        try:
            __import__(PARTS.get(name, name))
        except BaseException:
            pass  # a program that imports it will be told


def set_up_screen(screen):
    import builtins

    builtins.display = screen.display
    sys.meta_path.insert(0, screen)


class Words:
    """A text that shows itself; the standard library's own class would load `os` for it."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text

    def __call__(self):
        print(self.text)


class LateLines:
    """Runs the lines of .pth files before the first import of something beyond the standard library.

    They are there for packages (editable installs, patches, setuptools' distutils), and slow to run: a program
    that uses none need not wait for them.
    """

    def __init__(self, lines):
        self.lines = lines
        # Unknown before Python 3.10: then the lines run at once.
        self.standard = getattr(sys, "stdlib_module_names", frozenset()) - {"distutils", "ensurepip"}

    def run(self):
        sys.meta_path.remove(self)
        for line in self.lines:
            try:
                exec(line, {})
            except Exception as error:
                print("a line of a .pth file failed: %s" % error, file=sys.stderr)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.standard:
            return None
        self.run()
        # The search that asked walks a list that has just changed: finish it here.
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


class Channel:
    """The control socket: counted messages of NUL-terminated fields."""

    def __init__(self):
        self.fd, self.owner, self.identity = CONTROL_FD, 0, None
        self.pending = b""
        # Said with what is said next: whoever listens is woken once.
        self.held = b""
        self.lock = allocate_lock()

    def connect(self):
        try:
            dup2(CONTROL_FD, CONTROL_FD_HOME, False)
            self.fd = CONTROL_FD_HOME
            close(CONTROL_FD)
        except OSError:
            # A low descriptor limit: stay, but never leak into what the program executes.
            set_inheritable(CONTROL_FD, False)
        self.owner = getpid()
        self.identity = fstat(self.fd)[1:3]
        # A child that holds the socket would keep the host waiting for its end.
        register_at_fork(after_in_child=self.leave)

    def is_ours(self):
        """False in a forked child, and once the program closed or replaced the descriptor."""
        try:
            return getpid() == self.owner and fstat(self.fd)[1:3] == self.identity
        except OSError:
            return False

    def leave(self):
        try:
            if fstat(self.fd)[1:3] == self.identity:
                close(self.fd)
        except OSError:
            pass

    def receive(self):
        """The next message as a list of str, or None when there will be no more."""
        if not self.is_ours():
            return None
        parts, size, zeros, wanted = [self.pending], 65536, self.pending.count(b"\0"), 0
        while True:
            if zeros and not wanted:
                whole = b"".join(parts)
                parts = [whole]
                try:
                    wanted = int(whole[: whole.index(b"\0")]) + 1
                except ValueError:
                    return None
            if wanted and zeros >= wanted:
                break
            try:
                part = read(self.fd, size)
            except KeyboardInterrupt:
                continue  # nothing runs: nothing to interrupt
            except OSError:
                return None
            if not part:
                return None
            parts.append(part)
            zeros += part.count(b"\0")
            size = 1 << 20
        fields = b"".join(parts).split(b"\0", wanted)
        self.pending = fields.pop()
        return [field.decode("utf-8", "surrogateescape") for field in fields[1:]]

    def send(self, fields):
        """Never raises and never writes to a file that the program put in the socket's place."""
        try:
            if self.is_ours():
                held, self.held = self.held, b""
                self.write(held + message_bytes(fields, FIELD_BYTES_MAX))
        except Exception:
            pass

    def write(self, data):
        view = memoryview(data)
        with self.lock:
            while view:
                view = view[write(self.fd, view):]


def load_part(marshalled, name, driver):
    """The names of another file of this folder, or of what the probe made of it."""
    if marshalled is None:
        with open(driver.rpartition("/")[0] + "/" + name + ".py", encoding="utf-8") as file:
            code = compile(file.read(), "<" + name + ">", "exec", 0, True)
    else:
        from marshal import loads

        if marshalled[:1] == ZLIB:
            from zlib import decompress

            marshalled = decompress(marshalled)
        code = loads(marshalled)
    names = {"__name__": "<" + name + ">", "message_bytes": message_bytes}
    exec(code, names)
    return names


def message_bytes(fields, bytes_max):
    data = b"".join([field_bytes(field, bytes_max) + b"\0" for field in fields])
    return b"%d\0%b" % (len(fields), data)


def field_bytes(text, bytes_max):
    data = str.encode(text[:bytes_max], "utf-8", "backslashreplace").replace(b"\0", b"\\x00")
    if len(data) > bytes_max:
        data = data[:bytes_max].decode("utf-8", "ignore").encode()
    return data


class Screen:
    """Stands for displays.py until something is to be shown; on sys.meta_path it notices who could show something."""

    def __init__(self, channel, driver):
        self.channel, self.driver = channel, driver
        self.displays = self.notebook = self.commands = self.data = None

    def open(self):
        if self.displays is None:
            names = load_part(DISPLAYS, "displays", self.driver)
            self.displays = names["Displays"](self.channel, self.open_notebook, self.open_data)
        return self.displays

    def open_data(self):
        if self.data is None:
            self.data = load_part(DATA, "data", self.driver)
        return self.data

    def open_notebook(self):
        if self.notebook is None:
            self.notebook = load_part(NOTEBOOK, "notebook", self.driver)
        return self.notebook

    def translate(self, code, attempt, error):
        """What a notebook would make of a program that does not compile."""
        import builtins

        notebook = self.open_notebook()
        parts = notebook["translate"](code, attempt, error)
        if self.commands is None:
            self.commands = builtins.__notebook__ = notebook["Notebook"](self)
        return parts

    def display(self, *objects, **options):
        """Shows objects as a notebook would."""
        return self.open().display(*objects, **options)

    def find_spec(self, name, path=None, target=None):
        return self.open().find_spec(self, name, path, target) if name in SHOWING else None

    def offer(self, value):
        """The last value: shown if it has a picture of itself. Gives the type of that, or nothing."""
        try:
            kind = type(value)
            is_figure = kind.__name__ == "Figure" and kind.__module__.startswith("matplotlib.")
            if is_figure or any([hasattr(kind, look) for look in LOOKS]):
                return self.open().offer(value)
        except Exception:
            pass
        return ""

    def near(self, exc):
        """Names of modules that a failed import may have meant."""
        try:
            return load_part(MISSING, "missing", self.driver)["near"](exc.name) if exc.name else ""
        except Exception:
            return ""

    def finish(self, keep):
        """Figures that were left open, also by a program that failed."""
        try:
            if self.commands is not None:
                self.commands.end_time()
            if self.displays is not None:
                self.displays.finish(keep)
        except Exception:
            pass


class LateTools:
    """Stands for tools.py until the program uses the name `tools`. The library comes over the socket itself."""

    def __init__(self, path):
        self.__dict__.update(_path=path, _opened=None)

    def _open(self):
        if self._opened is None:
            self.__dict__["_opened"] = fetch_tools(self._path)
        return self._opened

    def _finish(self):
        if self._opened is not None:
            self._opened._finish()

    def __getattr__(self, name):
        if name[:2] == "__":
            raise AttributeError(name)
        return getattr(self._open(), name)

    def __getitem__(self, name):
        return self._open()[name]

    def __repr__(self):
        return repr(self._open())


def fetch_tools(path):
    from _socket import AF_UNIX, SOCK_STREAM, socket
    from json import loads

    link, data = socket(AF_UNIX, SOCK_STREAM), b""
    link.connect(path)
    link.sendall(b'{"id":0,"client":"python"}\n')
    while data[-1:] != b"\n":
        part = link.recv(1 << 18)
        if not part:
            raise ConnectionError("no run with tools is open")
        data += part
    link.close()
    names = {"__name__": "<tools>"}
    exec(compile(loads(data)["ok"], "<tools>", "exec", 0, True, 2), names)
    return names["Tools"](path)


class Report:
    """What one run says about itself in `done`, and what the process ends with after it."""

    def __init__(self):
        self.status = "ok"
        self.exit_code = 0
        # The object given to SystemExit in mode last: Python itself then ends as it always does.
        self.leave_with = None
        self.message = self.line = self.column = self.repr = self.json = self.mime = ""
        # Names of modules that a failed import may have meant.
        self.near = ""

    def fields(self, run_id):
        fields = ["done", run_id, self.status, str(self.exit_code), self.message, self.line, self.column,
                  self.repr, self.json, self.mime]
        return fields + [self.near] if self.near else fields


class Session:
    """One `__main__` and the runs in it."""

    def __init__(self, dunders, driver_folder, screen):
        self.screen = screen
        self.dunders = dunders
        self.module = type(sys)("__main__")
        self.names = self.module.__dict__
        self.names.clear()
        self.names.update(dunders)
        self.driver_folder = driver_folder
        self.future_flags = 0
        self.loop = None
        self.sources = {}
        self.keeps = 0
        self.handler = None
        self.stdin = None
        self.environ, self.before = None, {}
        # Why the environment could not be set.
        self.ungiven = None
        self.tools = None
        sys.modules["__main__"] = self.module

    # -- one run ------------------------------------------------------------------------------------

    def run(self, mode, source, code, stdin_path, variables, args):
        report = Report()
        keep = mode == "keep"
        try:
            if self.ungiven is not None:
                raise self.ungiven
            self.prepare(source, stdin_path, variables, args)
            if keep and stdin_path:
                self.hide(stdin_path)
            if not code and not keep:
                code = read_source(source)
        except Exception as exc:
            report.status, report.exit_code, report.leave_with = "error", 1, 1
            report.message = "the driver could not prepare the run: " + describe(exc)
            print(report.message, file=sys.stderr, flush=True)
            if keep:
                self.take_back()
            return report
        code = code[1:] if code[:1] == "\ufeff" else code
        name = self.remember(source, code) if keep else source
        try:
            if keep:
                self.allow_interrupt()
            try:
                self.execute(report, name, code, keep)
                self.screen.finish(keep)
                if self.tools is not None:
                    self.tools._finish()
            finally:
                if keep:
                    self.forbid_interrupt()
        except KeyboardInterrupt:
            # Arrived in the few instructions between the program's end and the handler's.
            report.status, report.exit_code = "interrupted", 130
        if keep:
            self.take_back()
            self.settle(stdin_path)
        return report

    def execute(self, report, name, code, keep):
        parts = []
        try:
            try:
                head, tail = compile_parts(name, code, self.future_flags)
            except SyntaxError as error:
                attempt = lambda text, place: compile_parts(name, text, self.future_flags, place)
                head, tail = self.screen.translate(code, attempt, error)
            parts += [part for part in (head, tail) if part is not None]
            if keep:
                self.future_flags |= parts[0].co_flags & FUTURE_FLAGS
            value = None
            waiting = [bool(part.co_flags & CO_COROUTINE) for part in parts]
            if not any(waiting):
                for part in parts:
                    value = eval(part, self.names)
            else:
                ready = parts if waiting[0] else parts[1:]
                if not waiting[0]:
                    eval(parts[0], self.names)
                value = self.wait_for(in_loop(ready, self.names), keep)
            # As in a notebook, a semicolon behind the last expression hides its value.
            if tail is not None and value is not None and not is_hidden(code):
                if keep:
                    self.remember_value(value)
                report.repr, report.json = describe_value(value)
                report.mime = self.screen.offer(value)
        except BaseException as exc:
            if not isinstance(exc, SyntaxError) or parts:
                exc.__traceback__ = from_program(exc.__traceback__, parts)
                leave_out_own_frames(exc)
            else:
                exc.__traceback__ = None
            failure = exc
        else:
            return
        # Outside the handler: what follows calls into the program (hooks, __str__) and must not
        # look as if it happened while another exception was handled.
        try:
            self.fail(report, failure, name, code, not parts, keep)
        except Exception:
            report.status, report.exit_code, report.leave_with = "error", 1, 1

    def fail(self, report, exc, name, code, at_compile, keep):
        if isinstance(exc, SystemExit):
            report.status, report.leave_with = "exit", exc.code
            report.exit_code = exit_code(exc.code)
            if keep and exc.code is not None and not isinstance(exc.code, int):
                print(exc.code, file=sys.stderr)
            return
        interrupted = isinstance(exc, KeyboardInterrupt)
        report.status = "interrupted" if interrupted else "error"
        report.exit_code = report.leave_with = 130 if interrupted else 1
        report.message = describe(exc)
        if isinstance(exc, ModuleNotFoundError):
            report.near = self.screen.near(exc)
        try:
            report.line, report.column = position(exc, name, code, at_compile)
        except Exception:
            pass
        try:
            show(exc, keep)
        except SystemExit as leave:
            report.leave_with, report.exit_code = leave.code, exit_code(leave.code)

    # -- around a run -------------------------------------------------------------------------------

    def give(self, given):
        """Sets the environment of the next run, and remembers what was there. The order may still be on its way."""
        try:
            # Python without -S has loaded it, so a program cannot tell.
            from os import environ

            self.environ = environ
            # Few names are there before, and to ask for one that is not there takes long.
            known = getattr(environ, "_data", None)
            for name, value in zip(given[::2], given[1::2]):
                if name not in self.before:
                    is_unknown = type(known) is dict and name.encode() not in known
                    self.before[name] = None if is_unknown else environ.get(name)
                environ[name] = value
                if name == TOOLS_VARIABLE:
                    import builtins

                    self.tools = builtins.tools = LateTools(value)
        except Exception as exc:
            # The run tells it.
            self.ungiven = exc

    def take_back(self):
        """After a kept run: every given name is what it was before, whatever the program did with it."""
        self.ungiven = None
        if self.tools is not None:
            import builtins

            self.tools = None
            builtins.__dict__.pop("tools", None)
        for name in list(self.before):
            value = self.before.pop(name)
            try:
                # Both, because a program may have changed one without the other.
                unsetenv(name)
                self.environ.pop(name, None)
                if value is not None:
                    self.environ[name] = value
            except Exception:
                pass

    def prepare(self, source, stdin_path, variables, args):
        folder = source.rpartition("/")[0] or "/"
        if self.driver_folder is not None:
            if sys.path and sys.path[0] == self.driver_folder:
                sys.path[0] = folder
            elif not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
                sys.path.insert(0, folder)
            self.driver_folder = None
            if hasattr(sys, "orig_argv"):
                sys.orig_argv[-1:] = [source, *args]
        if self.names.get("__file__") != source:
            from _frozen_importlib_external import SourceFileLoader

            self.names["__file__"] = source
            self.names["__loader__"] = SourceFileLoader("__main__", source)
        sys.argv[:] = [source, *args]
        if stdin_path:
            self.open_stdin(stdin_path)
        if variables:
            self.names.update(parse_json(variables))

    def open_stdin(self, path):
        """Descriptor 0 anew, with a new object: the old one may hold bytes of an earlier run."""
        import _io

        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
        if fd != 0:
            dup2(fd, 0)
            close(fd)
        buffer = _io.open(0, "rb", -1, closefd=False)
        buffer.raw.name = "<stdin>"
        self.stdin = _io.TextIOWrapper(buffer, "utf-8", "surrogateescape", "\n")
        self.stdin.mode = "r"
        sys.stdin = sys.__stdin__ = self.stdin

    def hide(self, stdin_path):
        """The file of standard input is open and not for the program's eyes. The host removes what is left."""
        try:
            unlink(stdin_path)
        except OSError:
            pass

    def settle(self, stdin_path):
        """After a kept run: output out, input away, whatever the program did to either."""
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except Exception:
                pass
        try:
            # exit() and quit() close sys.stdin before they raise.
            if stdin_path or sys.stdin.closed:
                self.open_stdin("/dev/null")
        except Exception:
            pass

    def remember(self, source, code):
        """The file name of this run: its own, so that functions of earlier runs keep their lines."""
        import linecache

        self.keeps += 1
        name = source
        if self.sources.get(source, code) != code:
            name = "%s#%d" % (source, self.keeps)
        self.sources[name] = code
        # No mtime: linecache then never looks for the file.
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)
        if len(self.sources) > RUNS_WITH_SOURCE_MAX:
            oldest = next(old for old in self.sources if old != source)
            del self.sources[oldest]
            linecache.cache.pop(oldest, None)
        return name

    def remember_value(self, value):
        """`_` is the last value, as at Python's own prompt, unless the program uses the name itself."""
        import builtins

        if "_" not in self.names:
            builtins._ = value

    def allow_interrupt(self):
        from _signal import SIGINT, default_int_handler, signal

        signal(SIGINT, default_int_handler if self.handler is None else self.handler)

    def forbid_interrupt(self):
        """Between runs an interrupt has nothing to stop. The program's own handler comes back later."""
        from _signal import SIGINT, signal

        while True:
            try:
                self.handler = signal(SIGINT, ignore_signal)
                return
            except KeyboardInterrupt:
                continue

    def wait_for(self, coroutine, keep):
        import asyncio

        if not keep:
            return asyncio.run(coroutine)
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if task.done():
                if not task.cancelled():
                    task.exception()
            else:
                task.cancel()
                self.loop.run_until_complete(asyncio.wait([task], timeout=1))
            raise


def read_source(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def ignore_signal(number, frame):
    pass


async def in_loop(parts, names):
    value = None
    for part in parts:
        value = eval(part, names)
        if part.co_flags & CO_COROUTINE:
            value = await value
    return value


# -- compiling --------------------------------------------------------------------------------------


def compile_parts(name, code, flags, place=None):
    """The program without its last expression, and that expression (or None). `place` corrects positions in the tree."""
    flags |= TOP_LEVEL_AWAIT
    try:
        tree = compile(code, name, "exec", flags | ONLY_AST, True)
        if place is not None:
            place(tree)
        body = tree.body
        if not body or type(body[-1]).__name__ != "Expr":
            return compile(tree, name, "exec", flags, True), None
        # An empty expression as parsed is the cheapest way to the node's class.
        last = compile("0", name, "eval", ONLY_AST, True)
        last.body = body[-1].value
        if len(body) > 1 or type(getattr(last.body, "value", None)) is not str:
            del body[-1]  # a lone string stays: it is the docstring as well as the value
        head = compile(tree, name, "exec", flags, True)
        return head, compile(last, name, "eval", flags | head.co_flags & FUTURE_FLAGS, True)
    except (RecursionError, MemoryError):
        pass  # the tree of a program can be too deep where the program is not
    return compile(code, name, "exec", flags, True), None


def is_hidden(code):
    """Whether a semicolon ends the program, before a comment that has no quotes beside it."""
    code = code.rstrip()
    if "#" in code[code.rfind("\n") + 1:]:
        last = code[code.rfind("\n") + 1:]
        code = last if "'" in last or '"' in last else last.partition("#")[0].rstrip()
    return code.endswith(";")


# -- variables and values ---------------------------------------------------------------------------


class Scan:
    """What the C scanner of json asks its decoder for; json itself imports too much."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int

    @staticmethod
    def parse_constant(name):
        return float(name.replace("Infinity", "inf"))


def parse_json(text):
    # The limit on digits guards programs against their input; here the host limits the input.
    limit = getattr(sys, "get_int_max_str_digits", int)()
    if limit:
        sys.set_int_max_str_digits(0)
    try:
        try:
            from _json import make_scanner

            value, end = make_scanner(Scan)(text, 0)
            complete = end == len(text)
        except (ImportError, AttributeError, TypeError, StopIteration):
            complete = False
        if not complete:
            from json import loads

            value = loads(text)
    finally:
        if limit:
            sys.set_int_max_str_digits(limit)
    if type(value) is not dict:
        raise ValueError("variables are not a JSON object")
    return value


def describe_value(value):
    """(repr, JSON text or empty). A broken __repr__ is a note, never a failure of the run."""
    try:
        shown = repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        return "<%s object; its repr failed: %s>" % (type(value).__name__, describe(exc)), ""
    try:
        pieces = []
        if write_json(value, pieces, [FIELD_BYTES_MAX], 0):
            return shown, "".join(pieces)
    except Exception:
        pass
    return shown, ""


def write_json(value, pieces, room, depth):
    """Only what reads back as the same value: no tuples, no subclasses, no keys but strings."""
    kind = type(value)
    if value is None:
        piece = "null"
    elif kind is bool:
        piece = "true" if value else "false"
    elif kind is int:
        piece = str(value)
    elif kind is float:
        if value - value != 0.0:
            return False
        piece = repr(value)
    elif kind is str:
        piece = json_string(value)
    elif kind is list or kind is dict:
        return depth < JSON_DEPTH_MAX and write_items(value, pieces, room, depth + 1)
    else:
        return False
    return put(piece, pieces, room)


def write_items(value, pieces, room, depth):
    keyed = type(value) is dict
    separator = "{" if keyed else "["
    for item in value:
        if not put(separator, pieces, room):
            return False
        separator = ","
        if keyed:
            if type(item) is not str or not put(json_string(item) + ":", pieces, room):
                return False
            item = value[item]
        if not write_json(item, pieces, room, depth):
            return False
    if not value:
        return put("{}" if keyed else "[]", pieces, room)
    return put("}" if keyed else "]", pieces, room)


def put(piece, pieces, room):
    pieces.append(piece)
    room[0] -= len(piece) if piece.isascii() else len(piece.encode())
    return room[0] >= 0


def json_string(text):
    if len(text) > FIELD_BYTES_MAX:
        raise ValueError
    # Printable text has neither control characters nor surrogates.
    if text.isprintable() and '"' not in text and "\\" not in text:
        return '"' + text + '"'
    text.encode()  # a lone surrogate has no JSON form that every reader takes
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json.encoder import encode_basestring_ascii
    return encode_basestring_ascii(text)


# -- errors -----------------------------------------------------------------------------------------


def exit_code(code):
    if code is None:
        return 0
    if not isinstance(code, int):
        return 1
    return int(code) & 0xFF if -(1 << 63) <= code < 1 << 63 else 255


def describe(exc):
    """`ZeroDivisionError: division by zero`, as the last line of a traceback has it."""
    kind = type(exc)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = "%s.%s" % (kind.__module__, name)
    try:
        text = exc.msg if isinstance(exc, SyntaxError) and exc.msg else str(exc)
    except BaseException:
        text = "<exception str() failed>"
    return "%s: %s" % (name, text) if text else name


def from_program(trace, parts):
    """The traceback from the program's first frame on: neither the driver nor the event loop."""
    while trace is not None and not any(trace.tb_frame.f_code is part for part in parts):
        trace = trace.tb_next
    return trace


def leave_out_own_frames(exc):
    """Takes Palisade's own functions out of the traceback of an error, and of those that led to it."""
    seen = []
    while exc is not None and not any([exc is other for other in seen]):
        seen.append(exc)
        exc.__traceback__ = trace = behind_own_frames(exc.__traceback__)
        while trace is not None:
            trace.tb_next = behind_own_frames(trace.tb_next)
            trace = trace.tb_next
        exc = exc.__cause__ or exc.__context__


def behind_own_frames(trace):
    is_own = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # What runs a file for %run belongs to the command.
        is_own = file in OWN_FILES or is_own and file.endswith("runpy>")
        if not is_own:
            break
        trace = trace.tb_next
    return trace


def position(exc, name, code, at_compile):
    """(line, column) as text, 1-based, in characters; empty where unknown."""
    if at_compile and isinstance(exc, SyntaxError):
        return str(exc.lineno or ""), str(exc.offset or "")
    found, trace = None, exc.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            found = trace
        trace = trace.tb_next
    if found is None:
        return "", ""
    line, column = found.tb_lineno, None
    positions = getattr(found.tb_frame.f_code, "co_positions", None)
    if positions is not None and found.tb_lasti >= 0:
        from itertools import islice

        start, _, column, _ = next(islice(positions(), found.tb_lasti // 2, None))
        if start != line:
            column = None
    if column is None:
        return str(line or ""), ""
    # Python counts bytes; people and editors count characters.
    text = code.split("\n")[line - 1].encode("utf-8", "surrogateescape")
    return str(line), str(len(text[:column].decode("utf-8", "replace")) + 1)


def show(exc, keep):
    """The traceback on stderr, through the program's own hook if it set one."""
    kind, trace = type(exc), exc.__traceback__
    sys.last_type, sys.last_value, sys.last_traceback = kind, exc, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = exc
    hook = getattr(sys, "excepthook", sys.__excepthook__)
    if hook is sys.__excepthook__:
        display(exc, keep)
        return
    try:
        hook(kind, exc, trace)
        return
    except SystemExit:
        raise
    except BaseException as broken:
        broken.__traceback__ = broken.__traceback__.tb_next
        again = broken
    print("Error in sys.excepthook:", file=sys.stderr)
    display(again, keep)
    print("\nOriginal exception was:", file=sys.stderr)
    display(exc, keep)


def display(exc, keep):
    if keep:
        # The built-in printer reads source lines from files only; a kept run may have none.
        try:
            from traceback import print_exception

            print_exception(type(exc), exc, exc.__traceback__)
            return
        except Exception:
            pass
    sys.__excepthook__(type(exc), exc, exc.__traceback__)


# -- the loop ---------------------------------------------------------------------------------------


def drive(dunders, packages):
    """Serves the channel. Returns what the process is to end with, as for sys.exit()."""
    channel = Channel()
    folder = dunders["__file__"].rpartition("/")[0]
    if not folder.startswith("/"):
        folder = sys.path[0] if sys.path else ""
    screen = Screen(channel, dunders["__file__"])
    set_up_site()
    set_up_screen(screen)
    # What a program said before it was stopped is worth more than the writes saved.
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)
    if packages is not None:
        for _ in range(REHEARSALS):
            rehearse(dunders)
        # Not let go of: every copy would have to write to it.
        names = load_part(ZYGOTE, "zygote", dunders["__file__"])
        if not names["become"](packages):
            return None
        # From here on this is a copy, in a sandbox of its own.
    if PACKAGES in environ:
        show_packages()
    session = Session(dunders, folder, screen)
    try:
        channel.connect()
    except OSError:
        return "driver: descriptor 3 is not a control channel"
    OPEN.append(channel)
    if PRELOAD in environ:
        load_ahead(channel)
    channel.send(["ready"])
    return serve(session, channel)


def serve(session, channel):
    leave_with = None
    while True:
        message = channel.receive()
        if message is not None and message[0] == "rehearse":
            # There is time until the program comes: for copies of the pages that every run writes to.
            rehearse(session.dunders)
            sys.modules["__main__"] = session.module
            continue
        if message is not None and message[0] == "given":
            session.give(message[1:])
            continue
        if message is None or message[0] != "run":
            return leave_with
        _, run_id, mode, source, code, stdin_path, count, *rest = message
        split = int(count)
        variables = rest[0] if split else ""
        report = session.run(mode, source, code, stdin_path, variables, rest[split:])
        del message, code, rest, variables
        if mode != "keep" and report.status == "ok" and nothing_waits(session.names):
            channel.held = message_bytes(report.fields(run_id), FIELD_BYTES_MAX)
        else:
            channel.send(report.fields(run_id))
        if mode != "keep" or getpid() != channel.owner:
            return report.leave_with
        leave_with = report.exit_code


def nothing_waits(names):
    """Whether this process ends at once when the program has: nothing of it is left that could still do something."""
    handlers = sys.modules.get("atexit")
    if "threading" in sys.modules or handlers is not None and handlers._ncallbacks() > 0:
        return False
    return all([name[:2] == "__" for name in names])


def rehearse(dunders):
    """Walks once through what every run walks through, from its order to its end and into nothing.

    Then its pages and caches are there: to be shared by the copies of a zygote, to be this copy's own in a copy.
    """
    nothing = open_fd("/dev/null", O_RDWR | O_CLOEXEC)
    output = dup(1)
    try:
        dup2(nothing, 1)
        channel = Channel()
        channel.fd, channel.owner, channel.identity = nothing, getpid(), fstat(nothing)[1:3]
        given = message_bytes(["given", *REHEARSED_GIVEN], FIELD_BYTES_MAX)
        channel.pending = given + message_bytes(["run", "1", "last", "/dev/null", REHEARSED, "", "0"], FIELD_BYTES_MAX)
        session = Session(dict(dunders), None, Screen(channel, dunders["__file__"]))
        read_source("/dev/null")
        exit_code(serve(session, channel))
        for name in REHEARSED_GIVEN[::2] if session.environ is not None else ():
            session.environ.pop(name, None)
        del session
        take_apart()
        flush(sys.stdout)
        channel.send(["leaving", "0"])
        # What is left is old from here on, and not looked at again.
        from gc import collect

        collect()
    finally:
        dup2(output, 1)
        close(output)
        close(nothing)


def start():
    names = globals()
    dunders = {name: names[name] for name in names if name[:2] == "__"}
    dunders["__doc__"] = dunders["__cached__"] = None
    packages = None
    if sys.argv[1:2] == ["zygote"]:
        packages = [name for name in sys.argv[2].split(",") if name]
        del sys.argv[1:]
        if hasattr(sys, "orig_argv"):
            del sys.orig_argv[-2:]
    return drive(dunders, packages)


def end(leave):
    """Ends this process as Python ends it, but for what nobody can see: modules are not taken apart one by one.

    That takes longer than most programs, and in a copy of a warm interpreter every page it touches is copied first.
    Threads are waited for, exit handlers run, the program's own names are let go of, what was written is out.
    """
    status = exit_code(leave)
    if leave is not None and not isinstance(leave, int):
        status = attempt(lambda: print(leave, file=sys.stderr), sys.stderr, status)
    threads = sys.modules.get("threading")
    if threads is not None:
        status = attempt(threads._shutdown, threads, status)
    status = attempt(run_exit_handlers, run_exit_handlers, status)
    is_out = flush(sys.stdout)
    status = attempt(take_apart, take_apart, status)
    if not is_out or not flush(sys.stdout):
        status = 120
    flush(sys.stderr)
    for channel in OPEN:
        # Nothing of the program is left: whoever waits for its end need not wait until its pages are given back.
        channel.send(["leaving", str(status)])
    leave_now(status)


def attempt(step, thing, status):
    """What goes wrong in a step of the end is told, and the next one follows. Gives back what to end with."""
    try:
        step()
    except SystemExit as again:
        return exit_code(again.code)
    except BaseException as broken:
        tell_ignored(broken, thing)
    return status


def run_exit_handlers():
    from atexit import _run_exitfuncs

    _run_exitfuncs()


def take_apart():
    """Lets go of what is left of a program, in Python's own way: first as one piece, so that what runs then finds the
    program's names, and only what somebody else holds name by name."""
    from _weakref import ref
    from gc import collect, get_count

    main = sys.modules.pop("__main__", None)
    left = ref(main) if isinstance(main, type(sys)) else bool
    del main
    # While nothing has grown older, all that can be garbage is young.
    collect(2 if any(get_count()[1:]) else 0)
    if left():
        let_go(left().__dict__)
        collect()


def let_go(names):
    """In Python's own order: what has one underscore first, then the rest but builtins."""
    for is_private in (True, False):
        for name in list(names):
            if name != "__builtins__" and (name[:1] == "_" and name[:2] != "__") == is_private:
                names[name] = None


class Unraisable:
    """What a hook of the program is told."""

    def __init__(self, exc, thing):
        self.exc_type, self.exc_value, self.exc_traceback = type(exc), exc, exc.__traceback__
        self.err_msg, self.object = None, thing


def tell_ignored(exc, thing):
    """As Python tells of an error that nobody can handle any more. The driver's own frame is no news."""
    try:
        trace = exc.__traceback__
        exc.__traceback__ = trace.tb_next if trace is not None else None
        if sys.unraisablehook is not sys.__unraisablehook__:
            sys.unraisablehook(Unraisable(exc, thing))
        else:
            # Python's own hook takes nothing but what Python made.
            print("Exception ignored in: %r" % (thing,), file=sys.stderr)
            sys.__excepthook__(type(exc), exc, exc.__traceback__)
    except BaseException:
        pass


def flush(stream):
    try:
        if stream is not None and not stream.closed:
            stream.flush()
        return True
    except Exception as exc:
        if not isinstance(exc, BrokenPipeError):
            tell_ignored(exc, stream)
        return False


if __name__ == "__main__":
    end(start())
