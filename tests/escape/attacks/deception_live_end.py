# attack: digs its run's number out of the driver, says in the driver's place that the run is over, and goes on
# family: deception
# walls: seccomp
# limits: --timeout 2s
# outcome: timed_out
# without: never: whether the interpreter waits is looked at in every build; without that look the outcome is completed
from attack import *

frame = sys._getframe()
while frame is not None and "run_id" not in frame.f_locals:
    frame = frame.f_back
if frame is None:
    held("no number was found, ENOENT")
fields = ["done", frame.f_locals["run_id"], "ok", "0", "", "", "", "1", "1", ""]
message = "%d\0%s" % (len(fields), "".join(field + "\0" for field in fields))
os.write(frame.f_locals["channel"].fd, message.encode())
say("HELD: still the same run, EOK")
while True:
    try:
        sum(range(100000))
    except BaseException:
        pass
