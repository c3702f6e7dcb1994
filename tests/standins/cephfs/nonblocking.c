/* A stand-in for a libcephfs.so.2 that exports ceph_ll_nonblocking_readv_writev.
 *
 * It is linked against the machine's own libcephfs (by its path, REAL), which serves every other
 * call: only the nonblocking one is made here, a thread for each operation on the real file
 * handle.  Operations complete in another order than they were begun.  FSMATRIX_STANDIN holds
 * faults, "name=n,...": every n-th call
 *   refuse  returns -EIO and has no callback       tell   calls back with -EDQUOT within the call
 *   fail    calls back with -EIO                   now    does it all within the call, no callback
 *   short   does half of it                        none   gives 0 bytes although there are more
 *   excess  gives a byte more than was asked for   late   begins with it 300 ms later
 * FSMATRIX_STANDIN_REPORT names a file that gets one line of JSON when a mount is released.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#define MOST 4096
#define LATE_NS 300000000l
#define JITTER_NS 2000000l

struct ceph_ll_io_info { /* as in libcephfs.h, version 19 */
    void (*callback)(struct ceph_ll_io_info *info);
    void *priv;
    void *fh;
    const struct iovec *iov;
    int iovcnt;
    int64_t off;
    int64_t result;
    bool write;
    bool fsync;
    bool syncdataonly;
};

int ceph_ll_read(void *mount, void *fh, int64_t offset, uint64_t size, char *buffer);
int ceph_ll_write(void *mount, void *fh, int64_t offset, uint64_t size, const char *data);

struct work {
    void *mount;
    struct ceph_ll_io_info *info;
    uint64_t call, jitter;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct { void *fh; uint64_t call; } flying[MOST];
static uint64_t calls, in_flight, most, disordered, closed_early, at_unmount, reads, writes;

static void *real(const char *name)
{
    void *handle = dlopen(REAL, RTLD_NOW | RTLD_NOLOAD);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (!found) {
        fprintf(stderr, "stand-in: no %s in " REAL "\n", name);
        abort();
    }
    return found;
}

static bool hit(const char *fault, uint64_t call)
{
    const char *faults = getenv("FSMATRIX_STANDIN");
    for (const char *at = faults; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, fault, strlen(fault)) == 0 && at[strlen(fault)] == '=')
            return call % strtoull(at + strlen(fault) + 1, NULL, 10) == 0;
    return false;
}

/* What the real library makes of the first `part` of it. */
static int64_t transfer(void *mount, const struct ceph_ll_io_info *info, uint64_t call)
{
    const uint64_t size = info->iov->iov_len, part = hit("short", call) ? size / 2 : size;
    char *const data = info->iov->iov_base;
    if (hit("fail", call))
        return -EIO;
    if (hit("none", call))
        return 0;
    if (hit("excess", call))
        return (int64_t)size + 1;
    return info->write ? ceph_ll_write(mount, info->fh, info->off, part, data)
                       : ceph_ll_read(mount, info->fh, info->off, part, data);
}

static void begun(void *fh, uint64_t call)
{
    pthread_mutex_lock(&mutex);
    if (in_flight == MOST)
        abort();
    flying[in_flight].fh = fh;
    flying[in_flight++].call = call;
    most = in_flight > most ? in_flight : most;
    pthread_mutex_unlock(&mutex);
}

/* Before the callback, after which the handle may be closed. */
static void over(uint64_t call)
{
    uint64_t at = 0;
    bool first = true;
    pthread_mutex_lock(&mutex);
    for (uint64_t i = 0; i < in_flight; i++) {
        first = first && flying[i].call >= call;
        at = flying[i].call == call ? i : at;
    }
    disordered += !first;
    flying[at] = flying[in_flight - 1];
    in_flight--;
    pthread_mutex_unlock(&mutex);
}

static uint64_t running; /* threads, until after their callback */

static void *work(void *argument)
{
    struct work *work = argument;
    struct ceph_ll_io_info *info = work->info;
    const long ns = hit("late", work->call) ? LATE_NS : (long)work->jitter;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    const int64_t result = transfer(work->mount, info, work->call);
    over(work->call);
    info->result = result;
    info->callback(info);
    free(work);
    pthread_mutex_lock(&mutex);
    running--;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int64_t ceph_ll_nonblocking_readv_writev(void *mount, struct ceph_ll_io_info *info)
{
    const uint64_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(info->write ? &writes : &reads, 1, __ATOMIC_RELAXED);
    if (info->iovcnt != 1 || !info->iov->iov_len || info->fsync)
        abort(); /* not what the driver does */
    if (hit("refuse", call))
        return -EIO;
    if (hit("tell", call)) {
        info->result = -EDQUOT;
        info->callback(info);
        return 0;
    }
    if (hit("now", call))
        return transfer(mount, info, call);
    struct work *mine = malloc(sizeof *mine);
    pthread_t thread;
    /* a multiplicative hash: another order, the same in every run */
    *mine = (struct work){mount, info, call, call * 2654435761u % JITTER_NS};
    begun(info->fh, call);
    pthread_mutex_lock(&mutex);
    running++;
    pthread_mutex_unlock(&mutex);
    if (pthread_create(&thread, NULL, work, mine))
        abort();
    pthread_detach(thread);
    return 0;
}

int ceph_ll_close(void *mount, void *fh)
{
    int (*const call)(void *, void *) = (int (*)(void *, void *))real("ceph_ll_close");
    pthread_mutex_lock(&mutex);
    for (uint64_t i = 0; i < in_flight; i++)
        closed_early += flying[i].fh == fh;
    pthread_mutex_unlock(&mutex);
    return call(mount, fh);
}

/* As the real one, it returns after the last callback has. */
int ceph_unmount(void *mount)
{
    int (*const call)(void *) = (int (*)(void *))real("ceph_unmount");
    pthread_mutex_lock(&mutex);
    at_unmount += in_flight;
    while (running)
        pthread_cond_wait(&ended, &mutex);
    pthread_mutex_unlock(&mutex);
    return call(mount);
}

int ceph_release(void *mount)
{
    int (*const call)(void *) = (int (*)(void *))real("ceph_release");
    const char *path = getenv("FSMATRIX_STANDIN_REPORT");
    FILE *report = path ? fopen(path, "a") : NULL;
    if (report) {
        fprintf(report, "{\"calls\": %lu, \"reads\": %lu, \"writes\": %lu, \"most\": %lu, "
                "\"disordered\": %lu, \"closed_early\": %lu, \"at_unmount\": %lu}\n",
                calls, reads, writes, most, disordered, closed_early, at_unmount);
        fclose(report);
    }
    return call(mount);
}
