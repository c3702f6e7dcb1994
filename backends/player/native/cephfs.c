/* The cephfs driver: files of one directory of a CephFS, through libcephfs.
 *
 * The directory is the root of the mount, so no name without ".." and links leads out of it;
 * directories above a name are looked at as in the posix driver.  All lanes share one mount, so
 * that a handle is good in each of them.  Depth comes from the library's nonblocking call where
 * it has one (cephfsnonblocking.c), else from threads, each in a call that waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "fsm_cephfs.h"

#define CALLS fsm_cephfs_calls
#define MOST_DEPTH 128u
#define BASIC_STATS 0x7ffu /* CEPH_STATX_BASIC_STATS */
#define NAME_KINDS (FSM_BIT(FSM_OPEN) | FSM_BIT(FSM_CREATE) | FSM_BIT(FSM_STAT) |             \
                    FSM_BIT(FSM_UNLINK) | FSM_BIT(FSM_MKDIR) | FSM_BIT(FSM_RMDIR) |           \
                    FSM_BIT(FSM_RENAME) | FSM_BIT(FSM_READDIR))

/* As the posix driver's: all of it, or the bytes until the error. */
struct fsm_status fsm_cephfs_data(struct cephfs_lane *lane, const struct fsm_op *op, int fd,
                                  char *buffer, int64_t done)
{
    void *const mount = lane->cephfs->mount;
    const int64_t size = op->size;
    if (size == 0 && op->kind == FSM_WRITE)
        return (struct fsm_status){0, 0}; /* libcephfs 16 ends the process (Striper.cc) */
    do {
        const int64_t left = size - done, offset = (int64_t)op->offset + done;
        int n = op->kind == FSM_READ ? CALLS.read(mount, fd, buffer + done, left, offset)
                                     : CALLS.write(mount, fd, buffer + done, left, offset);
        if (n > 0)
            done += n;
        else if (n == 0 && done < size)
            return (struct fsm_status){done, FSM_ESHORT};
        else if (n < 0 && n != -EINTR)
            return (struct fsm_status){done, -n};
    } while (done < size);
    return (struct fsm_status){done, 0};
}

static struct cephfs_file *opened(const struct cephfs_lane *lane, const struct fsm_file *file)
{
    return &lane->cephfs->files[file->handle];
}

struct fsm_status fsm_cephfs_work(void *lane, const struct fsm_op *op, struct fsm_file *file,
                                  void *buffer)
{
    return fsm_cephfs_data(lane, op, opened(lane, file)->fd, buffer, 0);
}

/* Whether it is a symbolic link; below 0: not to be found out. */
static int is_link(void *mount, const char *path)
{
    char target[8];
    int result = CALLS.readlink(mount, path, target, sizeof target);
    return result >= 0 ? 1 : result == -EINVAL ? 0 : -1;
}

static int cephfs_prepare(void *state, const struct fsm_op *op, struct fsm_file *file,
                          struct fsm_file *file2)
{
    struct cephfs_lane *lane = state;
    return fsm_look_at_parents(&lane->parents, file, op->kind == FSM_RENAME ? file2 : NULL,
                               is_link, lane->cephfs->mount);
}

static int open_flags(const struct fsm_op *op)
{
    int flags = O_NOFOLLOW;
    flags |= op->flags & FSM_WRITE_ONLY ? O_WRONLY : op->flags & FSM_READ_ONLY ? O_RDONLY : O_RDWR;
    flags |= op->flags & FSM_DIRECT ? O_DIRECT : 0;
    flags |= op->flags & FSM_DSYNC ? O_DSYNC : 0;
    flags |= op->flags & FSM_TRUNC ? O_TRUNC : 0;
    if (op->kind == FSM_CREATE)
        flags |= O_CREAT | (op->flags & FSM_EXCLUSIVE ? O_EXCL : 0);
    return flags;
}

static int open_file(struct cephfs_lane *lane, const struct fsm_op *op, struct fsm_file *file)
{
    struct cephfs *cephfs = lane->cephfs;
    struct cephfs_file *made = &cephfs->files[op->file];
    const int flags = open_flags(op);
    const int fd = CALLS.open(cephfs->mount, file->name, flags, 0644);
    if (fd < 0)
        return fd;
    *made = (struct cephfs_file){.fd = fd};
    const int again = flags & (O_ACCMODE | O_DIRECT | O_DSYNC);
    int result = cephfs->nonblocking ? fsm_cephfs_open_fh(cephfs, made, again) : 0;
    if (result < 0)
        CALLS.close(cephfs->mount, fd);
    else
        file->handle = op->file;
    return result;
}

