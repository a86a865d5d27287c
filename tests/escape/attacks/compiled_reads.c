// attack: opens files of the host from C that palisade compiled, in their places and through /proc
// family: file reads
// walls: root
// without: escaped
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    const char *secret = vars_get(vars.HOST, "secret")->text;
    const char *places[] = {secret, "/etc/shadow", "/root/.ssh", "/var/lib", "/run/docker.sock", "/etc/machine-id"};
    const char *roots[] = {"", "/host", "/proc/1/root", "/proc/self/root", "/../..", "/palisade/build/../../.."};
    char path[4096];
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            snprintf(path, sizeof path, "%s%s", roots[j], places[i]);
            if (open(path, O_RDONLY) >= 0) {
                printf("ESCAPED: opened %s\n", path);
                return 0;
            }
        }
    printf("HELD: %s\n", strerror(errno));
}
