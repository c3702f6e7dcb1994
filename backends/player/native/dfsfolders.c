/* Open directories of the dfs driver: libdfs takes a parent's handle and one name.
 *
 * A path is walked name by name and never through a symbolic link.  Handles are kept, as the
 * engines that speak DFS keep them, and forgotten when this player removes, moves or makes a
 * directory of that path.  What another process does to a directory is not seen until then.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_content.h"
#include "fsm_dfs.h"

#define CALLS fsm_dfs_calls
#define LONGEST 4096

int fsm_dfs_folders_open(struct dfs_folders *folders)
{
    return pthread_mutex_init(&folders->mutex, NULL);
}

static void release(struct dfs_folder *folder)
{
    if (folder->object) /* NULL: it was taken over */
        CALLS.dfs_release(folder->object);
    free(folder->path);
    free(folder);
}

/* Take it out of its place; whoever still uses it releases it. */
static void drop(struct dfs_folders *folders, size_t place)
{
    struct dfs_folder *folder = folders->kept[place];
    folders->kept[place] = NULL;
    folder->stale = true;
    if (!folder->users)
        release(folder);
}

void fsm_dfs_folder_forget_all(struct dfs_folders *folders)
{
    pthread_mutex_lock(&folders->mutex);
    for (size_t i = 0; i < DFS_FOLDERS; i++)
        if (folders->kept[i])
            drop(folders, i);
    pthread_mutex_unlock(&folders->mutex);
}

void fsm_dfs_folders_close(struct dfs_folders *folders)
{
    pthread_mutex_destroy(&folders->mutex);
}

static size_t place_of(const char *path)
{
    return fsm_fnv1a64(path, strlen(path)) % DFS_FOLDERS;
}

/* The path without "." and double slashes: 0, or ENAMETOOLONG. */
static int tidy(const char *path, size_t length, char *made)
{
    size_t n = 0;
    if (length >= LONGEST)
        return ENAMETOOLONG;
    for (const char *at = path, *end = path + length; at < end;) {
        const char *slash = memchr(at, '/', (size_t)(end - at));
        const size_t part = (size_t)((slash ? slash : end) - at);
        if (part && !(part == 1 && *at == '.')) {
            if (n)
                made[n++] = '/';
            memcpy(made + n, at, part);
            n += part;
        }
        at += part + 1;
    }
    made[n] = 0;
    return 0;
}

static struct dfs_folder *find(struct dfs_folders *folders, const char *path)
{
    pthread_mutex_lock(&folders->mutex);
    struct dfs_folder *folder = folders->kept[place_of(path)];
    if (folder && strcmp(folder->path, path) == 0)
        folder->users++;
    else
        folder = NULL;
    pthread_mutex_unlock(&folders->mutex);
    return folder;
}

static void keep(struct dfs_folders *folders, struct dfs_folder *folder)
{
    const size_t place = place_of(folder->path);
    pthread_mutex_lock(&folders->mutex);
    if (folders->kept[place])
        drop(folders, place);
    folders->kept[place] = folder;
    pthread_mutex_unlock(&folders->mutex);
}

/* Open the directory `name` of a parent. */
static int open_folder(struct dfs *dfs, void *parent, const char *name, void **object)
{
    mode_t mode;
    int error = CALLS.dfs_lookup_rel(dfs->mount, parent, name, O_RDWR | O_NOFOLLOW, object, &mode,
                                     NULL);
    if (error || S_ISDIR(mode))
        return fsm_dfs_errno(error);
    CALLS.dfs_release(*object);
    return S_ISLNK(mode) ? ELOOP : ENOTDIR;
}

static int get(struct dfs *dfs, char *path, struct dfs_folder **got)
{
    struct dfs_folder *parent = NULL, *folder;
    *got = NULL;
    if (!*path || (*got = find(&dfs->folders, path)))
        return 0;
    char *slash = strrchr(path, '/');
    int error = 0;
    if (slash) {
        *slash = 0;
        error = get(dfs, path, &parent);
        *slash = '/';
    }
    if (error)
        return error;
    folder = calloc(1, sizeof *folder);
    if (!folder || !(folder->path = strdup(path)))
        error = ENOMEM;
    else
        error = open_folder(dfs, parent ? parent->object : dfs->top, slash ? slash + 1 : path,
                            &folder->object);
    fsm_dfs_folder_put(dfs, parent);
    if (error) {
        if (folder)
            free(folder->path);
        free(folder);
        return error;
    }
    folder->users = 1;
    keep(&dfs->folders, folder);
    *got = folder;
    return 0;
}

int fsm_dfs_folder_get(struct dfs *dfs, const char *path, size_t length, struct dfs_folder **got)
{
    char tidied[LONGEST];
    int error = tidy(path, length, tidied);
    return error ? error : get(dfs, tidied, got);
}

void fsm_dfs_folder_put(struct dfs *dfs, struct dfs_folder *folder)
{
    if (!folder)
        return;
    pthread_mutex_lock(&dfs->folders.mutex);
    const bool last = --folder->users == 0 && folder->stale;
    pthread_mutex_unlock(&dfs->folders.mutex);
    if (last)
        release(folder);
}

void fsm_dfs_folder_forget(struct dfs *dfs, const char *path)
{
    struct dfs_folders *folders = &dfs->folders;
    char tidied[LONGEST];
    if (tidy(path, strlen(path), tidied) || !*tidied)
        return;
    const size_t length = strlen(tidied);
    pthread_mutex_lock(&folders->mutex);
    for (size_t i = 0; i < DFS_FOLDERS; i++) {
        const char *kept = folders->kept[i] ? folders->kept[i]->path : "";
        if (strncmp(kept, tidied, length) == 0 && (!kept[length] || kept[length] == '/'))
            drop(folders, i);
    }
    pthread_mutex_unlock(&folders->mutex);
}
