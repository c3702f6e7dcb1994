/* See fsm_root.h. */
#define _GNU_SOURCE
#include "fsm_root.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTION "option."

static _Thread_local char reason[1024];

int fsm_explain(int error, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    errno = error; /* for %m */
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return error;
}

const char *fsm_explanation(void)
{
    return *reason ? reason : NULL;
}

void fsm_forget(void)
{
    *reason = 0;
}

static bool is_known(const char *key, const char *const *known)
{
    if (strncmp(key, OPTION, strlen(OPTION)) == 0)
        return key[strlen(OPTION)] != 0;
    while (*known && strcmp(*known, key))
        known++;
    return *known != NULL;
}

int fsm_root_read(struct fsm_root *root, const char *text, const char *const *known)
{
    root->count = 0;
    root->text = strdup(text);
    if (!root->text)
        return ENOMEM;
    for (char *line = root->text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (!*line)
            continue;
        char *equals = strchr(line, '=');
        if (!equals)
            return fsm_explain(EINVAL, "the root's line \"%s\" is not key=value", line);
        *equals = 0;
        if (!is_known(line, known))
            return fsm_explain(EINVAL, "the root has an unknown key \"%s\"", line);
        if (*fsm_root_value(root, line))
            return fsm_explain(EINVAL, "the root gives \"%s\" twice", line);
        if (root->count == FSM_ROOT_LINES)
            return fsm_explain(EINVAL, "the root has more than %d lines", FSM_ROOT_LINES);
        root->lines[root->count].key = line;
        root->lines[root->count++].value = equals + 1;
    }
    return 0;
}

void fsm_root_free(struct fsm_root *root)
{
    free(root->text);
}

const char *fsm_root_value(const struct fsm_root *root, const char *key)
{
    for (size_t i = 0; i < root->count; i++)
        if (strcmp(root->lines[i].key, key) == 0)
            return root->lines[i].value;
    return "";
}

const char *fsm_root_option(const struct fsm_root *root, size_t i)
{
    const char *key = root->lines[i].key;
    return strncmp(key, OPTION, strlen(OPTION)) == 0 ? key + strlen(OPTION) : NULL;
}

int fsm_load(const char *library, const char *package, const struct fsm_symbol *symbols,
             size_t count)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return fsm_explain(ELIBACC, "%s cannot be loaded (package %s): %s", library, package,
                           dlerror());
    for (size_t i = 0; i < count; i++) {
        *symbols[i].place = dlsym(handle, symbols[i].name);
        if (!*symbols[i].place)
            return fsm_explain(ELIBACC, "%s has no %s", library, symbols[i].name);
    }
    return 0;
}
