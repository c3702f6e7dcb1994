/* The double's libdaos.so.2: handles, event queues and discipline over a directory.
 *
 * FSMATRIX_DOUBLE names the folder: <pool>/<container>/root are the files of a container, and
 * <pool>/forbidden, <container>/type (what is not POSIX) change what opening says.  The file
 * `faults` has lines "name number" (see double_fault's callers in both files).
 */
#define _GNU_SOURCE
#include "double.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 4096
#define NO_PERM -1001
#define NO_HDL -1002
#define INVAL -1003
#define NONEXIST -1005
#define BUSY -1012
#define TRUNC -1016
#define UNINIT -1015

char double_folder[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialised;
static struct { const char *what; int open; } counts[16];

static void tell(const char *name, const char *word)
{
    char path[5000];
    snprintf(path, sizeof path, "%s/%s", double_folder, name);
    FILE *file = fopen(path, "a");
    if (file)
        fprintf(file, "%s %d\n", word, (int)getpid());
    if (file)
        fclose(file);
}

void double_violation(const char *format, ...)
{
    char path[5000];
    va_list arguments;
    snprintf(path, sizeof path, "%s/violations", double_folder);
    FILE *file = fopen(path, "a");
    if (!file)
        abort();
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

long double_fault(const char *name)
{
    char path[5000], word[64];
    long value, found = 0;
    const char *folder = initialised ? double_folder : getenv("FSMATRIX_DOUBLE");
    snprintf(path, sizeof path, "%s/faults", folder ? folder : ".");
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%63s %ld", word, &value) == 2)
        if (strcmp(word, name) == 0)
            found = value;
    if (file)
        fclose(file);
    return found;
}

bool double_hits(const char *name)
{
    static struct { char name[32]; long calls; } seen[16];
    const long every = double_fault(name);
    bool hit = false;
    if (every <= 0)
        return false;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 16; i++)
        if (!*seen[i].name || strcmp(seen[i].name, name) == 0) {
            strncpy(seen[i].name, name, sizeof seen[i].name - 1);
            hit = ++seen[i].calls % every == 0;
            break;
        }
    pthread_mutex_unlock(&mutex);
    return hit;
}

void double_count(const char *what, int by)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < 16; i++)
        if (!counts[i].what || strcmp(counts[i].what, what) == 0) {
            counts[i].what = what;
            counts[i].open += by;
            break;
        }
    pthread_mutex_unlock(&mutex);
}

bool double_ready(const char *call)
{
    if (!initialised)
        double_violation("%s before daos_init or after daos_fini", call);
    return initialised > 0;
}

int daos_init(void)
{
    const char *folder = getenv("FSMATRIX_DOUBLE");
    if (!folder)
        return -2034;
    while (double_fault("hung_agent"))
        usleep(20000);
    if (double_fault("init"))
        return (int)double_fault("init");
    pthread_mutex_lock(&mutex);
    snprintf(double_folder, sizeof double_folder, "%s", folder);
    initialised++;
    pthread_mutex_unlock(&mutex);
    return 0;
}

int daos_fini(void)
{
    if (!double_ready("daos_fini"))
        return UNINIT;
    if (--initialised == 0)
        for (int i = 0; i < 16 && counts[i].what; i++) {
            if (counts[i].open)
                double_violation("%d %s left at daos_fini", counts[i].open, counts[i].what);
            counts[i].open = 0;
        }
    return 0;
}

int daos_oclass_name2id(const char *name)
{
    static const char *const names[] = {"S1", "S2", "SX", "RP_2G1", "EC_2P1GX"};
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return 100 + i;
    return 0;
}

/* -- pools and containers -------------------------------------------------------------------- */
static struct opened { /* cookie: its place * 16 + type */
    int type;
    bool joined;
    uint64_t pool; /* of a container */
    char path[4096], proof[4200]; /* proof: a file that lives while the owner is connected */
} handles[MOST];

static struct opened *of(handle_t handle, int type, const char *call)
{
    const uint64_t at = handle.cookie >> 4;
    if (at && at < MOST && handles[at].type == type && (handle.cookie & 15) == (unsigned)type)
        return &handles[at];
    double_violation("%s with a handle that is none", call);
    return NULL;
}

static handle_t made(int type, const char *path, const char *proof)
{
    uint64_t at = 1;
    pthread_mutex_lock(&mutex);
    while (at < MOST - 1 && handles[at].type)
        at++;
    handles[at].type = type;
    handles[at].pool = 0;
    handles[at].joined = proof != NULL;
    snprintf(handles[at].path, sizeof handles[at].path, "%s", path);
    if (proof)
        snprintf(handles[at].proof, sizeof handles[at].proof, "%s", proof);
    else
        snprintf(handles[at].proof, sizeof handles[at].proof, "%s/.open.%d.%d.%d", path, type,
                 (int)getpid(), (int)at);
    pthread_mutex_unlock(&mutex);
    FILE *file = proof ? NULL : fopen(handles[at].proof, "w");
    if (file)
        fclose(file);
    double_count(type == POOL ? "pools" : "containers", 1);
    if (type == POOL)
        tell("connected", proof ? "joined" : "alone");
    return (handle_t){at << 4 | (unsigned)type};
}

