/* The drivers uring and uring-sqpoll: posix, with reads and writes by the kernel's io_uring.
 *
 * Each lane has a ring of its own.  What changes names and what opens, syncs, cuts or closes is
 * posix's.  Entries go to the kernel when the player reaps, all that wait in one call; with
 * uring-sqpoll a thread of the kernel's looks for them, which may hold a file that is closed for a
 * moment longer.  With a depth above 1 the buffers are registered, if the limit of locked memory
 * allows it; where one thread plays also the file that it works in.
 *
 * A read or write that came out short, or that the kernel wants tried again, is finished by the
 * calls of posix, so that ends of files and full file systems look the same.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsm_clock.h"
#include "fsm_ring.h"
#include "fsm_root.h"
#include "fsm_transfer.h"

#define FILES 64u
#define MOST_DEPTH 1024
#define LOST_AFTER 2000 /* ms for what a ring that was forbidden still has in flight */

struct uring {
    void *posix;
    uint32_t depth;
    bool tsc, poll, alone; /* alone: one lane */
    uint64_t opened;       /* files so far */
};

struct request {
    const struct fsm_op *op;
    char *buffer;
    int fd;
    bool busy;
};

struct lane {
    struct uring *uring;
    void *posix;
    struct fsm_ring ring;
    struct request *requests; /* [depth] */
    uint32_t in_flight;
    int broken;        /* an errno: the ring takes nothing any more */
    uint64_t owner;    /* number of the thread that plays; 0: none has */
    void *buffers;     /* registered, or NULL */
    uint64_t buffer_bytes;
    int64_t files[FILES], last; /* handles registered, -1: none; of the operation before */
    bool has_files, has_buffers;
};

static int uring_connect(const struct fsm_config *config, void **connection)
{
    struct uring *uring = calloc(1, sizeof *uring);
    fsm_forget();
    if (!uring)
        return ENOMEM;
    const int error = fsm_posix.connect(config, &uring->posix);
    if (error) {
        free(uring);
        return error;
    }
    uring->depth = config->depth;
    uring->alone = config->threads == 1;
    uring->tsc = config->options & FSM_TSC;
    *connection = uring;
    return 0;
}

static int sqpoll_connect(const struct fsm_config *config, void **connection)
{
    const int error = uring_connect(config, connection);
    if (!error)
        ((struct uring *)*connection)->poll = true;
    return error;
}

static void uring_disconnect(void *connection)
{
    struct uring *uring = connection;
    fsm_posix.disconnect(uring->posix);
    free(uring);
}

/* A ring with what can be registered; 0 or an errno, explained. */
static int open_ring(struct lane *lane)
{
    const struct uring *uring = lane->uring;
    const int error = fsm_ring_open(&lane->ring, uring->depth, uring->poll);
    if (error)
        return error;
    memset(lane->files, 0xff, sizeof lane->files);
    lane->last = -1;
    lane->has_files = uring->alone && !fsm_ring_files(&lane->ring, FILES);
    lane->has_buffers = lane->buffers && !fsm_ring_buffers(&lane->ring, lane->buffers,
                                                           lane->buffer_bytes, uring->depth);
    return 0;
}

static void close_ring(struct lane *lane)
{
    for (uint32_t i = 0; lane->has_files && i < FILES; i++)
        if (lane->files[i] >= 0)
            fsm_ring_file(&lane->ring, i, -1); /* the ring itself goes when the kernel likes */
    lane->has_files = lane->has_buffers = false;
    fsm_ring_close(&lane->ring);
}

static void uring_lane_close(void *state)
{
    struct lane *lane = state;
    close_ring(lane);
    if (lane->posix)
        fsm_posix.lane_close(lane->posix);
    free(lane->requests);
    free(lane);
}

static int uring_lane_open(void *connection, void **made)
{
    struct uring *uring = connection;
    struct lane *lane = calloc(1, sizeof *lane);
    if (!lane)
        return ENOMEM;
    lane->uring = uring;
    lane->ring.fd = -1;
    lane->requests = calloc(uring->depth, sizeof *lane->requests);
    int error = lane->requests ? fsm_posix.lane_open(uring->posix, &lane->posix) : ENOMEM;
    if (!error)
        error = open_ring(lane);
    if (error)
        uring_lane_close(lane);
    else
        *made = lane;
    return error;
}

