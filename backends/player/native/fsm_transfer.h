/* One pread or pwrite: the posix driver's, and that of the bare loop it is measured against. */
#ifndef FSM_TRANSFER_H
#define FSM_TRANSFER_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

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

#endif
