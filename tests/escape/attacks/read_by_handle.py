# attack: opens a file by handle, past every path (the shocker attack)
# family: file reads
# walls: seccomp
# without: differs
from attack import *

NAME_TO_HANDLE_AT, OPEN_BY_HANDLE_AT = 303, 304
handle = ctypes.create_string_buffer(8 + 128)
ctypes.memmove(handle, (ctypes.c_uint * 2)(128, 0), 8)
mount = ctypes.c_int()
named = call(NAME_TO_HANDLE_AT, -100, ctypes.c_char_p(b"/usr"), handle, ctypes.byref(mount), 0)
place = os.open("/usr", os.O_RDONLY)
opened = call(OPEN_BY_HANDLE_AT, place, handle, 0)
if not isinstance(opened, str):
    escaped("opened /usr by handle")
held("name_to_handle_at %s, open_by_handle_at %s" % (named, opened))
