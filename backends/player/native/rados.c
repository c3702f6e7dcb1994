/* The rados driver: files over the objects of one namespace of a pool, through librados.
 *
 * A write is durable when it completes, so fsync has only the size to store.  The objects of a
 * file hold what was written and nothing else: a read that meets bytes that were never written
 * is an error, ENOENT where an object below the known size is missing and FSM_ESHORT elsewhere,
 * also where a file system would give the zeros of a hole.  RADOS has no directories: mkdir,
 * rmdir, readdir and rename are not offered, names may hold slashes.  The client caches
 * nothing, so evict has nothing to drop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "fsm_rados.h"
#include "fsm_root.h"

#define CALLS fsm_rados_calls
#define MOST_DEPTH 1024u

const char *fsm_rados_object(struct rados_lane *lane, const char *file, uint64_t index)
{
    static const char digits[] = "0123456789abcdef";
    const size_t length = strlen(file);
    char *at = lane->name + length;
    memcpy(lane->name, file, length);
    *at++ = '.';
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = digits[index >> shift & 15];
    *at = 0;
    return lane->name;
}

static void grow(struct rados_file *file, uint64_t size)
{
    uint64_t known = __atomic_load_n(&file->size, __ATOMIC_RELAXED);
    while (known < size && !__atomic_compare_exchange_n(&file->size, &known, size, true,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* One part, or the sending of parts, is over; the last one completes the operation. */
static void release(struct rados_request *request)
{
    struct rados_lane *lane = request->lane;
    if (__atomic_sub_fetch(&request->pending, 1, __ATOMIC_ACQ_REL))
        return;
    const struct fsm_completion completion = {
        .tag = request->tag, .ticks = fsm_ticks(lane->rados->tsc),
        .status = {request->error ? request->good : (int64_t)request->size, request->error}};
    if (request->kind == FSM_WRITE && !request->error)
        grow(request->file, request->end);
    fsm_queue_put(request->tag < lane->rados->depth ? &lane->done : &lane->own, &completion);
}

/* The failed part that is first in the file gives the operation's bytes and error. */
static void fail(struct rados_request *request, uint64_t good, int64_t error)
{
    pthread_mutex_lock(&request->lane->done.mutex);
    if (!request->error || (int64_t)good < request->good) {
        request->good = (int64_t)good;
        request->error = error;
    }
    pthread_mutex_unlock(&request->lane->done.mutex);
}

/* What a part's result means; `result` as librados gives it. */
static void judge(const struct rados_part *part, int result)
{
    struct rados_request *request = part->request;
    const bool reading = request->kind == FSM_READ;
    if (reading && result >= 0 && (uint32_t)result < part->size)
        fail(request, part->at + (uint32_t)result, FSM_ESHORT);
    else if (reading && result == -ENOENT)
        fail(request, part->at, part->offset < request->file->size ? ENOENT : FSM_ESHORT);
    else if (request->kind == FSM_UNLINK && result == -ENOENT)
        return;
    else if (result < 0)
        fail(request, part->at, -result);
}

static void completed(void *completion, void *argument)
{
    const struct rados_part *part = argument;
    const int result = CALLS.aio_get_return_value(completion);
    CALLS.aio_release(completion);
    judge(part, result);
    release(part->request);
}

static void begin(struct rados_request *request, enum fsm_kind kind, uint64_t size)
{
    request->kind = kind;
    request->size = size;
    request->good = request->error = 0;
    request->pending = 1;
}

/* Send one part; its completion may come before this returns. */
static void send_part(struct rados_part *part, const char *object, char *data, uint64_t offset)
{
    struct rados_request *request = part->request;
    void *ioctx = request->lane->ioctx, *completion;
    __atomic_add_fetch(&request->pending, 1, __ATOMIC_RELAXED);
    int result = CALLS.aio_create_completion(part, completed, NULL, &completion);
    if (result == 0) {
        if (request->kind == FSM_READ)
            result = CALLS.aio_read(ioctx, object, completion, data, part->size, offset);
        else if (request->kind == FSM_WRITE)
            result = CALLS.aio_write(ioctx, object, completion, data, part->size, offset);
        else
            result = CALLS.aio_remove(ioctx, object, completion);
        if (result == 0)
            return;
        CALLS.aio_release(completion);
    }
    judge(part, result);
    release(request);
}

static void send_data(struct rados_request *request, const struct fsm_op *op,
                      struct fsm_file *file, char *data)
{
    struct rados_lane *lane = request->lane;
    request->file = &lane->rados->files[file->handle];
    request->end = op->size ? op->offset + op->size : 0;
    begin(request, op->kind, op->size);
    const uint64_t object_size = request->file->object_size;
    struct rados_part *part = request->parts;
    for (uint64_t at = 0; at < op->size; at += part++->size) {
        const uint64_t offset = op->offset + at, inside = offset % object_size;
        const uint64_t room = object_size - inside, left = op->size - at;
        *part = (struct rados_part){request, at, offset, (uint32_t)(left < room ? left : room)};
        send_part(part, fsm_rados_object(lane, file->name, offset / object_size), data + at,
                  inside);
    }
    release(request);
}

