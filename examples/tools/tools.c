// Calls a tool of another server from C, over the line protocol of docs/CODEMODE.md.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(void) {
    const char *path = getenv("PALISADE_TOOLS");
    if (path == NULL) {
        fprintf(stderr, "this run has no tools\n");
        return 1;
    }
    int link = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (connect(link, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("connect");
        return 1;
    }
    const char *request = "{\"id\":1,\"call\":\"x.echo\",\"args\":{\"city\":\"Oslo\"}}\n";
    if (write(link, request, strlen(request)) < 0) {
        perror("write");
        return 1;
    }
    // One answer is one line.
    FILE *answers = fdopen(link, "r");
    char *line = NULL;
    size_t room = 0;
    if (getline(&line, &room, answers) < 0) {
        fprintf(stderr, "the run has ended\n");
        return 1;
    }
    fputs(line, stdout);
    free(line);
    fclose(answers);
    return 0;
}
