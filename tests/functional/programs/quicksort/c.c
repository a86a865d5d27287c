#include <stdio.h>

static void quicksort(int *items, int low, int high) {
    if (low >= high) return;
    int pivot = items[high], i = low;
    for (int j = low; j < high; j++) {
        if (items[j] < pivot) {
            int swap = items[i];
            items[i++] = items[j];
            items[j] = swap;
        }
    }
    items[high] = items[i];
    items[i] = pivot;
    quicksort(items, low, i - 1);
    quicksort(items, i + 1, high);
}

int main(void) {
    int items[] = {33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13};
    int count = sizeof items / sizeof *items;
    quicksort(items, 0, count - 1);
    for (int i = 0; i < count; i++) printf(i ? " %d" : "%d", items[i]);
    putchar('\n');
}
