// attack: reaches for the kernel from C that palisade compiled: namespaces, mounts, tracing, bpf, keys, rings, sockets, handles
// family: kernel surface
// walls: seccomp
// without: escaped
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char seen[2048];

static void attempt(const char *label, long result) {
    if (result >= 0) {
        printf("ESCAPED: %s gave %ld\n", label, result);
        exit(0);
    }
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s %s ", label, strerrorname_np(errno));
}

int main(void) {
    char block[256] = {0};
    attempt("mount", mount("none", "/tmp", "tmpfs", 0, 0));
    attempt("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    attempt("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    attempt("pivot_root", syscall(SYS_pivot_root, ".", "."));
    attempt("ptrace", ptrace(PTRACE_ATTACH, 1, 0, 0));
    attempt("process_vm_readv", process_vm_readv(1, &(struct iovec){block, 8}, 1, &(struct iovec){(void *)0x400000, 8}, 1, 0));
    attempt("bpf", syscall(SYS_bpf, 0, block, sizeof block));
    attempt("keyctl", syscall(SYS_keyctl, 0, -4, 1));
    attempt("add_key", syscall(SYS_add_key, "user", "k", "v", 1, -4));
    attempt("io_uring", syscall(SYS_io_uring_setup, 4, block));
    attempt("userfaultfd", syscall(SYS_userfaultfd, 1));
    attempt("perf_event_open", syscall(SYS_perf_event_open, block, 0, -1, -1, 0));
    attempt("kexec_load", syscall(SYS_kexec_load, 0, 0, 0, 0));
    attempt("finit_module", syscall(SYS_finit_module, -1, "", 0));
    attempt("setns", setns(open("/proc/1/ns/user", O_RDONLY), 0));
    attempt("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, block, O_RDONLY));
    int families[] = {AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG, AF_KEY, AF_BLUETOOTH};
    const char *names[] = {"netlink", "packet", "vsock", "alg", "key", "bluetooth"};
    for (int i = 0; i < 6; i++) attempt(names[i], socket(families[i], SOCK_RAW, 0));
    attempt("raw", socket(AF_INET, SOCK_RAW, 1));
    int terminal = posix_openpt(O_RDWR);
    attempt("TIOCSTI", ioctl(terminal, 0x5412, "x"));
    unsigned long arguments[11] = {CLONE_NEWUSER, 0, 0, 0, 17};
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0) _exit(0);
    attempt("clone3", child);
    attempt("unshare", unshare(CLONE_NEWUSER));
    printf("HELD: %s\n", seen);
}
