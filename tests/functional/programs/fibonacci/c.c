#include <stdio.h>

static long long known[71];

static long long fibonacci(int n) {
    if (n < 2) return n;
    if (!known[n]) known[n] = fibonacci(n - 1) + fibonacci(n - 2);
    return known[n];
}

int main(void) {
    for (int n = 0; n <= 10; n++) printf(n ? " %lld" : "%lld", fibonacci(n));
    printf("\n%lld\n", fibonacci(70));
}
