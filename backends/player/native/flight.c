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
    lane->flights = calloc(player->depth, sizeof *lane->flights);
    lane->completions = calloc(player->depth, sizeof *lane->completions);
    if (!lane->flights || !lane->completions ||
        posix_memalign((void **)&lane->flight_memory, bytes < huge ? FSM_BLOCK : huge, bytes))
        return ENOMEM;
    if (bytes >= huge)
        madvise(lane->flight_memory, bytes, MADV_HUGEPAGE); /* a wish */
    const bool now = bytes * player->threads <= TOUCH_AT_ONCE;
    for (uint32_t i = 0; i < player->depth; i++) {
        lane->flights[i].buffer = lane->flight_memory + i * player->buffer_bytes;
        if (now)
            touch(lane, &lane->flights[i]);
    }
    return 0;
}

void fsm_flights_close(struct fsm_lane *lane)
{
    free(lane->flights);
    free(lane->completions);
    free(lane->flight_memory);
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
    const uint64_t since = end_ns > player->origin_ns ? end_ns - player->origin_ns : 0;
    uint64_t interval = since / lane->width; /* completions are not reaped in order of time */
    if (interval > lane->interval)
        interval = lane->interval;

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
    fsm_record(&lane->latency[op->kind], fsm_duration(&lane->clock, ended->end - from));
    if (ended->intended)
        fsm_record(&lane->service[op->kind],
                   fsm_duration(&lane->clock, ended->end - ended->start));
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
        flight->busy = false;
        lane->in_flight--;
        lane->stamps = completion->ticks != 0;
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

/* A flight that is free (for data), after all that the operation has to wait for. */
static struct fsm_flight *ready(struct fsm_lane *lane, const struct fsm_op *op)
{
    const struct fsm_player *player = lane->player;
    for (;;) {
        struct fsm_flight *free_one = NULL;
        bool held = false;
        for (uint32_t i = 0; i < player->depth && !held; i++) {
            struct fsm_flight *flight = &lane->flights[i];
            if (flight->busy)
                held = conflict(flight, op, player->files);
            else if (!free_one)
                free_one = flight;
        }
        if (!held && (free_one || !(FSM_BIT(op->kind) & DATA_KINDS)))
            return free_one;
        reap(lane, 1);
    }
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
 * reaped at once if the driver does not tell when it did. */
static bool paced(struct fsm_lane *lane, const struct fsm_op *op, uint64_t *intended)
{
    *intended = 0;
    if (!op->time)
        return true;
    *intended = fsm_due(lane, lane->player->origin_ns, op->time);
    if (*intended >= lane->deadline)
        return false;
    while (lane->in_flight && !lane->stamps && fsm_ticks(lane->player->tsc) < *intended)
        reap(lane, 0);
    fsm_pace(lane, *intended);
    return true;
}

static bool issue(struct fsm_lane *lane, struct fsm_flight *flight, const struct fsm_op *op)
{
    struct fsm_player *player = lane->player;
    const size_t at = (size_t)(op - player->chunk.ops);
    struct fsm_file *file = &player->files[op->file];
    const uint64_t before = fsm_ticks(player->tsc);
    flight->op = *op;
    flight->index = player->before + at;
    flight->outcome = player->chunk.outcomes ? &player->chunk.outcomes[at] : NULL;
    flight->key = file->key;
    void *buffer = prepare_data(lane, flight);
    lane->overhead += fsm_duration(&lane->clock, fsm_ticks(player->tsc) - before);
    if (!paced(lane, op, &flight->intended))
        return false;
    int error = fsm_refusal(op, file, NULL);
    flight->start = fsm_ticks(player->tsc);
    flight->busy = true; /* before submit: its completion may come at once */
    lane->in_flight++;
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
        flight->busy = false;
        lane->in_flight--;
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
    if (!paced(lane, op, &ended.intended))
        return false;
    ended.status.error = refused;
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
        if (fsm_ticks(player->tsc) >= lane->deadline ||
            __atomic_load_n(&player->stop, __ATOMIC_RELAXED))
            break;
        if (!(FSM_BIT(op->kind) & DATA_KINDS ? issue(lane, flight, op) : execute(lane, op)))
            break;
        lane->played++;
    }
    lane->rest = (size_t)(op - ops);
    lane->rest_end = (size_t)(beyond - ops);
    if (player->chunk.outcomes)
        fsm_flights_drain(lane); /* who asks for outcomes gets them all */
}
