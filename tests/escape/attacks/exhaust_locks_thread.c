// attack: locks every second byte of a library that all programs open and close, in a thread with descriptors of its own
// family: exhaustion
// walls: seccomp
// limits: --timeout 20s
// outcome: out_of_memory|failed|completed
// without: escaped
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WANTED = 4000, STACK_BYTES = 65536 };

static char stack[STACK_BYTES] __attribute__((aligned(64)));
static volatile int locks = -1;

// Its table of descriptors is a copy, so the first thread of the process shows none of these locks.
static int lock_apart(void *given) {
    int library = open(given, O_RDONLY), count = 0;
    struct flock piece = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    for (; count < WANTED; count++) {
        piece.l_start = count * 2;
        if (fcntl(library, F_SETLK, &piece) != 0) break;
    }
    locks = count;
    for (;;) pause();
    return 0;
}

int main(void) {
    // As pthread_create does it, but without CLONE_FILES.
    int flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    if (clone(lock_apart, stack + STACK_BYTES, flags, "/usr/lib/x86_64-linux-gnu/libc.so.6") < 0) {
        printf("HELD: EPERM: a thread cannot have its own descriptors\n");
        return 0;
    }
    while (locks < 0) usleep(1000);
    // Time for a watch to look.
    sleep(1);
    printf("%s: %d locks in a thread\n", locks == WANTED ? "ESCAPED" : "HELD", locks);
    return 0;
}
