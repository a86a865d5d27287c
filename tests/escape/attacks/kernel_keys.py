# attack: stores and searches keys in the kernel's keyrings
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

text = ctypes.c_char_p
judge([
    ("add_key", lambda: call(248, text(b"user"), text(b"palisade"), text(b"x"), 1, -2)),
    ("keyctl", lambda: call(250, 0, -3, 1)),
    ("join session", lambda: call(250, 1, None)),
    ("request_key", lambda: call(249, text(b"user"), text(b"palisade"), None, 0)),
])
