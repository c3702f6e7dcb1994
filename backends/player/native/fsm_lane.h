/* What the synchronous loop (lane.c) and the one with a queue (flight.c) share. */
#ifndef FSM_LANE_H
#define FSM_LANE_H

#include "fsm_player.h"

#define INLINE static inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define PACE_SPIN 50000ull /* ns before an intended time that are spent watching the clock */

#define HANDLE_KINDS (FSM_BIT(FSM_READ) | FSM_BIT(FSM_WRITE) | FSM_BIT(FSM_FSYNC) | \
                      FSM_BIT(FSM_CLOSE) | FSM_BIT(FSM_TRUNCATE) | FSM_BIT(FSM_EVICT))
#define OPEN_KINDS (FSM_BIT(FSM_OPEN) | FSM_BIT(FSM_CREATE))
#define DATA_KINDS (FSM_BIT(FSM_READ) | FSM_BIT(FSM_WRITE))

/* A failed operation, `index` in the whole stream.  FSM_EVERIFY: byte `wrong` of the operation
 * is found[wrong], not expected[wrong]. */
struct fsm_failure {
    const struct fsm_op *op;
    uint64_t index, end; /* ticks */
    int64_t error, wrong;
    const unsigned char *expected, *found;
};

void fsm_lane_run(struct fsm_lane *lane);     /* lane.c: plays its part of the chunk */
void fsm_flights_run(struct fsm_lane *lane);  /* flight.c: the same with a queue */
void fsm_flights_drain(struct fsm_lane *lane);
int fsm_flights_open(struct fsm_lane *lane); /* 0 or ENOMEM */
void fsm_flights_close(struct fsm_lane *lane);

/* Ticks of the interval's end are set for the moment `now`. */
void fsm_lane_interval(struct fsm_lane *lane, uint64_t now);
/* Whether an operation of that sort has completed. */
bool fsm_has(const struct fsm_lane *lane, enum fsm_sort sort);
void fsm_note_error(struct fsm_lane *lane, const struct fsm_failure *failure);
/* Offset of the first byte of `found` that is not what was written, below 0 if all are right. */
int64_t fsm_verify(struct fsm_lane *lane, const struct fsm_op *op, const unsigned char *found,
                   const unsigned char **expected);
/* Wait for the intended time (ticks); the time then. */
uint64_t fsm_pace(struct fsm_lane *lane, uint64_t intended);

/* Ticks before which an operation with a time must not begin. */
INLINE uint64_t fsm_due(const struct fsm_lane *lane, uint64_t after_ns, uint64_t time)
{
    return fsm_ticks_at(&lane->clock, after_ns + time);
}

/* The next batch of the queue: false if none is left. */
INLINE bool fsm_take(struct fsm_player *player, const struct fsm_op **op,
                     const struct fsm_op **beyond)
{
    const struct fsm_chunk *chunk = &player->chunk;
    if (__atomic_load_n(&player->taken, __ATOMIC_RELAXED) >= chunk->count)
        return false;
    const size_t first = __atomic_fetch_add(&player->taken, chunk->batch, __ATOMIC_RELAXED);
    if (first >= chunk->count)
        return false;
    const size_t left = chunk->count - first;
    *op = chunk->ops + first;
    *beyond = *op + (chunk->batch < left ? chunk->batch : left);
    return true;
}

INLINE enum fsm_sort fsm_sort_of(uint8_t kind)
{
    return kind == FSM_READ ? FSM_READS : kind == FSM_WRITE ? FSM_WRITES : FSM_OTHERS;
}

INLINE void fsm_note_outcome(const struct fsm_player *player, struct fsm_outcome *outcome,
                             uint64_t start_ns, uint64_t duration, struct fsm_status status)
{
    const bool counts = !status.error || status.error == FSM_ESHORT;
    outcome->start = start_ns > player->origin_ns ? start_ns - player->origin_ns : 1;
    outcome->duration = duration;
    outcome->result = counts ? status.bytes : -status.error;
}

/* The bin that it fell into. */
INLINE uint64_t fsm_record(struct fsm_latency *latency, uint64_t ns)
{
    unsigned shift = 57u - (unsigned)__builtin_clzll(ns | 64);
    uint64_t bin = ((uint64_t)shift << 6) + (ns >> shift);
    bin = bin < FSM_BINS ? bin : FSM_BINS - 1;
    latency->counts[bin]++;
    latency->total += ns;
    if (ns < latency->least)
        latency->least = ns;
    if (ns > latency->most)
        latency->most = ns;
    return bin;
}

/* Count a completed operation's latency, over all and in its interval. */
INLINE void fsm_record_at(struct fsm_lane *lane, uint8_t kind, uint64_t interval, uint64_t ns)
{
    const uint64_t bin = fsm_record(&lane->latency[kind], ns);
    lane->timeline[fsm_sort_of(kind)][interval * FSM_COARSE + (bin >> FSM_COARSE_SHIFT)]++;
}

/* What the player itself refuses, whatever the driver. */
INLINE int fsm_refusal(const struct fsm_op *op, const struct fsm_file *file,
                       const struct fsm_file *file2)
{
    uint32_t bit = FSM_BIT(op->kind);
    if (bit & HANDLE_KINDS)
        return file->handle < 0 ? EBADF : 0;
    if (!file->valid || (op->kind == FSM_RENAME && !file2->valid))
        return EINVAL;
    return bit & OPEN_KINDS && file->handle >= 0 ? EBUSY : 0;
}

#endif