static struct fsm_status wait_own(struct rados_lane *lane)
{
    struct fsm_completion completion;
    fsm_queue_take(&lane->own, &completion, 1, 1);
    return completion.status;
}

int fsm_rados_remove(struct rados_lane *lane, const char *file, uint64_t first, uint64_t last)
{
    struct rados_request *request = &lane->requests[lane->rados->depth];
    struct rados_part *part = request->parts;
    begin(request, FSM_UNLINK, 0);
    *part = (struct rados_part){.request = request}; /* all share it: nothing differs */
    for (uint64_t i = first; i < last; i++)
        send_part(part, fsm_rados_object(lane, file, i), NULL, 0);
    release(request);
    return (int)wait_own(lane).error;
}

static bool allowed(const struct rados_file *file, const struct fsm_op *op)
{
    return op->kind == FSM_READ ? file->readable : file->writable;
}

/* One read or write by itself: librados's synchronous call where it meets one object. */
static struct fsm_status data(struct rados_lane *lane, const struct fsm_op *op,
                              struct fsm_file *file, void *buffer)
{
    struct rados_file *open = &lane->rados->files[file->handle];
    struct rados_request *request = &lane->requests[lane->rados->depth];
    const uint64_t inside = op->offset % open->object_size;
    if (inside + op->size > open->object_size || !op->size) {
        send_data(request, op, file, buffer);
        return wait_own(lane);
    }
    const char *object = fsm_rados_object(lane, file->name, op->offset / open->object_size);
    const int result = op->kind == FSM_READ
                           ? CALLS.read(lane->ioctx, object, buffer, op->size, inside)
                           : CALLS.write(lane->ioctx, object, buffer, op->size, inside);
    struct rados_part part = {request, 0, op->offset, op->size};
    request->file = open;
    begin(request, op->kind, op->size);
    judge(&part, result);
    if (request->error)
        return (struct fsm_status){request->good, request->error};
    if (op->kind == FSM_WRITE)
        grow(open, op->offset + op->size);
    return (struct fsm_status){op->size, 0};
}

static struct fsm_status rados_execute(void *state, const struct fsm_op *op,
                                       struct fsm_file *file, struct fsm_file *file2,
                                       void *buffer)
{
    struct rados_lane *lane = state;
    int error = 0;
    (void)file2;
    switch (op->kind) {
    case FSM_READ:
    case FSM_WRITE:
        if (allowed(&lane->rados->files[file->handle], op))
            return data(lane, op, file, buffer);
        error = EBADF;
        break;
    case FSM_OPEN:
        error = fsm_rados_open(lane, op, file);
        break;
    case FSM_CREATE:
        error = fsm_rados_create(lane, op, file);
        break;
    case FSM_STAT:
        error = fsm_rados_stat(lane, file);
        break;
    case FSM_UNLINK:
        error = fsm_rados_unlink(lane, file);
        break;
    case FSM_TRUNCATE:
        error = fsm_rados_truncate(lane, file, op->offset);
        break;
    case FSM_FSYNC:
    case FSM_CLOSE:
        error = fsm_rados_store_size(lane, file);
        if (op->kind == FSM_CLOSE)
            file->handle = -1;
        break;
    case FSM_EVICT:
        break;
    default:
        error = ENOTSUP;
    }
    return (struct fsm_status){0, error};
}

static int rados_submit(void *state, const struct fsm_op *op, struct fsm_file *file,
                        void *buffer, uint64_t tag)
{
    struct rados_lane *lane = state;
    if (!allowed(&lane->rados->files[file->handle], op))
        return EBADF;
    send_data(&lane->requests[tag], op, file, buffer);
    return 0;
}

static int rados_reap(void *state, struct fsm_completion *completions, int most, int wait)
{
    return fsm_queue_take(&((struct rados_lane *)state)->done, completions, most, wait);
}

const struct fsm_driver fsm_rados = {
    .abi = FSM_DRIVER_ABI,
    .kinds = FSM_ALL_KINDS & ~(FSM_BIT(FSM_MKDIR) | FSM_BIT(FSM_RMDIR) | FSM_BIT(FSM_RENAME) |
                               FSM_BIT(FSM_READDIR)),
    .max_depth = MOST_DEPTH,
    .name = "rados",
    .connect = fsm_rados_connect,
    .disconnect = fsm_rados_disconnect,
    .lane_open = fsm_rados_lane_open,
    .lane_close = fsm_rados_lane_close,
    .execute = rados_execute,
    .submit = rados_submit,
    .reap = rados_reap,
    .copies_writes = 1,
    .explain = fsm_explanation,
};
