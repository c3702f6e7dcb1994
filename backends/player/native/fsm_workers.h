/* Depth by threads, for drivers whose calls wait: each of `depth` threads of a lane executes one
 * read or write at a time. */
#ifndef FSM_WORKERS_H
#define FSM_WORKERS_H

#include <stdbool.h>

#include "fsm_driver.h"

struct fsm_workers;

struct fsm_work {
    const struct fsm_op *op;
    struct fsm_file *file;
    void *buffer;
    uint64_t tag;
};

typedef struct fsm_status (*fsm_worker)(void *lane, const struct fsm_op *op,
                                        struct fsm_file *file, void *buffer);

/* 0 or an errno; what was made then is still to be stopped. */
int fsm_workers_start(struct fsm_workers **made, uint32_t depth, bool tsc, fsm_worker worker,
                      void *lane);
void fsm_workers_submit(struct fsm_workers *workers, const struct fsm_work *work);
int fsm_workers_reap(struct fsm_workers *workers, struct fsm_completion *completions, int most,
                     int wait);
void fsm_workers_stop(struct fsm_workers *workers); /* nothing may be in flight; NULL: nothing */

#endif
