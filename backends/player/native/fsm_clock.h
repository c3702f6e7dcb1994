/* The player's clock: the time-stamp counter where it is invariant, else CLOCK_MONOTONIC.
 *
 * Durations are differences of ticks times a rate; points in time go through an anchor, one
 * pair (ticks, ns) read together, which is renewed again and again, so that an error of the
 * rate cannot add up.  The rate is taken over the time since the module was loaded.
 */
#ifndef FSM_CLOCK_H
#define FSM_CLOCK_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#define FSM_HAVE_TSC 1
#else
#define FSM_HAVE_TSC 0
#endif

#define FSM_NEVER UINT64_MAX
#define FSM_SECOND 1000000000ull
#define FSM_SHORTEST_BASE 5000000ull /* ns over which a rate is taken at least */

struct fsm_clock {
    uint64_t ticks, ns; /* the anchor */
    uint64_t rate;      /* ns per tick, times 2**32 */
    bool tsc;
};

static inline uint64_t fsm_monotonic(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * FSM_SECOND + (uint64_t)t.tv_nsec;
}

static inline uint64_t fsm_ticks(bool tsc)
{
#if FSM_HAVE_TSC
    if (tsc)
        return __rdtsc();
#else
    (void)tsc;
#endif
    return fsm_monotonic();
}

static inline uint64_t fsm_duration(const struct fsm_clock *clock, uint64_t ticks)
{
    return (uint64_t)(((unsigned __int128)ticks * clock->rate) >> 32);
}

static inline uint64_t fsm_ns(const struct fsm_clock *clock, uint64_t ticks)
{
    int64_t delta = (int64_t)(ticks - clock->ticks);
    return clock->ns + (uint64_t)(int64_t)(((__int128)delta * (__int128)clock->rate) >> 32);
}

/* Rounded up, so that fsm_ns of it is not earlier than `ns`. */
static inline uint64_t fsm_ticks_at(const struct fsm_clock *clock, uint64_t ns)
{
    __int128 delta = (__int128)ns - (__int128)clock->ns;
    if (delta > INT64_MAX / 16)
        return FSM_NEVER;
    if (delta < -(__int128)clock->ns)
        return 0;
    const __int128 rate = clock->rate, up = delta > 0 ? rate - 1 : 0;
    const __int128 ticks = (__int128)clock->ticks + (delta * ((__int128)1 << 32) + up) / rate;
    return ticks < 0 ? 0 : (uint64_t)ticks;
}

/* The pair whose two counter reads lie closest together, of a few. */
static inline void fsm_pair(bool tsc, uint64_t *ticks, uint64_t *ns)
{
    uint64_t best = FSM_NEVER;
    for (int i = 0; i < 4; i++) {
        uint64_t before = fsm_ticks(tsc), at = fsm_monotonic(), after = fsm_ticks(tsc);
        if (after - before < best) {
            best = after - before;
            *ticks = before + best / 2;
            *ns = at;
        }
    }
}

/* Renew anchor and rate; `base` was read when the module was loaded. */
static inline void fsm_clock_anchor(struct fsm_clock *clock, const struct fsm_clock *base)
{
    if (!clock->tsc) {
        clock->ticks = clock->ns = fsm_monotonic();
        clock->rate = 1ull << 32;
        return;
    }
    fsm_pair(true, &clock->ticks, &clock->ns);
    clock->rate = (uint64_t)(((unsigned __int128)(clock->ns - base->ns) << 32) /
                             (clock->ticks - base->ticks));
}

/* Sleep until `ns` of CLOCK_MONOTONIC less `spin`, then watch the clock. */
static inline void fsm_wait_until(uint64_t ns, uint64_t spin)
{
    uint64_t wake = ns > spin ? ns - spin : 0;
    if (fsm_monotonic() < wake) {
        struct timespec at = {(time_t)(wake / FSM_SECOND), (long)(wake % FSM_SECOND)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
            ;
    }
    while (fsm_monotonic() < ns)
        ;
}

#endif
