/* The rados driver's own parts: what it uses of librados, its connection, lanes and files.
 *
 * A file `name` lies in objects `<name>.<index, 16 hexadecimal digits>` of object_size bytes
 * each.  Object 0 carries layout and size as extended attributes under the names that
 * libradosstriper uses (stripe count 1), so `rados --striper get` reads it.
 */
#ifndef FSM_RADOS_H
#define FSM_RADOS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "fsm_clock.h"
#include "fsm_driver.h"
#include "fsm_queue.h"

typedef void (*fsm_rados_callback)(void *completion, void *argument);

/* X(name without "rados_", result, arguments): the declarations of librados.h, version 16. */
#define FSM_RADOS_CALLS(X)                                                                    \
    X(create2, int, (void **cluster, const char *name, const char *user, uint64_t flags))     \
    X(conf_read_file, int, (void *cluster, const char *path))                                 \
    X(conf_set, int, (void *cluster, const char *option, const char *value))                  \
    X(connect, int, (void *cluster))                                                          \
    X(shutdown, void, (void *cluster))                                                        \
    X(ioctx_create, int, (void *cluster, const char *pool, void **ioctx))                     \
    X(ioctx_destroy, void, (void *ioctx))                                                     \
    X(ioctx_set_namespace, void, (void *ioctx, const char *name))                             \
    X(set_pool_full_try, void, (void *ioctx))                                                 \
    X(read, int, (void *ioctx, const char *oid, char *buf, size_t size, uint64_t offset))     \
    X(write, int,                                                                             \
      (void *ioctx, const char *oid, const char *buf, size_t size, uint64_t offset))          \
    X(trunc, int, (void *ioctx, const char *oid, uint64_t size))                              \
    X(remove, int, (void *ioctx, const char *oid))                                            \
    X(getxattrs, int, (void *ioctx, const char *oid, void **iterator))                        \
    X(getxattrs_next, int,                                                                    \
      (void *iterator, const char **name, const char **value, size_t *size))                  \
    X(getxattrs_end, void, (void *iterator))                                                  \
    X(create_write_op, void *, (void))                                                        \
    X(release_write_op, void, (void *op))                                                     \
    X(write_op_create, void, (void *op, int exclusive, const char *category))                 \
    X(write_op_setxattr, void, (void *op, const char *name, const char *value, size_t size))  \
    X(write_op_cmpxattr, void,                                                                \
      (void *op, const char *name, uint8_t comparison, const char *value, size_t size))       \
    X(write_op_operate, int, (void *op, void *ioctx, const char *oid, time_t *time, int flags)) \
    X(aio_create_completion, int,                                                             \
      (void *argument, fsm_rados_callback complete, fsm_rados_callback safe, void **made))    \
    X(aio_get_return_value, int, (void *completion))                                          \
    X(aio_release, void, (void *completion))                                                  \
    X(aio_read, int, (void *ioctx, const char *oid, void *completion, char *buf, size_t size, \
                      uint64_t offset))                                                       \
    X(aio_write, int, (void *ioctx, const char *oid, void *completion, const char *buf,       \
                       size_t size, uint64_t offset))                                         \
    X(aio_remove, int, (void *ioctx, const char *oid, void *completion))

struct fsm_rados_calls {
#define FSM_MEMBER(name, result, arguments) result(*name) arguments;
    FSM_RADOS_CALLS(FSM_MEMBER)
#undef FSM_MEMBER
};
extern struct fsm_rados_calls fsm_rados_calls;

struct rados_file { /* of one slot while it is open */
    uint64_t size;        /* known to this player; grows with its writes */
    uint64_t stored;      /* the size attribute as last read or written */
    uint64_t object_size;
    bool readable, writable;
};

struct rados_lane;

struct rados_request { /* one operation, in as many parts as it meets objects */
    struct rados_lane *lane;
    struct rados_file *file;
    struct rados_part *parts;
    uint64_t tag, end; /* end: of the operation in the file */
    uint32_t pending;  /* parts, and one more while parts are being sent */
    enum fsm_kind kind;
    int64_t good, error; /* bytes before the first failed part, and its error */
    uint64_t size;
};

struct rados_part {
    struct rados_request *request;
    uint64_t at;   /* in the operation */
    uint64_t offset; /* in the file */
    uint32_t size;
};

struct rados {
    void *cluster;
    const char *pool, *namespace;
    uint64_t object_size;
    uint32_t depth, parts; /* parts: most of one operation */
    bool tsc;
    struct rados_file *files; /* [slots] */
    struct rados_lane *lanes; /* a list */
    struct fsm_root *root;
};

struct rados_lane {
    struct rados *rados;
    struct rados_lane *next;
    void *ioctx;
    struct fsm_queue done, own; /* own: of operations that `execute` waits for */
    struct rados_request *requests; /* [depth + 1], the last is execute's */
    struct rados_part *parts;       /* [(depth + 1) * parts] */
    char name[4096 + 32]; /* of an object */
};

/* Name of an object, valid until the next call. */
const char *fsm_rados_object(struct rados_lane *lane, const char *file, uint64_t index);
/* Remove objects first..last-1, at once; one that is missing is no error.  0 or an errno. */
int fsm_rados_remove(struct rados_lane *lane, const char *file, uint64_t first, uint64_t last);

/* radosfile.c: 0 or an errno */
int fsm_rados_create(struct rados_lane *lane, const struct fsm_op *op, struct fsm_file *file);
int fsm_rados_open(struct rados_lane *lane, const struct fsm_op *op, struct fsm_file *file);
int fsm_rados_stat(struct rados_lane *lane, const struct fsm_file *file);
int fsm_rados_unlink(struct rados_lane *lane, const struct fsm_file *file);
int fsm_rados_truncate(struct rados_lane *lane, const struct fsm_file *file, uint64_t size);
int fsm_rados_store_size(struct rados_lane *lane, const struct fsm_file *file);

/* radosconnect.c */
int fsm_rados_connect(const struct fsm_config *config, void **connection);
void fsm_rados_disconnect(void *connection);
int fsm_rados_lane_open(void *connection, void **lane);
void fsm_rados_lane_close(void *lane);

#endif
