/* fsmatrix.backends.player._player: the player for Python.  backends/player/player.py is its only user. */
#include "fsm_python.h"

#include <string.h>

#include "fsm_content.h"
#include "fsm_player.h"

/* player.py takes no other: raised whenever what _player.pyi says changes. */
#define FSM_INTERFACE 6

struct fsm_clock fsm_base_clock;

typedef struct {
    PyObject_HEAD
    struct fsm_player player;
    PyObject *capsule; /* of an outside driver: kept alive */
    bool open, busy;
} Player;

static bool usable(Player *self)
{
    if (self->open && !self->busy)
        return true;
    PyErr_SetString(self->open ? PyExc_RuntimeError : PyExc_ValueError,
                    self->open ? "the player is playing in another thread"
                               : "the player is closed");
    return false;
}

static const struct fsm_driver *find_driver(PyObject *asked)
{
    if (PyCapsule_IsValid(asked, FSM_DRIVER_CAPSULE)) {
        const struct fsm_driver *driver = PyCapsule_GetPointer(asked, FSM_DRIVER_CAPSULE);
        if (driver->abi != FSM_DRIVER_ABI)
            return PyErr_Format(PyExc_ValueError, "the driver has ABI %u, the player %u",
                                driver->abi, FSM_DRIVER_ABI), NULL;
        if (!driver->execute || !driver->max_depth ||
            (driver->max_depth > 1 && (!driver->submit || !driver->reap)))
            return PyErr_Format(PyExc_ValueError, "driver %s (depth %u) lacks execute, submit or "
                                "reap", driver->name, driver->max_depth), NULL;
        return driver;
    }
    static const struct fsm_driver *const ours[] = {&fsm_posix, &fsm_libc, &fsm_null,
                                                    &fsm_rados, &fsm_cephfs, &fsm_dfs,
                                                    &fsm_uring, &fsm_uring_sqpoll,
                                                    &fsm_posix_threads};
    const char *name = PyUnicode_Check(asked) ? PyUnicode_AsUTF8(asked) : NULL;
    for (size_t i = 0; name && i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]->name) == 0)
            return ours[i];
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "no driver %R: known are posix, posix-libc, uring, "
                     "uring-sqpoll, null, rados, cephfs and dfs, or a capsule named " FSM_DRIVER_CAPSULE, asked);
    return NULL;
}

static void set_open_error(const struct fsm_driver *driver, int error, PyObject *root)
{
    const char *reason = driver->explain ? driver->explain() : NULL;
    PyObject *arguments = NULL;
    if (reason && (arguments = Py_BuildValue("is", error, reason)))
        PyErr_SetObject(PyExc_OSError, arguments);
    Py_XDECREF(arguments);
    errno = error;
    if (!PyErr_Occurred())
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, root);
}

static PyObject *player_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *words[] = {"driver", "root", "pool", "slots", "threads", "depth", "seed",
                            "origin_ns", "max_op_bytes", "count_metadata", "stop_on_error",
                            "pauses", "read_ahead", "tsc", "openat2", NULL};
    PyObject *driver, *root;
    Py_buffer pool;
    unsigned long long seed, origin;
    unsigned int slots, threads, depth, most;
    int metadata, stop, pauses, read_ahead, tsc, openat2;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO&y*IIIKKIpppppp", words, &driver,
                                     PyUnicode_FSConverter, &root, &pool, &slots, &threads,
                                     &depth, &seed, &origin, &most, &metadata, &stop, &pauses,
                                     &read_ahead, &tsc, &openat2))
        return NULL;
    Player *self = NULL;
    const struct fsm_driver *found = find_driver(driver);
    if (!found)
        goto out;
    if (pool.len < (Py_ssize_t)FSM_BLOCK || (pool.len & (pool.len - 1)) || !slots || !threads ||
        threads > 1024 || most > 1u << 30) {
        PyErr_SetString(PyExc_ValueError, "pool not a power of two, or slots, threads or "
                                          "max_op_bytes out of range");
        goto out;
    }
    if (!depth || depth > found->max_depth) {
        PyErr_Format(PyExc_ValueError, "depth must lie between 1 and %u for driver %s, not %u",
                     found->max_depth, found->name, depth);
        goto out;
    }
    self = (Player *)type->tp_alloc(type, 0);
    if (!self)
        goto out;
    self->capsule = Py_NewRef(driver);
    self->open = true;
    self->player = (struct fsm_player){
        .driver = found, .seed = seed, .origin_ns = origin, .count_metadata = metadata,
        .stop_on_error = stop, .pauses = pauses, .tsc = tsc && FSM_HAVE_TSC};
    const struct fsm_config config = {
        PyBytes_AS_STRING(root), slots, threads, depth, most,
        (openat2 ? 0 : FSM_NO_OPENAT2) | (read_ahead ? 0 : FSM_NO_READ_AHEAD) | (self->player.tsc ? FSM_TSC : 0)};
    int error;
    Py_BEGIN_ALLOW_THREADS
    fsm_wait_until(fsm_base_clock.ns + FSM_SHORTEST_BASE, 0);
    error = fsm_player_open(&self->player, &config, pool.buf, (size_t)pool.len);
    Py_END_ALLOW_THREADS
    if (error) {
        set_open_error(found, error, root);
        Py_CLEAR(self);
    }
