#include <stdio.h>

int main(void) {
    struct { const char *name; double price; int count; } rows[] = {{"apple", 1.5, 10}, {"pear", 0.25, 4}, {"watermelon", 12, 1}};
    double total = 0;
    for (int i = 0; i < 3; i++) {
        printf("%-12s|%8.2f|%4d\n", rows[i].name, rows[i].price, rows[i].count);
        total += rows[i].price * rows[i].count;
    }
    printf("%-12s %7.2f\n%07d %x\n", "total", total, 255, 255);
}
