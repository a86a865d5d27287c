//! One attack of each family of the escape suite, as commands of a shell. Each prints `out` if it gets through.

/// Family and command. `PORT` is a listener on the host's loopback, `PID` a process of the host. A file of procfs that is
/// covered is the null device, to which every program may write.
pub const WALL_ATTACKS: [(&str, &str); 16] = [
    ("files: a secret of the host", "cat /etc/shadow /root/.ssh/* 2>/dev/null | grep -q . && echo out"),
    (
        "files: the host's root by procfs",
        "ls /proc/1/root/boot /proc/self/root/boot 2>/dev/null | grep -q . && echo out",
    ),
    (
        "files: a change of the system",
        "(echo x > /usr/bin/true || echo x > /etc/passwd || touch /x || touch /dev/x) 2>/dev/null && echo out",
    ),
    ("files: a remount", "mount -o remount,rw / 2>/dev/null && echo out"),
    (
        "network: the host's loopback",
        "timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/PORT' 2>/dev/null && echo out",
    ),
    ("network: an interface", "ls /sys/class/net 2>/dev/null | grep -v '^lo$' | grep -q . && echo out"),
    (
        "processes: those of the host",
        "ls /proc | grep -c '^[0-9]*$' | { read n; test $n -gt 20 && echo out; }",
    ),
    ("processes: a signal to the host", "kill -0 PID 2>/dev/null && echo out"),
    ("privileges: a user namespace", "unshare -U -r true 2>/dev/null && echo out"),
    ("privileges: another user", "su -c true 2>/dev/null </dev/null && echo out"),
    ("system calls: BPF, keys, io_uring, ptrace", CALLS),
    (
        "guest: its memory and its stream",
        "(head -c 1 /proc/1/mem || head -c 1 /proc/1/environ || ls /proc/1/fd/3) 2>/dev/null | grep -q . && echo out",
    ),
    (
        "guest: its executable",
        "(echo x > /.palisade-guest || rm -f /.palisade-guest) 2>/dev/null && echo out",
    ),
    (
        "kernel: its settings",
        "(echo 1 > /proc/sys/kernel/core_pattern || { test ! -c /proc/sysrq-trigger && echo h > /proc/sysrq-trigger; } || cat /proc/kcore /proc/kallsyms | grep -q .) 2>/dev/null && echo out",
    ),
    (
        "identity: of the host",
        "grep -q . /proc/sys/kernel/random/boot_id /etc/machine-id 2>/dev/null && echo out",
    ),
    (
        "descriptors: left open",
        "ls -l /proc/self/fd 2>/dev/null | grep -v -e /dev/null -e pipe: -e /proc/ -e total | grep -q . && echo out",
    ),
];

/// Calls that a program has no use for. Each returns an error; `out` if one succeeds.
const CALLS: &str = "python3 -c \"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
calls = {'bpf': (321, 0, 0, 0), 'keyctl': (250, 0, -3, 1), 'add_key': (248, b'user', b'a', b'b', 1, -3), 'io_uring_setup': (425, 1, bytes(120)),
         'ptrace': (101, 16, 1, 0, 0), 'perf_event_open': (298, bytes(120), 0, -1, -1, 0), 'setns': (308, 0, 0), 'unshare': (272, 0x10000000)}
print(*['out ' + name for name, call in calls.items() if libc.syscall(*call) >= 0])
\"";

/// An attack as it is run, with that listener and this process.
pub fn wall_attack(command: &str, port: u16) -> String {
    command.replace("PORT", &port.to_string()).replace("PID", &std::process::id().to_string())
}