out:
    Py_DECREF(root);
    PyBuffer_Release(&pool);
    return (PyObject *)self;
}

static void end(Player *self)
{
    if (!self->open)
        return;
    self->open = false;
    Py_BEGIN_ALLOW_THREADS
    fsm_player_close(&self->player);
    Py_END_ALLOW_THREADS
}

static void player_dealloc(Player *self)
{
    end(self);
    Py_XDECREF(self->capsule);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *player_play(Player *self, PyObject *args)
{
    struct fsm_player *player = &self->player;
    Py_buffer ops, outcomes = {.buf = NULL};
    PyObject *given, *asked, *names = NULL, *answer = NULL;
    unsigned long long first, batch;
    if (!usable(self) || !PyArg_ParseTuple(args, "y*OKOK", &ops, &given, &first, &asked, &batch))
        return NULL;
    struct fsm_chunk chunk = {.ops = ops.buf, .count = (size_t)ops.len / sizeof *chunk.ops,
                              .batch = (size_t)batch};
    if (chunk.batch > chunk.count)
        chunk.batch = chunk.count; /* so that a counter of batches cannot overflow */
    if (ops.len % (Py_ssize_t)sizeof *chunk.ops || (uintptr_t)ops.buf % 8)
        PyErr_SetString(PyExc_ValueError, "ops must be an aligned, contiguous array of OP");
    else if (fsm_chunk_outcomes(asked, &outcomes, &chunk) &&
             fsm_chunk_check(player, &chunk) &&
             (names = PySequence_Fast(given, "names must be a sequence of bytes")) &&
             fsm_chunk_names(player, names, first)) {
        uint64_t executed;
        if (chunk.paced && !player->pauses && fsm_player_want_service(player)) {
            PyErr_NoMemory();
        } else {
            self->busy = true;
            Py_BEGIN_ALLOW_THREADS
            executed = fsm_player_play(player, &chunk);
            Py_END_ALLOW_THREADS
            self->busy = false;
            answer = PyLong_FromUnsignedLongLong(executed);
        }
    }
    Py_XDECREF(names);
    PyBuffer_Release(&outcomes);
    PyBuffer_Release(&ops);
    return answer;
}

static PyObject *player_drain(Player *self, PyObject *unused)
{
    (void)unused;
    if (!usable(self))
        return NULL;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    fsm_player_drain(&self->player);
    Py_END_ALLOW_THREADS
    self->busy = false;
    Py_RETURN_NONE;
}

static PyObject *player_share(Player *self, PyObject *unused)
{
    (void)unused;
    if (!usable(self))
        return NULL;
    const struct fsm_driver *driver = self->player.driver;
    char *text = NULL;
    int error = 0;
    Py_BEGIN_ALLOW_THREADS
    if (driver->share)
        error = driver->share(self->player.connection, &text);
    Py_END_ALLOW_THREADS
    if (error)
        set_open_error(driver, error, NULL);
    PyObject *answer = error ? NULL : PyUnicode_FromString(text ? text : "");
    free(text);
    return answer;
}

static PyObject *player_features(Player *self, PyObject *unused)
{
    (void)unused;
    char text[256] = "";
    if (!usable(self))
        return NULL;
    if (self->player.driver->features)
        self->player.driver->features(self->player.lanes[0].state, text, sizeof text);
    return PyUnicode_FromString(text);
}

static PyObject *player_stop_at(Player *self, PyObject *arg)
{
    unsigned long long ns = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred() || !usable(self))
        return NULL;
    self->player.deadline_ns = ns;
    Py_RETURN_NONE;
}

static PyObject *player_begin(Player *self, PyObject *arg)
{
    unsigned long long ns = PyLong_AsUnsignedLongLong(arg);
    if (PyErr_Occurred() || !usable(self))
        return NULL;
    if (self->player.before)
        return PyErr_Format(PyExc_ValueError, "the player has begun to play already");
    self->player.origin_ns = ns;
    Py_RETURN_NONE;
}

/* What each lane did not execute of what it had taken of the last chunk; and what was taken. */
static PyObject *player_rests(Player *self, PyObject *unused)
{
    (void)unused;
    if (!usable(self))
        return NULL;
    const struct fsm_player *player = &self->player;
    PyObject *rests = PyList_New(0);
    for (uint32_t i = 0; rests && i < player->threads; i++) {
        const struct fsm_lane *lane = &player->lanes[i];
        PyObject *rest = Py_BuildValue("KK", (unsigned long long)lane->rest,
                                       (unsigned long long)lane->rest_end);
        if (!rest || PyList_Append(rests, rest))
            Py_CLEAR(rests);
        Py_XDECREF(rest);
    }
    return rests ? Py_BuildValue("NK", rests, (unsigned long long)player->taken) : NULL;
}

