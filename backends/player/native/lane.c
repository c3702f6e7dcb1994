/* The hot loop: one lane plays its operations of a chunk, one after the other: all of them, those
 * of its streams, or batches of a queue.
 *
 * One clock read is the end of one operation and the start of the next; where something else
 * was done between them (filling, verifying, looking at directories, waiting for an intended
 * time) the clock is read again after it.  Nothing is allocated.  The loop is written once
 * and compiled for each combination of clock, extras (times, outcomes) and division among lanes.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/prctl.h>

#include "fsm_content.h"
#include "fsm_lane.h"

#define ANCHOR_AGE 100000000ull /* ns after which an anchor is renewed within a chunk */

enum division { ALONE, BY_STREAM, QUEUE };

static void set_deadline(struct fsm_lane *lane)
{
    uint64_t ns = lane->player->deadline_ns;
    lane->deadline = ns ? fsm_ticks_at(&lane->clock, ns) : FSM_NEVER;
}

COLD bool fsm_has(const struct fsm_lane *lane, enum fsm_sort sort)
{
    for (uint8_t kind = 0; kind < FSM_KINDS; kind++)
        if (fsm_sort_of(kind) == sort && lane->latency[kind].least != UINT64_MAX)
            return true;
    return false;
}

/* Pairs of the FSM_INTERVALS rows become one; what comes after them is zero. */
static void halve(uint64_t *rows, size_t columns)
{
    const size_t half = FSM_INTERVALS / 2;
    for (size_t i = 0; i < half; i++)
        for (size_t j = 0; j < columns; j++)
            rows[i * columns + j] = rows[2 * i * columns + j] + rows[(2 * i + 1) * columns + j];
    memset(rows + half * columns, 0, half * columns * sizeof *rows);
}

/* Halve the series: pairs of intervals become one of twice the width. */
static void fold(struct fsm_lane *lane)
{
    halve(lane->bytes, 1);
    halve(lane->operations, 1);
    for (unsigned sort = 0; sort < FSM_SORTS; sort++)
        if (fsm_has(lane, sort)) /* else it takes no memory yet */
            halve(lane->timeline[sort], FSM_COARSE);
    lane->intervals_used = (lane->intervals_used + 1) / 2;
    lane->width *= 2;
}

COLD void fsm_lane_interval(struct fsm_lane *lane, uint64_t now)
{
    uint64_t ns = fsm_ns(&lane->clock, now), origin = lane->player->origin_ns;
    if (ns > lane->clock.ns + ANCHOR_AGE) {
        fsm_clock_anchor(&lane->clock, &fsm_base_clock);
        set_deadline(lane);
    }
    uint64_t elapsed = ns > origin ? ns - origin : 0;
    while (elapsed / lane->width >= FSM_INTERVALS)
        fold(lane);
    lane->interval = elapsed / lane->width;
    lane->interval_end = fsm_ticks_at(&lane->clock, origin + (lane->interval + 1) * lane->width);
    if (lane->interval_end <= now) /* by rounding */
        lane->interval_end = now + 1;
    lane->interval_begin = fsm_ticks_at(&lane->clock, origin + lane->interval * lane->width);
    if (lane->interval >= lane->intervals_used)
        lane->intervals_used = lane->interval + 1;
}

COLD void fsm_note_error(struct fsm_lane *lane, const struct fsm_failure *failure)
{
    struct fsm_player *player = lane->player;
    const struct fsm_op *op = failure->op;
    const int64_t error = failure->error;
    struct fsm_file *file = &player->files[op->file];
    struct fsm_first_error *first = &lane->first_error;
    lane->error_count++;
    lane->errors[error > 0 && error < FSM_ERRORS ? error : FSM_ESHORT - 1]++;
    if (player->stop_on_error)
        __atomic_store_n(&player->stop, 1, __ATOMIC_RELAXED);
    if (first->ns)
        return;
    first->ns = fsm_ns(&lane->clock, failure->end);
    first->index = failure->index;
    first->offset = op->offset;
    first->error = (int32_t)error;
    first->kind = op->kind;
    if (error == FSM_EVERIFY) {
        first->wrong_offset = op->offset + (uint64_t)failure->wrong;
        first->expected = failure->expected[failure->wrong];
        first->found = failure->found[failure->wrong];
    }
    strncpy(first->name, file->name ? file->name : "", sizeof first->name - 1);
}

