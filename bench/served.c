/* A driver of the player whose reads take a known time: what open loops are held against.
 *
 * It does what the driver null does, but a read keeps its lane busy for the nanoseconds of the
 * environment's SERVED_NS, and the one at offset SERVED_STALL_AT for 200 ms.
 */
#include <stdlib.h>

#include "fsm_clock.h"
#include "fsm_driver.h"

#define STALL 200000000ull

static uint64_t service, stall_at;

static uint64_t from_environment(const char *name)
{
    const char *value = getenv(name);
    return value ? strtoull(value, NULL, 10) : UINT64_MAX;
}

static int served_connect(const struct fsm_config *config, void **connection)
{
    (void)config;
    service = from_environment("SERVED_NS");
    stall_at = from_environment("SERVED_STALL_AT");
    *connection = &service;
    return 0;
}

static int served_lane(void *connection, void **lane)
{
    *lane = connection;
    return 0;
}

static void served_close(void *anything)
{
    (void)anything;
}

static struct fsm_status served_execute(void *lane, const struct fsm_op *op,
                                        struct fsm_file *file, struct fsm_file *file2,
                                        void *buffer)
{
    const uint64_t begin = fsm_monotonic();
    (void)lane, (void)file2, (void)buffer;
    if (op->kind == FSM_OPEN)
        file->handle = 0;
    else if (op->kind == FSM_CLOSE)
        file->handle = -1;
    else
        while (fsm_monotonic() < begin + (op->offset == stall_at ? STALL : service))
            ;
    return (struct fsm_status){op->kind == FSM_READ ? op->size : 0, 0};
}

const struct fsm_driver driver = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = 1,
    .name = "served",
    .connect = served_connect,
    .disconnect = served_close,
    .lane_open = served_lane,
    .lane_close = served_close,
    .execute = served_execute,
};
