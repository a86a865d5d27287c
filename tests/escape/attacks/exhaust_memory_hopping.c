// attack: takes 300 MB in an address space that hops from one short-lived process to the next, with 64 MB allowed
// family: exhaustion
// walls: cgroup, watchdog, rlimits, scratch, seccomp
// limits: --memory-mb 64 --disk-mb 16 --timeout 20s
// outcome: out_of_memory|failed|completed
// without: escaped
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACKS = 32, STACK_BYTES = 32768, PIECE_BYTES = 1 << 18, PIECES = 1200 };

static char stacks[STACKS][STACK_BYTES] __attribute__((aligned(64)));
static char *block;
static int verdict[2];
static double full_since;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int hop(void *given) {
    long turn = (long)given;
    if (turn < PIECES)
        for (long at = 0; at < PIECE_BYTES; at += 4096) block[turn * PIECE_BYTES + at] = 1;
    if (turn == PIECES) full_since = now();
    if (turn > PIECES && now() - full_since > 0.5) {
        write(verdict[1], "x", 1);
        syscall(SYS_exit, 0);
    }
    for (int tries = 0; tries < 100000; tries++) {
        if (clone(hop, stacks[(turn + 1) % STACKS] + STACK_BYTES, CLONE_VM | SIGCHLD, (void *)(turn + 1)) > 0) break;
        sched_yield();
    }
    syscall(SYS_exit, 0);
    return 0;
}

int main(void) {
    pipe(verdict);
    if (fork() == 0) {
        close(verdict[0]);
        block = mmap(NULL, (long)PIECES * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        hop(0);
    }
    close(verdict[1]);
    char byte;
    if (read(verdict[0], &byte, 1) == 1)
        printf("ESCAPED: 300 MB were held for half a second by nobody\n");
    else
        printf("HELD: the last hop failed, EAGAIN or killed\n");
    return 0;
}
