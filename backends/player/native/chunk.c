/* A chunk as Python hands it over: all of it is checked before anything of it is done. */
#include "fsm_python.h"

#include <string.h>

#include "fsm_player.h"

bool fsm_chunk_check(const struct fsm_player *player, struct fsm_chunk *chunk)
{
    uint64_t times = 0;
    for (size_t i = 0; i < chunk->count; i++) {
        const struct fsm_op *op = &chunk->ops[i];
        const char *wrong = NULL;
        const bool data = op->kind == FSM_READ || op->kind == FSM_WRITE;
        times |= op->time;
        if (op->kind >= FSM_KINDS)
            wrong = "an unknown kind";
        else if (!(player->driver->kinds & FSM_BIT(op->kind)))
            wrong = "a kind that the driver cannot do";
        else if (op->file >= player->slots)
            wrong = "a file beyond the slots";
        else if (op->kind == FSM_RENAME && op->file2 >= player->slots)
            wrong = "a file2 beyond the slots";
        else if (data && op->size > player->max_op_bytes)
            wrong = "a size above max_op_bytes";
        else if (op->offset > (uint64_t)INT64_MAX - (1u << 30))
            wrong = "an offset beyond 2**63";
        else if (op->time > (uint64_t)INT64_MAX / 32) /* fsm_ticks_at takes no moment so far off */
            wrong = "a time beyond 2**58";
        if (wrong) {
            PyErr_Format(PyExc_ValueError, "operation %zu (kind %u, file %u) has %s", i,
                         (unsigned)op->kind, (unsigned)op->file, wrong);
            return false;
        }
    }
    chunk->paced = times != 0;
    return true;
}

static bool check_names(const struct fsm_player *player, PyObject *names, unsigned long long first)
{
    unsigned long long count = (unsigned long long)PySequence_Fast_GET_SIZE(names);
    if (count && (first >= player->slots || count > player->slots - first))
        return PyErr_Format(PyExc_ValueError, "names for slots %llu to %llu, there are %u", first,
                            first + count - 1, player->slots), false;
    for (unsigned long long i = 0; i < count; i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(names, (Py_ssize_t)i);
        if (!PyBytes_Check(name))
            return PyErr_Format(PyExc_ValueError, "name %R is not bytes", name), false;
        if (memchr(PyBytes_AS_STRING(name), 0, (size_t)PyBytes_GET_SIZE(name)))
            return PyErr_Format(PyExc_ValueError, "name %R has a NUL byte", name), false;
        if (PyBytes_GET_SIZE(name) >= FSM_TEXT)
            return PyErr_Format(PyExc_ValueError, "a name of %zd bytes; %d are allowed",
                                PyBytes_GET_SIZE(name), FSM_TEXT - 1), false;
        if (player->files[first + i].handle >= 0)
            return PyErr_Format(PyExc_ValueError, "slot %llu cannot be named %R: it is open",
                                first + i, name), false;
    }
    return true;
}

bool fsm_chunk_names(struct fsm_player *player, PyObject *names, unsigned long long first)
{
    if (!check_names(player, names, first))
        return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names); i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(names, i);
        if (fsm_file_name(player, &player->files[first + (unsigned long long)i],
                          PyBytes_AS_STRING(name), (size_t)PyBytes_GET_SIZE(name))) {
            PyErr_NoMemory();
            return false;
        }
    }
    return true;
}

bool fsm_chunk_outcomes(PyObject *asked, Py_buffer *memory, struct fsm_chunk *chunk)
{
    if (asked == Py_None)
        return true;
    if (PyObject_GetBuffer(asked, memory, PyBUF_WRITABLE))
        return false;
    if ((size_t)memory->len != chunk->count * sizeof *chunk->outcomes ||
        (uintptr_t)memory->buf % 8)
        return PyErr_Format(PyExc_ValueError, "outcomes must be an aligned, contiguous array of "
                            "OUTCOME, one for each operation"), false;
    chunk->outcomes = memory->buf;
    return true;
}
