/* Reads and writes of the cephfs driver through libcephfs's nonblocking call.
 *
 * What that call does was read in Ceph's sources (libcephfs.cc, Client.cc: ll_preadv_pwritev,
 * _read, _write); version 16.2, the one at hand, has none, so this has run over a stand-in only
 * (tests/standins/cephfs):
 * - 0: the callback comes once, from a thread of the library or within the call, and may come
 *   with the client's lock held, so that nothing of the library may be called in it;
 * - below 0: refused, no callback (versions that tell it by the callback return 0);
 * - above 0: done without a callback (files whose data are inline in the metadata).
 * Until then it may use io, iovec and buffer.
 *
 * It takes a handle of the low-level interface, which has no calls to drop a file's pages.  So a
 * file is opened twice, the second time by its inode, which asks no server as long as the first
 * handle's capabilities are there.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include "fsm_cephfs.h"

#define CALLS fsm_cephfs_calls
#define STATX_INO 0x100u           /* CEPH_STATX_INO */
#define NO_SNAPSHOT ((uint64_t)-2) /* CEPH_NOSNAP */

struct facts { /* the beginning of struct ceph_statx */
    uint32_t mask, blksize, nlink, uid, gid;
    uint16_t mode;
    uint64_t inode;
    uint64_t rest[61];
};

int fsm_cephfs_open_fh(const struct cephfs *cephfs, struct cephfs_file *file, int flags)
{
    struct facts facts;
    int result = CALLS.fstatx(cephfs->mount, file->fd, &facts, STATX_INO, 0);
    if (result < 0)
        return result;
    const struct cephfs_vino vino = {facts.inode, NO_SNAPSHOT};
    void *inode = CALLS.ll_get_inode(cephfs->mount, vino);
    if (!inode)
        return -ESTALE;
    result = CALLS.ll_open(cephfs->mount, inode, flags, &file->fh, cephfs->perms);
    if (result < 0)
        file->fh = NULL;
    CALLS.ll_put(cephfs->mount, inode);
    return result;
}

int fsm_cephfs_requests_open(struct cephfs_lane *lane)
{
    const uint32_t depth = lane->cephfs->depth;
    lane->requests = calloc(depth, sizeof *lane->requests);
    if (!lane->requests)
        return ENOMEM;
    for (uint32_t i = 0; i < depth; i++) {
        lane->requests[i].lane = lane;
        lane->requests[i].tag = i;
    }
    return fsm_queue_open(&lane->done, depth);
}

void fsm_cephfs_requests_close(struct cephfs_lane *lane)
{
    if (lane->requests)
        fsm_queue_close(&lane->done);
    free(lane->requests);
}

static void complete(struct cephfs_request *request, struct fsm_status status)
{
    struct cephfs_lane *lane = request->lane;
    const struct fsm_completion completion = {
        .tag = request->tag, .ticks = fsm_ticks(lane->cephfs->tsc), .status = status};
    fsm_queue_put(&lane->done, &completion); /* the request may be another one from here on */
}

static void answer(struct cephfs_request *request, int64_t result)
{
    if (result > (int64_t)request->part.iov_len)
        result = -EIO; /* more than was asked for: no answer to this call */
    const int64_t bytes = result < 0 ? 0 : result, error = result < 0 ? -result : 0;
    complete(request, (struct fsm_status){bytes, error});
}

static void called_back(struct cephfs_io *io)
{
    answer(io->priv, io->result);
}

void fsm_cephfs_send(struct cephfs_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                     void *buffer, uint64_t tag)
{
    struct cephfs_request *request = &lane->requests[tag];
    const struct cephfs_file *opened = &lane->cephfs->files[file->handle];
    request->op = op;
    request->fd = opened->fd;
    request->part = (struct iovec){buffer, op->size};
    if (!op->size) { /* what the library makes of it differs from version to version */
        complete(request, fsm_cephfs_data(lane, op, opened->fd, buffer, 0));
        return;
    }
    request->io = (struct cephfs_io){.callback = called_back, .priv = request,
                                     .fh = opened->fh, .iov = &request->part, .iovcnt = 1,
                                     .off = (int64_t)op->offset, .write = op->kind == FSM_WRITE};
    const int64_t result = CALLS.ll_nonblocking_readv_writev(lane->cephfs->mount, &request->io);
    if (result)
        answer(request, result);
}

/* Less than was asked for is the end of the file, or what the client takes for it: only the
 * call that waits asks the server for the size.  So that one does the rest. */
static void finish(struct cephfs_lane *lane, struct fsm_completion *completion)
{
    const struct cephfs_request *request = &lane->requests[completion->tag];
    const struct fsm_status *status = &completion->status;
    if (status->bytes == request->op->size || (status->error && status->error != EINTR))
        return;
    completion->status = fsm_cephfs_data(lane, request->op, request->fd, request->part.iov_base,
                                         status->bytes);
    completion->ticks = fsm_ticks(lane->cephfs->tsc);
}

int fsm_cephfs_reap(struct cephfs_lane *lane, struct fsm_completion *completions, int most,
                    int wait)
{
    const int n = fsm_queue_take(&lane->done, completions, most, wait);
    for (int i = 0; i < n; i++)
        finish(lane, &completions[i]);
    return n;
}
