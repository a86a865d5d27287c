# attack: sets a core limit of zero, with which a crash still starts the handler that a host has as a pipe (core(5))
# family: kernel surface
# walls: rlimits
# without: never: a handler would be started on the host; only its precondition is looked at
from attack import *
import resource

soft, hard = (str(limit) for limit in resource.getrlimit(resource.RLIMIT_CORE))
if (soft, hard) != ("1", "1"):
    escaped("the core limit is %s; only 1 keeps a piped handler from starting" % soft)
try:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 1))
except (OSError, ValueError) as error:
    held("the limit stays at 1: %s" % error)
escaped("lowered the core limit from 1 to 0")
