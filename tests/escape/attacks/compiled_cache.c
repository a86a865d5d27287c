// attack: rewrites, replaces or removes its own binary, which the next run of the same program starts
// family: persistence
// walls: readonly, landlock
// without: differs
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    const char *own = "/palisade/build/program";
    if (open("/palisade/build/more", O_CREAT | O_WRONLY, 0755) >= 0 || chmod(own, 0755) == 0 || unlink(own) == 0) {
        printf("ESCAPED: changed what is kept\n");
        return 0;
    }
    printf("HELD: %s\n", strerror(errno));
}
