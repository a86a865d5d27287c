// attack: calls the kernel the 32-bit way (int 0x80), where other numbers mean other things
// family: kernel surface
// walls: seccomp
// without: differs
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        long result = 20; /* getpid of i386; writev of x86_64 */
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory");
        _exit(result > 0 ? 42 : 43);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 42)
        printf("ESCAPED: a 32-bit call was answered\n");
    else if (WIFSIGNALED(status))
        printf("HELD: SIG%s\n", sigabbrev_np(WTERMSIG(status)));
    else
        printf("HELD: exit %d\n", WEXITSTATUS(status));
    return 0;
}
