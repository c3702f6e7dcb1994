/* The loop with a queue: one lane keeps up to `depth` reads and writes in flight.
 *
 * fsm_driver.h says what is held back for what.  A flight stays from one chunk to the next, so
 * that the queue does not run dry between them, unless outcomes are asked for; fsm_flights_drain
 * ends all.  What completed is counted when it is reaped, at the time of its completion.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fsm_lane.h"

#define TOUCH_AT_ONCE (256u << 20) /* bytes of all buffers; beyond that each when first used */
#define TREE_KINDS (FSM_BIT(FSM_RENAME) | FSM_BIT(FSM_RMDIR)) /* wait for all data */

/* One operation that is over. */
struct ended {
    const struct fsm_op *op;
    struct fsm_outcome *outcome; /* NULL: nobody asks */
    uint64_t index, start, end, intended; /* ticks */
    uint64_t start_ns; /* by the clock that its intended time was waited for with */
    struct fsm_status status;
    unsigned char *buffer;
};

/* Have the buffer's pages there before it is timed. */
static void touch(struct fsm_lane *lane, struct fsm_flight *flight)
{
    memset(flight->buffer, 0, lane->player->buffer_bytes);
    flight->touched = true;
}

int fsm_flights_open(struct fsm_lane *lane)
{
    const struct fsm_player *player = lane->player;
    const size_t huge = 2u << 20, bytes = player->depth * player->buffer_bytes;
    const size_t room = bytes < huge ? bytes : bytes + huge;
    lane->flights = calloc(player->depth, sizeof *lane->flights);
    lane->unused = calloc(player->depth, sizeof *lane->unused);
    lane->completions = calloc(player->depth, sizeof *lane->completions);
    if (!lane->flights || !lane->unused || !lane->completions)
        return ENOMEM;
    /* of the kernel, and no memory of malloc's that others get afterwards: a storage system that
     * fails may still write into it */
    lane->flight_map = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (lane->flight_map == MAP_FAILED)
        return ENOMEM;
    lane->flight_map_bytes = room;
    lane->flight_memory = lane->flight_map;
    if (bytes >= huge) {
        lane->flight_memory += -(uintptr_t)lane->flight_map % huge;
        madvise(lane->flight_memory, bytes, MADV_HUGEPAGE); /* a wish */
    }
    lane->flights_touched = bytes * player->threads <= TOUCH_AT_ONCE;
    for (uint32_t i = 0; i < player->depth; i++) {
        lane->flights[i].buffer = lane->flight_memory + i * player->buffer_bytes;
        lane->unused[i] = i;
        if (lane->flights_touched)
            touch(lane, &lane->flights[i]);
    }
    return 0;
}

void fsm_flights_close(struct fsm_lane *lane)
{
    free(lane->flights);
    free(lane->unused);
    free(lane->completions);
    if (lane->flight_map_bytes)
        munmap(lane->flight_map, lane->flight_map_bytes);
}

/* Count the operation where it ended, in its interval and in its histogram. */
static void count(struct fsm_lane *lane, struct ended *ended)
{
    struct fsm_player *player = lane->player;
    const struct fsm_op *op = ended->op;
    const uint32_t bit = FSM_BIT(op->kind);
    const bool data = bit & DATA_KINDS;
    if ((int64_t)(ended->end - ended->start) < 0) /* counters of two processors */
        ended->end = ended->start;
    struct fsm_failure failure = {op, ended->index, ended->end, 0, -1, NULL, ended->buffer};

    if (op->flags & FSM_VERIFY && op->kind == FSM_READ && !ended->status.error) {
        uint64_t before = fsm_ticks(player->tsc);
        failure.wrong = fsm_verify(lane, op, ended->buffer, &failure.expected);
        if (failure.wrong >= 0)
            ended->status = (struct fsm_status){0, FSM_EVERIFY};
        lane->overhead += fsm_duration(&lane->clock, fsm_ticks(player->tsc) - before);
    }
    if (ended->outcome)
        fsm_note_outcome(player, ended->outcome, ended->start_ns,
                         fsm_duration(&lane->clock, ended->end - ended->start), ended->status);
    if (ended->end >= lane->interval_end)
        fsm_lane_interval(lane, ended->end);
    const uint64_t start_ns = ended->start_ns;
    const uint64_t end_ns = fsm_ns(&lane->clock, ended->end);
    uint64_t interval = lane->interval;
    if (UNLIKELY(ended->end < lane->interval_begin)) { /* they are not reaped in order of time */
        const uint64_t since = end_ns > player->origin_ns ? end_ns - player->origin_ns : 0;
        if (since / lane->width < interval)
            interval = since / lane->width;
    }

    lane->executed++;
    if (!lane->first_ns || start_ns < lane->first_ns)
        lane->first_ns = start_ns;
    if (end_ns > lane->last_ns)
        lane->last_ns = end_ns;
    if (data) {
        if (!lane->io_first_ns || start_ns < lane->io_first_ns)
            lane->io_first_ns = start_ns;
        if (end_ns > lane->io_last_ns)
            lane->io_last_ns = end_ns;
        lane->bytes[interval] += (uint64_t)ended->status.bytes;
    }
    if (ended->status.error) {
        failure.error = ended->status.error;
        fsm_note_error(lane, &failure);
        return;
    }
    lane->operations[interval] += player->count_metadata || data;
    const uint64_t from = ended->intended && ended->intended < ended->start ? ended->intended
                                                                           : ended->start;
    fsm_record_at(lane, op->kind, interval, fsm_duration(&lane->clock, ended->end - from));
    if (ended->intended)
        fsm_record(&lane->service[op->kind],
                   fsm_duration(&lane->clock, ended->end - ended->start));
}

