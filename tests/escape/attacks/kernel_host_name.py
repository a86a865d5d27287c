# attack: renames the machine
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

inside = outside()
judge([("unshare %s, sethostname" % inside, lambda: call(170, ctypes.c_char_p(b"mine"), 4)), ("setdomainname", lambda: call(171, ctypes.c_char_p(b"mine"), 4))])
