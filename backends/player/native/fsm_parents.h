/* Whether a name leads through a symbolic link: asked once per directory, outside timed parts. */
#ifndef FSM_PARENTS_H
#define FSM_PARENTS_H

#include <errno.h>
#include <string.h>

#include "fsm_driver.h"

#define FSM_PARENTS 256u

struct fsm_parents {
    uint64_t known[FSM_PARENTS]; /* hashes of directories that were looked at */
};

/* 1: a symbolic link; 0: none; below 0: not to be found out */
typedef int (*fsm_is_link)(void *context, const char *path);

/* ELOOP if a directory above the name is a symbolic link; other faults are for the operation
 * itself to meet.  0: nothing had to be asked; below 0: asked, go on. */
static inline int fsm_look_above(struct fsm_parents *parents, const struct fsm_file *file,
                                 fsm_is_link is_link, void *context)
{
    char path[4096];
    uint64_t *known = &parents->known[file->parent % FSM_PARENTS];
    if (file->parent == 0 || *known == file->parent || file->parent_end >= sizeof path)
        return 0;
    memcpy(path, file->name, file->parent_end);
    path[file->parent_end] = 0;
    for (char *end = path; end;) {
        end = strchr(end, '/');
        if (end)
            *end = 0;
        int answer = *path ? is_link(context, path) : 0;
        if (answer)
            return answer > 0 ? ELOOP : -1;
        if (end)
            *end++ = '/';
    }
    *known = file->parent;
    return -1;
}

/* The same for the names of an operation; `file2` only for a rename. */
static inline int fsm_look_at_parents(struct fsm_parents *parents, const struct fsm_file *file,
                                      const struct fsm_file *file2, fsm_is_link is_link,
                                      void *context)
{
    int one = fsm_look_above(parents, file, is_link, context), two = 0;
    if (file2) {
        if (one <= 0)
            two = fsm_look_above(parents, file2, is_link, context);
        memset(parents, 0, sizeof *parents); /* it may move a link into a path */
    }
    return one > 0 ? one : two > 0 ? two : one | two;
}

#endif
