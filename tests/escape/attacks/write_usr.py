# attack: plants files where every later program of the host would find them
# family: writes
# walls: readonly, landlock
# without: differs
from attack import *

places_to_plant = ["/usr/bin/planted", "/usr/lib/planted", "/usr/local/bin/planted", "/etc/ssl/certs/planted", "/etc/alternatives/planted"]
judge([(p, lambda p=p: os.open(p, os.O_CREAT | os.O_WRONLY)) for p in places_to_plant])
