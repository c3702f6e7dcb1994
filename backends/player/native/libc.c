/* The driver posix-libc: the same as posix, by functions of the C library and by whole paths.
 *
 * A library that is preloaded into the process can take these calls over (libioil and libpil4dfs of
 * DAOS do); system calls it does not see, nor all functions that take a directory's descriptor.
 * Symbolic links in a path's directories are followed here, so that nobody else may be able to put
 * one there: the root must belong to this user alone.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fsm_driver.h"
#include "fsm_root.h"
#include "fsm_transfer.h"

struct paths { /* connection and lane */
    const char *root;
    bool read_ahead;
    char path[2 * PATH_MAX], path2[2 * PATH_MAX];
};

static int libc_connect(const struct fsm_config *config, void **connection)
{
    struct stat facts;
    fsm_forget();
    if (stat(config->root, &facts) != 0)
        return errno;
    if (!S_ISDIR(facts.st_mode))
        return ENOTDIR;
    if (facts.st_uid != geteuid() || facts.st_mode & (S_IWGRP | S_IWOTH))
        return fsm_explain(EPERM, "%s does not belong to this user alone: where a preloaded library "
                           "works, nobody else may be able to put symbolic links there",
                           config->root);
    struct paths *made = calloc(1, sizeof *made);
    if (!made || strlen(config->root) >= PATH_MAX || !(made->root = strdup(config->root))) {
        free(made);
        return made ? ENAMETOOLONG : ENOMEM;
    }
    made->read_ahead = !(config->options & FSM_NO_READ_AHEAD);
    *connection = made;
    return 0;
}

static void libc_disconnect(void *connection)
{
    struct paths *paths = connection;
    free((char *)paths->root);
    free(paths);
}

static int libc_lane_open(void *connection, void **lane)
{
    struct paths *made = malloc(sizeof *made);
    if (!made)
        return ENOMEM;
    memcpy(made, connection, sizeof *made);
    *lane = made;
    return 0;
}

static void libc_lane_close(void *lane)
{
    free(lane);
}

static ssize_t libc_transfer(bool reading, int fd, char *buffer, size_t size, off_t offset)
{
    return reading ? pread(fd, buffer, size, offset) : pwrite(fd, buffer, size, offset);
}

static int read_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory)
        return -1;
    do
        errno = 0;
    while (readdir(directory));
    const int error = errno;
    closedir(directory);
    errno = error;
    return error ? -1 : 0;
}

static int on_name(struct paths *lane, const struct fsm_op *op, struct fsm_file *file2)
{
    struct stat facts;
    switch (op->kind) {
    case FSM_STAT:
        return fstatat(AT_FDCWD, lane->path, &facts, AT_SYMLINK_NOFOLLOW);
    case FSM_UNLINK:
        return unlink(lane->path);
    case FSM_MKDIR:
        return mkdir(lane->path, 0755);
    case FSM_RMDIR:
        return rmdir(lane->path);
    case FSM_READDIR:
        return read_directory(lane->path);
    default: /* FSM_RENAME */
        snprintf(lane->path2, sizeof lane->path2, "%s/%s", lane->root, file2->name);
        return rename(lane->path, lane->path2);
    }
}

static int open_file(struct paths *lane, const struct fsm_op *op, struct fsm_file *file)
{
    const int flags = fsm_open_flags(op) | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
    const int fd = open(lane->path, flags, 0644);
    if (fd < 0)
        return -1;
    file->handle = fd;
    if (!lane->read_ahead)
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* a wish; where none is, none is done */
    return 0;
}

static int on_handle(const struct fsm_op *op, struct fsm_file *file)
{
    const int fd = (int)file->handle;
    switch (op->kind) {
    case FSM_FSYNC:
        return op->flags & FSM_DATA_ONLY ? fdatasync(fd) : fsync(fd);
    case FSM_TRUNCATE:
        return ftruncate(fd, (off_t)op->offset);
    case FSM_EVICT:
        errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        return errno ? -1 : 0;
    default: /* FSM_CLOSE; Linux frees the descriptor also on an error */
        file->handle = -1;
        return close(fd);
    }
}

static struct fsm_status libc_execute(void *state, const struct fsm_op *op, struct fsm_file *file,
                                      struct fsm_file *file2, void *buffer)
{
    struct paths *lane = state;
    int result;
    switch (op->kind) {
    case FSM_READ:
    case FSM_WRITE:
        return fsm_transfer_all(libc_transfer, op, (int)file->handle, buffer);
    case FSM_FSYNC:
    case FSM_TRUNCATE:
    case FSM_EVICT:
    case FSM_CLOSE:
        do
            result = on_handle(op, file);
        while (result < 0 && errno == EINTR && op->kind != FSM_CLOSE);
        break;
    default:
        snprintf(lane->path, sizeof lane->path, "%s/%s", lane->root, file->name);
        do
            result = op->kind == FSM_OPEN || op->kind == FSM_CREATE ? open_file(lane, op, file)
                                                                    : on_name(lane, op, file2);
        while (result < 0 && errno == EINTR);
    }
    return (struct fsm_status){0, result < 0 ? errno : 0};
}

const struct fsm_driver fsm_libc = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = 1,
    .name = "posix-libc",
    .connect = libc_connect,
    .disconnect = libc_disconnect,
    .lane_open = libc_lane_open,
    .lane_close = libc_lane_close,
    .execute = libc_execute,
    .explain = fsm_explanation,
};
