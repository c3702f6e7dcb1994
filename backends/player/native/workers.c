/* See fsm_workers.h. */
#define _GNU_SOURCE
#include "fsm_workers.h"

#include <errno.h>
#include <signal.h>

#include "fsm_clock.h"
#include "fsm_queue.h"

struct fsm_workers {
    pthread_mutex_t mutex;
    pthread_cond_t given;
    struct fsm_work *ring; /* [depth] that wait for a thread */
    uint32_t depth, head, count, idle, started;
    bool tsc, quit;
    fsm_worker worker;
    void *lane;
    pthread_t *threads;
    struct fsm_queue done;
};

static void *work(void *argument)
{
    struct fsm_workers *workers = argument;
    pthread_mutex_lock(&workers->mutex);
    for (;;) {
        workers->idle++;
        while (!workers->count && !workers->quit)
            pthread_cond_wait(&workers->given, &workers->mutex);
        workers->idle--;
        if (workers->quit)
            break;
        const struct fsm_work work = workers->ring[workers->head];
        workers->head = (workers->head + 1) % workers->depth;
        workers->count--;
        pthread_mutex_unlock(&workers->mutex);
        struct fsm_completion completion = {.tag = work.tag};
        completion.status = workers->worker(workers->lane, work.op, work.file, work.buffer);
        completion.ticks = fsm_ticks(workers->tsc);
        fsm_queue_put(&workers->done, &completion);
        pthread_mutex_lock(&workers->mutex);
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

int fsm_workers_start(struct fsm_workers **made, uint32_t depth, bool tsc, fsm_worker worker,
                      void *lane)
{
    struct fsm_workers *workers = *made = calloc(1, sizeof *workers);
    if (!workers)
        return ENOMEM;
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->given, NULL);
    workers->depth = depth;
    workers->tsc = tsc;
    workers->worker = worker;
    workers->lane = lane;
    workers->ring = calloc(depth, sizeof *workers->ring);
    workers->threads = calloc(depth, sizeof *workers->threads);
    int error = fsm_queue_open(&workers->done, depth);
    if (!workers->ring || !workers->threads)
        error = ENOMEM;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!error && workers->started < depth)
        if (!(error = pthread_create(&workers->threads[workers->started], NULL, work, workers)))
            workers->started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void fsm_workers_submit(struct fsm_workers *workers, const struct fsm_work *work)
{
    pthread_mutex_lock(&workers->mutex);
    workers->ring[(workers->head + workers->count++) % workers->depth] = *work;
    if (workers->idle)
        pthread_cond_signal(&workers->given);
    pthread_mutex_unlock(&workers->mutex);
}

int fsm_workers_reap(struct fsm_workers *workers, struct fsm_completion *completions, int most,
                     int wait)
{
    return fsm_queue_take(&workers->done, completions, most, wait);
}

void fsm_workers_stop(struct fsm_workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->mutex);
    workers->quit = true;
    pthread_cond_broadcast(&workers->given);
    pthread_mutex_unlock(&workers->mutex);
    for (uint32_t i = 0; i < workers->started; i++)
        pthread_join(workers->threads[i], NULL);
    fsm_queue_close(&workers->done);
    pthread_cond_destroy(&workers->given);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->ring);
    free(workers->threads);
    free(workers);
}
