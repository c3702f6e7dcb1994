/* The driver that does nothing: what remains is the player's own cost. */
#include "fsm_driver.h"

static int null_connect(const struct fsm_config *config, void **connection)
{
    (void)config;
    *connection = (void *)&fsm_null;
    return 0;
}

static int null_lane(void *connection, void **lane)
{
    *lane = connection;
    return 0;
}

static void null_close(void *anything)
{
    (void)anything;
}

static struct fsm_status null_execute(void *lane, const struct fsm_op *op,
                                      struct fsm_file *file, struct fsm_file *file2,
                                      void *buffer)
{
    struct fsm_status status = {0, 0};
    (void)lane, (void)file2, (void)buffer;
    if (op->kind == FSM_READ || op->kind == FSM_WRITE)
        status.bytes = op->size;
    else if (op->kind == FSM_OPEN || op->kind == FSM_CREATE)
        file->handle = 0;
    else if (op->kind == FSM_CLOSE)
        file->handle = -1;
    return status;
}

const struct fsm_driver fsm_null = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = 1,
    .name = "null",
    .connect = null_connect,
    .disconnect = null_close,
    .lane_open = null_lane,
    .lane_close = null_close,
    .execute = null_execute,
};