int64_t fsm_verify(struct fsm_lane *lane, const struct fsm_op *op, const unsigned char *found,
                   const unsigned char **expected)
{
    struct fsm_player *player = lane->player;
    const unsigned char *right = fsm_content(lane->pool, player->period,
                                             player->files[op->file].key, op->offset, op->size);
    *expected = right;
    if (memcmp(right, found, op->size) == 0)
        return -1;
    int64_t at = 0;
    while (right[at] == found[at])
        at++;
    return at;
}

COLD uint64_t fsm_pace(struct fsm_lane *lane, uint64_t intended)
{
    uint64_t now = fsm_ticks(lane->clock.tsc);
    if (now >= intended)
        return now;
    if (fsm_duration(&lane->clock, intended - now) > PACE_SPIN) {
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* else the kernel wakes up to 50 us later */
        fsm_wait_until(fsm_ns(&lane->clock, intended) - PACE_SPIN, 0);
    }
    do
        now = fsm_ticks(lane->clock.tsc);
    while (now < intended);
    return now;
}

/* When the lane's previous operation ended, ns; `last` in this chunk, ticks, 0: none. */
INLINE uint64_t previous_end(const struct fsm_lane *lane, uint64_t last)
{
    if (last)
        return fsm_ns(&lane->clock, last);
    return lane->last_ns ? lane->last_ns : lane->player->origin_ns;
}

INLINE void run(struct fsm_lane *lane, const bool tsc, const bool extras,
                const enum division division)
{
    struct fsm_player *player = lane->player;
    const struct fsm_driver *driver = player->driver;
    const struct fsm_op *const ops = player->chunk.ops;
    const struct fsm_op *op = ops, *beyond = division == QUEUE ? ops : ops + player->chunk.count;
    struct fsm_outcome *const outcomes = extras ? player->chunk.outcomes : NULL;
    const uint32_t counted = player->count_metadata ? FSM_ALL_KINDS : DATA_KINDS;
    const uint32_t prepared = driver->prepare ? driver->prepare_kinds : 0;
    struct fsm_file *const files = player->files;
    uint64_t now = fsm_ticks(tsc), first = 0, last = 0, io_first = 0, io_last = 0;
    uint64_t executed = 0, overhead = 0;

    for (;; op++) {
        if (UNLIKELY(op == beyond) && !(division == QUEUE && fsm_take(player, &op, &beyond)))
            break;
        if (division == BY_STREAM && op->stream % player->threads != lane->index)
            continue;
        if (UNLIKELY(now >= lane->deadline))
            break;
        if (division != ALONE && UNLIKELY(__atomic_load_n(&player->stop, __ATOMIC_RELAXED)))
            break;
        struct fsm_file *file = &files[op->file], *file2 = &files[op->file2];
        const uint32_t bit = FSM_BIT(op->kind);
        void *buffer = lane->buffer;
        uint64_t intended = 0, start = now;
        int refused = fsm_refusal(op, file, file2);

        if (op->kind == FSM_WRITE) {
            buffer = fsm_content(lane->pool, player->period, file->key, op->offset, op->size);
            now = fsm_ticks(tsc);
            overhead += now - start;
        } else if (UNLIKELY(bit & prepared) && !refused) {
            int answer = driver->prepare(lane->state, op, file, file2);
            if (answer > 0)
                refused = answer;
            if (answer) {
                now = fsm_ticks(tsc);
                overhead += now - start;
            }
        }
        if (extras && op->time) {
            const uint64_t due = player->pauses ? fsm_due(lane, previous_end(lane, last), op->time)
                                                : fsm_due(lane, player->origin_ns, op->time);
            if (due >= lane->deadline)
                break;
            now = fsm_pace(lane, due);
            if (!player->pauses)
                intended = due;
        }
        start = now;
        struct fsm_status status = {0, refused};
        if (!UNLIKELY(refused))
            status = driver->execute(lane->state, op, file, file2, buffer);
        const uint64_t end = now = fsm_ticks(tsc);

        executed++;
        if (UNLIKELY(op->kind == FSM_EVICT))
            overhead += end - start;
        if (UNLIKELY(!first))
            first = start;
        last = end;
        const unsigned char *expected = NULL;
        int64_t wrong = -1;
        if (UNLIKELY(op->flags & FSM_VERIFY) && op->kind == FSM_READ && !status.error) {
            wrong = fsm_verify(lane, op, lane->buffer, &expected);
            if (wrong >= 0)
                status = (struct fsm_status){0, FSM_EVERIFY};
            now = fsm_ticks(tsc);
            overhead += now - end;
        }
        if (extras && outcomes) /* before the clock's anchor may change */
            fsm_note_outcome(player, &outcomes[op - ops], fsm_ns(&lane->clock, start),
                             fsm_duration(&lane->clock, end - start), status);
        if (UNLIKELY(end >= lane->interval_end))
            fsm_lane_interval(lane, end);
        if (bit & DATA_KINDS) {
            io_first = io_first ? io_first : start;
            io_last = end;
            lane->bytes[lane->interval] += (uint64_t)status.bytes;
        }
        if (UNLIKELY(status.error)) {
            const struct fsm_failure failure = {
                op, player->before + (uint64_t)(op - ops), end, status.error, wrong,
                expected, lane->buffer};
            fsm_note_error(lane, &failure);
            if (player->stop_on_error) {
                op++;
                break;
            }
            continue;
        }
        lane->operations[lane->interval] += (bit & counted) != 0;
        const uint64_t from = extras && intended && intended < start ? intended : start;
        fsm_record_at(lane, op->kind, lane->interval, fsm_duration(&lane->clock, end - from));
        if (extras && intended)
            fsm_record(&lane->service[op->kind], fsm_duration(&lane->clock, end - start));
    }
    lane->played = executed;
    lane->rest = (size_t)(op - ops);
    lane->rest_end = (size_t)(beyond - ops);
    lane->executed += executed;
    lane->overhead += fsm_duration(&lane->clock, overhead);
    if (first && !lane->first_ns)
        lane->first_ns = fsm_ns(&lane->clock, first);
    if (last)
        lane->last_ns = fsm_ns(&lane->clock, last);
    if (io_first && !lane->io_first_ns)
        lane->io_first_ns = fsm_ns(&lane->clock, io_first);
    if (io_last)
        lane->io_last_ns = fsm_ns(&lane->clock, io_last);
}

