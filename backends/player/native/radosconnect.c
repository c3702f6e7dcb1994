/* Connection and lanes of the rados driver; librados is loaded here. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_ceph.h"
#include "fsm_rados.h"

#define CALLS fsm_rados_calls
#define DEFAULT_OBJECT_SIZE (4u << 20)
#define LEAST_OBJECT_SIZE 4096u
#define MOST_OBJECT_SIZE (1ull << 30)
#define MOST_PARTS 4096u
#define LEAST_KEPT (128u << 10) /* from here on malloc takes memory from the kernel each time */
#define MOST_KEPT (512u << 20)  /* bytes that malloc may keep for later */

struct fsm_rados_calls fsm_rados_calls;

static int load(void)
{
    const struct fsm_symbol symbols[] = {
#define FSM_SYMBOL(name, result, arguments) {"rados_" #name, (void **)&CALLS.name},
        FSM_RADOS_CALLS(FSM_SYMBOL)
#undef FSM_SYMBOL
    };
    return FSM_LOAD("librados.so.2", "librados2", symbols);
}

/* librados holds operations back above 1024 of them or 100 MiB, behind our back, if not told. */
static int configure(const struct rados *rados, const struct fsm_config *config)
{
    char operations[24], bytes[24];
    const struct fsm_ceph_client client = {rados->cluster, CALLS.conf_read_file, CALLS.conf_set};
    const struct fsm_ceph_setting more[] = {{"objecter_inflight_ops", operations},
                                            {"objecter_inflight_op_bytes", bytes},
                                            {NULL, NULL}};
    const uint64_t twice = 2 * (uint64_t)config->threads * config->depth, spare = 128u << 20;
    snprintf(operations, sizeof operations, "%" PRIu64, 1024 + twice * rados->parts);
    snprintf(bytes, sizeof bytes, "%" PRIu64, spare + twice * config->max_op_bytes);
    return fsm_ceph_configure(&client, rados->root, more);
}

static int read_root(struct rados *rados, const struct fsm_config *config)
{
    static const char *const known[] = {"conf", "user", "keyring", "pool", "namespace",
                                        "object_size", NULL};
    int error = fsm_root_read(rados->root, config->root, known);
    if (error)
        return error;
    rados->pool = fsm_root_value(rados->root, "pool");
    rados->namespace = fsm_root_value(rados->root, "namespace");
    const char *size = fsm_root_value(rados->root, "object_size");
    char *end = NULL;
    rados->object_size = *size ? strtoull(size, &end, 10) : DEFAULT_OBJECT_SIZE;
    if (!*rados->pool)
        return fsm_explain(EINVAL, "the root names no pool");
    if ((end && *end) || *size == '-' || rados->object_size < LEAST_OBJECT_SIZE ||
        rados->object_size > MOST_OBJECT_SIZE)
        return fsm_explain(EINVAL, "object_size must be %u to %llu bytes, not %s",
                           LEAST_OBJECT_SIZE, MOST_OBJECT_SIZE, size);
    rados->parts = (uint32_t)(config->max_op_bytes / rados->object_size + 2);
    if (rados->parts > MOST_PARTS)
        return fsm_explain(EINVAL, "an operation of %u bytes would meet %u objects of %" PRIu64
                           " bytes; %u are allowed", config->max_op_bytes, rados->parts,
                           rados->object_size, MOST_PARTS);
    return 0;
}

static int join(struct rados *rados, const struct fsm_config *config)
{
    char user[256];
    snprintf(user, sizeof user, "client.%s", fsm_ceph_user(rados->root));
    int result = CALLS.create2(&rados->cluster, "ceph", user, 0);
    if (result < 0) {
        rados->cluster = NULL;
        return fsm_explain(-result, "librados cannot be set up for user %s: %m", user);
    }
    int error = configure(rados, config);
    if (error)
        return error;
    result = CALLS.connect(rados->cluster);
    if (result < 0)
        return fsm_explain(-result, "no connection to the Ceph cluster as %s (conf %s): %m", user,
                           fsm_root_value(rados->root, "conf"));
    return 0;
}

