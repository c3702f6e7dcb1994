/* Completions on their way from the threads that finish operations to the lane that reaps. */
#ifndef FSM_QUEUE_H
#define FSM_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "fsm_driver.h"

struct fsm_queue {
    pthread_mutex_t mutex;
    pthread_cond_t filled;
    struct fsm_completion *ring; /* [size]; never more in flight than that */
    uint32_t size, head, count;
    bool waiting;
};

static inline int fsm_queue_open(struct fsm_queue *queue, uint32_t size)
{
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->filled, NULL);
    queue->size = size;
    queue->ring = calloc(size, sizeof *queue->ring);
    return queue->ring ? 0 : ENOMEM;
}

/* Nobody may be in fsm_queue_put any more, not even past its unlock. */
static inline void fsm_queue_close(struct fsm_queue *queue)
{
    free(queue->ring);
    pthread_cond_destroy(&queue->filled);
    pthread_mutex_destroy(&queue->mutex);
}

static inline void fsm_queue_put(struct fsm_queue *queue, const struct fsm_completion *completion)
{
    pthread_mutex_lock(&queue->mutex);
    queue->ring[(queue->head + queue->count++) % queue->size] = *completion;
    const bool wake = queue->waiting;
    queue->waiting = false;
    pthread_mutex_unlock(&queue->mutex);
    if (wake) /* outside: who wakes does not have to wait for the mutex again */
        pthread_cond_signal(&queue->filled);
}

/* What there is, at most `most`; with `wait` at least one. */
static inline int fsm_queue_take(struct fsm_queue *queue, struct fsm_completion *completions,
                                 int most, int wait)
{
    int n = 0;
    pthread_mutex_lock(&queue->mutex);
    while (wait && !queue->count) {
        queue->waiting = true;
        pthread_cond_wait(&queue->filled, &queue->mutex);
    }
    queue->waiting = false;
    for (; n < most && queue->count; n++, queue->count--) {
        completions[n] = queue->ring[queue->head];
        queue->head = (queue->head + 1) % queue->size;
    }
    pthread_mutex_unlock(&queue->mutex);
    return n;
}

#endif
