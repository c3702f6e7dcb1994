/* Files of the rados driver: attributes of their first object, size, removal. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_rados.h"

#define CALLS fsm_rados_calls
#define COMPARE_EQUAL 1 /* LIBRADOS_CMPXATTR_OP_EQ */
#define EXCLUSIVE 1     /* LIBRADOS_CREATE_EXCLUSIVE */
#define SIZE "striper.size"
#define OBJECT_SIZE "striper.layout.object_size"
#define STRIPE_UNIT "striper.layout.stripe_unit"
#define STRIPE_COUNT "striper.layout.stripe_count"
#define MOST_TRIES 1000

struct attributes {
    uint64_t size, object_size, stripe_unit, stripe_count;
};

struct number {
    char text[24];
    size_t length;
};

static struct number number(uint64_t value)
{
    struct number made;
    made.length = (size_t)snprintf(made.text, sizeof made.text, "%" PRIu64, value);
    return made;
}

static void set(void *op, const char *name, uint64_t value)
{
    struct number text = number(value);
    CALLS.write_op_setxattr(op, name, text.text, text.length);
}

/* Send a write operation to a file's first object; it is released. */
static int operate(struct rados_lane *lane, const char *file, void *op)
{
    int result = CALLS.write_op_operate(op, lane->ioctx, fsm_rados_object(lane, file, 0), NULL, 0);
    CALLS.release_write_op(op);
    return result < 0 ? -result : 0;
}

/* ENOENT: no such file.  ENODATA: an object that is not the first of a file, or one of a file
 * whose stripes are laid out in another way. */
static int read_attributes(struct rados_lane *lane, const char *file, struct attributes *found)
{
    const struct {
        const char *name;
        uint64_t *value;
    } wanted[] = {{SIZE, &found->size}, {OBJECT_SIZE, &found->object_size},
                  {STRIPE_UNIT, &found->stripe_unit}, {STRIPE_COUNT, &found->stripe_count}};
    void *iterator;
    unsigned seen = 0;
    int result = CALLS.getxattrs(lane->ioctx, fsm_rados_object(lane, file, 0), &iterator);
    if (result < 0)
        return -result;
    const char *name, *value;
    size_t size;
    while ((result = CALLS.getxattrs_next(iterator, &name, &value, &size)) == 0 && name)
        for (unsigned i = 0; i < 4; i++) {
            char text[24], *end;
            if (strcmp(name, wanted[i].name) || !size || size >= sizeof text)
                continue;
            memcpy(text, value, size);
            text[size] = 0;
            *wanted[i].value = strtoull(text, &end, 10);
            seen |= *end ? 0 : 1u << i;
        }
    CALLS.getxattrs_end(iterator);
    if (result < 0)
        return -result;
    const bool plain = seen == 15 && found->stripe_count == 1 && found->object_size &&
                       found->stripe_unit == found->object_size;
    return plain ? 0 : ENODATA;
}

static uint64_t objects(uint64_t size, uint64_t object_size)
{
    return size ? (size - 1) / object_size + 1 : 0;
}

static int set_size(struct rados_lane *lane, const char *file, uint64_t size)
{
    void *op = CALLS.create_write_op();
    set(op, SIZE, size);
    return operate(lane, file, op);
}

/* Cut or extend a file that has `old` bytes; objects are not made where it grows. */
static int resize(struct rados_lane *lane, const char *file, uint64_t old, uint64_t size,
                  uint64_t object_size)
{
    const uint64_t kept = objects(size, object_size), last = kept ? kept - 1 : 0;
    int result = 0;
    if (size < old) {
        int error = fsm_rados_remove(lane, file, last + 1, objects(old, object_size));
        if (error)
            return error;
        result = CALLS.trunc(lane->ioctx, fsm_rados_object(lane, file, last),
                             size - last * object_size);
    }
    if (result < 0 && result != -ENOENT)
        return -result;
    return set_size(lane, file, size);
}

