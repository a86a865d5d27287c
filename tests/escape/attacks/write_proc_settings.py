# attack: opens settings of the kernel for writing: core_pattern, modprobe, sysrq, random, binfmt
# family: writes
# walls: masks
# without: differs
from attack import *

names = ["sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/kernel/hostname", "sys/vm/drop_caches",
         "sys/fs/binfmt_misc/register", "sys/kernel/sysrq", "sysrq-trigger", "sys/user/max_user_namespaces", "irq/default_smp_affinity"]
judge([(n, lambda n=n: os.open("/proc/" + n, os.O_WRONLY)) for n in names])
