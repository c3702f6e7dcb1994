/* Connection and lanes of the dfs driver; libdaos and libdfs are loaded here.
 *
 * daos_init waits for ever where daos_agent is stopped, and a connection where servers are.
 * Both are made in a thread of their own that is waited for so long and no longer; one that
 * was given up takes down what it made, should it ever get an answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsm_dfs.h"

#define CALLS fsm_dfs_calls
#define PACKAGE "daos-client"
#define AGENT_SECONDS 9.0    /* the agent is on this machine */
#define SERVER_SECONDS 60.0  /* a busy machine took 16 to answer a query */
#define MOST_SECONDS 3600.0
#define LEAST_CHUNK 4096u
#define FORCE 1 /* DAOS_EQ_DESTROY_FORCE */

struct fsm_dfs_calls fsm_dfs_calls;

#define DAOS(name, result, arguments) {"daos_" #name, (void **)&CALLS.daos_##name},
#define DAOS_2(name, result, arguments) {"daos_" #name "2", (void **)&CALLS.daos_##name},
#define DFS(name, result, arguments) {"dfs_" #name, (void **)&CALLS.dfs_##name},

static int load(const char *folder)
{
    char libdaos[4096], libdfs[4096];
    const struct fsm_symbol daos[] = {FSM_DAOS_CALLS(DAOS)};
    const struct fsm_symbol numbered[] = {FSM_DAOS_CALLS_2(DAOS_2)};
    const struct fsm_symbol plain[] = {FSM_DAOS_CALLS_2(DAOS)};
    const struct fsm_symbol dfs[] = {FSM_DFS_CALLS(DFS)};
    /* or clients write a log to standard output, and notes to standard error */
    setenv("D_LOG_FILE", "/dev/null", 0);
    setenv("DD_STDERR", "CRIT", 0);
    snprintf(libdaos, sizeof libdaos, "%s%slibdaos.so.2", folder, *folder ? "/" : "");
    snprintf(libdfs, sizeof libdfs, "%s%slibdfs.so", folder, *folder ? "/" : "");
    int error = FSM_LOAD(libdaos, PACKAGE, daos);
    if (!error && FSM_LOAD(libdaos, PACKAGE, numbered) != 0)
        error = FSM_LOAD(libdaos, PACKAGE, plain);
    if (!error)
        error = FSM_LOAD(libdfs, PACKAGE, dfs);
    if (!error)
        fsm_forget();
    return error;
}

static int read_class(const struct dfs *dfs, const char *key, uint32_t *id)
{
    const char *name = fsm_root_value(&dfs->root, key);
    const int found = *name ? CALLS.daos_oclass_name2id(name) : 0;
    *id = (uint32_t)found;
    return *name && found <= 0 ? fsm_explain(EINVAL, "%s=%s: libdaos knows no such object class",
                                             key, name)
                               : 0;
}

static int read_root(struct dfs *dfs, const struct fsm_config *config)
{
    static const char *const known[] = {
        "pool", "container", "system", "path", "oclass", "dir_oclass", "chunk_size", "timeout",
        "library", "handles", NULL};
    int error = fsm_root_read(&dfs->root, config->root, known);
    if (error)
        return error;
    const char *chunk = fsm_root_value(&dfs->root, "chunk_size");
    const char *timeout = fsm_root_value(&dfs->root, "timeout");
    char *end = NULL, *end2 = NULL;
    dfs->chunk_size = strtoull(chunk, &end, 10);
    dfs->timeout = *timeout ? strtod(timeout, &end2) : SERVER_SECONDS;
    if (!*fsm_root_value(&dfs->root, "pool") || !*fsm_root_value(&dfs->root, "container"))
        return fsm_explain(EINVAL, "the root names no pool or no container");
    if (*chunk && (*end || *chunk == '-' || dfs->chunk_size < LEAST_CHUNK))
        return fsm_explain(EINVAL, "chunk_size must be %u bytes or more, not %s", LEAST_CHUNK,
                           chunk);
    if ((end2 && *end2) || !(dfs->timeout > 0 && dfs->timeout <= MOST_SECONDS))
        return fsm_explain(EINVAL, "timeout must be up to %g seconds, not %s", MOST_SECONDS,
                           timeout);
    return 0;
}

/* -- a connection with a deadline ------------------------------------------------------------ */
struct attempt {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    struct dfs *dfs;
    bool over, given_up;
    int error;
    char reason[1024];
};

static void free_dfs(struct dfs *dfs)
{
    fsm_dfs_folders_close(&dfs->folders);
    fsm_root_free(&dfs->root);
    free(dfs->files);
    free(dfs);
}

static void free_attempt(struct attempt *attempt)
{
    pthread_mutex_destroy(&attempt->mutex);
    pthread_cond_destroy(&attempt->ended);
    free(attempt);
}

static void *attach(void *argument)
{
    struct attempt *attempt = argument;
    fsm_forget();
    attempt->error = fsm_dfs_attach(attempt->dfs);
    if (attempt->error)
        fsm_dfs_detach(attempt->dfs);
    const char *reason = fsm_explanation();
    snprintf(attempt->reason, sizeof attempt->reason, "%s", reason ? reason : "");
    pthread_mutex_lock(&attempt->mutex);
    attempt->over = true;
    const bool given_up = attempt->given_up;
    pthread_cond_signal(&attempt->ended);
    pthread_mutex_unlock(&attempt->mutex);
    if (given_up) {
        if (!attempt->error)
            fsm_dfs_detach(attempt->dfs);
        free_dfs(attempt->dfs);
        free_attempt(attempt);
    }
    return NULL;
}

