/* From nothing to a mounted container and back, alone or with handles that another process has.
 *
 * Every release since 2.0 has these calls: pool and container are opened by themselves, so an
 * error names which of them it is, and nothing is ever created on the way. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_dfs.h"

#define CALLS fsm_dfs_calls
#define READ_WRITE 2u /* DAOS_PC_RW, DAOS_COO_RW */
#define NO_PERMISSION -1001
#define MISCELLANEOUS -1025 /* from daos_init: nobody listens at the agent's socket */
#define AGENT_UNREACHABLE -2034
#define WORDS 512

static int initialise(struct dfs *dfs)
{
    char words[WORDS], agent[WORDS];
    const int code = CALLS.daos_init();
    dfs->initialised = code == 0;
    if (!code)
        return 0;
    fsm_dfs_words(code, words, sizeof words);
    fsm_dfs_agent(agent, sizeof agent);
    if (code == AGENT_UNREACHABLE || code == MISCELLANEOUS)
        return fsm_explain(fsm_dfs_errno(code), "no daos_agent answers at its socket %s (%s): "
                           "start it (systemctl start daos_agent), or set DAOS_AGENT_DRPC_DIR",
                           agent, words);
    return fsm_explain(fsm_dfs_errno(code), "DAOS cannot be initialised (daos_agent's socket is "
                       "%s): %s", agent, words);
}

static int failed(const struct dfs *dfs, const char *what, int code)
{
    char words[WORDS];
    const char *pool = fsm_root_value(&dfs->root, "pool");
    const char *container = fsm_root_value(&dfs->root, "container");
    const bool about_pool = strcmp(what, "pool") == 0;
    fsm_dfs_words(code, words, sizeof words);
    const char *hint = code == NO_PERMISSION ? "; its access list does not allow this user" : "";
    return about_pool ? fsm_explain(fsm_dfs_errno(code), "pool %s: %s%s", pool, words, hint)
                      : fsm_explain(fsm_dfs_errno(code), "%s %s of pool %s: %s%s", what,
                                    container, pool, words, hint);
}

static int mounted(const struct dfs *dfs, int error)
{
    if (error == EINVAL)
        return fsm_explain(EINVAL, "container %s of pool %s cannot be mounted: EINVAL, which says "
                           "that its type is not POSIX", fsm_root_value(&dfs->root, "container"),
                           fsm_root_value(&dfs->root, "pool"));
    return error ? failed(dfs, "the mount of container", error) : 0;
}

static int open_alone(struct dfs *dfs)
{
    const char *system = fsm_root_value(&dfs->root, "system");
    int code = CALLS.daos_pool_connect(fsm_root_value(&dfs->root, "pool"),
                                       *system ? system : NULL, READ_WRITE, &dfs->pool, NULL, NULL);
    if (code)
        return failed(dfs, "pool", code);
    dfs->pool_open = true;
    code = CALLS.daos_cont_open(dfs->pool, fsm_root_value(&dfs->root, "container"), READ_WRITE,
                                &dfs->container, NULL, NULL);
    if (code)
        return failed(dfs, "container", code);
    dfs->container_open = true;
    return mounted(dfs, CALLS.dfs_mount(dfs->pool, dfs->container, O_RDWR, &dfs->mount));
}

