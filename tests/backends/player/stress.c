/* The player's C core under a sanitizer, without Python: see test_player_sanitized.py.
 *
 * stress DRIVER DIRECTORY THREADS DEPTH ROUNDS: each thread writes, reads back with verification,
 * cuts, renames and removes files of its own, and all share one file as a queue.  Prints
 * "errors N"; with ROUNDS 0 it plays until it is killed.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_player.h"

#define SIZE 16384u
#define PIECES 96u
#define PERIOD (1u << 20)

struct fsm_clock fsm_base_clock;

static struct fsm_op made[64 * (3 * PIECES + 16)];
static size_t count;

static void add(uint8_t kind, uint16_t stream, uint32_t file, uint64_t at, uint8_t flags)
{
    const bool data = kind == FSM_READ || kind == FSM_WRITE;
    made[count++] = (struct fsm_op){.kind = kind, .stream = stream, .file = file, .flags = flags,
                                    .offset = at, .file2 = file + 1, .size = data ? SIZE : 0};
}

static void own_files(uint16_t stream)
{
    const uint32_t file = 1 + 2u * stream;
    add(FSM_CREATE, stream, file, 0, stream % 2 ? FSM_DIRECT : 0);
    for (unsigned i = 0; i < PIECES; i++)
        add(FSM_WRITE, stream, file, i * (uint64_t)SIZE, 0);
    for (unsigned i = 0; i < PIECES; i++)
        add(FSM_READ, stream, file, i * (uint64_t)SIZE, FSM_VERIFY);
    add(FSM_TRUNCATE, stream, file, PIECES / 2 * (uint64_t)SIZE, 0);
    for (unsigned i = 0; i < PIECES / 2; i++)
        add(FSM_READ, stream, file, i * (uint64_t)SIZE, FSM_VERIFY);
    add(FSM_FSYNC, stream, file, 0, 0);
    add(FSM_CLOSE, stream, file, 0, 0);
    add(FSM_RENAME, stream, file, 0, 0);
    add(FSM_UNLINK, stream, file + 1, 0, 0);
}

static const struct fsm_driver *find(const char *name)
{
    const struct fsm_driver *known[] = {&fsm_uring, &fsm_uring_sqpoll, &fsm_posix_threads};
    for (size_t i = 0; i < 3; i++)
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    exit(2);
}

int main(int argc, char **argv)
{
    static unsigned char pool[PERIOD];
    if (argc != 6)
        return 2;
    const unsigned threads = (unsigned)atoi(argv[3]), rounds = (unsigned)atoi(argv[5]);
    const struct fsm_config config = {.root = argv[2], .slots = 2 * threads + 2,
                                      .threads = threads, .depth = (uint32_t)atoi(argv[4]),
                                      .max_op_bytes = SIZE};
    struct fsm_player player = {.driver = find(argv[1]), .seed = 5};
    for (size_t i = 0; i < PERIOD; i++)
        pool[i] = (unsigned char)(i * 2654435761u >> 24);
    fsm_pair(false, &fsm_base_clock.ticks, &fsm_base_clock.ns);
    const int error = fsm_player_open(&player, &config, pool, PERIOD);
    if (error) {
        printf("not opened: %s\n", strerror(error));
        fsm_player_close(&player);
        return 3;
    }
    for (uint32_t i = 0; i < config.slots; i++) {
        char name[32];
        fsm_file_name(&player, &player.files[i], name, (size_t)snprintf(name, 32, "f%u", i));
    }
    printf("plays\n");
    fflush(stdout);
    for (unsigned round = 0; !rounds || round < rounds; round++) {
        count = 0;
        if (!round)
            add(FSM_CREATE, 0, 0, 0, 0);
        for (uint16_t stream = 0; stream < threads; stream++)
            own_files(stream);
        fsm_player_play(&player, &(struct fsm_chunk){.ops = made, .count = count});
        fsm_player_drain(&player);
        count = 0;
        for (unsigned i = 0; i < PIECES; i++)
            add(FSM_WRITE, 0, 0, i * (uint64_t)SIZE, 0);
        fsm_player_play(&player, &(struct fsm_chunk){.ops = made, .count = count, .batch = 3});
        if (rounds && round + 1 == rounds)
            break; /* closed with what is in flight, if something is */
        fsm_player_drain(&player);
    }
    uint64_t errors = 0;
    for (unsigned i = 0; i < threads; i++)
        errors += player.lanes[i].error_count;
    fsm_player_close(&player);
    printf("errors %llu\n", (unsigned long long)errors);
    return errors != 0;
}
