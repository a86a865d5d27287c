// Ends many processes that each hold a system-call filter, and measures whether the kernel still installs new ones.
//
// Usage: filter-ends at-once|staggered|sockets [PROCESSES [INSTRUCTIONS [IN_FLIGHT]]]
//
//   at-once     all processes are killed, then reaped
//   staggered   at most IN_FLIGHT (64) of them are dying: the next one is killed when one was reaped
//   sockets     50 processes attach a socket filter to 200 sockets each, then all are killed
//
// The kernel frees a compiled BPF program in a work item of the system's work queue. The items share one mutex, whose
// holder may wait for another item of the same queue. When more items wait for the mutex than the queue runs at once, no
// item makes progress again: every later seccomp(2) and every process start that compiles a filter hangs for good.
// Palisade frees one filter with each sandbox; `staggered` is how it ends many.
//
// A kernel that is stopped in this way stays so until the machine is reset. The program therefore runs only in the guest
// of scripts/guest-vm, which it recognises by host name and kernel command line.
//
// Exit status: 0 a filter could be installed within the limit afterwards, 1 it took longer or never happened, 2 refused.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 4096,
    INSTRUCTIONS = 500,
    IN_FLIGHT = 64,
    SOCKET_PROCESSES = 50,
    SOCKETS_EACH = 200,
    PROBES = 40,
    PROBE_PAUSE_MS = 100,
    PROBE_LIMIT_MS = 2000,
    GIVE_UP_MS = 60000,
};

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void fail(const char *what) {
    fprintf(stderr, "filter-ends: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int is_guest(void) {
    char line[4096] = "";
    struct utsname name;
    FILE *file = fopen("/proc/cmdline", "r");
    if (!file || uname(&name) != 0) return 0;
    int has_line = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    return has_line && strstr(line, "palisade.guest=1") && strcmp(name.nodename, "guest-vm") == 0;
}

// Compares the number of the call again and again, without effect, and allows every call.
static struct sock_fprog *make_filter(int instructions, int is_seccomp) {
    static struct sock_filter code[BPF_MAXINSNS];
    static struct sock_fprog program = {.filter = code};
    unsigned offset = is_seccomp ? offsetof(struct seccomp_data, nr) : 0;
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset);
    for (int i = 1; i < instructions - 1; i++)
        code[i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x10000u + i, 0, 0);
    unsigned verdict = is_seccomp ? SECCOMP_RET_ALLOW : 0xffff;
    code[instructions - 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict);
    program.len = instructions;
    return &program;
}

static int install(struct sock_fprog *program) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program);
}

static int attach_to_sockets(struct sock_fprog *program) {
    for (int i = 0; i < SOCKETS_EACH; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, program, sizeof *program) != 0) return -1;
    }
    return 0;
}

// Starts the processes and returns when every one has its filters. Each says so with one byte, or with its errno.
static pid_t *start(int processes, struct sock_fprog *program, int (*take)(struct sock_fprog *)) {
    int ready[2];
    pid_t *pids = calloc(processes, sizeof *pids);
    if (!pids || pipe(ready) != 0) fail("pipe");
    for (int i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] < 0) fail("fork");
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            unsigned char word = take(program) == 0 ? 0 : errno;
            if (write(ready[1], &word, 1) != 1) _exit(1);
            for (;;) pause();
        }
    }
    for (int i = 0; i < processes; i++) {
        unsigned char word;
        if (read(ready[0], &word, 1) != 1) fail("read");
        if (word != 0) {
            for (int j = 0; j < processes; j++) kill(pids[j], SIGKILL);
            errno = word;
            fail("a process could not take its filters");
        }
    }
    close(ready[0]);
    close(ready[1]);
    return pids;
}

static void reap(pid_t pid) {
    if (waitpid(pid, NULL, 0) < 0) fail("waitpid");
}

// The numbers of killed processes are reaped in the order of the kills; the last ones when all are killed.
static void end_all(pid_t *pids, int processes, int in_flight) {
    for (int i = 0; i < processes; i++) {
        if (i >= in_flight) reap(pids[i - in_flight]);
        kill(pids[i], SIGKILL);
    }
    int rest = processes > in_flight ? processes - in_flight : 0;
    for (int i = rest; i < processes; i++) reap(pids[i]);
}

