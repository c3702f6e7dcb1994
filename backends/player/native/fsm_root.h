/* Roots that are text of lines key=value, libraries that may be missing, and reasons why not. */
#ifndef FSM_ROOT_H
#define FSM_ROOT_H

#include <stddef.h>

#define FSM_ROOT_LINES 64

struct fsm_root {
    char *text; /* a copy, cut into the lines below */
    size_t count;
    struct {
        const char *key, *value;
    } lines[FSM_ROOT_LINES];
};

struct fsm_symbol {
    const char *name;
    void **place;
};

/* Keep a reason for fsm_explanation(), %m: the words of `error`; returns `error`. */
int fsm_explain(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *fsm_explanation(void); /* the last reason of this thread, or NULL */
void fsm_forget(void);

/* 0 or an errno, explained.  `known`: keys, NULL-terminated, beside those that begin with
 * "option.". */
int fsm_root_read(struct fsm_root *root, const char *text, const char *const *known);
void fsm_root_free(struct fsm_root *root);
const char *fsm_root_value(const struct fsm_root *root, const char *key); /* "": not there */
/* Name of a library's option in line i, or NULL if that line is none. */
const char *fsm_root_option(const struct fsm_root *root, size_t i);

/* Open a library for good and find symbols of it; 0 or ELIBACC, explained. */
int fsm_load(const char *library, const char *package, const struct fsm_symbol *symbols,
             size_t count);
/* The same, of an array. */
#define FSM_LOAD(library, package, symbols)                                                   \
    fsm_load(library, package, symbols, sizeof(symbols) / sizeof *(symbols))

#endif