static void set_busy(struct fsm_lane *lane, struct fsm_flight *flight)
{
    flight->busy = true;
    lane->in_flight++; /* it is the last of those that are free */
    lane->writing += flight->op.kind == FSM_WRITE;
}

static void set_free(struct fsm_lane *lane, struct fsm_flight *flight)
{
    flight->busy = false;
    lane->unused[lane->player->depth - lane->in_flight--] = (uint32_t)(flight - lane->flights);
    lane->writing -= flight->op.kind == FSM_WRITE;
}

/* Count what has completed; with `wait` at least one. */
static void reap(struct fsm_lane *lane, int wait)
{
    struct fsm_player *player = lane->player;
    int n = player->driver->reap(lane->state, lane->completions, (int)player->depth, wait);
    const uint64_t now = fsm_ticks(player->tsc);
    for (int i = 0; i < n; i++) {
        const struct fsm_completion *completion = &lane->completions[i];
        struct fsm_flight *flight = &lane->flights[completion->tag];
        struct ended ended = {
            .op = &flight->op, .outcome = flight->outcome, .index = flight->index,
            .start = flight->start, .end = completion->ticks ? completion->ticks : now,
            .intended = flight->intended, .start_ns = flight->start_ns,
            .status = completion->status, .buffer = flight->buffer};
        lane->stamps = completion->ticks != 0;
        set_free(lane, flight);
        count(lane, &ended);
    }
}

void fsm_flights_drain(struct fsm_lane *lane)
{
    while (lane->in_flight)
        reap(lane, 1);
}

/* Whether the operation must not begin before this flight has ended. */
static bool conflict(const struct fsm_flight *flight, const struct fsm_op *op,
                     const struct fsm_file *files)
{
    const struct fsm_op *other = &flight->op;
    const bool same = other->file == op->file || flight->key == files[op->file].key;
    if (!(FSM_BIT(op->kind) & DATA_KINDS))
        return same || FSM_BIT(op->kind) & TREE_KINDS;
    return same && (op->kind == FSM_WRITE || other->kind == FSM_WRITE) &&
           op->offset < other->offset + other->size && other->offset < op->offset + op->size;
}

/* Whether something in flight holds the operation back.  Reads hold back no reads. */
static bool held(const struct fsm_lane *lane, const struct fsm_op *op)
{
    const struct fsm_player *player = lane->player;
    if (!lane->in_flight || (op->kind == FSM_READ && !lane->writing))
        return false;
    for (uint32_t i = 0; i < player->depth; i++)
        if (lane->flights[i].busy && conflict(&lane->flights[i], op, player->files))
            return true;
    return false;
}

/* A flight that is free (for data), after all that the operation has to wait for. */
static struct fsm_flight *ready(struct fsm_lane *lane, const struct fsm_op *op)
{
    const uint32_t depth = lane->player->depth;
    const bool data = FSM_BIT(op->kind) & DATA_KINDS;
    while (held(lane, op) || (data && lane->in_flight == depth))
        reap(lane, 1);
    return data ? &lane->flights[lane->unused[depth - lane->in_flight - 1]] : NULL;
}

/* The buffer of a read, or the content of a write, where it stays until the completion. */
static void *prepare_data(struct fsm_lane *lane, struct fsm_flight *flight)
{
    const struct fsm_player *player = lane->player;
    const struct fsm_op *op = &flight->op;
    const bool writing = op->kind == FSM_WRITE;
    if (!flight->touched && !(writing && player->driver->copies_writes))
        touch(lane, flight);
    if (!writing) {
        flight->held.size = 0;
        return flight->buffer;
    }
    if (player->driver->copies_writes)
        return fsm_content(lane->pool, player->period, flight->key, op->offset, op->size);
    return fsm_content_in(flight->buffer, &flight->held, lane->pool, player->period, flight->key,
                          op->offset, op->size);
}

/* Wait for the operation's time: false if the deadline comes first.  What completes meanwhile is
 * reaped at once if the driver does not tell when it did, or can wait for it.  `own`: how many of
 * those that are in flight it is itself. */
