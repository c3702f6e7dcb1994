/* See fsm_ring.h. */
#define _GNU_SOURCE
#include "fsm_ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "fsm_clock.h"
#include "fsm_root.h"

/* One number on all architectures but alpha; older C libraries do not name them. */
#define SETUP 425
#define ENTER 426
#define REGISTER 427

enum setup { /* since Linux */
    POLL = 1u << 1,
    DISABLED = 1u << 6,      /* 5.10 */
    ALL = 1u << 7,           /* 5.18: an entry that fails does not hold up those after it */
    COOPERATIVE = 1u << 8,   /* 5.19: completions interrupt nobody */
    ONE_THREAD = 1u << 12,   /* 6.0 */
    DEFERRED = 1u << 13,     /* 6.1: completions are worked on only when asked for */
    NO_INDICES = 1u << 16,   /* 6.6 */
};
enum feature { ONE_MAP = 1u << 0, NO_DROP = 1u << 1, CURRENT_POSITION = 1u << 3, /* 5.6 */
               POLLS_ANY_FILE = 1u << 7, TIMEOUT = 1u << 8 };
enum enter { GET_EVENTS = 1u << 0, WAKE_UP = 1u << 1, EXTENDED = 1u << 3 };
enum registered { BUFFERS = 0, FILES = 2, FILES_UPDATE = 6, ENABLE = 12 };
#define ASLEEP 1u /* of sq_flags: the polling thread is to be woken */
#define IDLE_MS 100  /* after which the polling thread sleeps */
#define RETRIES 5000 /* of 1 ms, while the kernel lacks memory */

struct offsets { /* of the parts of a map */
    uint32_t head, tail, mask, size, more[4]; /* flags, dropped, array; overflow, events, flags */
    uint64_t address;
};

struct parameters {
    uint32_t entries, events, flags, poll_cpu, poll_idle, features, workers, reserved[3];
    struct offsets sq, cq;
};
_Static_assert(sizeof(struct parameters) == 120, "as the kernel has it");

/* From the newest to what 5.6 has. */
static const uint32_t STEPS[] = {
    ONE_THREAD | DEFERRED | DISABLED | ALL | NO_INDICES,
    ONE_THREAD | DEFERRED | DISABLED | ALL,
    COOPERATIVE | ALL,
    0,
};

static int setting(const char *path)
{
    int value = 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &value) != 1)
        value = 0;
    if (file)
        fclose(file);
    return value;
}

static int explained(int error)
{
    const int disabled = setting("/proc/sys/kernel/io_uring_disabled");
    if (error == ENOSYS)
        return fsm_explain(error, "io_uring is not there: the kernel was built without it or is "
                                  "older than 5.6, or a container's seccomp filter hides it");
    if (error == EPERM && disabled)
        return fsm_explain(error, "io_uring is forbidden here: the sysctl kernel.io_uring_disabled "
                                  "is %d%s", disabled, disabled == 1 ? ", and this user is not in "
                                  "the group kernel.io_uring_group" : "");
    if (error == EPERM || error == EACCES)
        return fsm_explain(error, "io_uring is forbidden here: by a seccomp filter (Docker's, "
                                  "Podman's and systemd's can) or a security module");
    if (error == ENOMEM)
        return fsm_explain(error, "io_uring gets no memory: raise the limit of locked memory "
                                  "(ulimit -l), or take a smaller iodepth");
    return fsm_explain(error, "io_uring cannot be set up: %m");
}

static int set_up(struct parameters *given, uint32_t size, bool poll)
{
    int fd = -1;
    for (size_t i = 0; fd < 0 && i < (poll ? 1 : sizeof STEPS / sizeof *STEPS); i++) {
        *given = (struct parameters){.flags = poll ? POLL : STEPS[i], .poll_idle = IDLE_MS};
        fd = (int)syscall(SETUP, size, given);
        if (fd < 0 && errno != EINVAL)
            break;
    }
    return fd;
}

static void *map(struct fsm_ring *ring, int i, size_t bytes, off_t what)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
                      what);
    if (made == MAP_FAILED)
        return NULL;
    ring->maps[i] = made;
    ring->map_bytes[i] = bytes;
    return made;
}

static bool map_all(struct fsm_ring *ring, const struct parameters *given)
{
    const size_t indices = given->sq.more[2] + given->entries * sizeof(uint32_t);
    const size_t events = given->cq.more[1] + given->events * sizeof *ring->events;
    char *base = map(ring, 0, indices > events ? indices : events, 0);
    ring->entries = map(ring, 1, given->entries * sizeof *ring->entries, 0x10000000);
    if (!base || !ring->entries)
        return false;
    ring->sent = (uint32_t *)(base + given->sq.head);
    ring->told = (uint32_t *)(base + given->sq.tail);
    ring->sq_flags = (uint32_t *)(base + given->sq.more[0]);
    ring->taken = (uint32_t *)(base + given->cq.head);
    ring->come = (uint32_t *)(base + given->cq.tail);
    ring->event_mask = *(uint32_t *)(base + given->cq.mask);
    ring->events = (struct fsm_ring_event *)(base + given->cq.more[1]);
    uint32_t *index = (uint32_t *)(base + given->sq.more[2]);
    for (uint32_t i = 0; !(given->flags & NO_INDICES) && i < given->entries; i++)
        index[i] = i;
    return true;
}

