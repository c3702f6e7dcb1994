/* Making and ending a player, its memory, its threads and the names of its files. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fsm_content.h"
#include "fsm_lane.h"

static size_t whole_pages(size_t bytes)
{
    return (bytes + FSM_BLOCK - 1) / FSM_BLOCK * FSM_BLOCK;
}

/* Zeroed memory on page boundaries; from half a huge page on in huge ones, if there are any:
 * the pool is walked at random. */
static void *get(size_t bytes)
{
    const size_t huge = 2u << 20;
    void *memory = NULL;
    const bool large = bytes >= huge / 2;
    const size_t whole = large ? (bytes + huge - 1) / huge * huge : bytes;
    if (posix_memalign(&memory, large ? huge : FSM_BLOCK, whole))
        return NULL;
    if (large)
        madvise(memory, whole, MADV_HUGEPAGE); /* a wish: an error changes nothing */
    return memset(memory, 0, bytes);
}

static struct fsm_latency *new_latencies(void)
{
    struct fsm_latency *latency = calloc(FSM_KINDS, sizeof *latency);
    for (int kind = 0; latency && kind < FSM_KINDS; kind++)
        latency[kind].least = UINT64_MAX;
    return latency;
}

static void *work(void *argument)
{
    struct fsm_lane *lane = argument;
    struct fsm_player *player = lane->player;
    uint64_t seen = 0;
    pthread_mutex_lock(&player->mutex);
    for (;;) {
        while (player->turn == seen && !player->quit)
            pthread_cond_wait(&player->begin, &player->mutex);
        if (player->quit)
            break;
        seen = player->turn;
        pthread_mutex_unlock(&player->mutex);
        fsm_lane_run(lane);
        pthread_mutex_lock(&player->mutex);
        if (--player->busy == 0)
            pthread_cond_signal(&player->done);
    }
    pthread_mutex_unlock(&player->mutex);
    return NULL;
}

/* Start a lane's thread with all signals blocked: they are the main thread's. */
static int start(struct fsm_lane *lane)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&lane->thread, NULL, work, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    lane->started = error == 0;
    return error;
}

static int open_lane(struct fsm_player *player, uint32_t index, const unsigned char *pool)
{
    struct fsm_lane *lane = &player->lanes[index];
    lane->player = player;
    lane->index = index;
    lane->clock.tsc = player->tsc;
    lane->width = FSM_FIRST_WIDTH;
    lane->latency = new_latencies();
    lane->bytes = calloc(FSM_INTERVALS, sizeof *lane->bytes);
    lane->operations = calloc(FSM_INTERVALS, sizeof *lane->operations);
    bool whole = true;
    for (unsigned sort = 0; sort < FSM_SORTS; sort++) { /* of the kernel until it is written to */
        lane->timeline[sort] = calloc(FSM_INTERVALS * FSM_COARSE, sizeof **lane->timeline);
        whole = whole && lane->timeline[sort];
    }
    lane->pool = get(player->pool_bytes);
    lane->buffer = get(player->buffer_bytes);
    if (!whole || !lane->latency || !lane->bytes || !lane->operations || !lane->pool ||
        !lane->buffer)
        return ENOMEM;
    for (size_t at = 0; at < player->pool_bytes; at += player->period) {
        size_t left = player->pool_bytes - at;
        memcpy(lane->pool + at, pool, left < player->period ? left : player->period);
    }
    int error = player->depth > 1 ? fsm_flights_open(lane) : 0;
    if (!error)
        error = player->driver->lane_open(player->connection, &lane->state);
    if (!error && lane->flights_touched && player->driver->buffers)
        player->driver->buffers(lane->state, lane->flight_memory, player->buffer_bytes);
    return error || index == 0 ? error : start(lane);
}

int fsm_player_open(struct fsm_player *player, const struct fsm_config *config,
                    const unsigned char *pool, size_t period)
{
    pthread_mutex_init(&player->mutex, NULL);
    pthread_cond_init(&player->begin, NULL);
    pthread_cond_init(&player->done, NULL);
    player->slots = config->slots;
    player->threads = config->threads;
    player->depth = config->depth;
    player->max_op_bytes = config->max_op_bytes;
    player->period = period;
    player->buffer_bytes = whole_pages(config->max_op_bytes) + FSM_BLOCK;
    player->pool_bytes = period + player->buffer_bytes;
    player->files = calloc(config->slots, sizeof *player->files);
    player->lanes = calloc(config->threads, sizeof *player->lanes);
    if (!player->files || !player->lanes)
        return ENOMEM;
    for (uint32_t i = 0; i < player->slots; i++)
        player->files[i].handle = -1;
    int error = player->driver->connect(config, &player->connection);
    for (uint32_t i = 0; i < player->threads && !error; i++)
        error = open_lane(player, i, pool);
    return error;
}