static double seconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begin->tv_sec) + (double)(now.tv_nsec - begin->tv_nsec) / 1e9;
}

/* Wait for the attempt; false if it was given up. */
static bool wait_for(struct attempt *attempt)
{
    struct timespec begin, look;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pthread_mutex_lock(&attempt->mutex);
    while (!attempt->over && !attempt->given_up) {
        const int asking = __atomic_load_n(&attempt->dfs->asking, __ATOMIC_RELAXED);
        const double most = attempt->dfs->timeout;
        const double limit = asking == DFS_AGENT && most > AGENT_SECONDS ? AGENT_SECONDS : most;
        clock_gettime(CLOCK_MONOTONIC, &look);
        look.tv_nsec += 50000000;
        look.tv_sec += look.tv_nsec / 1000000000;
        look.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&attempt->ended, &attempt->mutex, &look);
        attempt->given_up = !attempt->over && seconds_since(&begin) >= limit;
    }
    const bool over = attempt->over;
    pthread_mutex_unlock(&attempt->mutex);
    return over;
}

static int overdue(const struct dfs *dfs, int asking)
{
    char agent[512];
    fsm_dfs_agent(agent, sizeof agent);
    if (asking == DFS_AGENT)
        return fsm_explain(ETIMEDOUT, "daos_agent (socket %s) does not answer: it is stopped, or "
                           "the machine is overloaded", agent);
    return fsm_explain(ETIMEDOUT, "container %s of pool %s was not opened within %g s: its engines, "
                       "or daos_agent (socket %s), do not answer",
                       fsm_root_value(&dfs->root, "container"), fsm_root_value(&dfs->root, "pool"),
                       dfs->timeout, agent);
}

static int start(struct attempt *attempt, pthread_t *thread)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&attempt->mutex, NULL);
    pthread_cond_init(&attempt->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, attach, attempt);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* 0, or an errno with the dfs freed or left to the thread. */
static int attach_in_time(struct dfs *dfs)
{
    struct attempt *attempt = calloc(1, sizeof *attempt);
    pthread_t thread;
    int error = attempt ? 0 : ENOMEM;
    if (attempt) {
        attempt->dfs = dfs;
        error = start(attempt, &thread);
    }
    if (error) {
        if (attempt)
            free_attempt(attempt);
        free_dfs(dfs);
        return error;
    }
    if (!wait_for(attempt)) {
        const int asking = __atomic_load_n(&dfs->asking, __ATOMIC_RELAXED);
        pthread_detach(thread);
        return overdue(dfs, asking);
    }
    pthread_join(thread, NULL);
    error = attempt->error;
    if (*attempt->reason)
        fsm_explain(error, "%s", attempt->reason);
    free_attempt(attempt);
    if (error)
        free_dfs(dfs);
    return error;
}

int fsm_dfs_connect(const struct fsm_config *config, void **connection)
{
    struct dfs *dfs = calloc(1, sizeof *dfs);
    fsm_forget();
    if (!dfs)
        return ENOMEM;
    dfs->depth = config->depth;
    dfs->threads = config->threads;
    int error = fsm_dfs_folders_open(&dfs->folders);
    if (!error && !(dfs->files = calloc(config->slots, sizeof *dfs->files)))
        error = ENOMEM;
    if (!error)
        error = read_root(dfs, config);
    if (!error)
        error = load(fsm_root_value(&dfs->root, "library"));
    if (error)
        free_dfs(dfs);
    else if (!(error = attach_in_time(dfs)))
        *connection = dfs;
    if (!error && !(error = read_class(dfs, "oclass", &dfs->oclass)))
        error = read_class(dfs, "dir_oclass", &dfs->folder_oclass);
    return error;
}

void fsm_dfs_disconnect(void *connection)
{
    fsm_dfs_detach(connection);
    free_dfs(connection);
}

/* -- lanes ----------------------------------------------------------------------------------- */
int fsm_dfs_lane_open(void *connection, void **made)
{
    struct dfs *dfs = connection;
    struct dfs_lane *lane = *made = calloc(1, sizeof *lane);
    char words[512];
    if (!lane)
        return ENOMEM;
    lane->dfs = dfs;
    lane->requests = calloc(dfs->depth, sizeof *lane->requests);
    lane->events = calloc(dfs->depth, sizeof *lane->events);
    if (!lane->requests || !lane->events)
        return ENOMEM;
    if (dfs->depth == 1 && dfs->threads == 1)
        return 0;
    const int code = CALLS.daos_eq_create(&lane->queue);
    lane->queued = code == 0;
    return code ? fsm_explain(fsm_dfs_errno(code), "DAOS makes no event queue: %s",
                              fsm_dfs_words(code, words, sizeof words))
                : 0;
}

void fsm_dfs_lane_close(void *state)
{
    struct dfs_lane *lane = state;
    if (lane->queued)
        CALLS.daos_eq_destroy(lane->queue, lane->lost ? FORCE : 0);
    if (!lane->lost) /* else operations may still be under way on them */
        free(lane->requests);
    free(lane->events);
    free(lane);
}
