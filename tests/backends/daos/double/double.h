/* A double of libdaos and libdfs for tests: files of a directory, no DAOS.  See daos.c.
 *
 * It proves nothing about DAOS.  It shows that its caller keeps the rules of the two headers:
 * whatever breaks one is a line in the file `violations` of the double's folder.
 */
#ifndef DOUBLE_H
#define DOUBLE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

typedef struct {
    uint64_t cookie;
} handle_t;

typedef struct {
    void *buf;
    size_t buf_len, len;
} iov_t;

typedef struct {
    uint32_t nr, nr_out;
    iov_t *iovs;
} sgl_t;

typedef struct event {
    int error;
    uint64_t space[20], debug;
} event_t;

enum { INIT_CALLED = 1, POOL = 3, CONTAINER = 5, QUEUE = 1 };

/* daos.c */
extern char double_folder[4096];
void double_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
long double_fault(const char *name);      /* its number; 0: not asked for */
bool double_hits(const char *name);       /* every n-th call of this */
void double_count(const char *what, int by); /* open things; what is left at daos_fini is told */
bool double_ready(const char *call);      /* DAOS is initialised; else a violation */
/* Folder of an open container, or NULL; -1 where the owner of a joined handle has left. */
const char *double_container(handle_t container, int *error);
/* Launch an operation on an event, to be run by a thread: 0, or a code. */
int double_launch(event_t *event, int (*run)(void *), void *argument);

#endif
