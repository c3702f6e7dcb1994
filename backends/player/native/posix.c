/* The posix driver: system calls relative to one directory that is never left.
 *
 * Names are opened by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS; before Linux 5.6
 * by openat with O_NOFOLLOW after the directories above were looked at one by one.  The same
 * look, outside the timed part and once per directory, precedes everything that changes a
 * directory (unlink, mkdir, rmdir, rename).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fsm_driver.h"
#include "fsm_parents.h"
#include "fsm_transfer.h"
#include "fsm_workers.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define RESOLVE_NO_SYMLINKS_ 0x04u
#define RESOLVE_BENEATH_ 0x08u
#define NAME_KINDS (FSM_BIT(FSM_UNLINK) | FSM_BIT(FSM_MKDIR) | FSM_BIT(FSM_RMDIR) | \
                    FSM_BIT(FSM_RENAME))

struct open_how_ { /* linux/openat2.h, which old headers lack */
    uint64_t flags, mode, resolve;
};

struct posix {
    int root; /* O_PATH */
    bool openat2, tsc, read_ahead;
    uint32_t depth;
};

struct lane {
    int root;
    bool openat2, read_ahead;
    struct fsm_workers *workers; /* posix-threads */
    struct fsm_parents parents;
    char entries[32768];
};

static int open_beneath(int root, const char *name, int flags, mode_t mode)
{
    struct open_how_ how = {(uint64_t)(unsigned)flags, flags & O_CREAT ? mode : 0,
                            RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_};
    long fd;
    do
        fd = syscall(SYS_openat2, root, name, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return (int)fd;
}

static int open_name(struct lane *lane, const char *name, int flags, mode_t mode)
{
    int fd;
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
    if (lane->openat2)
        return open_beneath(lane->root, name, flags, mode);
    do
        fd = openat(lane->root, name, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static int posix_connect(const struct fsm_config *config, void **connection)
{
    struct posix *posix = calloc(1, sizeof *posix);
    if (!posix)
        return ENOMEM;
    posix->root = open(config->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (posix->root < 0) {
        int error = errno;
        free(posix);
        return error;
    }
    int probe = open_beneath(posix->root, ".", O_PATH | O_CLOEXEC, 0);
    posix->openat2 = probe >= 0 && !(config->options & FSM_NO_OPENAT2);
    if (probe >= 0)
        close(probe);
    posix->tsc = config->options & FSM_TSC;
    posix->read_ahead = !(config->options & FSM_NO_READ_AHEAD);
    posix->depth = config->depth;
    *connection = posix;
    return 0;
}

static void posix_disconnect(void *connection)
{
    struct posix *posix = connection;
    close(posix->root);
    free(posix);
}

static int posix_lane_open(void *connection, void **made)
{
    struct posix *posix = connection;
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return ENOMEM;
    lane->root = posix->root;
    lane->openat2 = posix->openat2;
    lane->read_ahead = posix->read_ahead;
    *made = lane;
    return 0;
}

static void posix_lane_close(void *lane)
{
    free(lane);
}

/* Whether it is a symbolic link; below 0: not to be found out. */
static int is_link(void *root, const char *path)
{
    struct stat facts;
    if (fstatat(*(int *)root, path, &facts, AT_SYMLINK_NOFOLLOW) != 0)
        return -1;
    return S_ISLNK(facts.st_mode);
}

static int posix_prepare(void *state, const struct fsm_op *op, struct fsm_file *file,
                         struct fsm_file *file2)
{
    struct lane *lane = state;
    if (lane->openat2 && !(FSM_BIT(op->kind) & NAME_KINDS))
        return 0;
    return fsm_look_at_parents(&lane->parents, file, op->kind == FSM_RENAME ? file2 : NULL,
                               is_link, &lane->root);
}

static struct fsm_status failed(int64_t bytes)
{
    return (struct fsm_status){bytes, errno};
}

static struct fsm_status data(const struct fsm_op *op, int fd, char *buffer)
{
    int64_t done = 0, size = op->size;
    off_t offset = (off_t)op->offset;
    do {
        ssize_t n = fsm_transfer(op->kind == FSM_READ, fd, buffer + done, (size_t)(size - done),
                                 offset + done);
        if (n > 0)
            done += n;
        else if (n == 0 && done < size)
            return (struct fsm_status){done, FSM_ESHORT};
        else if (n < 0 && errno == EINVAL && done > 0 && op->kind == FSM_READ)
            return (struct fsm_status){done, FSM_ESHORT}; /* direct, and the end not aligned */
        else if (n < 0 && errno != EINTR)
            return failed(done);
    } while (done < size);
    return (struct fsm_status){done, 0};
}

static int open_flags(const struct fsm_op *op)
{
    int flags = op->flags & FSM_WRITE_ONLY  ? O_WRONLY
                : op->flags & FSM_READ_ONLY ? O_RDONLY
                                            : O_RDWR;
    if (op->flags & FSM_DIRECT)
        flags |= O_DIRECT;
    if (op->flags & FSM_DSYNC)
        flags |= O_DSYNC;
    if (op->flags & FSM_TRUNC)
        flags |= O_TRUNC;
    if (op->kind == FSM_CREATE)
        flags |= O_CREAT | (op->flags & FSM_EXCLUSIVE ? O_EXCL : 0);
    return flags;
}

static struct fsm_status read_directory(struct lane *lane, const char *name)
{
    int fd = open_name(lane, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return failed(0);
    long n;
    do
        n = syscall(SYS_getdents64, fd, lane->entries, sizeof lane->entries);
    while (n > 0 || (n < 0 && errno == EINTR));
    struct fsm_status status = {0, n < 0 ? errno : 0};
    close(fd);
    return status;
}

static int on_name(struct lane *lane, const struct fsm_op *op, struct fsm_file *file,
                   struct fsm_file *file2)
{
    struct stat facts;
    switch (op->kind) {
    case FSM_STAT:
        return fstatat(lane->root, file->name, &facts, AT_SYMLINK_NOFOLLOW);
    case FSM_UNLINK:
        return unlinkat(lane->root, file->name, 0);
    case FSM_MKDIR:
        return mkdirat(lane->root, file->name, 0755);
    case FSM_RMDIR:
        return unlinkat(lane->root, file->name, AT_REMOVEDIR);
    default: /* FSM_RENAME */
        return renameat(lane->root, file->name, lane->root, file2->name);
    }
}

static int on_handle(const struct fsm_op *op, struct fsm_file *file)
{
    int fd = (int)file->handle;
    if (op->kind == FSM_FSYNC)
        return op->flags & FSM_DATA_ONLY ? fdatasync(fd) : fsync(fd);
    if (op->kind == FSM_TRUNCATE)
        return ftruncate(fd, (off_t)op->offset);
    if (op->kind == FSM_EVICT) {
        errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        return errno ? -1 : 0;
    }
    file->handle = -1; /* FSM_CLOSE; Linux frees the descriptor also on an error */
    return close(fd);
}

static struct fsm_status posix_execute(void *state, const struct fsm_op *op,
                                       struct fsm_file *file, struct fsm_file *file2,
                                       void *buffer)
{
    struct lane *lane = state;
    int result;
    switch (op->kind) {
    case FSM_READ:
    case FSM_WRITE:
        return data(op, (int)file->handle, buffer);
    case FSM_OPEN:
    case FSM_CREATE:
        result = open_name(lane, file->name, open_flags(op), 0644);
        if (result >= 0)
            file->handle = result;
        if (result >= 0 && !lane->read_ahead)
            posix_fadvise(result, 0, 0, POSIX_FADV_RANDOM); /* a wish; where none is, none is done */
        break;
    case FSM_READDIR:
        return read_directory(lane, file->name);
    case FSM_FSYNC:
    case FSM_TRUNCATE:
    case FSM_EVICT:
    case FSM_CLOSE:
        do
            result = on_handle(op, file);
        while (result < 0 && errno == EINTR && op->kind != FSM_CLOSE);
        break;
    default:
        do
            result = on_name(lane, op, file, file2);
        while (result < 0 && errno == EINTR);
    }
    return result < 0 ? failed(0) : (struct fsm_status){0, 0};
}

const struct fsm_driver fsm_posix = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = 1,
    .prepare_kinds = NAME_KINDS | FSM_BIT(FSM_OPEN) | FSM_BIT(FSM_CREATE) |
                     FSM_BIT(FSM_READDIR),
    .name = "posix",
    .connect = posix_connect,
    .disconnect = posix_disconnect,
    .lane_open = posix_lane_open,
    .lane_close = posix_lane_close,
    .prepare = posix_prepare,
    .execute = posix_execute,
};

static struct fsm_status threads_work(void *lane, const struct fsm_op *op, struct fsm_file *file,
                                      void *buffer)
{
    (void)lane;
    return data(op, (int)file->handle, buffer);
}

static int threads_lane_open(void *connection, void **made)
{
    const struct posix *posix = connection;
    int error = posix_lane_open(connection, made);
    if (error || posix->depth == 1)
        return error;
    struct lane *lane = *made;
    return fsm_workers_start(&lane->workers, posix->depth, posix->tsc, threads_work, lane);
}

static void threads_lane_close(void *state)
{
    struct lane *lane = state;
    fsm_workers_stop(lane->workers);
    posix_lane_close(lane);
}

static int threads_submit(void *state, const struct fsm_op *op, struct fsm_file *file,
                          void *buffer, uint64_t tag)
{
    const struct fsm_work work = {op, file, buffer, tag};
    fsm_workers_submit(((struct lane *)state)->workers, &work);
    return 0;
}

static int threads_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    return fsm_workers_reap(((struct lane *)state)->workers, completions, most, wait);
}

const struct fsm_driver fsm_posix_threads = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = 128,
    .prepare_kinds = NAME_KINDS | FSM_BIT(FSM_OPEN) | FSM_BIT(FSM_CREATE) |
                     FSM_BIT(FSM_READDIR),
    .name = "posix-threads",
    .connect = posix_connect,
    .disconnect = posix_disconnect,
    .lane_open = threads_lane_open,
    .lane_close = threads_lane_close,
    .prepare = posix_prepare,
    .execute = posix_execute,
    .submit = threads_submit,
    .reap = threads_reap,
};
