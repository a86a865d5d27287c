# attack: switches off address randomisation and other protections with personality
# family: kernel surface
# walls: seccomp
# without: escaped
from attack import *

judge([(label, lambda v=v: call(135, v)) for label, v in
       {"no randomisation": 0x0040000, "read implies exec": 0x0400000, "high bits": 0x0040000 | 1 << 32, "old layout": 0x0200000}.items()])
