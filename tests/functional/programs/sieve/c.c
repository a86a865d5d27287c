#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool crossed[10000];

static int sieve(int limit, bool show) {
    int count = 0;
    memset(crossed, 0, sizeof crossed);
    for (int n = 2; n < limit; n++) {
        if (crossed[n]) continue;
        if (show) printf(count ? " %d" : "%d", n);
        count++;
        for (int m = n * n; m < limit; m += n) crossed[m] = true;
    }
    return count;
}

int main(void) {
    sieve(50, true);
    printf("\n%d\n", sieve(10000, false));
}
