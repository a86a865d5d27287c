#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char word[16];
    int count;
};

static int order(const void *one, const void *other) {
    const struct entry *a = one, *b = other;
    return a->count != b->count ? b->count - a->count : strcmp(a->word, b->word);
}

int main(void) {
    char text[] = "the cat and the dog and the bird";
    struct entry entries[16] = {0};
    int used = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        int at = 0;
        while (at < used && strcmp(entries[at].word, word)) at++;
        if (at == used) snprintf(entries[used++].word, sizeof entries->word, "%s", word);
        entries[at].count++;
    }
    qsort(entries, used, sizeof *entries, order);
    for (int i = 0; i < used; i++) printf("%s %d\n", entries[i].word, entries[i].count);
}