/* -- handles as text: three of them in hexadecimal digits, with dots between ----------------- */
static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of one handle, which the caller frees; `text` moves behind it.  NULL: none there. */
static void *decode(const char **text, struct dfs_iov *global)
{
    const char *at = *text;
    const size_t length = strcspn(at, ".") / 2; /* an odd digit stays, and is too many */
    unsigned char *bytes = length ? malloc(length) : NULL;
    for (size_t i = 0; bytes && i < length; i++, at += 2) {
        const int high = digit(at[0]), low = high < 0 ? -1 : digit(at[1]);
        if (low < 0) {
            free(bytes);
            return NULL;
        }
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    *text = at + (*at == '.' && at[1]);
    *global = (struct dfs_iov){bytes, length, length};
    return bytes;
}

static int take_over(struct dfs *dfs, struct dfs_iov globals[3])
{
    int code = CALLS.daos_pool_global2local(globals[0], &dfs->pool);
    if (code)
        return failed(dfs, "the shared handle of pool and container", code);
    dfs->pool_open = true;
    code = CALLS.daos_cont_global2local(dfs->pool, globals[1], &dfs->container);
    if (code)
        return failed(dfs, "the shared handle of container", code);
    dfs->container_open = true;
    code = CALLS.dfs_global2local(dfs->pool, dfs->container, O_RDWR, globals[2], &dfs->mount);
    return code ? failed(dfs, "the shared mount of container", code) : 0;
}

static int join(struct dfs *dfs, const char *handles)
{
    struct dfs_iov globals[3] = {{0}};
    void *bytes[3] = {NULL};
    int n = 0;
    while (n < 3 && (bytes[n] = decode(&handles, &globals[n])))
        n++;
    int error = n == 3 && !*handles ? take_over(dfs, globals)
                                    : fsm_explain(EINVAL, "the root's handles are damaged");
    while (n--)
        free(bytes[n]);
    return error;
}

/* The size is asked for first; 0 or a code. */
static int export(struct dfs *dfs, int which, struct dfs_iov *global)
{
    return which == 0   ? CALLS.daos_pool_local2global(dfs->pool, global)
           : which == 1 ? CALLS.daos_cont_local2global(dfs->container, global)
                        : CALLS.dfs_local2global(dfs->mount, global);
}

static int append(char **text, const struct dfs_iov *global)
{
    const size_t before = *text ? strlen(*text) : 0;
    const unsigned char *bytes = global->data;
    char *longer = realloc(*text, before + 2 * global->length + 2);
    if (!longer)
        return ENOMEM;
    *text = longer;
    longer += before;
    if (before)
        *longer++ = '.';
    for (size_t i = 0; i < global->length; i++, longer += 2)
        snprintf(longer, 3, "%02x", bytes[i]);
    return 0;
}

int fsm_dfs_share(void *connection, char **text)
{
    static const char line[] = "handles=";
    struct dfs *dfs = connection;
    char *handles = NULL;
    int error = 0;
    fsm_forget();
    *text = NULL;
    for (int which = 0; which < 3 && !error; which++) {
        struct dfs_iov global = {0};
        error = export(dfs, which, &global);
        if (!error && !(global.data = malloc(global.capacity)))
            error = ENOMEM;
        global.length = global.capacity;
        if (!error && !(error = export(dfs, which, &global)))
            error = append(&handles, &global);
        free(global.data);
    }
    if (error)
        error = failed(dfs, "sharing the handles of container", error);
    else if (!(*text = malloc(strlen(handles) + sizeof line)))
        error = ENOMEM;
    else
        strcat(strcpy(*text, line), handles);
    free(handles);
    return error;
}

/* The directory that names begin at; links on the way are not followed. */
static int go_down(struct dfs *dfs)
{
    const char *path = fsm_root_value(&dfs->root, "path");
    struct dfs_folder *folder;
    mode_t mode;
    int error = CALLS.dfs_lookup(dfs->mount, "/", O_RDWR, &dfs->top, &mode, NULL);
    if (!error)
        error = fsm_dfs_folder_get(dfs, path, strlen(path), &folder);
    if (error)
        return fsm_explain(fsm_dfs_errno(error), "directory %s in container %s of pool %s: %s%s",
                           *path ? path : "/", fsm_root_value(&dfs->root, "container"),
                           fsm_root_value(&dfs->root, "pool"), strerror(fsm_dfs_errno(error)),
                           *fsm_root_value(&dfs->root, "handles")
                               ? "; whose connection is shared here must still have it open"
                               : "");
    if (!folder)
        return 0;
    CALLS.dfs_release(dfs->top);
    dfs->top = folder->object;
    folder->object = NULL;
    fsm_dfs_folder_put(dfs, folder);
    fsm_dfs_folder_forget_all(&dfs->folders); /* paths begin here from now on */
    return 0;
}

int fsm_dfs_attach(struct dfs *dfs)
{
    const char *handles = fsm_root_value(&dfs->root, "handles");
    int error = initialise(dfs);
    if (error)
        return error;
    __atomic_store_n(&dfs->asking, DFS_SERVERS, __ATOMIC_RELAXED);
    error = *handles ? join(dfs, handles) : open_alone(dfs);
    return error ? error : go_down(dfs);
}

void fsm_dfs_detach(struct dfs *dfs)
{
    fsm_dfs_folder_forget_all(&dfs->folders);
    if (dfs->top)
        CALLS.dfs_release(dfs->top);
    if (dfs->mount)
        CALLS.dfs_umount(dfs->mount);
    if (dfs->container_open)
        CALLS.daos_cont_close(dfs->container, NULL);
    if (dfs->pool_open)
        CALLS.daos_pool_disconnect(dfs->pool, NULL);
    if (dfs->initialised)
        CALLS.daos_fini();
}
