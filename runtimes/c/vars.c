/* Reads the values of the run's variables. The format: docs/DRIVERS.md, "Values". */
#include "/palisade/vars.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vars_all vars;
static char *next;

static char *line(void) {
    char *start = next, *end = strchr(next, '\n');
    if (!end) abort();
    *end = 0;
    next = end + 1;
    return start;
}

static void *room(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) abort();
    return memory;
}

static const char *of_length(const char *length) {
    char *start = next;
    next += strtoul(length, 0, 10);
    *next++ = 0;
    return start;
}

static inline const char *text(void) { return of_length(line() + 1); }
static inline const char *line_text(void) { return line() + 1; }
static inline bool boolean(void) { return *line() == 't'; }
static inline long integer(void) { return strtol(line() + 1, 0, 10); }
static inline double number(void) { return strtod(line() + 1, 0); }
static inline size_t length(void) { return strtoul(line() + 1, 0, 10); }
static inline void skip(void) { line(); }

#define LIST(target, type, read)                          \
    do {                                                  \
        size_t count = length();                          \
        type *data = room(count, sizeof *data);           \
        for (size_t i = 0; i < count; i++) data[i] = read(); \
        target.count = count;                             \
        target.data = data;                               \
    } while (0)

static void fill(vars_value *value) {
    char *told = line();
    switch (*told) {
    case 't': case 'f': value->kind = VARS_BOOL; value->boolean = *told == 't'; break;
    case 'i': value->kind = VARS_INT; value->integer = strtol(told + 1, 0, 10); value->number = (double)value->integer; break;
    case 'I': value->kind = VARS_BIG; value->text = told + 1; break;
    case 'd': value->kind = VARS_DOUBLE; value->number = strtod(told + 1, 0); break;
    case 's': value->kind = VARS_TEXT; value->text = of_length(told + 1); break;
    case '[': case '{':
        value->kind = *told == '[' ? VARS_LIST : VARS_MAP;
        value->count = strtoul(told + 1, 0, 10);
        value->items = room(value->count, sizeof *value->items);
        value->keys = room(value->count, sizeof *value->keys);
        for (size_t i = 0; i < value->count; i++) {
            if (value->kind == VARS_MAP) value->keys[i] = text();
            fill(&value->items[i]);
        }
        break;
    default: value->kind = VARS_NULL;
    }
}

static inline const vars_value *nested(void) {
    vars_value *value = room(1, sizeof *value);
    fill(value);
    return value;
}

static const vars_value nothing;

const vars_value *vars_get(const vars_value *map, const char *key) {
    for (size_t i = 0; map->kind == VARS_MAP && i < map->count; i++)
        if (!strcmp(map->keys[i], key)) return &map->items[i];
    return &nothing;
}

const vars_value *vars_at(const vars_value *list, size_t index) {
    return list->count > index ? &list->items[index] : &nothing;
}

/* Early: constructors of the program may use them. */
__attribute__((constructor(101))) static void bind(void) {
    FILE *file = fopen("/palisade/variables", "rb");
    if (!file) abort();
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    next = room((size_t)size + 1, 1);
    if (fread(next, 1, (size_t)size, file) != (size_t)size) abort();
    fclose(file);
/* @bind@ */
}