static void uring_buffers(void *state, void *memory, uint64_t size)
{
    struct lane *lane = state;
    lane->buffers = memory;
    lane->buffer_bytes = size;
    lane->has_buffers = !fsm_ring_buffers(&lane->ring, memory, size, lane->uring->depth);
}

/* The ring serves one thread; if another one plays from now on, it gets a new one. */
static int adopt(struct lane *lane)
{
    static uint64_t threads;
    static _Thread_local uint64_t own;
    if (!own)
        own = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    if (lane->owner == own)
        return lane->broken;
    int error = lane->broken;
    if (lane->owner && !error) {
        close_ring(lane);
        error = open_ring(lane);
    }
    if (!error)
        error = fsm_ring_enable(&lane->ring);
    lane->owner = own;
    return lane->broken = error;
}

/* Index of the file among those that are registered, or -1.  One that is used twice running is
 * worth the call. */
static int registered(struct lane *lane, const struct fsm_file *file)
{
    const uint32_t at = (uint32_t)file->handle % FILES;
    if (lane->files[at] == file->handle)
        return (int)at;
    const bool again = lane->last == file->handle;
    lane->last = file->handle;
    if (!again || fsm_ring_file(&lane->ring, at, (int)file->handle))
        return -1;
    lane->files[at] = file->handle;
    return (int)at;
}

/* The file is closed: a ring that still had it would keep it open. */
static void forget(struct lane *lane, const struct fsm_file *file)
{
    const uint32_t at = (uint32_t)file->handle % FILES;
    if (lane->has_files && lane->files[at] == file->handle) {
        fsm_ring_file(&lane->ring, at, -1);
        lane->files[at] = -1;
    }
}

static int uring_submit(void *state, const struct fsm_op *op, struct fsm_file *file,
                        void *buffer, uint64_t tag)
{
    struct lane *lane = state;
    const bool reading = op->kind == FSM_READ;
    const int error = adopt(lane);
    if (error)
        return error;
    const int index = lane->has_files ? registered(lane, file) : -1;
    lane->requests[tag] = (struct request){op, buffer, (int)file->handle, true};
    lane->in_flight++;
    *fsm_ring_next(&lane->ring) = (struct fsm_ring_entry){
        .code = lane->has_buffers ? (reading ? FSM_RING_READ_FIXED : FSM_RING_WRITE_FIXED)
                                  : (reading ? FSM_RING_READ : FSM_RING_WRITE),
        .flags = index < 0 ? 0 : FSM_RING_FIXED_FILE,
        .fd = index < 0 ? (int)file->handle : index,
        .offset = op->offset, .address = (uintptr_t)buffer, .size = op->size, .tag = tag,
        .buffer = lane->has_buffers ? (uint16_t)tag : 0};
    if (lane->uring->poll)
        fsm_ring_tell(&lane->ring);
    return 0;
}

static struct fsm_completion ended(struct lane *lane, uint64_t tag, uint64_t ticks,
                                   struct fsm_status status)
{
    lane->requests[tag].busy = false;
    lane->in_flight--;
    return (struct fsm_completion){.tag = tag, .ticks = ticks, .status = status};
}

static struct fsm_completion completion(struct lane *lane, const struct fsm_ring_event *event,
                                        uint64_t ticks)
{
    const struct request *request = &lane->requests[event->tag];
    const int64_t bytes = event->result > 0 ? event->result : 0;
    const int error = event->result < 0 ? -event->result : 0;
    struct fsm_status status = {bytes, error};
    if (error == EINTR || error == EAGAIN || error == ECANCELED ||
        (!error && bytes < request->op->size)) {
        status = fsm_transfer_rest(fsm_transfer, request->op, request->fd, request->buffer, bytes);
        ticks = fsm_ticks(lane->uring->tsc);
    }
    return ended(lane, event->tag, ticks, status);
}

static int collect(struct lane *lane, struct fsm_completion *completions, int most)
{
    const uint64_t now = fsm_ticks(lane->uring->tsc);
    const struct fsm_ring_event *event;
    int n = 0;
    while (n < most && (event = fsm_ring_event(&lane->ring))) {
        completions[n++] = completion(lane, event, now);
        fsm_ring_take(&lane->ring);
    }
    return n;
}

/* The kernel takes no calls for the ring any more.  What it has in flight may still come, for a
 * while; then the ring is let go, and all that is not over has failed. */
