# attack: raises the core size limit, so that a crash would start the handler of the host
# family: kernel surface
# walls: rlimits
# without: escaped
from attack import *
import resource


def raise_limit():
    resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return 4096


def refused():
    try:
        return raise_limit()
    except ValueError:
        return "EINVAL"


judge([("raise", refused)])
