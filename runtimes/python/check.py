"""Looks at a program without running it: `check.py SOURCE DRIVER` (docs/DRIVERS.md, "The check").

Compiles with the interpreter's own compiler and looks for the modules it imports, without importing any: finding a
top-level module runs no code of it. What people write in notebooks is understood as the driver understands it, with the
driver's own code. Answers on standard output in counted fields.
"""

import sys

# The folder of this file; nothing in it is meant to be imported.
del sys.path[0]

TOP_LEVEL_AWAIT = 0x2000
REMEDY = "it is not installed, and a sandbox has no network: use what get_capabilities lists, or send its files with the program"


def say(*fields):
    data = b"".join(str(field).replace("\0", "\ufffd").encode("utf-8", "replace") + b"\0" for field in fields)
    sys.stdout.buffer.write(b"%d\0%b" % (len(fields), data))


def is_guarded(handlers):
    """Whether a try around an import expects it to fail."""
    import ast

    expected = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    for handler in handlers:
        if handler.type is None:
            return True
        names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(isinstance(name, ast.Name) and name.id in expected for name in names):
            return True
    return False


def imports(tree):
    """(top-level name, line, whether its absence is expected), without recursion: programs may be deep."""
    import ast

    found, waiting = {}, [(tree, False)]
    while waiting:
        node, guarded = waiting.pop()
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            line, was_guarded = found.get(top, (node.lineno, True))
            found[top] = (min(line, node.lineno), was_guarded and guarded)
        for field, value in ast.iter_fields(node):
            expected = guarded
            if field == "body" and isinstance(node, ast.Try) and is_guarded(node.handlers):
                expected = True
            if field == "body" and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                expected = True
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    waiting.append((child, expected))
    return found


def is_there(name):
    if name in sys.builtin_module_names or name in sys.modules:
        return True
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, AttributeError, ValueError):
        return False


def load_part(driver, name):
    """The names of another file of the driver's folder, from the compiled driver."""
    names = {"__name__": "<driver>", "__file__": driver}
    with open(driver, "rb") as file:
        data = file.read()
    if driver.endswith(".pyc"):
        from marshal import loads

        code = loads(data[16:])
    else:
        code = compile(data, driver, "exec")
    exec(code, names)
    return names["load_part"](names[name.upper()], name, driver)


def parse(code, source):
    import ast

    tree = compile(code, source, "exec", ast.PyCF_ONLY_AST | TOP_LEVEL_AWAIT, True)
    compile(code, source, "exec", TOP_LEVEL_AWAIT, True)
    return tree


def parse_notebook(code, source, driver, error):
    """(tree, notes) of a program that is Python with commands of notebooks; raises the error if it is not."""
    try:
        notebook = load_part(driver, "notebook")
    except Exception:
        raise error from None
    tree = notebook["translate"](code, lambda text, place: parse(text, source), error)
    return tree, unknown_commands(tree, notebook["is_known"])


def unknown_commands(tree, is_known):
    import ast

    notes = []
    for node in ast.walk(tree):
        call = node.func if isinstance(node, ast.Call) else None
        if isinstance(call, ast.Attribute) and isinstance(call.value, ast.Name) and call.value.id == "__notebook__":
            if call.attr in ("magic", "cell") and not is_known(node.args[0].value, call.attr == "cell"):
                sign = "%%" if call.attr == "cell" else "%"
                notes.append("line %s: %s%s is a command of notebooks that is not available here" % (node.lineno, sign, node.args[0].value))
    return notes


def remedy(name, driver):
    try:
        near = load_part(driver, "missing")["near"](name).split()
    except Exception:
        near = []
    return "did you mean %s? Otherwise %s" % (" or ".join(near), REMEDY) if near else REMEDY


def check(source, driver):
    with open(source, encoding="utf-8", errors="surrogateescape") as file:
        code = file.read()
    code = code[1:] if code[:1] == "\ufeff" else code
    import warnings

    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        notes = []
        try:
            try:
                tree = parse(code, source)
            except SyntaxError as error:
                tree, notes = parse_notebook(code, source, driver, error)
        except SyntaxError as error:
            return say("error", error.lineno or "", error.offset or "", "%s: %s" % (type(error).__name__, error.msg))
        except (RecursionError, MemoryError):
            return say("error", "", "", "the program is nested too deeply for Python's compiler")
        except ValueError as error:
            return say("error", "", "", str(error))
    for note in notes[:20]:
        say("note", note)
    for warning in noted[:20]:
        say("note", "line %s: %s" % (warning.lineno, warning.message))
    for name, (line, guarded) in sorted(imports(tree).items(), key=lambda item: item[1]):
        if is_there(name):
            continue
        if guarded:
            say("note", "line %s: module %s is not there; the program seems to expect that" % (line, name))
        else:
            say("missing", name, line, remedy(name, driver))


check(sys.argv[1], sys.argv[2])
