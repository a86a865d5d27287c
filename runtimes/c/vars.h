/* Variables of the run, as members of `vars`. Their values are read before main begins. docs/COMPILED.md */
#ifndef PALISADE_VARS_H
#define PALISADE_VARS_H
#include <stdbool.h>
#include <stddef.h>

/* Nested data. */
typedef struct vars_value vars_value;
enum vars_kind { VARS_NULL, VARS_BOOL, VARS_INT, VARS_BIG, VARS_DOUBLE, VARS_TEXT, VARS_LIST, VARS_MAP };
struct vars_value {
    enum vars_kind kind;
    bool boolean;
    long integer;        /* VARS_INT */
    double number;       /* VARS_DOUBLE and VARS_INT */
    const char *text;    /* VARS_TEXT and VARS_BIG (decimal) */
    size_t count;        /* VARS_LIST and VARS_MAP */
    const char **keys;   /* VARS_MAP */
    vars_value *items;   /* VARS_LIST and VARS_MAP */
};
/* The value of a key, or of a position; a value of kind VARS_NULL where there is none. */
const vars_value *vars_get(const vars_value *map, const char *key);
const vars_value *vars_at(const vars_value *list, size_t index);

extern struct vars_all {
/* @declare@ */
} vars;
#endif