int fsm_ring_open(struct fsm_ring *ring, uint32_t size, bool poll)
{
    const uint32_t needed = ONE_MAP | NO_DROP | CURRENT_POSITION | (poll ? POLLS_ANY_FILE : 0);
    struct parameters given;
    memset(ring, 0, sizeof *ring);
    ring->fd = set_up(&given, size, poll);
    if (ring->fd < 0)
        return explained(errno);
    ring->setup = given.flags;
    ring->features = given.features;
    ring->size = given.entries;
    int error = 0;
    if (needed & ~given.features)
        error = fsm_explain(ENOSYS, "io_uring of this kernel is too old: Linux %s is needed",
                            poll ? "5.11" : "5.6");
    else if (!map_all(ring, &given))
        error = explained(errno);
    if (error)
        fsm_ring_close(ring);
    return error;
}

void fsm_ring_close(struct fsm_ring *ring)
{
    for (int i = 0; i < 2; i++)
        if (ring->maps[i])
            munmap(ring->maps[i], ring->map_bytes[i]);
    if (ring->fd >= 0)
        close(ring->fd);
    memset(ring, 0, sizeof *ring);
    ring->fd = -1;
}

void fsm_ring_features(const struct fsm_ring *ring, char *text, size_t size)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } names[] = {{POLL, "SQPOLL"}, {ONE_THREAD, "SINGLE_ISSUER"}, {DEFERRED, "DEFER_TASKRUN"},
                 {COOPERATIVE, "COOP_TASKRUN"}, {NO_INDICES, "NO_SQARRAY"}};
    *text = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ring->setup & names[i].flag)
            snprintf(text + strlen(text), size - strlen(text), ", %s", names[i].name);
}

static int told(struct fsm_ring *ring, enum registered what, const void *argument, uint32_t count)
{
    return syscall(REGISTER, ring->fd, what, argument, count) < 0 ? errno : 0;
}

int fsm_ring_enable(struct fsm_ring *ring)
{
    return ring->setup & DISABLED ? told(ring, ENABLE, NULL, 0) : 0;
}

int fsm_ring_files(struct fsm_ring *ring, uint32_t count)
{
    int32_t none[count];
    memset(none, 0xff, sizeof none);
    return told(ring, FILES, none, count);
}

int fsm_ring_file(struct fsm_ring *ring, uint32_t index, int fd)
{
    const int32_t files[1] = {fd};
    const struct {
        uint32_t first, reserved;
        uint64_t files;
    } update = {index, 0, (uintptr_t)files};
    return told(ring, FILES_UPDATE, &update, 1);
}

int fsm_ring_buffers(struct fsm_ring *ring, void *memory, uint64_t size, uint32_t count)
{
    struct iovec *parts = calloc(count, sizeof *parts);
    if (!parts)
        return ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        parts[i] = (struct iovec){(char *)memory + i * size, size};
    const int error = told(ring, BUFFERS, parts, count);
    free(parts);
    return error;
}

/* One call; `until_ns` 0: without a limit. */
static int enter(struct fsm_ring *ring, uint32_t flags, uint32_t least, uint64_t until_ns)
{
    const uint32_t unsent = ring->setup & POLL ? 0 : fsm_ring_unsent(ring);
    struct { int64_t seconds, ns; } time = {0, 0};
    const struct {
        uint64_t mask;
        uint32_t mask_size, reserved;
        uint64_t time;
    } extended = {0, 8, 0, (uintptr_t)&time};
    if (until_ns) {
        const uint64_t now = fsm_monotonic(), left = until_ns > now ? until_ns - now : 0;
        time.seconds = (int64_t)(left / FSM_SECOND);
        time.ns = (int64_t)(left % FSM_SECOND);
        flags |= EXTENDED;
    }
    const long n = syscall(ENTER, ring->fd, unsent, least, flags, until_ns ? &extended : NULL,
                           until_ns ? sizeof extended : 0);
    return n < 0 ? errno : 0;
}

static void rest(uint64_t ns)
{
    const struct timespec time = {0, (long)ns};
    nanosleep(&time, NULL);
}

int fsm_ring_enter(struct fsm_ring *ring, bool wait, uint64_t until_ns)
{
    uint32_t flags = GET_EVENTS;
    int error = 0;
    fsm_ring_tell(ring);
    if (ring->setup & POLL) {
        /* the kernel sees the entries, or we see that it sleeps */
        __atomic_store_n(ring->told, ring->tail, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(ring->sq_flags, __ATOMIC_SEQ_CST) & ASLEEP)
            flags |= WAKE_UP;
        else if (!wait)
            return 0;
    }
    if (until_ns && !(ring->features & TIMEOUT)) { /* before 5.11 */
        rest(50000);
        wait = false;
        until_ns = 0;
    }
    for (int i = 0; i < RETRIES; i++) {
        /* First what is unsent, then the wait.  With both in one call a loop device gave a third
         * of the rate, measured on a machine whose processors others wanted too. */
        const bool sends = wait && !(ring->setup & POLL) && fsm_ring_unsent(ring);
        error = enter(ring, flags, wait && !sends, sends ? 0 : until_ns);
        if (!error && (!sends || fsm_ring_event(ring)))
            return 0;
        if (error && error != EAGAIN && error != EBUSY)
            break;
        if (error && fsm_ring_event(ring))
            return 0; /* room for those of the kernel's that wait */
        if (error)
            rest(1000000);
    }
    return error == EINTR || error == ETIME ? 0 : error;
}
