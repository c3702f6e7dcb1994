/* Data content in C; backends/player/player.py is the reference and says how it is made. */
#ifndef FSM_CONTENT_H
#define FSM_CONTENT_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FSM_BLOCK 4096u

static inline uint64_t fsm_mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline uint64_t fsm_fnv1a64(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return hash;
}

/* Where the byte at `offset` of the file with this key lies in the pool, of which `period` bytes
 * (a power of two) repeat. */
static inline uint64_t fsm_phase(uint64_t period, uint64_t key, uint64_t offset)
{
    return (offset + key * FSM_BLOCK) & (period - 1);
}

/* Stamp the blocks of [offset, offset + size), whose bytes begin at `data`. */
static inline void fsm_stamp(unsigned char *data, uint64_t key, uint64_t offset, uint64_t size)
{
    unsigned char *stamp = data - offset % FSM_BLOCK, *end = data + size;
    for (uint64_t block = offset / FSM_BLOCK; stamp < end; block++, stamp += FSM_BLOCK) {
        uint64_t value = htole64(fsm_mix64(key + block));
        memcpy(stamp, &value, sizeof value);
    }
}

/* The bytes [offset, offset + size) of the file with this key, inside the lane's pool. */
static inline unsigned char *fsm_content(unsigned char *pool, uint64_t period, uint64_t key,
                                         uint64_t offset, uint64_t size)
{
    unsigned char *data = pool + fsm_phase(period, key, offset);
    fsm_stamp(data, key, offset, size);
    return data;
}

struct fsm_held { /* what a buffer holds of the pool; size 0: nothing */
    uint64_t phase, size;
};

/* The same in a buffer (size + FSM_BLOCK bytes).  What it holds of an operation before is not
 * copied again: large writes of one file have one phase, and only their stamps differ. */
static inline unsigned char *fsm_content_in(unsigned char *buffer, struct fsm_held *held,
                                            const unsigned char *pool, uint64_t period,
                                            uint64_t key, uint64_t offset, uint64_t size)
{
    const uint64_t phase = fsm_phase(period, key, offset);
    unsigned char *data = buffer + offset % FSM_BLOCK; /* for O_DIRECT */
    if (held->phase != phase || held->size < size) {
        memcpy(data, pool + phase, size);
        *held = (struct fsm_held){phase, size};
    }
    fsm_stamp(data, key, offset, size);
    return data;
}

#endif
