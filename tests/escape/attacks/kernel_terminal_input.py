# attack: types into a terminal with TIOCSTI and takes its console, on a terminal made inside
# family: kernel surface
# walls: seccomp
# without: differs
from attack import *
import fcntl
import pty

_, terminal = pty.openpty()
os.setsid() if os.getpid() != os.getsid(0) else None
attempt(lambda: fcntl.ioctl(terminal, 0x540E, 0))
judge([(label, lambda r=r: fcntl.ioctl(terminal, r, b"x") and 1) for label, r in {"TIOCSTI": 0x5412, "TIOCCONS": 0x541D, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}.items()])
