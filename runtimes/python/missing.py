"""Which modules a program may have meant that imported one which is not there. Loaded by driver.py when a program has
failed for that reason, and by check.py; other programs never pay for it.
"""

import sys

NAMES_MAX = 3
# The name by which a package is installed, where programs import another one.
INSTALLED_AS = {
    "beautifulsoup": "bs4", "beautifulsoup4": "bs4", "opencv": "cv2", "opencv_python": "cv2", "pillow": "PIL",
    "pyyaml": "yaml", "python_dateutil": "dateutil", "python_docx": "docx", "scikit_image": "skimage", "scikit_learn": "sklearn",
}


def near(name):
    """At most three names of modules that are there and resemble this one, separated by blanks."""
    from difflib import get_close_matches

    parent, _, last = name.rpartition(".")
    known = {each: each for each in siblings(parent) if not each.startswith("_")}
    if not parent:
        known.update({alias: real for alias, real in INSTALLED_AS.items() if real in known})
        # Letter case is the difference that people notice least.
        known.update({real.lower(): real for real in list(known.values())})
    found = get_close_matches(last, list(known), NAMES_MAX, 0.75) or get_close_matches(last.lower(), list(known), NAMES_MAX, 0.75)
    names = list(dict.fromkeys(known[each] for each in found))
    return " ".join(parent + "." + each if parent else each for each in names if each != last)


def siblings(parent):
    """The names of all modules beside that one."""
    from pkgutil import iter_modules

    path = getattr(sys.modules.get(parent), "__path__", ()) if parent else None
    names = {module.name for module in iter_modules(path)}
    return names if parent else names | set(getattr(sys, "stdlib_module_names", ())) | set(sys.builtin_module_names)
