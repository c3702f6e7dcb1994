/* Reads and writes of paths: one system call, as also the bare loop makes it, and a whole operation
 * of such calls. */
#ifndef FSM_TRANSFER_H
#define FSM_TRANSFER_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "fsm_driver.h"

/* pread and pwrite of the C library are points of cancellation, which costs two atomic
 * operations a call as soon as the process has threads (numpy makes some); syscall is none. */
static inline ssize_t fsm_transfer(bool reading, int fd, char *buffer, size_t size,
                                   off_t offset)
{
#if defined(SYS_pread64) && __SIZEOF_LONG__ == 8
    return syscall(reading ? SYS_pread64 : SYS_pwrite64, fd, buffer, size, offset);
#else
    return reading ? pread(fd, buffer, size, offset) : pwrite(fd, buffer, size, offset);
#endif
}

typedef ssize_t fsm_transfer_call(bool reading, int fd, char *buffer, size_t size, off_t offset);

/* The bytes of a read or write after the first `done`, by as many calls as that takes. */
static inline struct fsm_status fsm_transfer_rest(fsm_transfer_call *call,
                                                  const struct fsm_op *op, int fd, char *buffer,
                                                  int64_t done)
{
    const int64_t size = op->size;
    off_t offset = (off_t)op->offset;
    do {
        ssize_t n = call(op->kind == FSM_READ, fd, buffer + done, (size_t)(size - done),
                         offset + done);
        if (n > 0)
            done += n;
        else if (n == 0 && done < size)
            return (struct fsm_status){done, FSM_ESHORT};
        else if (n < 0 && errno == EINVAL && done > 0 && op->kind == FSM_READ)
            return (struct fsm_status){done, FSM_ESHORT}; /* direct, and the end not aligned */
        else if (n < 0 && errno != EINTR)
            return (struct fsm_status){done, errno};
    } while (done < size);
    return (struct fsm_status){done, 0};
}

static inline struct fsm_status fsm_transfer_all(fsm_transfer_call *call, const struct fsm_op *op,
                                                 int fd, char *buffer)
{
    return fsm_transfer_rest(call, op, fd, buffer, 0);
}

static inline int fsm_open_flags(const struct fsm_op *op)
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

#endif
