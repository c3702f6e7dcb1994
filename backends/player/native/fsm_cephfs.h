/* The cephfs driver's own parts: what it uses of libcephfs, its connection, lanes and files. */
#ifndef FSM_CEPHFS_H
#define FSM_CEPHFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "fsm_clock.h"
#include "fsm_driver.h"
#include "fsm_parents.h"
#include "fsm_queue.h"
#include "fsm_root.h"
#include "fsm_workers.h"

/* X(name without "ceph_", result, arguments): the declarations of libcephfs.h, version 16. */
#define FSM_CEPHFS_CALLS(X)                                                                   \
    X(create, int, (void **mount, const char *user))                                          \
    X(release, int, (void *mount))                                                            \
    X(conf_read_file, int, (void *mount, const char *path))                                   \
    X(conf_set, int, (void *mount, const char *option, const char *value))                    \
    X(select_filesystem, int, (void *mount, const char *name))                                \
    X(mount, int, (void *mount, const char *root))                                            \
    X(unmount, int, (void *mount))                                                            \
    X(open, int, (void *mount, const char *path, int flags, mode_t mode))                     \
    X(close, int, (void *mount, int fd))                                                      \
    X(read, int, (void *mount, int fd, char *buf, int64_t size, int64_t offset))              \
    X(write, int, (void *mount, int fd, const char *buf, int64_t size, int64_t offset))       \
    X(fsync, int, (void *mount, int fd, int data_only))                                       \
    X(ftruncate, int, (void *mount, int fd, int64_t size))                                    \
    X(lazyio_synchronize, int, (void *mount, int fd, int64_t offset, size_t count))           \
    X(statx, int, (void *mount, const char *path, void *facts, unsigned want, unsigned flags)) \
    X(readlink, int, (void *mount, const char *path, char *buf, int64_t size))                \
    X(unlink, int, (void *mount, const char *path))                                           \
    X(mkdir, int, (void *mount, const char *path, mode_t mode))                               \
    X(rmdir, int, (void *mount, const char *path))                                            \
    X(rename, int, (void *mount, const char *from, const char *to))                           \
    X(opendir, int, (void *mount, const char *path, void **directory))                        \
    X(getdents, int, (void *mount, void *directory, char *buf, int size))                     \
    X(closedir, int, (void *mount, void *directory))

struct cephfs_io { /* struct ceph_ll_io_info of libcephfs.h, version 19 */
    void (*callback)(struct cephfs_io *io);
    void *priv, *fh;
    const struct iovec *iov;
    int iovcnt;
    int64_t off, result;
    bool write, fsync, syncdataonly;
    uint64_t later[8]; /* what newer versions may add; zero: as before */
};

struct cephfs_vino { /* vinodeno_t */
    uint64_t inode, snapshot;
};

/* For the library's nonblocking reads and writes: in version 19 and newer, which may lack. */
#define FSM_CEPHFS_NONBLOCKING_CALLS(X)                                                       \
    X(ll_nonblocking_readv_writev, int64_t, (void *mount, struct cephfs_io *io))              \
    X(mount_perms, void *, (void *mount))                                                     \
    X(fstatx, int, (void *mount, int fd, void *facts, unsigned want, unsigned flags))         \
    X(ll_get_inode, void *, (void *mount, struct cephfs_vino vino))                           \
    X(ll_put, int, (void *mount, void *inode))                                                \
    X(ll_open, int, (void *mount, void *inode, int flags, void **fh, const void *perms))      \
    X(ll_close, int, (void *mount, void *fh))

struct fsm_cephfs_calls {
#define FSM_MEMBER(name, result, arguments) result(*name) arguments;
    FSM_CEPHFS_CALLS(FSM_MEMBER)
    FSM_CEPHFS_NONBLOCKING_CALLS(FSM_MEMBER)
#undef FSM_MEMBER
};
extern struct fsm_cephfs_calls fsm_cephfs_calls;

struct cephfs_file { /* of one slot while it is open */
    int fd;
    void *fh; /* the same file for nonblocking calls; NULL: they are not used */
};

struct cephfs_request { /* one nonblocking call */
    struct cephfs_io io;
    struct iovec part;
    struct cephfs_lane *lane;
    const struct fsm_op *op;
    uint64_t tag;
    int fd;
};

struct cephfs {
    void *mount, *perms;
    bool mounted, tsc, nonblocking;
    uint32_t depth;
    struct cephfs_file *files; /* [slots] */
    struct cephfs_lane *lanes; /* a list */
    struct fsm_root root;
};

struct cephfs_lane {
    struct cephfs *cephfs;
    struct cephfs_lane *next;
    struct fsm_workers *workers;     /* depth by threads */
    struct cephfs_request *requests; /* [depth], depth by the library */
    struct fsm_queue done;
    struct fsm_parents parents;
    char entries[32768];
};

/* cephfs.c: what is left of a read or write after its first `done` bytes, by calls that wait. */
struct fsm_status fsm_cephfs_data(struct cephfs_lane *lane, const struct fsm_op *op, int fd,
                                  char *buffer, int64_t done);
/* The same, all of it, in a thread of fsm_workers.h. */
struct fsm_status fsm_cephfs_work(void *lane, const struct fsm_op *op, struct fsm_file *file,
                                  void *buffer);

/* cephfsnonblocking.c: 0 or a negative errno; the lane's queue and requests, 0 or an errno */
int fsm_cephfs_open_fh(const struct cephfs *cephfs, struct cephfs_file *file, int flags);
int fsm_cephfs_requests_open(struct cephfs_lane *lane);
void fsm_cephfs_requests_close(struct cephfs_lane *lane);
void fsm_cephfs_send(struct cephfs_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                     void *buffer, uint64_t tag);
int fsm_cephfs_reap(struct cephfs_lane *lane, struct fsm_completion *completions, int most,
                    int wait);

/* cephfsconnect.c */
int fsm_cephfs_connect(const struct fsm_config *config, void **connection);
void fsm_cephfs_disconnect(void *connection);
int fsm_cephfs_lane_open(void *connection, void **lane);
void fsm_cephfs_lane_close(void *lane);

#endif
