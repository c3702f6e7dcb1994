/* The dfs driver: files of a POSIX container of DAOS, through libdfs.
 *
 * A write is durable when it completes, so fsync has nothing to do; libdfs keeps no data in the
 * client, so evict has not either, and O_DIRECT means nothing.  Reads and writes are kept in
 * flight by DAOS's own event queues, one for each lane.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "fsm_dfs.h"

#define CALLS fsm_dfs_calls
#define MOST_DEPTH 1024u
#define FOR_EVER -1     /* DAOS_EQ_WAIT */
#define SLICE 999       /* us: what is less than 1 ms libdaos waits by polling, as its own calls do */
#define SLICES 20       /* of polling before a completion is waited for asleep */
#define MOST_POLLS 100  /* of a queue that fails, 10 ms apart */

/* As read and write say it; 0: it may be done. */
static int refusal(const struct dfs_file *file, const struct fsm_op *op)
{
    if (op->kind == FSM_READ && file->is_folder)
        return EISDIR;
    return (op->kind == FSM_READ ? file->readable : file->writable) ? 0 : EBADF;
}

/* Send it, to be waited for (event NULL) or reaped; 0 or an errno. */
static int send_data(struct dfs *dfs, const struct fsm_op *op, const struct dfs_file *file,
                     void *buffer, struct dfs_request *request, struct dfs_event *event)
{
    request->part = (struct dfs_iov){buffer, op->size, op->size};
    request->list = (struct dfs_list){1, 0, &request->part};
    request->size = request->asked = op->size;
    request->reading = op->kind == FSM_READ;
    const int code = request->reading
                         ? CALLS.dfs_read(dfs->mount, file->object, &request->list, op->offset,
                                          &request->size, event)
                         : CALLS.dfs_write(dfs->mount, file->object, &request->list, op->offset,
                                           event);
    return fsm_dfs_errno(code);
}

static struct fsm_status outcome(const struct dfs_request *request, int error)
{
    if (error)
        return (struct fsm_status){0, error};
    if (request->reading && request->size < request->asked)
        return (struct fsm_status){(int64_t)request->size, FSM_ESHORT};
    return (struct fsm_status){request->asked, 0};
}

static int dfs_submit(void *state, const struct fsm_op *op, struct fsm_file *file, void *buffer,
                      uint64_t tag)
{
    struct dfs_lane *lane = state;
    const struct dfs_file *open = &lane->dfs->files[file->handle];
    struct dfs_request *request = &lane->requests[tag];
    if (lane->lost)
        return lane->lost;
    int error = refusal(open, op);
    if (error)
        return error;
    error = fsm_dfs_errno(CALLS.daos_event_init(&request->event, lane->queue, NULL));
    if (error)
        return error;
    request->tag = tag;
    request->busy = true;
    lane->in_flight++;
    error = send_data(lane->dfs, op, open, buffer, request, &request->event);
    /* an event that cannot be ended was launched all the same: it tells the error when polled */
    if (!error || CALLS.daos_event_fini(&request->event) != 0)
        return 0;
    request->busy = false;
    lane->in_flight--;
    return error;
}

/* The queue itself is broken: all that is in flight has failed. */
static int give_up(struct dfs_lane *lane, struct fsm_completion *completions, int most, int code)
{
    int n = 0;
    lane->lost = fsm_dfs_errno(code);
    for (uint32_t i = 0; i < lane->dfs->depth && n < most; i++)
        if (lane->requests[i].busy) {
            lane->requests[i].busy = false;
            lane->in_flight--;
            completions[n++] = (struct fsm_completion){.tag = i, .status = {0, lane->lost}};
        }
    return n;
}

/* Completions, or a DER code that did not go away. */
static int poll_queue(struct dfs_lane *lane, int most, int wait)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    int n = CALLS.daos_eq_poll(lane->queue, 1, wait ? SLICE : 0, (unsigned)most, lane->events);
    for (int i = 1; wait && !n && i < SLICES; i++)
        n = CALLS.daos_eq_poll(lane->queue, 1, SLICE, (unsigned)most, lane->events);
    if (wait && !n)
        n = CALLS.daos_eq_poll(lane->queue, 1, FOR_EVER, (unsigned)most, lane->events);
    for (int i = 0; n < 0 && i < MOST_POLLS; i++) {
        nanosleep(&pause, NULL);
        n = CALLS.daos_eq_poll(lane->queue, 1, 0, (unsigned)most, lane->events);
    }
    return n;
}

static int dfs_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    struct dfs_lane *lane = state;
    if (!lane->in_flight)
        return 0;
    const int n = poll_queue(lane, most, wait);
    if (n < 0)
        return give_up(lane, completions, most, n);
    for (int i = 0; i < n; i++) {
        struct dfs_request *request = (struct dfs_request *)lane->events[i];
        const int error = fsm_dfs_errno(request->event.error);
        CALLS.daos_event_fini(&request->event);
        request->busy = false;
        lane->in_flight--;
        completions[i] = (struct fsm_completion){.tag = request->tag,
                                                 .status = outcome(request, error)};
    }
    return n;
}

/* One by itself through the lane's own queue: without one, libdaos has threads share theirs. */
static struct fsm_status by_queue(struct dfs_lane *lane, const struct fsm_op *op,
                                  struct fsm_file *file, void *buffer)
{
    struct fsm_completion completion;
    const int error = dfs_submit(lane, op, file, buffer, 0);
    if (error)
        return (struct fsm_status){0, error};
    while (!dfs_reap(lane, &completion, 1, 1))
        continue;
    return completion.status;
}

static struct fsm_status dfs_execute(void *state, const struct fsm_op *op, struct fsm_file *file,
                                     struct fsm_file *file2, void *buffer)
{
    struct dfs_lane *lane = state;
    if (op->kind != FSM_READ && op->kind != FSM_WRITE)
        return (struct fsm_status){0, fsm_dfs_name(lane, op, file, file2)};
    const struct dfs_file *open = &lane->dfs->files[file->handle];
    const int refused = refusal(open, op);
    if (refused)
        return (struct fsm_status){0, refused};
    if (lane->queued)
        return by_queue(lane, op, file, buffer);
    struct dfs_request request;
    return outcome(&request, send_data(lane->dfs, op, open, buffer, &request, NULL));
}

const struct fsm_driver fsm_dfs = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS,
    .max_depth = MOST_DEPTH,
    .name = "dfs",
    .connect = fsm_dfs_connect,
    .disconnect = fsm_dfs_disconnect,
    .lane_open = fsm_dfs_lane_open,
    .lane_close = fsm_dfs_lane_close,
    .execute = dfs_execute,
    .submit = dfs_submit,
    .reap = dfs_reap,
    .explain = fsm_explanation,
    .share = fsm_dfs_share,
};
