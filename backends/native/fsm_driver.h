/* The driver seam, version 1: what a driver of the player must offer.
 *
 * A driver is one constant `struct fsm_driver`: capabilities as data (kinds, max_depth) and
 * functions.  Drivers of other packages hand a pointer to it over in a PyCapsule named
 * FSM_DRIVER_CAPSULE.  No function may call into Python or allocate per operation; all are
 * called without the GIL, and one lane is used by one thread only.
 *
 * Synchronous drivers (max_depth 1) give `execute`.  Asynchronous ones (uring, rados, cephfs,
 * dfs) attach by `submit` and `reap`: the player then keeps up to max_depth operations in
 * flight per lane, each with a buffer of its own and a tag; it takes the start from before
 * submit and the end from `fsm_completion.ticks` (or from after reap), holds back close,
 * truncate, rename and unlink until the file's data has been reaped, and reaps the rest in
 * drain().  The player of this version plays synchronous drivers and refuses others.
 */
#ifndef FSM_DRIVER_H
#define FSM_DRIVER_H

#include <stdint.h>

#define FSM_DRIVER_ABI 1
#define FSM_DRIVER_CAPSULE "fsmatrix.driver.v1"

enum fsm_kind { /* backends/ops.py: Kind */
    FSM_OPEN, FSM_CREATE, FSM_READ, FSM_WRITE, FSM_FSYNC, FSM_CLOSE, FSM_STAT, FSM_UNLINK,
    FSM_MKDIR, FSM_RMDIR, FSM_RENAME, FSM_TRUNCATE, FSM_READDIR, FSM_EVICT,
    FSM_KINDS
};

enum fsm_flag { /* backends/ops.py: Flag */
    FSM_DIRECT = 1, FSM_DSYNC = 2, FSM_EXCLUSIVE = 4, FSM_TRUNC = 8, FSM_READ_ONLY = 16,
    FSM_WRITE_ONLY = 32, FSM_VERIFY = 64, FSM_DATA_ONLY = 128
};

#define FSM_BIT(kind) (1u << (kind))
#define FSM_ALL_KINDS (FSM_BIT(FSM_KINDS) - 1)

/* The player's own errors, beside the errno values. */
#define FSM_ESHORT 1000  /* a read met the end of the file before its size */
#define FSM_EVERIFY 1001 /* a read gave other bytes than were written */

struct fsm_op { /* backends/ops.py: OP, an aligned numpy structure */
    uint8_t kind, flags;
    uint16_t stream;
    uint32_t file, file2;
    uint64_t offset;
    uint32_t size;
    uint64_t time;
};
_Static_assert(sizeof(struct fsm_op) == 40, "fsm_op must be laid out as OP in backends/ops.py");

struct fsm_file { /* one slot */
    int64_t handle;      /* the driver's; below 0: not open.  Set by OPEN, CREATE and CLOSE */
    uint64_t key;        /* of the content, from seed and name */
    uint64_t parent;     /* hash of the name's directory part; 0: directly in the root */
    char *name;          /* relative path, NUL-terminated; NULL: never named */
    uint32_t capacity;   /* bytes at `name` */
    uint32_t parent_end; /* length of the name's directory part */
    uint8_t valid;       /* relative, without ".." */
};

struct fsm_config {
    const char *root; /* where the driver works: a directory, pool, container... */
    uint32_t slots, threads;
    uint32_t max_op_bytes;
    uint32_t options; /* FSM_NO_OPENAT2 */
};
#define FSM_NO_OPENAT2 1u /* posix: behave as on a kernel before 5.6 (for tests) */

struct fsm_status {
    int64_t bytes; /* completed, also if an error came after them */
    int64_t error; /* 0, an errno, FSM_ESHORT */
};

struct fsm_completion {
    uint64_t tag;
    uint64_t ticks; /* time of completion if the driver knows it, else 0 */
    struct fsm_status status;
};

struct fsm_driver {
    uint32_t abi;           /* FSM_DRIVER_ABI */
    uint32_t kinds;         /* mask of the kinds that it can do */
    uint32_t max_depth;     /* most operations in flight in one lane; 1: synchronous */
    uint32_t prepare_kinds; /* mask of the kinds that call prepare */
    const char *name;

    /* 0 or an errno.  A connection belongs to the player, a lane to one of its threads. */
    int (*connect)(const struct fsm_config *config, void **connection);
    void (*disconnect)(void *connection);
    int (*lane_open)(void *connection, void **lane);
    void (*lane_close)(void *lane);

    /* Untimed work before an operation.  0: nothing done; below 0: done, go on; above 0: an
     * errno, the operation is refused. */
    int (*prepare)(void *lane, const struct fsm_op *op, struct fsm_file *file,
                   struct fsm_file *file2);
    /* One whole operation.  `buffer` holds op->size bytes, page aligned for reads and with
     * the alignment of op->offset (up to a page) for writes.  file2 only for RENAME. */
    struct fsm_status (*execute)(void *lane, const struct fsm_op *op, struct fsm_file *file,
                                 struct fsm_file *file2, void *buffer);
    /* Asynchronous drivers only.  submit: 0 or an errno.  reap: number of completions. */
    int (*submit)(void *lane, const struct fsm_op *op, struct fsm_file *file,
                  struct fsm_file *file2, void *buffer, uint64_t tag);
    int (*reap)(void *lane, struct fsm_completion *completions, int most, int wait);
};

extern const struct fsm_driver fsm_posix, fsm_null;

#endif
