/* The posix driver: system calls relative to one directory that is never left.
 *
 * No symbolic link is followed by what opens, makes, renames or removes (fsm_folders.h), whoever
 * puts one there meanwhile.  `stat` goes by the whole path, since it changes nothing.
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
#include "fsm_folders.h"
#include "fsm_transfer.h"
#include "fsm_workers.h"

struct posix {
    struct fsm_folders folders;
    bool tsc, read_ahead;
    uint32_t depth;
};

struct lane {
    struct fsm_folders *folders; /* the connection's */
    struct fsm_folder folder, folder2; /* of the name that is changed; a rename's new one */
    bool read_ahead;
    struct fsm_workers *workers; /* posix-threads */
    char entries[32768];
};

static int posix_connect(const struct fsm_config *config, void **connection)
{
    struct posix *posix = calloc(1, sizeof *posix);
    if (!posix)
        return ENOMEM;
    int error = fsm_folders_open(&posix->folders, config->root,
                                 !(config->options & FSM_NO_OPENAT2));
    if (error) {
        free(posix);
        return error;
    }
    posix->tsc = config->options & FSM_TSC;
    posix->read_ahead = !(config->options & FSM_NO_READ_AHEAD);
    posix->depth = config->depth;
    *connection = posix;
    return 0;
}

static void posix_disconnect(void *connection)
{
    struct posix *posix = connection;
    close(posix->folders.root);
    free(posix);
}

static int posix_lane_open(void *connection, void **made)
{
    struct posix *posix = connection;
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return ENOMEM;
    lane->folders = &posix->folders;
    lane->folder.fd = lane->folder2.fd = -1;
    lane->read_ahead = posix->read_ahead;
    *made = lane;
    return 0;
}

static void posix_lane_close(void *state)
{
    struct lane *lane = state;
    fsm_folder_close(&lane->folder);
    fsm_folder_close(&lane->folder2);
    free(lane);
}

/* Open the directories of the names that an operation changes: 1 if one had to be opened, 0 if
 * none, -1 and errno. */
static int enter(struct lane *lane, const struct fsm_op *op, struct fsm_file *file,
                 struct fsm_file *file2, struct fsm_entry *entries)
{
    int opened = fsm_folder_enter(lane->folders, &lane->folder, file, &entries[0]);
    if (opened < 0 || op->kind != FSM_RENAME)
        return opened;
    int opened2 = fsm_folder_enter(lane->folders, &lane->folder2, file2, &entries[1]);
    return opened2 < 0 ? -1 : opened | opened2;
}

/* What is wrong with a directory the operation itself meets. */
static int posix_prepare(void *state, const struct fsm_op *op, struct fsm_file *file,
                         struct fsm_file *file2)
{
    struct lane *lane = state;
    struct fsm_entry entries[2];
    return lane->folders->kept && enter(lane, op, file, file2, entries) ? -1 : 0;
}

static struct fsm_status failed(int64_t bytes)
{
    return (struct fsm_status){bytes, errno};
}

static struct fsm_status data(const struct fsm_op *op, int fd, char *buffer)
{
    return fsm_transfer_all(fsm_transfer, op, fd, buffer);
}

static struct fsm_status read_directory(struct lane *lane, const struct fsm_file *file)
{
    int fd = fsm_open_beneath(lane->folders, file, O_RDONLY | O_DIRECTORY, 0);
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

static int change(const struct fsm_op *op, const struct fsm_entry *at)
{
    switch (op->kind) {
    case FSM_UNLINK:
        return unlinkat(at[0].fd, at[0].leaf, 0);
    case FSM_MKDIR:
        return mkdirat(at[0].fd, at[0].leaf, 0755);
    case FSM_RMDIR:
        return unlinkat(at[0].fd, at[0].leaf, AT_REMOVEDIR);
    default: /* FSM_RENAME */
        return renameat(at[0].fd, at[0].leaf, at[1].fd, at[1].leaf);
    }
}

static int on_name(struct lane *lane, const struct fsm_op *op, struct fsm_file *file,
                   struct fsm_file *file2)
{
    struct fsm_entry entries[2];
    struct stat facts;
    if (op->kind == FSM_STAT)
        return fstatat(lane->folders->root, file->name, &facts, AT_SYMLINK_NOFOLLOW);
    int opened = enter(lane, op, file, file2, entries);
    int result = opened < 0 ? -1 : change(op, entries);
    if (result < 0 && errno == ENOENT && opened == 0) { /* one that was kept may have gone */
        fsm_folder_close(&lane->folder);
        fsm_folder_close(&lane->folder2);
        opened = enter(lane, op, file, file2, entries);
        if (opened > 0)
            result = change(op, entries);
    }
    if (result == 0 && op->kind == FSM_RENAME && lane->folders->kept)
        fsm_folders_moved(lane->folders, &entries[1]);
    fsm_folder_leave(lane->folders, &lane->folder);
    fsm_folder_leave(lane->folders, &lane->folder2);
    return result;
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
        result = fsm_open_beneath(lane->folders, file, fsm_open_flags(op), 0644);
        if (result >= 0)
            file->handle = result;
        if (result >= 0 && !lane->read_ahead)
            posix_fadvise(result, 0, 0, POSIX_FADV_RANDOM); /* a wish; where none is, none is done */
        break;
    case FSM_READDIR:
        return read_directory(lane, file);
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
    .prepare_kinds = FSM_NAME_KINDS,
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
    .prepare_kinds = FSM_NAME_KINDS,
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