#define VARIANT(name, tsc, extras, division)                                                  \
    __attribute__((noinline)) static void name(struct fsm_lane *lane)                         \
    {                                                                                         \
        run(lane, tsc, extras, division);                                                     \
    }
VARIANT(mono_alone, false, false, ALONE)
VARIANT(mono_by_stream, false, false, BY_STREAM)
VARIANT(mono_queue, false, false, QUEUE)
VARIANT(mono_extras_alone, false, true, ALONE)
VARIANT(mono_extras_by_stream, false, true, BY_STREAM)
VARIANT(mono_extras_queue, false, true, QUEUE)
VARIANT(tsc_alone, true, false, ALONE)
VARIANT(tsc_by_stream, true, false, BY_STREAM)
VARIANT(tsc_queue, true, false, QUEUE)
VARIANT(tsc_extras_alone, true, true, ALONE)
VARIANT(tsc_extras_by_stream, true, true, BY_STREAM)
VARIANT(tsc_extras_queue, true, true, QUEUE)

void fsm_lane_run(struct fsm_lane *lane)
{
    static void (*const variants[2][2][3])(struct fsm_lane *) = {
        {{mono_alone, mono_by_stream, mono_queue},
         {mono_extras_alone, mono_extras_by_stream, mono_extras_queue}},
        {{tsc_alone, tsc_by_stream, tsc_queue},
         {tsc_extras_alone, tsc_extras_by_stream, tsc_extras_queue}},
    };
    const struct fsm_player *player = lane->player;
    fsm_clock_anchor(&lane->clock, &fsm_base_clock);
    set_deadline(lane);
    fsm_lane_interval(lane, fsm_ticks(player->tsc));
    if (lane->flights) {
        fsm_flights_run(lane);
        return;
    }
    const bool extras = player->chunk.paced || player->chunk.outcomes;
    const enum division division = fsm_is_queue(player)  ? QUEUE
                                   : player->threads > 1 ? BY_STREAM
                                                         : ALONE;
    variants[player->tsc][extras][division](lane);
}
