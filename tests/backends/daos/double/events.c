/* The double's event queues: every launched operation runs in a thread of its own, late.
 *
 * An operation reads its buffers when it runs, not when it is launched, and completions come in
 * another order than launches: a caller that reuses memory too early writes other bytes.
 * Faults: `poll n`: every n-th daos_eq_poll fails; `eq_create code`; `hold n`: nothing runs before
 * n operations are in flight at once (a violation if that never comes); `most n`: more are one.
 */
#define _GNU_SOURCE
#include "double.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_QUEUES 256
#define READY 0x0eadull
#define RUNNING 0x0badull
#define COMPLETED 0x0d0eull
#define MAGIC 0x0dabu
#define LATEST 2000 /* microseconds */
#define PATIENCE 60 /* seconds */

static struct queue {
    bool open;
    int running, peak, completed, initialised;
    event_t *list[8192];
    uint64_t launched; /* for the jitter */
} queues[MOST_QUEUES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

/* space[0]: MAGIC; [1]: state; [2]: queue; [3], [4]: what to run and its argument */
struct job {
    event_t *event;
    long wait;
};

static struct queue *queue_of(uint64_t cookie, const char *call)
{
    if (cookie && cookie < MOST_QUEUES && queues[cookie].open)
        return &queues[cookie];
    double_violation("%s with a queue that is none", call);
    return NULL;
}

int daos_eq_create(handle_t *queue)
{
    uint64_t at = 1;
    if (!double_ready("daos_eq_create"))
        return -1015;
    if (double_fault("eq_create"))
        return (int)double_fault("eq_create");
    pthread_mutex_lock(&mutex);
    while (at < MOST_QUEUES - 1 && queues[at].open)
        at++;
    queues[at] = (struct queue){.open = true};
    pthread_mutex_unlock(&mutex);
    double_count("event queues", 1);
    queue->cookie = at;
    return 0;
}

int daos_eq_destroy(handle_t handle, int flags)
{
    struct queue *queue = queue_of(handle.cookie, "daos_eq_destroy");
    if (!queue)
        return -1002;
    if (!(flags & 1) && (queue->running || queue->completed || queue->initialised)) {
        double_violation("a queue is destroyed with %d running, %d completed and %d events",
                         queue->running, queue->completed, queue->initialised);
        return -1012;
    }
    queue->open = false;
    double_count("event queues", -1);
    return 0;
}

int daos_event_init(event_t *event, handle_t handle, event_t *parent)
{
    struct queue *queue = queue_of(handle.cookie, "daos_event_init");
    if (!queue || parent)
        return -1003;
    if (event->space[0] == MAGIC && event->space[5] == (uint64_t)(uintptr_t)event)
        double_violation("daos_event_init of an event that was not ended by daos_event_fini");
    memset(event, 0, sizeof *event);
    event->space[0] = MAGIC;
    event->space[1] = READY;
    event->space[2] = handle.cookie;
    event->space[5] = (uint64_t)(uintptr_t)event;
    __atomic_add_fetch(&queue->initialised, 1, __ATOMIC_RELAXED);
    return 0;
}

int daos_event_fini(event_t *event)
{
    if (event->space[0] != MAGIC || event->space[5] != (uint64_t)(uintptr_t)event) {
        double_violation("daos_event_fini of what is no event");
        return -1003;
    }
    pthread_mutex_lock(&mutex);
    const bool busy = event->space[1] == RUNNING;
    struct queue *queue = &queues[event->space[2]];
    if (!busy && event->space[1] == COMPLETED) /* taken out of the queue */
        for (int i = 0; i < queue->completed; i++)
            if (queue->list[i] == event) {
                queue->list[i] = queue->list[--queue->completed];
                break;
            }
    if (!busy) {
        queue->initialised--;
        event->space[0] = 0;
    }
    pthread_mutex_unlock(&mutex);
    return busy ? -1012 : 0;
}

/* Until that many have been in flight once. */
static void hold(struct queue *queue)
{
    const long wanted = double_fault("hold");
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    pthread_mutex_lock(&mutex);
    while (queue->peak < wanted)
        if (pthread_cond_timedwait(&ended, &mutex, &until) != 0) {
            double_violation("only %d operations came to be in flight", queue->peak);
            queue->peak = (int)wanted;
        }
    pthread_mutex_unlock(&mutex);
}

static void *run(void *argument)
{
    struct job *job = argument;
    event_t *event = job->event;
    usleep((useconds_t)job->wait);
    hold(&queues[event->space[2]]);
    int (*call)(void *) = (int (*)(void *))(uintptr_t)event->space[3];
    const int error = call((void *)(uintptr_t)event->space[4]);
    pthread_mutex_lock(&mutex);
    struct queue *queue = &queues[event->space[2]];
    event->error = error;
    event->space[1] = COMPLETED;
    queue->running--;
    queue->list[queue->completed++] = event;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mutex);
    free(job);
    return NULL;
}

int double_launch(event_t *event, int (*call)(void *), void *argument)
{
    pthread_t thread;
    if (event->space[0] != MAGIC || event->space[1] != READY) {
        double_violation("an operation on an event that is not ready");
        return EINVAL;
    }
    struct queue *queue = queue_of(event->space[2], "an operation");
    if (!queue)
        return EINVAL;
    struct job *job = malloc(sizeof *job);
    pthread_mutex_lock(&mutex);
    event->space[1] = RUNNING;
    event->space[3] = (uint64_t)(uintptr_t)call;
    event->space[4] = (uint64_t)(uintptr_t)argument;
    if (++queue->running > queue->peak)
        queue->peak = queue->running;
    pthread_cond_broadcast(&ended);
    const long most = double_fault("most"), late = double_fault("late");
    if (most && queue->running > most)
        double_violation("%d operations are in flight at once", queue->running);
    *job = (struct job){event, late ? late : (long)(++queue->launched * 7919 % LATEST)};
    pthread_mutex_unlock(&mutex);
    if (pthread_create(&thread, NULL, run, job) != 0)
        abort();
    pthread_detach(thread);
    return 0;
}

int daos_eq_poll(handle_t handle, int only_running, int64_t timeout, unsigned most,
                 event_t **events)
{
    struct queue *queue = queue_of(handle.cookie, "daos_eq_poll");
    unsigned n = 0;
    if (!queue || !most || !events)
        return -1003;
    if (double_hits("poll"))
        return -1020;
    pthread_mutex_lock(&mutex);
    while (!queue->completed && timeout < 0 && !(only_running && !queue->running))
        pthread_cond_wait(&ended, &mutex);
    while (n < most && queue->completed) {
        events[n] = queue->list[--queue->completed]; /* the last first */
        events[n++]->space[1] = READY;
    }
    pthread_mutex_unlock(&mutex);
    return (int)n;
}
