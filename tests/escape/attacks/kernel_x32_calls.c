// attack: calls the kernel with the x32 bit, which some filters forget
// family: kernel surface
// walls: seccomp
// without: differs
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
    const long bit = 0x40000000;
    if (syscall(bit | SYS_getpid) > 0 || syscall(bit | 521 /* ptrace of x32 */, 0, 0, 0, 0) == 0) {
        printf("ESCAPED: an x32 call was answered\n");
        return 0;
    }
    int first = errno;
    syscall(bit | SYS_unshare, 0x10000000);
    printf("HELD: %s %s\n", strerrorname_np(first), strerrorname_np(errno));
    return 0;
}
