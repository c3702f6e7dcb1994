/* The cephfs driver: files of one directory of a CephFS, through libcephfs.
 *
 * The directory is the root of the mount, so no name without ".." and links leads out of it;
 * directories above a name are looked at as in the posix driver.  libcephfs's calls wait: depth
 * comes from threads.  All lanes share one mount, so that a handle is good in each of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "fsm_driver.h"
#include "fsm_parents.h"
#include "fsm_root.h"
#include "fsm_workers.h"

#define MOST_DEPTH 128u
#define TIMEOUT "10"             /* seconds; Ceph's own is 300 */
#define BASIC_STATS 0x7ffu       /* CEPH_STATX_BASIC_STATS */
#define NAME_KINDS (FSM_BIT(FSM_OPEN) | FSM_BIT(FSM_CREATE) | FSM_BIT(FSM_STAT) |             \
                    FSM_BIT(FSM_UNLINK) | FSM_BIT(FSM_MKDIR) | FSM_BIT(FSM_RMDIR) |           \
                    FSM_BIT(FSM_RENAME) | FSM_BIT(FSM_READDIR))

/* X(name without "ceph_", result, arguments): the declarations of libcephfs.h, version 16. */
#define CEPHFS_CALLS(X)                                                                       \
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

static struct {
#define MEMBER(name, result, arguments) result(*name) arguments;
    CEPHFS_CALLS(MEMBER)
#undef MEMBER
} calls;

struct cephfs {
    void *mount;
    bool mounted, tsc;
    uint32_t depth;
    struct fsm_root root;
};

struct lane {
    void *mount;
    struct fsm_workers *workers;
    struct fsm_parents parents;
    char entries[32768];
};

static int load(void)
{
    const struct fsm_symbol symbols[] = {
#define SYMBOL(name, result, arguments) {"ceph_" #name, (void **)&calls.name},
        CEPHFS_CALLS(SYMBOL)
#undef SYMBOL
    };
    return fsm_load("libcephfs.so.2", "libcephfs2", symbols, sizeof symbols / sizeof *symbols);
}

static int set(struct cephfs *cephfs, const char *option, const char *value)
{
    int result = calls.conf_set(cephfs->mount, option, value);
    return result < 0 ? fsm_explain(-result, "Ceph does not take %s=%s: %s", option, value,
                                    strerror(-result))
                      : 0;
}

/* Configuration: the file, then ours, then the user's options. */
static int configure(struct cephfs *cephfs)
{
    const char *conf = fsm_root_value(&cephfs->root, "conf");
    const char *keyring = fsm_root_value(&cephfs->root, "keyring");
    int result = calls.conf_read_file(cephfs->mount, *conf ? conf : NULL);
    if (result < 0 && (*conf || result != -ENOENT))
        return fsm_explain(-result, "configuration %s cannot be read: %s",
                           *conf ? conf : "of Ceph", strerror(-result));
    int error = set(cephfs, "client_mount_timeout", TIMEOUT);
    if (!error)
        error = set(cephfs, "rados_mon_op_timeout", TIMEOUT);
    if (!error && *keyring)
        error = set(cephfs, "keyring", keyring);
    for (size_t i = 0; !error && i < cephfs->root.count; i++) {
        const char *option = fsm_root_option(&cephfs->root, i);
        if (option)
            error = set(cephfs, option, cephfs->root.lines[i].value);
    }
    return error;
}

static int join(struct cephfs *cephfs)
{
    const char *user = fsm_root_value(&cephfs->root, "user");
    const char *name = fsm_root_value(&cephfs->root, "filesystem");
    const char *path = fsm_root_value(&cephfs->root, "path");
    int result = calls.create(&cephfs->mount, *user ? user : "admin");
    if (result < 0) {
        cephfs->mount = NULL;
        return fsm_explain(-result, "libcephfs cannot be set up: %s", strerror(-result));
    }
    int error = configure(cephfs);
    if (error)
        return error;
    result = *name ? calls.select_filesystem(cephfs->mount, name) : 0;
    if (result >= 0)
        result = calls.mount(cephfs->mount, *path ? path : "/");
    if (result < 0)
        return fsm_explain(-result, "CephFS %s, directory %s, cannot be mounted as client.%s "
                           "(conf %s): %s", *name ? name : "(default)", *path ? path : "/",
                           *user ? user : "admin", fsm_root_value(&cephfs->root, "conf"),
                           strerror(-result));
    cephfs->mounted = true;
    return 0;
}

static int cephfs_connect(const struct fsm_config *config, void **connection)
{
    static const char *const known[] = {"conf", "user", "keyring", "filesystem", "path", NULL};
    struct cephfs *cephfs = *connection = calloc(1, sizeof *cephfs);
    fsm_forget();
    if (!cephfs)
        return ENOMEM;
    cephfs->depth = config->depth;
    cephfs->tsc = config->options & FSM_TSC;
    int error = fsm_root_read(&cephfs->root, config->root, known);
    if (!error)
        error = load();
    return error ? error : join(cephfs);
}

static void cephfs_disconnect(void *connection)
{
    struct cephfs *cephfs = connection;
    if (cephfs->mounted)
        calls.unmount(cephfs->mount);
    if (cephfs->mount)
        calls.release(cephfs->mount);
    fsm_root_free(&cephfs->root);
    free(cephfs);
}

