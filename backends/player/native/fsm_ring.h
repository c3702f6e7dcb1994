/* One io_uring of the kernel: its numbers and structures as Linux documents them for user space,
 * without liburing and without the headers of the machine that builds, which may be too old.
 *
 * A ring belongs to one thread: the one that enables it.  What is put into it goes to the kernel
 * with the next fsm_ring_enter.
 */
#ifndef FSM_RING_H
#define FSM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsm_driver.h"

enum fsm_ring_code { FSM_RING_READ_FIXED = 4, FSM_RING_WRITE_FIXED = 5, FSM_RING_READ = 22,
                     FSM_RING_WRITE = 23 };
#define FSM_RING_FIXED_FILE 1u /* flag of an entry: fd is an index of the registered files */

struct fsm_ring_entry { /* what is to be done */
    uint8_t code, flags;
    uint16_t priority;
    int32_t fd;
    uint64_t offset, address;
    uint32_t size, call_flags;
    uint64_t tag;
    uint16_t buffer, personality;
    int32_t more;
    uint64_t rest[2];
};
_Static_assert(sizeof(struct fsm_ring_entry) == 64, "as the kernel has it");

struct fsm_ring_event { /* what came of it */
    uint64_t tag;
    int32_t result;
    uint32_t flags;
};

struct fsm_ring {
    int fd; /* -1: none */
    uint32_t setup, features, size, tail; /* flags; entries; entries put in so far */
    uint32_t *sent, *told, *sq_flags;     /* the kernel's side of the entries */
    uint32_t *taken, *come;               /* of the events */
    struct fsm_ring_entry *entries;
    struct fsm_ring_event *events;
    uint32_t event_mask;
    void *maps[2];
    size_t map_bytes[2];
};

/* A ring of at least `size` entries with what the kernel has of it, by steps; `poll`: a thread of
 * the kernel's looks for entries.  0 or an errno, explained (fsm_root.h). */
int fsm_ring_open(struct fsm_ring *ring, uint32_t size, bool poll);
void fsm_ring_close(struct fsm_ring *ring); /* also one that is none */
/* Names of what it was set up with, each after ", ". */
void fsm_ring_features(const struct fsm_ring *ring, char *text, size_t size);
/* The calling thread becomes the ring's owner; 0 or an errno. */
int fsm_ring_enable(struct fsm_ring *ring);

/* Room for an empty table of `count` files; or buffers of `size` bytes each, in a row.  An errno
 * says that operations have to go without. */
int fsm_ring_files(struct fsm_ring *ring, uint32_t count);
int fsm_ring_file(struct fsm_ring *ring, uint32_t index, int fd); /* fd -1: none any more */
int fsm_ring_buffers(struct fsm_ring *ring, void *memory, uint64_t size, uint32_t count);

/* Entries that the kernel has not taken yet. */
static inline uint32_t fsm_ring_unsent(const struct fsm_ring *ring)
{
    return ring->tail - __atomic_load_n(ring->sent, __ATOMIC_ACQUIRE);
}

/* The place for the next entry.  No more than `size` may be unsent. */
static inline struct fsm_ring_entry *fsm_ring_next(struct fsm_ring *ring)
{
    return &ring->entries[ring->tail++ & (ring->size - 1)];
}

/* Let the kernel see all entries; it takes them in fsm_ring_enter, or at once if it polls. */
static inline void fsm_ring_tell(struct fsm_ring *ring)
{
    __atomic_store_n(ring->told, ring->tail, __ATOMIC_RELEASE);
}

/* Hand over what is unsent and, with `wait`, wait for an event, until `until_ns` of
 * CLOCK_MONOTONIC unless that is 0.  0, also when a signal or the time ended it; or an errno. */
int fsm_ring_enter(struct fsm_ring *ring, bool wait, uint64_t until_ns);

/* The next event, or NULL. */
static inline const struct fsm_ring_event *fsm_ring_event(struct fsm_ring *ring)
{
    const uint32_t at = *ring->taken;
    if (at == __atomic_load_n(ring->come, __ATOMIC_ACQUIRE))
        return NULL;
    return &ring->events[at & ring->event_mask];
}

static inline void fsm_ring_take(struct fsm_ring *ring) /* the event is not looked at any more */
{
    __atomic_store_n(ring->taken, *ring->taken + 1, __ATOMIC_RELEASE);
}

#endif