static PyObject *player_lanes(Player *self, PyObject *unused)
{
    (void)unused;
    if (!usable(self))
        return NULL;
    PyObject *lanes = PyList_New(0);
    for (uint32_t i = 0; lanes && i < self->player.threads; i++) {
        PyObject *facts = fsm_lane_facts(&self->player.lanes[i]);
        if (!facts || PyList_Append(lanes, facts))
            Py_CLEAR(lanes);
        Py_XDECREF(facts);
    }
    return lanes;
}

static PyObject *player_timeline(Player *self, PyObject *args)
{
    unsigned long long width, intervals;
    if (!PyArg_ParseTuple(args, "KK", &width, &intervals) || !usable(self))
        return NULL;
    if (!width || intervals > FSM_INTERVALS)
        return PyErr_Format(PyExc_ValueError, "%llu intervals of %llu ns", intervals, width);
    return fsm_timeline(&self->player, width, intervals);
}

/* Changes with each operation that completes.  The lanes may be playing: it reads what they count
 * anyway.  They are freed only after `open`, which the GIL protects, is false. */
static PyObject *player_completed(Player *self, PyObject *unused)
{
    (void)unused;
    uint64_t sum = 0;
    for (uint32_t i = 0; self->open && i < self->player.threads; i++) {
        const struct fsm_lane *lane = &self->player.lanes[i];
        sum += __atomic_load_n(&lane->error_count, __ATOMIC_RELAXED);
        for (int kind = 0; kind < FSM_KINDS; kind++)
            sum += __atomic_load_n(&lane->latency[kind].total, __ATOMIC_RELAXED);
    }
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *player_close(Player *self, PyObject *unused)
{
    (void)unused;
    if (self->open && !usable(self))
        return NULL;
    end(self);
    Py_RETURN_NONE;
}

static PyMethodDef player_methods[] = {
    {"play", (PyCFunction)player_play, METH_VARARGS,
     "play(ops, names, first, outcomes or None, batch) -> executed"},
    {"drain", (PyCFunction)player_drain, METH_NOARGS, "wait for all that is in flight"},
    {"share", (PyCFunction)player_share, METH_NOARGS, "lines by which others join; empty: none"},
    {"features", (PyCFunction)player_features, METH_NOARGS, "what the driver uses, in words"},
    {"stop_at", (PyCFunction)player_stop_at, METH_O, "stop_at(monotonic_ns); 0 = never"},
    {"begin", (PyCFunction)player_begin, METH_O, "begin(origin_ns), before the first play"},
    {"rests", (PyCFunction)player_rests, METH_NOARGS,
     "of the last chunk: [(first, end) not executed, by lane], taken of a queue"},
    {"completed", (PyCFunction)player_completed, METH_NOARGS,
     "a number that changes with each operation that completes, also while it plays"},
    {"lanes", (PyCFunction)player_lanes, METH_NOARGS, "facts of each lane, as dicts"},
    {"timeline", (PyCFunction)player_timeline, METH_VARARGS,
     "timeline(width_ns, intervals) -> counts [sort, interval, coarse bin] of all lanes"},
    {"close", (PyCFunction)player_close, METH_NOARGS, "close all handles, end all threads"},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject player_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "fsmatrix.backends.player._player.Player",
    .tp_basicsize = sizeof(Player),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = player_new,
    .tp_dealloc = (destructor)player_dealloc,
    .tp_methods = player_methods,
};

static PyObject *wait_until(PyObject *module, PyObject *args)
{
    unsigned long long ns, spin;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK", &ns, &spin))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    fsm_wait_until(ns, spin);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *driver_capsule(PyObject *module, PyObject *name)
{
    (void)module;
    const struct fsm_driver *driver = find_driver(name);
    return driver ? PyCapsule_New((void *)driver, FSM_DRIVER_CAPSULE, NULL) : NULL;
}

static PyMethodDef module_methods[] = {
    {"wait_until", wait_until, METH_VARARGS, "wait_until(monotonic_ns, spin_ns)"},
    {"_bare_loop", fsm_bare_loop, METH_VARARGS,
     "_bare_loop(fd, offsets of 8 bytes, size, write) -> ns that the loop took"},
    {"_driver", driver_capsule, METH_O, "_driver(name) -> capsule of a driver of ours"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fsmatrix.backends.player._player",
    .m_doc = "The player of op streams, in C.",
    .m_size = -1,
    .m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__player(void)
{
    fsm_base_clock.tsc = FSM_HAVE_TSC;
    fsm_pair(FSM_HAVE_TSC, &fsm_base_clock.ticks, &fsm_base_clock.ns);
    if (PyType_Ready(&player_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_definition);
    if (module && (PyModule_AddObjectRef(module, "Player", (PyObject *)&player_type) < 0 ||
                   PyModule_AddIntConstant(module, "INTERFACE", FSM_INTERFACE) < 0))
        Py_CLEAR(module);
    return module;
}