/* As the posix driver's: all of it, or the bytes until the error. */
static struct fsm_status data(struct lane *lane, const struct fsm_op *op, int fd, char *buffer)
{
    int64_t done = 0;
    const int64_t size = op->size;
    if (size == 0 && op->kind == FSM_WRITE)
        return (struct fsm_status){0, 0}; /* libcephfs 16 ends the process (Striper.cc) */
    do {
        const int64_t left = size - done, offset = (int64_t)op->offset + done;
        int n = op->kind == FSM_READ ? calls.read(lane->mount, fd, buffer + done, left, offset)
                                     : calls.write(lane->mount, fd, buffer + done, left, offset);
        if (n > 0)
            done += n;
        else if (n == 0 && done < size)
            return (struct fsm_status){done, FSM_ESHORT};
        else if (n < 0 && n != -EINTR)
            return (struct fsm_status){done, -n};
    } while (done < size);
    return (struct fsm_status){done, 0};
}

static struct fsm_status worker(void *lane, const struct fsm_op *op, struct fsm_file *file,
                                void *buffer)
{
    return data(lane, op, (int)file->handle, buffer);
}

static int cephfs_lane_open(void *connection, void **made)
{
    const struct cephfs *cephfs = connection;
    struct lane *lane = *made = calloc(1, sizeof *lane);
    if (!lane)
        return ENOMEM;
    lane->mount = cephfs->mount;
    return cephfs->depth == 1
               ? 0
               : fsm_workers_start(&lane->workers, cephfs->depth, cephfs->tsc, worker, lane);
}

static void cephfs_lane_close(void *state)
{
    struct lane *lane = state;
    fsm_workers_stop(lane->workers);
    free(lane);
}

/* Whether it is a symbolic link; below 0: not to be found out. */
static int is_link(void *mount, const char *path)
{
    char target[8];
    int result = calls.readlink(mount, path, target, sizeof target);
    return result >= 0 ? 1 : result == -EINVAL ? 0 : -1;
}

static int cephfs_prepare(void *state, const struct fsm_op *op, struct fsm_file *file,
                          struct fsm_file *file2)
{
    struct lane *lane = state;
    return fsm_look_at_parents(&lane->parents, file, op->kind == FSM_RENAME ? file2 : NULL,
                               is_link, lane->mount);
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

static int read_directory(struct lane *lane, const char *name)
{
    void *directory;
    int result = calls.opendir(lane->mount, name, &directory);
    if (result < 0)
        return result;
    do
        result = calls.getdents(lane->mount, directory, lane->entries, sizeof lane->entries);
    while (result > 0);
    calls.closedir(lane->mount, directory);
    return result;
}

static int on_name(struct lane *lane, const struct fsm_op *op, struct fsm_file *file,
                   struct fsm_file *file2)
{
    uint64_t facts[64]; /* struct ceph_statx, of which nothing is read */
    int result;
    switch (op->kind) {
    case FSM_OPEN:
    case FSM_CREATE:
        result = calls.open(lane->mount, file->name, open_flags(op), 0644);
        if (result >= 0)
            file->handle = result;
        return result;
    case FSM_STAT:
        return calls.statx(lane->mount, file->name, facts, BASIC_STATS, AT_SYMLINK_NOFOLLOW);
    case FSM_UNLINK:
        return calls.unlink(lane->mount, file->name);
    case FSM_MKDIR:
        return calls.mkdir(lane->mount, file->name, 0755);
    case FSM_RMDIR:
        return calls.rmdir(lane->mount, file->name);
    case FSM_READDIR:
        return read_directory(lane, file->name);
    default: /* FSM_RENAME */
        return calls.rename(lane->mount, file->name, file2->name);
    }
}

static int on_handle(struct lane *lane, const struct fsm_op *op, struct fsm_file *file)
{
    const int fd = (int)file->handle;
    if (op->kind == FSM_FSYNC)
        return calls.fsync(lane->mount, fd, (op->flags & FSM_DATA_ONLY) != 0);
    if (op->kind == FSM_TRUNCATE)
        return calls.ftruncate(lane->mount, fd, (int64_t)op->offset);
    if (op->kind == FSM_EVICT) /* writes back, then drops the file's pages of this client */
        return calls.lazyio_synchronize(lane->mount, fd, 0, 0);
    file->handle = -1;
    return calls.close(lane->mount, fd);
}

static struct fsm_status cephfs_execute(void *state, const struct fsm_op *op,
                                        struct fsm_file *file, struct fsm_file *file2,
                                        void *buffer)
{
    struct lane *lane = state;
    if (op->kind == FSM_READ || op->kind == FSM_WRITE)
        return data(lane, op, (int)file->handle, buffer);
    int result = FSM_BIT(op->kind) & NAME_KINDS ? on_name(lane, op, file, file2)
                                                : on_handle(lane, op, file);
    return (struct fsm_status){0, result < 0 ? -result : 0};
}

static int cephfs_submit(void *state, const struct fsm_op *op, struct fsm_file *file,
                         void *buffer, uint64_t tag)
{
    const struct fsm_work work = {op, file, buffer, tag};
    fsm_workers_submit(((struct lane *)state)->workers, &work);
    return 0;
}

static int cephfs_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    return fsm_workers_reap(((struct lane *)state)->workers, completions, most, wait);
}

const struct fsm_driver fsm_cephfs = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = MOST_DEPTH,
    .prepare_kinds = NAME_KINDS,
    .name = "cephfs",
    .connect = cephfs_connect,
    .disconnect = cephfs_disconnect,
    .lane_open = cephfs_lane_open,
    .lane_close = cephfs_lane_close,
    .prepare = cephfs_prepare,
    .execute = cephfs_execute,
    .submit = cephfs_submit,
    .reap = cephfs_reap,
    .explain = fsm_explanation,
};
