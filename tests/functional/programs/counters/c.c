#include <stdio.h>

struct counter {
    int count, step;
};

static int next(struct counter *counter) { return counter->count += counter->step; }

struct shape {
    const char *name;
    int width, height;
    int (*area)(const struct shape *);
};

static int area(const struct shape *shape) { return shape->width * shape->height; }

int main(void) {
    struct counter ones = {0, 1}, tens = {0, 10}, *order[] = {&ones, &ones, &tens, &ones, &tens};
    for (int i = 0; i < 5; i++) printf(i ? " %d" : "%d", next(order[i]));
    putchar('\n');
    struct shape shapes[] = {{"square", 3, 3, area}, {"rectangle", 2, 5, area}};
    for (int i = 0; i < 2; i++) printf("%s %d\n", shapes[i].name, shapes[i].area(&shapes[i]));
}
