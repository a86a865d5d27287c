#include <stdio.h>

int main(void) {
    int digits[64] = {1}, used = 1, sum = 0;
    for (int n = 2; n <= 30; n++) {
        int carry = 0;
        for (int i = 0; i < used; i++) {
            carry += digits[i] * n;
            digits[i] = carry % 10;
            carry /= 10;
        }
        for (; carry; carry /= 10) digits[used++] = carry % 10;
    }
    for (int i = used; i-- > 0;) {
        putchar('0' + digits[i]);
        sum += digits[i];
    }
    printf("\n%d\n", sum);
}