static int closed(handle_t handle, int type, const char *call)
{
    struct opened *it = of(handle, type, call);
    if (!it)
        return NO_HDL;
    if (!it->joined)
        unlink(it->proof);
    it->type = 0;
    double_count(type == POOL ? "pools" : "containers", -1);
    return 0;
}

static int connect_to(const char *pool, handle_t *handle)
{
    char path[5000], mark[5100];
    if (!double_ready("daos_pool_connect"))
        return UNINIT;
    while (double_fault("hung_pool"))
        usleep(20000);
    snprintf(path, sizeof path, "%s/%s", double_folder, pool);
    if (access(path, F_OK))
        return NONEXIST;
    snprintf(mark, sizeof mark, "%s/forbidden", path);
    if (access(mark, F_OK) == 0)
        return NO_PERM;
    *handle = made(POOL, path, NULL);
    return 0;
}

static int open_container(handle_t pool, const char *name, handle_t *handle)
{
    char path[5000];
    struct opened *it = of(pool, POOL, "daos_cont_open");
    if (!it)
        return NO_HDL;
    snprintf(path, sizeof path, "%s/%s", it->path, name);
    if (access(path, F_OK))
        return NONEXIST;
    *handle = made(CONTAINER, path, NULL);
    handles[handle->cookie >> 4].pool = pool.cookie;
    return 0;
}

#ifdef DOUBLE_PLAIN /* a release without the names that end in 2 */
#define daos_pool_connect2 daos_pool_connect
#define daos_cont_open2 daos_cont_open
#endif

int daos_pool_connect2(const char *pool, const char *system, unsigned flags, handle_t *handle,
                       void *facts, event_t *event)
{
    if (flags != 2 || facts || event || (system && !*system))
        double_violation("daos_pool_connect with other flags than were meant");
    return connect_to(pool, handle);
}

int daos_cont_open2(handle_t pool, const char *name, unsigned flags, handle_t *handle, void *facts,
                    event_t *event)
{
    if (flags != 2 || facts || event)
        double_violation("daos_cont_open with other flags than were meant");
    return open_container(pool, name, handle);
}

int daos_pool_disconnect(handle_t pool, event_t *event)
{
    (void)event;
    for (int i = 1; i < MOST; i++)
        if (handles[i].type == CONTAINER && handles[i].pool == pool.cookie)
            double_violation("a pool is left with container %s open", handles[i].path);
    return closed(pool, POOL, "daos_pool_disconnect");
}

int daos_cont_close(handle_t container, event_t *event)
{
    (void)event;
    return closed(container, CONTAINER, "daos_cont_close");
}

const char *double_container(handle_t container, int *error)
{
    struct opened *it = of(container, CONTAINER, "libdfs");
    *error = !it || access(it->proof, F_OK) ? EINVAL : 0;
    return it ? it->path : NULL;
}

/* -- global handles: path and proof as text --------------------------------------------------- */
static int give(handle_t handle, int type, iov_t *global)
{
    struct opened *it = of(handle, type, "local2global");
    if (!it)
        return NO_HDL;
    const size_t size = strlen(it->path) + strlen(it->proof) + 2;
    if (global->buf && global->buf_len < size)
        return TRUNC;
    if (global->buf)
        global->len = (size_t)snprintf(global->buf, size, "%s\n%s", it->path, it->proof) + 1;
    global->buf_len = size;
    return 0;
}

static int take(iov_t global, int type, handle_t *handle)
{
    char text[9000], *second;
    if (!double_ready("global2local") || !global.buf || global.len >= sizeof text)
        return INVAL;
    memcpy(text, global.buf, global.len);
    text[global.len] = 0;
    if (!(second = strchr(text, '\n')))
        return INVAL;
    *second++ = 0;
    *handle = made(type, text, second);
    return 0;
}

int daos_pool_local2global(handle_t pool, iov_t *global)
{
    return give(pool, POOL, global);
}

int daos_pool_global2local(iov_t global, handle_t *pool)
{
    return take(global, POOL, pool);
}

int daos_cont_local2global(handle_t container, iov_t *global)
{
    return give(container, CONTAINER, global);
}

int daos_cont_global2local(handle_t pool, iov_t global, handle_t *container)
{
    const int code = of(pool, POOL, "daos_cont_global2local") ? take(global, CONTAINER, container)
                                                              : NO_HDL;
    if (!code)
        handles[container->cookie >> 4].pool = pool.cookie;
    return code;
}