/* The handle is gone also after an error, which may be that of an earlier write. */
static int close_file(struct cephfs_lane *lane, struct fsm_file *file)
{
    const struct cephfs *cephfs = lane->cephfs;
    const struct cephfs_file *made = opened(lane, file);
    file->handle = -1;
    int result = made->fh ? CALLS.ll_close(cephfs->mount, made->fh) : 0;
    const int other = CALLS.close(cephfs->mount, made->fd);
    return result < 0 ? result : other;
}

static int read_directory(struct cephfs_lane *lane, const char *name)
{
    void *const mount = lane->cephfs->mount, *directory;
    int result = CALLS.opendir(mount, name, &directory);
    if (result < 0)
        return result;
    do
        result = CALLS.getdents(mount, directory, lane->entries, sizeof lane->entries);
    while (result > 0);
    CALLS.closedir(mount, directory);
    return result;
}

static int on_name(struct cephfs_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                   struct fsm_file *file2)
{
    uint64_t facts[64]; /* struct ceph_statx, of which nothing is read */
    void *const mount = lane->cephfs->mount;
    switch (op->kind) {
    case FSM_OPEN:
    case FSM_CREATE:
        return open_file(lane, op, file);
    case FSM_STAT:
        return CALLS.statx(mount, file->name, facts, BASIC_STATS, AT_SYMLINK_NOFOLLOW);
    case FSM_UNLINK:
        return CALLS.unlink(mount, file->name);
    case FSM_MKDIR:
        return CALLS.mkdir(mount, file->name, 0755);
    case FSM_RMDIR:
        return CALLS.rmdir(mount, file->name);
    case FSM_READDIR:
        return read_directory(lane, file->name);
    default: /* FSM_RENAME */
        return CALLS.rename(mount, file->name, file2->name);
    }
}

static int on_handle(struct cephfs_lane *lane, const struct fsm_op *op, struct fsm_file *file)
{
    void *const mount = lane->cephfs->mount;
    const int fd = opened(lane, file)->fd;
    if (op->kind == FSM_FSYNC)
        return CALLS.fsync(mount, fd, (op->flags & FSM_DATA_ONLY) != 0);
    if (op->kind == FSM_TRUNCATE)
        return CALLS.ftruncate(mount, fd, (int64_t)op->offset);
    if (op->kind == FSM_EVICT) /* writes back, then drops the file's pages of this client */
        return CALLS.lazyio_synchronize(mount, fd, 0, 0);
    return close_file(lane, file);
}

static struct fsm_status cephfs_execute(void *state, const struct fsm_op *op,
                                        struct fsm_file *file, struct fsm_file *file2,
                                        void *buffer)
{
    struct cephfs_lane *lane = state;
    if (op->kind == FSM_READ || op->kind == FSM_WRITE)
        return fsm_cephfs_work(lane, op, file, buffer);
    int result = FSM_BIT(op->kind) & NAME_KINDS ? on_name(lane, op, file, file2)
                                                : on_handle(lane, op, file);
    return (struct fsm_status){0, result < 0 ? -result : 0};
}

static int cephfs_submit(void *state, const struct fsm_op *op, struct fsm_file *file,
                         void *buffer, uint64_t tag)
{
    struct cephfs_lane *lane = state;
    const struct fsm_work work = {op, file, buffer, tag};
    if (lane->workers)
        fsm_workers_submit(lane->workers, &work);
    else
        fsm_cephfs_send(lane, op, file, buffer, tag);
    return 0;
}

static int cephfs_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    struct cephfs_lane *lane = state;
    return lane->workers ? fsm_workers_reap(lane->workers, completions, most, wait)
                         : fsm_cephfs_reap(lane, completions, most, wait);
}

const struct fsm_driver fsm_cephfs = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = MOST_DEPTH,
    .prepare_kinds = NAME_KINDS,
    .name = "cephfs",
    .connect = fsm_cephfs_connect,
    .disconnect = fsm_cephfs_disconnect,
    .lane_open = fsm_cephfs_lane_open,
    .lane_close = fsm_cephfs_lane_close,
    .prepare = cephfs_prepare,
    .execute = cephfs_execute,
    .submit = cephfs_submit,
    .reap = cephfs_reap,
    .explain = fsm_explanation,
};
