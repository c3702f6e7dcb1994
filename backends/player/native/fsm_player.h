/* The player: lanes (one per thread) that execute chunks of operations through a driver. */
#ifndef FSM_PLAYER_H
#define FSM_PLAYER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fsm_clock.h"
#include "fsm_content.h"
#include "fsm_driver.h"

#define FSM_BINS 1856 /* results/histogram.py */
#define FSM_COARSE_SHIFT 4u /* 16 bins make a coarse one: a quarter of an octave */
#define FSM_COARSE (FSM_BINS >> FSM_COARSE_SHIFT)
#define FSM_INTERVALS 1024u
#define FSM_FIRST_WIDTH 10000000ull /* ns */
#define FSM_ERRORS 1002             /* errno values and the player's own */
#define FSM_TEXT 4096

enum fsm_sort { FSM_READS, FSM_WRITES, FSM_OTHERS, FSM_SORTS }; /* base.py: SORTS */

struct fsm_latency { /* of one kind */
    uint64_t counts[FSM_BINS];
    uint64_t total, least, most; /* ns */
};

struct fsm_outcome { /* backends/player/ops.py: OUTCOME */
    uint64_t start;    /* ns after the origin, at least 1; 0: not executed */
    uint64_t duration; /* ns */
    int64_t result;    /* bytes; below 0: an error; FSM_UNKNOWN: not executed */
};
_Static_assert(sizeof(struct fsm_outcome) == 24, "laid out as OUTCOME in backends/player/ops.py");
#define FSM_UNKNOWN INT64_MIN

struct fsm_chunk {
    const struct fsm_op *ops;
    struct fsm_outcome *outcomes; /* NULL: nobody asks */
    size_t count, batch;          /* batch above 0: a queue that the lanes share */
    bool paced;                   /* some operation has a time */
};

struct fsm_first_error {
    uint64_t ns; /* when; 0: none */
    uint64_t index, offset;
    uint64_t wrong_offset; /* FSM_EVERIFY: of the first wrong byte in the file */
    int32_t error;
    uint8_t kind, expected, found;
    char name[FSM_TEXT];
};

struct fsm_flight { /* one operation in flight */
    struct fsm_op op;
    struct fsm_outcome *outcome; /* NULL: nobody asks */
    uint64_t index;           /* in the whole stream */
    uint64_t key;             /* of the file's content: tells files apart by name */
    uint64_t start, intended; /* ticks; intended 0: none */
    uint64_t start_ns;
    unsigned char *buffer;
    struct fsm_held held; /* what the buffer holds */
    bool busy, touched; /* touched: the buffer's pages are there */
};

struct fsm_player;

struct fsm_lane {
    struct fsm_player *player;
    void *state; /* the driver's */
    uint64_t deadline; /* ticks */
    struct fsm_clock clock;
    unsigned char *pool, *buffer;
    struct fsm_latency *latency, *service; /* [FSM_KINDS]; service NULL: no open loop */
    uint64_t *bytes, *operations;          /* [FSM_INTERVALS] */
    uint64_t *timeline[FSM_SORTS];         /* [FSM_INTERVALS][FSM_COARSE] */
    uint64_t interval, intervals_used, interval_end, width; /* index, count, ticks, ns */
    uint64_t interval_begin; /* ticks */
    uint64_t first_ns, last_ns, io_first_ns, io_last_ns;    /* 0: none yet */
    uint64_t executed, played, overhead, error_count;       /* overhead in ns */
    size_t rest, rest_end; /* of the chunk: where it stopped in what it had taken */
    uint64_t errors[FSM_ERRORS];
    struct fsm_first_error first_error;
    struct fsm_flight *flights;             /* [depth]; NULL: depth 1 */
    struct fsm_completion *completions;     /* [depth] */
    uint32_t *unused;                       /* those that are free, in_flight fewer than depth */
    unsigned char *flight_memory;           /* all their buffers */
    void *flight_map;                       /* what they lie in */
    size_t flight_map_bytes;
    uint32_t in_flight, writing; /* writing: how many of them write */
    bool stamps; /* the driver's last completion told its time */
    bool flights_touched; /* all buffers' pages are there */
    unsigned index;
    bool started; /* its thread runs */
    pthread_t thread;
};

struct fsm_player {
    const struct fsm_driver *driver;
    void *connection;
    struct fsm_file *files;
    struct fsm_lane *lanes;
    size_t pool_bytes, buffer_bytes; /* of each lane */
    uint64_t period;                 /* bytes of the pool that repeat */
    uint64_t seed, origin_ns, deadline_ns;
    uint64_t before; /* operations in earlier chunks */
    uint32_t slots, threads, depth, max_op_bytes;
    bool tsc, count_metadata, stop_on_error, pauses;
    int stop; /* an error ended the play */
    struct fsm_chunk chunk; /* that is being played */
    bool draining; /* no chunk: wait for what is in flight */
    char apart[64]; /* the lanes of a queue fight for this line only */
    size_t taken;   /* operations of the queue, may go beyond its end */
    char apart_too[64];
    /* hand-over to the threads of lanes 1.. */
    pthread_mutex_t mutex;
    pthread_cond_t begin, done;
    uint64_t turn;
    uint32_t busy;
    bool quit;
};

extern struct fsm_clock fsm_base_clock; /* read when the module is loaded */

/* 0 or an errno; on an error what was made is taken down by fsm_player_close. */
int fsm_player_open(struct fsm_player *player, const struct fsm_config *config,
                    const unsigned char *pool, size_t period);
void fsm_player_close(struct fsm_player *player);
int fsm_player_want_service(struct fsm_player *player); /* 0 or ENOMEM */
uint64_t fsm_player_play(struct fsm_player *player, const struct fsm_chunk *chunk);
/* Whether the lanes share the chunk as a queue; one lane takes it whole. */
static inline bool fsm_is_queue(const struct fsm_player *player)
{
    return player->chunk.batch && player->threads > 1;
}
/* Wait for everything that is in flight. */
void fsm_player_drain(struct fsm_player *player);
/* A name for a slot that is not open: 0 or ENOMEM. */
int fsm_file_name(struct fsm_player *player, struct fsm_file *file, const char *name,
                  size_t length);
#endif
