/* The bare loop, for bench/player.py. */
#include "fsm_python.h"

#include <string.h>

#include "fsm_clock.h"
#include "fsm_content.h"
#include "fsm_transfer.h"

/* What the player is measured against: the same system calls and nothing else. */
PyObject *fsm_bare_loop(PyObject *module, PyObject *args)
{
    int fd, writing;
    unsigned int size;
    Py_buffer offsets;
    void *memory = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "iy*Ip", &fd, &offsets, &size, &writing))
        return NULL;
    const uint64_t *offset = offsets.buf;
    const size_t count = (size_t)offsets.len / sizeof *offset;
    bool good = posix_memalign(&memory, FSM_BLOCK, size ? size : 1) == 0;
    uint64_t began = 0, ended = 0;
    if (good) {
        memset(memory, 0x5a, size);
        Py_BEGIN_ALLOW_THREADS
        began = fsm_monotonic();
        for (size_t i = 0; i < count && good; i++)
            good = fsm_transfer(!writing, fd, memory, size, (off_t)offset[i]) == (ssize_t)size;
        ended = fsm_monotonic();
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&offsets);
    free(memory);
    return good ? PyLong_FromUnsignedLongLong(ended - began)
                : PyErr_SetFromErrno(PyExc_OSError);
}