static void end_threads(struct fsm_player *player)
{
    pthread_mutex_lock(&player->mutex);
    player->quit = true;
    pthread_cond_broadcast(&player->begin);
    pthread_mutex_unlock(&player->mutex);
    for (uint32_t i = 1; player->lanes && i < player->threads; i++)
        if (player->lanes[i].started)
            pthread_join(player->lanes[i].thread, NULL);
}

static void free_lane(struct fsm_player *player, struct fsm_lane *lane)
{
    if (lane->state)
        player->driver->lane_close(lane->state);
    fsm_flights_close(lane);
    free(lane->pool);
    free(lane->buffer);
    free(lane->latency);
    free(lane->service);
    for (unsigned sort = 0; sort < FSM_SORTS; sort++)
        free(lane->timeline[sort]);
    free(lane->bytes);
    free(lane->operations);
}

void fsm_player_close(struct fsm_player *player)
{
    const struct fsm_op close_op = {.kind = FSM_CLOSE};
    end_threads(player);
    for (uint32_t i = 0; player->lanes && i < player->threads; i++)
        fsm_flights_drain(&player->lanes[i]);
    for (uint32_t i = 0; player->files && i < player->slots; i++) {
        struct fsm_file *file = &player->files[i];
        if (file->handle >= 0)
            player->driver->execute(player->lanes[0].state, &close_op, file, NULL, NULL);
        free(file->name);
    }
    for (uint32_t i = 0; player->lanes && i < player->threads; i++)
        free_lane(player, &player->lanes[i]);
    if (player->connection)
        player->driver->disconnect(player->connection);
    free(player->files);
    free(player->lanes);
    pthread_mutex_destroy(&player->mutex);
    pthread_cond_destroy(&player->begin);
    pthread_cond_destroy(&player->done);
}

int fsm_player_want_service(struct fsm_player *player)
{
    for (uint32_t i = 0; i < player->threads; i++) {
        struct fsm_lane *lane = &player->lanes[i];
        if (!lane->service && !(lane->service = new_latencies()))
            return ENOMEM;
    }
    return 0;
}

/* All lanes run: each its part of the chunk, or until nothing is in flight. */
static void turn(struct fsm_player *player)
{
    if (player->threads > 1) {
        pthread_mutex_lock(&player->mutex);
        player->turn++;
        player->busy = player->threads - 1;
        pthread_cond_broadcast(&player->begin);
        pthread_mutex_unlock(&player->mutex);
    }
    fsm_lane_run(&player->lanes[0]);
    pthread_mutex_lock(&player->mutex);
    while (player->busy)
        pthread_cond_wait(&player->done, &player->mutex);
    pthread_mutex_unlock(&player->mutex);
}

uint64_t fsm_player_play(struct fsm_player *player, const struct fsm_chunk *chunk)
{
    uint64_t executed = 0;
    player->chunk = *chunk;
    player->taken = 0;
    for (uint32_t i = 0; i < player->threads; i++) {
        struct fsm_lane *lane = &player->lanes[i];
        lane->played = lane->rest = 0;
        lane->rest_end = chunk->count;
    }
    for (size_t i = 0; chunk->outcomes && i < chunk->count; i++)
        chunk->outcomes[i] = (struct fsm_outcome){0, 0, FSM_UNKNOWN};
    if (!__atomic_load_n(&player->stop, __ATOMIC_RELAXED)) {
        if (!player->origin_ns)
            player->origin_ns = fsm_monotonic();
        turn(player);
        for (uint32_t i = 0; i < player->threads; i++)
            executed += player->lanes[i].played;
    }
    player->before += chunk->count;
    player->chunk.outcomes = NULL; /* it is the caller's */
    return executed;
}

void fsm_player_drain(struct fsm_player *player)
{
    if (player->depth == 1)
        return;
    player->draining = true;
    turn(player);
    player->draining = false;
}

static bool has_dot_dot(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '/')) {
        at += *at == '/';
        if (at[0] == '.' && at[1] == '.' && (at[2] == '/' || at[2] == 0))
            return true;
    }
    return false;
}

int fsm_file_name(struct fsm_player *player, struct fsm_file *file, const char *name,
                  size_t length)
{
    if (length + 1 > file->capacity) {
        char *bigger = realloc(file->name, length + 1);
        if (!bigger)
            return ENOMEM;
        file->name = bigger;
        file->capacity = (uint32_t)(length + 1);
    }
    memcpy(file->name, name, length);
    file->name[length] = 0;
    const char *slash = strrchr(file->name, '/');
    file->parent_end = slash ? (uint32_t)(slash - file->name) : 0;
    file->parent = slash ? fsm_fnv1a64(file->name, file->parent_end) | 1 : 0;
    file->key = fsm_mix64(player->seed ^ fsm_fnv1a64(name, length));
    file->valid = length > 0 && name[0] != '/' && !has_dot_dot(file->name);
    return 0;
}