static int give_up(struct lane *lane, struct fsm_completion *completions, int most, int error)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct fsm_ring *ring = &lane->ring;
    int n = 0;
    lane->broken = error;
    for (uint32_t left = lane->uring->poll ? 0 : fsm_ring_unsent(ring); left && n < most; left--) {
        const uint64_t tag = ring->entries[--ring->tail & (ring->size - 1)].tag;
        completions[n++] = ended(lane, tag, 0, (struct fsm_status){0, error});
    }
    for (int i = 0; lane->in_flight && i < LOST_AFTER; i++) {
        n += collect(lane, completions + n, most - n);
        if (lane->in_flight)
            nanosleep(&pause, NULL);
    }
    close_ring(lane);
    for (uint32_t tag = 0; tag < lane->uring->depth && n < most; tag++)
        if (lane->requests[tag].busy)
            completions[n++] = ended(lane, tag, 0, (struct fsm_status){0, error});
    return n;
}

static int uring_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    struct lane *lane = state;
    int n = 0;
    while (lane->in_flight) {
        if ((!lane->uring->poll && fsm_ring_unsent(&lane->ring)) ||
            !fsm_ring_event(&lane->ring)) {
            const int error = fsm_ring_enter(&lane->ring, wait, 0);
            if (error)
                return give_up(lane, completions, most, error);
        }
        n = collect(lane, completions, most);
        if (n || !wait)
            break;
    }
    return n;
}

static void uring_pause(void *state, uint64_t until_ns)
{
    struct lane *lane = state;
    if (!lane->broken && !fsm_ring_event(&lane->ring))
        fsm_ring_enter(&lane->ring, true, until_ns); /* what is wrong, the next reap finds */
}

static void uring_features(void *state, char *text, size_t size)
{
    const struct lane *lane = state;
    char more[128];
    fsm_ring_features(&lane->ring, more, sizeof more);
    snprintf(text, size, "%s buffers, %s files%s", lane->has_buffers ? "registered" : "plain",
             lane->has_files ? "registered" : "plain", more);
}

static int uring_prepare(void *state, const struct fsm_op *op, struct fsm_file *file,
                         struct fsm_file *file2)
{
    return fsm_posix.prepare(((struct lane *)state)->posix, op, file, file2);
}

/* A read or write by itself: the depth is 1. */
static struct fsm_status by_itself(struct lane *lane, const struct fsm_op *op,
                                   struct fsm_file *file, void *buffer)
{
    struct fsm_completion completion;
    const int error = uring_submit(lane, op, file, buffer, 0);
    if (error)
        return (struct fsm_status){0, error};
    while (!uring_reap(lane, &completion, 1, 1))
        continue;
    return completion.status;
}

static struct fsm_status uring_execute(void *state, const struct fsm_op *op,
                                       struct fsm_file *file, struct fsm_file *file2,
                                       void *buffer)
{
    struct lane *lane = state;
    if (op->kind == FSM_READ || op->kind == FSM_WRITE)
        return by_itself(lane, op, file, buffer);
    if (op->kind == FSM_CLOSE)
        forget(lane, file);
    const struct fsm_status status = fsm_posix.execute(lane->posix, op, file, file2, buffer);
    if ((op->kind == FSM_OPEN || op->kind == FSM_CREATE) && !status.error) {
        /* a number of its own above the descriptor, which posix does not see: descriptors come
         * again */
        const uint64_t number = __atomic_fetch_add(&lane->uring->opened, 1, __ATOMIC_RELAXED);
        file->handle |= (int64_t)((number & 0x7fffffff) << 32);
    }
    return status;
}

#define URING(called, connecting)                                                             \
    {                                                                                         \
        .abi = FSM_DRIVER_ABI, .kinds = FSM_ALL_KINDS, .max_depth = MOST_DEPTH,               \
        .prepare_kinds = FSM_NAME_KINDS, .name = called, .connect = connecting,               \
        .disconnect = uring_disconnect, .lane_open = uring_lane_open,                         \
        .lane_close = uring_lane_close, .prepare = uring_prepare, .execute = uring_execute,   \
        .submit = uring_submit, .reap = uring_reap, .explain = fsm_explanation,               \
        .buffers = uring_buffers, .pause = uring_pause, .features = uring_features,           \
    }

const struct fsm_driver fsm_uring = URING("uring", uring_connect);
const struct fsm_driver fsm_uring_sqpoll = URING("uring-sqpoll", sqpoll_connect);