static void opened(struct rados_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                   uint64_t size, uint64_t object_size)
{
    file->handle = op->file;
    lane->rados->files[op->file] = (struct rados_file){
        .size = size, .stored = size, .object_size = object_size,
        .readable = !(op->flags & FSM_WRITE_ONLY),
        .writable = op->flags & FSM_WRITE_ONLY || !(op->flags & FSM_READ_ONLY)};
}

int fsm_rados_open(struct rados_lane *lane, const struct fsm_op *op, struct fsm_file *file)
{
    struct attributes found;
    int error = read_attributes(lane, file->name, &found);
    if (error)
        return error;
    /* a larger operation than was reckoned with would need more parts than there are */
    if (found.object_size < lane->rados->object_size)
        return EINVAL;
    if (op->flags & FSM_TRUNC && found.size) {
        error = resize(lane, file->name, found.size, 0, found.object_size);
        found.size = 0;
    }
    if (!error)
        opened(lane, op, file, found.size, found.object_size);
    return error;
}

int fsm_rados_create(struct rados_lane *lane, const struct fsm_op *op, struct fsm_file *file)
{
    const uint64_t object_size = lane->rados->object_size;
    void *write = CALLS.create_write_op();
    CALLS.write_op_create(write, EXCLUSIVE, NULL);
    set(write, STRIPE_UNIT, object_size);
    set(write, STRIPE_COUNT, 1);
    set(write, OBJECT_SIZE, object_size);
    set(write, SIZE, 0);
    int error = operate(lane, file->name, write);
    if (error == EEXIST && !(op->flags & FSM_EXCLUSIVE))
        return fsm_rados_open(lane, op, file);
    if (!error)
        opened(lane, op, file, 0, object_size);
    return error;
}

int fsm_rados_stat(struct rados_lane *lane, const struct fsm_file *file)
{
    struct attributes found;
    return read_attributes(lane, file->name, &found);
}

static struct rados_file *known(struct rados_lane *lane, const struct fsm_file *file)
{
    return file->handle < 0 ? NULL : &lane->rados->files[file->handle];
}

int fsm_rados_unlink(struct rados_lane *lane, const struct fsm_file *file)
{
    struct attributes found;
    const struct rados_file *open = known(lane, file);
    int error = read_attributes(lane, file->name, &found);
    if (error)
        return error;
    const uint64_t size = open && open->size > found.size ? open->size : found.size;
    error = fsm_rados_remove(lane, file->name, 1, objects(size, found.object_size));
    if (error)
        return error;
    int result = CALLS.remove(lane->ioctx, fsm_rados_object(lane, file->name, 0));
    return result < 0 ? -result : 0;
}

int fsm_rados_truncate(struct rados_lane *lane, const struct fsm_file *file, uint64_t size)
{
    struct attributes found;
    struct rados_file *open = known(lane, file);
    if (!open->writable)
        return EINVAL; /* as ftruncate */
    int error = read_attributes(lane, file->name, &found);
    if (error)
        return error;
    const uint64_t old = open->size > found.size ? open->size : found.size;
    error = resize(lane, file->name, old, size, open->object_size);
    if (!error)
        open->size = open->stored = size;
    return error;
}

/* Let the attribute grow to what this player knows; another writer's larger size stays. */
int fsm_rados_store_size(struct rados_lane *lane, const struct fsm_file *file)
{
    struct rados_file *open = known(lane, file);
    for (int i = 0; i < MOST_TRIES && open->size > open->stored; i++) {
        struct attributes found;
        struct number old = number(open->stored);
        const uint64_t size = open->size;
        void *op = CALLS.create_write_op();
        CALLS.write_op_cmpxattr(op, SIZE, COMPARE_EQUAL, old.text, old.length);
        set(op, SIZE, size);
        int error = operate(lane, file->name, op);
        if (!error) {
            open->stored = size;
        } else if (error == ECANCELED) { /* it is another size meanwhile */
            if ((error = read_attributes(lane, file->name, &found)))
                return error;
            open->stored = found.size;
        } else {
            return error;
        }
    }
    return open->size > open->stored ? EAGAIN : 0;
}