static bool paced(struct fsm_lane *lane, const struct fsm_op *op, uint32_t own,
                  uint64_t *intended)
{
    *intended = 0;
    if (!op->time)
        return true;
    *intended = fsm_due(lane, lane->player->origin_ns, op->time);
    if (*intended >= lane->deadline)
        return false;
    const struct fsm_driver *driver = lane->player->driver;
    for (uint64_t now; (driver->pause || !lane->stamps) && lane->in_flight > own &&
                       (now = fsm_ticks(lane->player->tsc)) < *intended;) {
        if (driver->pause && fsm_duration(&lane->clock, *intended - now) > PACE_SPIN)
            driver->pause(lane->state, fsm_ns(&lane->clock, *intended) - PACE_SPIN);
        reap(lane, 0);
    }
    fsm_pace(lane, *intended);
    return true;
}

/* Begin a read or write; `before`: ticks now. */
static bool issue(struct fsm_lane *lane, struct fsm_flight *flight, const struct fsm_op *op,
                  uint64_t before)
{
    struct fsm_player *player = lane->player;
    const size_t at = (size_t)(op - player->chunk.ops);
    struct fsm_file *file = &player->files[op->file];
    flight->op = *op;
    set_busy(lane, flight);
    flight->index = player->before + at;
    flight->outcome = player->chunk.outcomes ? &player->chunk.outcomes[at] : NULL;
    flight->key = file->key;
    void *buffer = prepare_data(lane, flight);
    const uint64_t prepared = fsm_ticks(player->tsc);
    lane->overhead += fsm_duration(&lane->clock, prepared - before);
    if (!paced(lane, op, 1, &flight->intended)) {
        set_free(lane, flight);
        return false;
    }
    int error = fsm_refusal(op, file, NULL);
    flight->start = flight->intended ? fsm_ticks(player->tsc) : prepared;
    if (!error)
        error = player->driver->submit(lane->state, &flight->op, file, buffer,
                                       (uint64_t)(flight - lane->flights));
    flight->start_ns = fsm_ns(&lane->clock, flight->start); /* only this lane reaps */
    if (error) {
        struct ended ended = {
            .op = &flight->op, .outcome = flight->outcome, .index = flight->index,
            .start = flight->start, .end = fsm_ticks(player->tsc),
            .intended = flight->intended, .start_ns = flight->start_ns,
            .status = {0, error}, .buffer = flight->buffer};
        set_free(lane, flight);
        count(lane, &ended);
    }
    return true;
}

/* An operation that is no read or write. */
static bool execute(struct fsm_lane *lane, const struct fsm_op *op)
{
    struct fsm_player *player = lane->player;
    const size_t at = (size_t)(op - player->chunk.ops);
    const struct fsm_driver *driver = player->driver;
    struct fsm_file *file = &player->files[op->file], *file2 = &player->files[op->file2];
    struct ended ended = {.op = op, .index = player->before + at};
    ended.outcome = player->chunk.outcomes ? &player->chunk.outcomes[at] : NULL;
    int refused = fsm_refusal(op, file, file2);
    if (!refused && driver->prepare && FSM_BIT(op->kind) & driver->prepare_kinds) {
        const uint64_t before = fsm_ticks(player->tsc);
        int answer = driver->prepare(lane->state, op, file, file2);
        refused = answer > 0 ? answer : 0;
        lane->overhead += fsm_duration(&lane->clock, fsm_ticks(player->tsc) - before);
    }
    if (!paced(lane, op, 0, &ended.intended))
        return false;
    ended.status.error = refused;
    if (driver->pause && lane->in_flight)
        fsm_flights_drain(lane); /* nobody reaps while it is executed */
    ended.start = fsm_ticks(player->tsc);
    if (!refused)
        ended.status = driver->execute(lane->state, op, file, file2, lane->buffer);
    ended.end = fsm_ticks(player->tsc);
    ended.start_ns = fsm_ns(&lane->clock, ended.start);
    if (op->kind == FSM_EVICT)
        lane->overhead += fsm_duration(&lane->clock, ended.end - ended.start);
    if (lane->in_flight)
        reap(lane, 0); /* what completed meanwhile belongs before it */
    count(lane, &ended);
    return true;
}

void fsm_flights_run(struct fsm_lane *lane)
{
    struct fsm_player *player = lane->player;
    const struct fsm_op *const ops = player->chunk.ops;
    const bool queue = fsm_is_queue(player);
    const struct fsm_op *op = ops, *beyond = queue ? ops : ops + player->chunk.count;
    if (player->draining) {
        fsm_flights_drain(lane);
        return;
    }
    for (;; op++) {
        if (op == beyond && !(queue && fsm_take(player, &op, &beyond)))
            break;
        if (!queue && op->stream % player->threads != lane->index)
            continue;
        struct fsm_flight *flight = ready(lane, op);
        const uint64_t now = fsm_ticks(player->tsc);
        if (now >= lane->deadline || __atomic_load_n(&player->stop, __ATOMIC_RELAXED))
            break;
        if (!(FSM_BIT(op->kind) & DATA_KINDS ? issue(lane, flight, op, now) : execute(lane, op)))
            break;
        lane->played++;
    }
    lane->rest = (size_t)(op - ops);
    lane->rest_end = (size_t)(beyond - ops);
    if (player->chunk.outcomes || player->driver->pause)
        fsm_flights_drain(lane); /* who asks for outcomes gets them all */
}