// How long a new process takes to install a filter; negative when it gave no answer. A process that hangs inside the
// kernel cannot be killed, so it is left behind.
static double probe(struct sock_fprog *program) {
    int answer[2];
    if (pipe(answer) != 0) fail("pipe");
    double begin = now_ms();
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        if (install(program) == 0) {
            if (write(answer[1], "", 1) != 1) _exit(1);
        }
        _exit(0);
    }
    struct pollfd wait = {.fd = answer[0], .events = POLLIN};
    int is_there = poll(&wait, 1, GIVE_UP_MS) == 1;
    double took = now_ms() - begin;
    close(answer[0]);
    close(answer[1]);
    if (is_there) reap(pid);
    return is_there ? took : -1;
}

static int compare(const void *one, const void *other) {
    double left = *(const double *)one, right = *(const double *)other;
    return (left > right) - (left < right);
}

static int is_alive(struct sock_fprog *program, const char *when) {
    double took[PROBES];
    for (int i = 0; i < PROBES; i++) {
        took[i] = probe(program);
        if (took[i] < 0) {
            printf("%s: STOPPED: no new filter within %d s, after %d that could be installed\n", when,
                   GIVE_UP_MS / 1000, i);
            return 0;
        }
        usleep(PROBE_PAUSE_MS * 1000);
    }
    double first = took[0];
    qsort(took, PROBES, sizeof *took, compare);
    printf("%s: a new filter takes %.1f ms at once, then median %.1f, longest %.1f of %d\n", when, first,
           took[PROBES / 2], took[PROBES - 1], PROBES);
    return took[PROBES - 1] <= PROBE_LIMIT_MS;
}

int main(int count, char **words) {
    const char *mode = count > 1 ? words[1] : "";
    int is_sockets = strcmp(mode, "sockets") == 0;
    int is_staggered = strcmp(mode, "staggered") == 0;
    if (!is_sockets && !is_staggered && strcmp(mode, "at-once") != 0) {
        fprintf(stderr, "usage: filter-ends at-once|staggered|sockets [PROCESSES [INSTRUCTIONS [IN_FLIGHT]]]\n");
        return 2;
    }
    if (!is_guest()) {
        fprintf(stderr, "filter-ends: refused: this may stop the kernel; run it by scripts/guest-vm\n");
        return 2;
    }
    int processes = count > 2 ? atoi(words[2]) : is_sockets ? SOCKET_PROCESSES : PROCESSES;
    int instructions = count > 3 ? atoi(words[3]) : is_sockets ? BPF_MAXINSNS : INSTRUCTIONS;
    int in_flight = count > 4 ? atoi(words[4]) : IN_FLIGHT;
    if (processes < 1 || instructions < 2 || instructions > BPF_MAXINSNS || in_flight < 1) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);

    struct utsname name;
    uname(&name);
    printf("%s, %s: %d processes, %d instructions\n", name.release, mode, processes, instructions);
    struct sock_fprog probing = *make_filter(INSTRUCTIONS, 1);
    struct sock_filter *copy = malloc(INSTRUCTIONS * sizeof *copy);
    if (!copy) fail("malloc");
    memcpy(copy, probing.filter, INSTRUCTIONS * sizeof *copy);
    probing.filter = copy;
    is_alive(&probing, "before");

    double begin = now_ms();
    pid_t *pids = start(processes, make_filter(instructions, !is_sockets), is_sockets ? attach_to_sockets : install);
    double started = now_ms();
    end_all(pids, processes, is_staggered ? in_flight : processes);
    double ended = now_ms();
    printf("started in %.0f ms, ended in %.0f ms (%.0f a second)\n", started - begin, ended - started,
           processes * 1e3 / (ended - started));
    int is_well = is_alive(&probing, "afterwards");
    puts(is_well ? "the kernel is well" : "the kernel is NOT well");
    return !is_well;
}
