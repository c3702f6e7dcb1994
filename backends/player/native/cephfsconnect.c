/* Connection and lanes of the cephfs driver; libcephfs is loaded here. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_ceph.h"
#include "fsm_cephfs.h"

#define CALLS fsm_cephfs_calls
#define LIBRARY "libcephfs.so.2"
#define PACKAGE "libcephfs2"
#define SYMBOL(name, result, arguments) {"ceph_" #name, (void **)&CALLS.name},

struct fsm_cephfs_calls fsm_cephfs_calls;

static int load(void)
{
    const struct fsm_symbol symbols[] = {FSM_CEPHFS_CALLS(SYMBOL)};
    return FSM_LOAD(LIBRARY, PACKAGE, symbols);
}

static int load_nonblocking(void)
{
    const struct fsm_symbol symbols[] = {FSM_CEPHFS_NONBLOCKING_CALLS(SYMBOL)};
    return FSM_LOAD(LIBRARY, PACKAGE, symbols);
}

/* depth_by=library: only by the library's nonblocking calls; threads: never by them; not given:
 * by them if the library has them. */
static int choose_depth(struct cephfs *cephfs)
{
    const char *by = fsm_root_value(&cephfs->root, "depth_by");
    const bool demanded = strcmp(by, "library") == 0;
    if (strcmp(by, "threads") == 0)
        return 0;
    if (*by && !demanded)
        return fsm_explain(EINVAL, "depth_by must be library or threads, not %s", by);
    const int error = load_nonblocking();
    cephfs->nonblocking = !error && cephfs->depth > 1;
    if (error && !demanded) {
        fsm_forget();
        return 0;
    }
    return error;
}

static int join(struct cephfs *cephfs)
{
    static const struct fsm_ceph_setting no_more[] = {{NULL, NULL}};
    const char *user = fsm_ceph_user(&cephfs->root);
    const char *name = fsm_root_value(&cephfs->root, "filesystem");
    const char *path = fsm_root_value(&cephfs->root, "path");
    int result = CALLS.create(&cephfs->mount, user);
    if (result < 0) {
        cephfs->mount = NULL;
        return fsm_explain(-result, "libcephfs cannot be set up: %m");
    }
    const struct fsm_ceph_client client = {cephfs->mount, CALLS.conf_read_file, CALLS.conf_set};
    int error = fsm_ceph_configure(&client, &cephfs->root, no_more);
    if (error)
        return error;
    result = *name ? CALLS.select_filesystem(cephfs->mount, name) : 0;
    if (result >= 0)
        result = CALLS.mount(cephfs->mount, *path ? path : "/");
    if (result < 0)
        return fsm_explain(-result, "CephFS %s, directory %s, cannot be mounted as client.%s "
                           "(conf %s): %m", *name ? name : "(default)", *path ? path : "/", user,
                           fsm_root_value(&cephfs->root, "conf"));
    cephfs->mounted = true;
    if (cephfs->nonblocking)
        cephfs->perms = CALLS.mount_perms(cephfs->mount);
    return 0;
}

int fsm_cephfs_connect(const struct fsm_config *config, void **connection)
{
    static const char *const known[] = {"conf", "user", "keyring", "filesystem", "path",
                                        "depth_by", NULL};
    struct cephfs *cephfs = *connection = calloc(1, sizeof *cephfs);
    fsm_forget();
    if (!cephfs || !(cephfs->files = calloc(config->slots, sizeof *cephfs->files)))
        return ENOMEM;
    cephfs->depth = config->depth;
    cephfs->tsc = config->options & FSM_TSC;
    int error = fsm_root_read(&cephfs->root, config->root, known);
    if (!error)
        error = load();
    if (!error)
        error = choose_depth(cephfs);
    return error ? error : join(cephfs);
}

/* Lanes are freed here and not before: a callback may still be on its way out of one, and the
 * threads that make them end with the mount. */
void fsm_cephfs_disconnect(void *connection)
{
    struct cephfs *cephfs = connection;
    if (cephfs->mounted)
        CALLS.unmount(cephfs->mount);
    if (cephfs->mount)
        CALLS.release(cephfs->mount);
    for (struct cephfs_lane *lane = cephfs->lanes, *next; lane; lane = next) {
        next = lane->next;
        fsm_cephfs_requests_close(lane);
        free(lane);
    }
    fsm_root_free(&cephfs->root);
    free(cephfs->files);
    free(cephfs);
}

int fsm_cephfs_lane_open(void *connection, void **made)
{
    struct cephfs *cephfs = connection;
    struct cephfs_lane *lane = *made = calloc(1, sizeof *lane);
    if (!lane)
        return ENOMEM;
    lane->cephfs = cephfs;
    lane->next = cephfs->lanes;
    cephfs->lanes = lane;
    if (cephfs->nonblocking)
        return fsm_cephfs_requests_open(lane);
    return cephfs->depth == 1 ? 0
                              : fsm_workers_start(&lane->workers, cephfs->depth, cephfs->tsc,
                                                  fsm_cephfs_work, lane);
}

void fsm_cephfs_lane_close(void *state)
{
    struct cephfs_lane *lane = state;
    fsm_workers_stop(lane->workers);
}
