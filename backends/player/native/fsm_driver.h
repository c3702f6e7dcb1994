/* The driver seam, version 4: what a driver of the player must offer.
 *
 * A driver is one constant `struct fsm_driver`: capabilities as data (kinds, max_depth) and
 * functions.  Drivers of other packages hand a pointer to it over in a PyCapsule named
 * FSM_DRIVER_CAPSULE.  No function may call into Python or allocate per data operation; all
 * are called without the GIL, and one lane is used by one thread only.
 *
 * Every driver gives `execute`: one whole operation.  With a depth of 1 the player uses
 * nothing else.  A driver whose max_depth is above 1 also gives `submit` and `reap`, for reads
 * and writes: the player then keeps up to `depth` of them in flight per lane, each with a
 * buffer of its own.  It takes the start from before submit and the end from
 * `fsm_completion.ticks`, so that a late reap costs no accuracy.  Operations of all other kinds
 * are executed one by one, after the data in flight of their file has been reaped (rename and
 * rmdir: all data).  Two overlapping operations on one file of which one writes are
 * never in flight together.  So a file gets the same bytes at any depth.
 */
#ifndef FSM_DRIVER_H
#define FSM_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#define FSM_DRIVER_ABI 4
#define FSM_DRIVER_CAPSULE "fsmatrix.driver.v4"

enum fsm_kind { /* backends/player/ops.py: Kind */
    FSM_OPEN, FSM_CREATE, FSM_READ, FSM_WRITE, FSM_FSYNC, FSM_CLOSE, FSM_STAT, FSM_UNLINK,
    FSM_MKDIR, FSM_RMDIR, FSM_RENAME, FSM_TRUNCATE, FSM_READDIR, FSM_EVICT,
    FSM_KINDS
};

enum fsm_flag { /* backends/player/ops.py: Flag */
    FSM_DIRECT = 1, FSM_DSYNC = 2, FSM_EXCLUSIVE = 4, FSM_TRUNC = 8, FSM_READ_ONLY = 16,
    FSM_WRITE_ONLY = 32, FSM_VERIFY = 64, FSM_DATA_ONLY = 128
};

#define FSM_BIT(kind) (1u << (kind))
#define FSM_ALL_KINDS (FSM_BIT(FSM_KINDS) - 1)
#define FSM_NAME_KINDS (FSM_BIT(FSM_UNLINK) | FSM_BIT(FSM_MKDIR) | FSM_BIT(FSM_RMDIR) | \
                        FSM_BIT(FSM_RENAME))

/* The player's own errors, beside the errno values. */
#define FSM_ESHORT 1000  /* a read met the end of the file before its size */
#define FSM_EVERIFY 1001 /* a read gave other bytes than were written */

struct fsm_op { /* backends/player/ops.py: OP, an aligned numpy structure */
    uint8_t kind, flags;
    uint16_t stream;
    uint32_t file, file2;
    uint64_t offset;
    uint32_t size;
    uint64_t time;
};
_Static_assert(sizeof(struct fsm_op) == 40, "fsm_op must be laid out as OP in backends/player/ops.py");

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
    const char *root; /* where the driver works: a directory, or lines key=value */
    uint32_t slots, threads, depth;
    uint32_t max_op_bytes;
    uint32_t options; /* FSM_NO_OPENAT2, FSM_TSC, FSM_NO_READ_AHEAD */
};
#define FSM_NO_OPENAT2 1u /* posix: behave as on a kernel before 5.6 (for tests) */
#define FSM_NO_READ_AHEAD 4u /* posix: the kernel reads nothing ahead in files opened */
#define FSM_TSC 2u        /* ticks are fsm_ticks(true), else fsm_ticks(false) */

struct fsm_status {
    int64_t bytes; /* completed, also if an error came after them */
    int64_t error; /* 0, an errno, FSM_ESHORT */
};

struct fsm_completion {
    uint64_t tag;
    uint64_t ticks; /* time of completion; 0: the player takes the time after reap */
    struct fsm_status status;
};

struct fsm_driver {
    uint32_t abi;           /* FSM_DRIVER_ABI */
    uint32_t kinds;         /* mask of the kinds that it can do */
    uint32_t max_depth;     /* most reads and writes in flight in one lane; 1: synchronous */
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
    /* Asynchronous drivers only.  submit: 0 or an errno.  `tag` is below the depth and not in
     * flight; op, file and buffer stay valid until the completion, the buffer of a write only
     * until submit returns if the driver copies it.  reap: number of completions, at least one
     * if `wait`.  A driver may keep what was submitted until the next reap, which sends it all. */
    int (*submit)(void *lane, const struct fsm_op *op, struct fsm_file *file, void *buffer,
                  uint64_t tag);
    int (*reap)(void *lane, struct fsm_completion *completions, int most, int wait);
    uint32_t copies_writes;
    /* NULL, or the reason why the last connect or lane_open of this thread failed. */
    const char *(*explain)(void);
    /* NULL, or what other processes join this connection by: lines key=value for their roots,
     * which the caller frees.  0 or an errno, explained.  It must outlive those that joined. */
    int (*share)(void *connection, char **text);
    /* Asynchronous drivers, or NULL.  buffers: before the first submit, where the buffers of all
     * operations lie if they are there for good: that of tag i within `size` bytes at
     * memory + i * size.  pause: of a driver that only sees a completion when it is reaped, so that
     * the player leaves nothing in flight where it does not reap.  It waits, as reap does, until
     * there is a completion or until a moment of CLOCK_MONOTONIC, not 0. */
    void (*buffers)(void *lane, void *memory, uint64_t size);
    void (*pause)(void *lane, uint64_t until_ns);
    /* NULL, or what of its kernel or library the lane uses: words, with ", " between them. */
    void (*features)(void *lane, char *text, size_t size);
};

extern const struct fsm_driver fsm_posix, fsm_libc, fsm_null, fsm_rados, fsm_cephfs, fsm_dfs;
extern const struct fsm_driver fsm_uring, fsm_uring_sqpoll;
extern const struct fsm_driver fsm_posix_threads; /* posix, depth by threads: for tests */

#endif
