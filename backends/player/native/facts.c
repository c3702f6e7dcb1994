/* What a lane did, as Python objects. */
#include "fsm_python.h"

#include <stdlib.h>
#include <string.h>

#include "fsm_lane.h"

/* (counts [kind, bin], totals, least, most) as bytes of unsigned 64-bit numbers */
static PyObject *latencies(const struct fsm_latency *latency)
{
    uint64_t extent[3][FSM_KINDS];
    if (!latency)
        Py_RETURN_NONE;
    PyObject *counts = PyBytes_FromStringAndSize(NULL, FSM_KINDS * sizeof latency->counts);
    for (int kind = 0; counts && kind < FSM_KINDS; kind++) {
        memcpy(PyBytes_AS_STRING(counts) + (size_t)kind * sizeof latency->counts,
               latency[kind].counts, sizeof latency->counts);
        extent[0][kind] = latency[kind].total;
        extent[1][kind] = latency[kind].least;
        extent[2][kind] = latency[kind].most;
    }
    const Py_ssize_t size = sizeof extent[0];
    return counts ? Py_BuildValue("Ny#y#y#", counts, extent[0], size, extent[1], size, extent[2],
                                  size)
                  : NULL;
}

static PyObject *lane_errors(const struct fsm_lane *lane)
{
    PyObject *errors = PyDict_New();
    for (int error = 0; errors && error < FSM_ERRORS; error++) {
        if (!lane->errors[error])
            continue;
        PyObject *key = PyLong_FromLong(error), *value = PyLong_FromUnsignedLongLong(lane->errors[error]);
        if (!key || !value || PyDict_SetItem(errors, key, value))
            Py_CLEAR(errors);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return errors;
}

static PyObject *lane_first_error(const struct fsm_lane *lane)
{
    const struct fsm_first_error *first = &lane->first_error;
    if (!first->ns)
        Py_RETURN_NONE;
    return Py_BuildValue("KKKKiiiiy", first->ns, first->index, first->offset,
                         first->wrong_offset, (int)first->error, (int)first->kind,
                         (int)first->expected, (int)first->found, first->name);
}

/* One lane's facts, by the names of the fields of backends/player/lanes.py: Lane. */
PyObject *fsm_lane_facts(const struct fsm_lane *lane)
{
    const Py_ssize_t series = (Py_ssize_t)(lane->intervals_used * sizeof(uint64_t));
    return Py_BuildValue("{sKsKsKsKsKsKsKsy#sy#sNsNsNsN}", "ops", lane->executed, "first_ns",
                         lane->first_ns, "last_ns", lane->last_ns, "io_first_ns",
                         lane->io_first_ns, "io_last_ns", lane->io_last_ns, "overhead_ns",
                         lane->overhead, "interval_ns", lane->width, "interval_bytes",
                         lane->bytes, series, "interval_operations", lane->operations, series,
                         "latency", latencies(lane->latency), "service",
                         latencies(lane->service), "errors", lane_errors(lane), "first_error",
                         lane_first_error(lane));
}

/* Latencies of all lanes over time, [sort, interval, coarse bin], as bytes of unsigned 64-bit
 * numbers; `width` in ns: that of a lane or of whole ones of its intervals. */
PyObject *fsm_timeline(const struct fsm_player *player, uint64_t width, uint64_t intervals)
{
    const size_t size = FSM_SORTS * intervals * FSM_COARSE;
    uint64_t *sum = calloc(size ? size : 1, sizeof *sum);
    if (!sum)
        return PyErr_NoMemory();
    for (uint32_t i = 0; i < player->threads; i++) {
        const struct fsm_lane *lane = &player->lanes[i];
        for (unsigned sort = 0; sort < FSM_SORTS; sort++) {
            for (size_t at = 0; fsm_has(lane, sort) && at < lane->intervals_used; at++) {
                const uint64_t to = at * lane->width / width;
                for (size_t bin = 0; to < intervals && bin < FSM_COARSE; bin++)
                    sum[(sort * intervals + to) * FSM_COARSE + bin] +=
                        lane->timeline[sort][at * FSM_COARSE + bin];
            }
        }
    }
    PyObject *bytes = PyBytes_FromStringAndSize((char *)sum, (Py_ssize_t)(size * sizeof *sum));
    free(sum);
    return bytes;
}