/* librados copies what is written into memory that it takes for each operation and frees after
 * it.  Have malloc keep that, or the kernel clears new pages for every large write.  This is a
 * setting of the process and stays; what is kept is given back when the driver disconnects. */
static void keep_memory(const struct fsm_config *config)
{
#ifdef __GLIBC__
    const uint64_t most = 2 * (uint64_t)config->threads * config->depth * config->max_op_bytes;
    if (config->max_op_bytes < LEAST_KEPT)
        return;
    mallopt(M_MMAP_THRESHOLD, (int)(config->max_op_bytes + LEAST_KEPT));
    mallopt(M_TRIM_THRESHOLD, (int)(most < MOST_KEPT ? most : MOST_KEPT));
#else
    (void)config;
#endif
}

int fsm_rados_connect(const struct fsm_config *config, void **connection)
{
    struct rados *rados = *connection = calloc(1, sizeof *rados);
    fsm_forget();
    if (!rados || !(rados->root = calloc(1, sizeof *rados->root)) ||
        !(rados->files = calloc(config->slots, sizeof *rados->files)))
        return ENOMEM;
    rados->depth = config->depth;
    rados->tsc = config->options & FSM_TSC;
    int error = read_root(rados, config);
    if (!error)
        error = load();
    if (!error)
        keep_memory(config);
    return error ? error : join(rados, config);
}

static void free_lane(struct rados_lane *lane)
{
    fsm_queue_close(&lane->done);
    fsm_queue_close(&lane->own);
    free(lane->requests);
    free(lane->parts);
    free(lane);
}

/* Lanes are freed here and not before: a callback may still be on its way out of one. */
void fsm_rados_disconnect(void *connection)
{
    struct rados *rados = connection;
    if (rados->cluster)
        CALLS.shutdown(rados->cluster);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    for (struct rados_lane *lane = rados->lanes, *next; lane; lane = next) {
        next = lane->next;
        free_lane(lane);
    }
    if (rados->root)
        fsm_root_free(rados->root);
    free(rados->root);
    free(rados->files);
    free(rados);
}

int fsm_rados_lane_open(void *connection, void **made)
{
    struct rados *rados = connection;
    struct rados_lane *lane = *made = calloc(1, sizeof *lane);
    const uint32_t requests = rados->depth + 1;
    if (!lane)
        return ENOMEM;
    lane->rados = rados;
    lane->next = rados->lanes;
    rados->lanes = lane;
    lane->requests = calloc(requests, sizeof *lane->requests);
    lane->parts = calloc((size_t)requests * rados->parts, sizeof *lane->parts);
    if (fsm_queue_open(&lane->done, rados->depth) | fsm_queue_open(&lane->own, 1) ||
        !lane->requests || !lane->parts)
        return ENOMEM;
    for (uint32_t i = 0; i < requests; i++) {
        lane->requests[i].lane = lane;
        lane->requests[i].tag = i;
        lane->requests[i].parts = lane->parts + (size_t)i * rados->parts;
    }
    int result = CALLS.ioctx_create(rados->cluster, rados->pool, &lane->ioctx);
    if (result < 0) {
        lane->ioctx = NULL;
        return fsm_explain(-result, "pool %s: %m", rados->pool);
    }
    CALLS.ioctx_set_namespace(lane->ioctx, rados->namespace);
    CALLS.set_pool_full_try(lane->ioctx); /* a full pool is an error, not an endless wait */
    return 0;
}

void fsm_rados_lane_close(void *state)
{
    struct rados_lane *lane = state;
    if (lane->ioctx)
        CALLS.ioctx_destroy(lane->ioctx);
    lane->ioctx = NULL;
}
