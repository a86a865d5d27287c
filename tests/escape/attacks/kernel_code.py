# attack: loads modules and another kernel, and asks for the machine's ports
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *

judge([
    ("init_module", lambda: call(175, None, 0, None)),
    ("finit_module", lambda: call(313, -1, None, 0)),
    ("delete_module", lambda: call(176, None, 0)),
    ("kexec_load", lambda: call(246, 0, 0, None, 0)),
    ("kexec_file_load", lambda: call(320, -1, -1, 0, None, 0)),
    ("iopl", lambda: call(172, 3)),
    ("ioperm", lambda: call(173, 0, 1, 0)),
    ("modify_ldt", lambda: call(154, 0, ctypes.create_string_buffer(16), 16)),
])
