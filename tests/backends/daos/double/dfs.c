/* The double's libdfs.so: the namespace of a container is a directory.  See daos.c.
 *
 * Faults: `write n`, `read n`: every n-th of them fails (ENOSPC, EIO) by its event;
 * `refuse n`: every n-th asynchronous call returns EIO and launches nothing; `launched n`: it
 * returns EIO and its event tells it too; `der 1`: events tell DER codes, as before 2.2;
 * `unfit 1`: no object class fits into the pool; `short n`: every n-th read gets half.
 */
#define _GNU_SOURCE
#include "double.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOUNT 0x6d6f756eu
#define OBJECT 0x6f626a65u
#define WHOLE UINT64_MAX

struct mount {
    uint32_t magic;
    handle_t container;
    int root;
};

struct object {
    uint32_t magic;
    int fd, flags;
    mode_t mode;
};

static struct mount *mount_of(void *dfs, const char *call)
{
    struct mount *mount = dfs;
    int error;
    if (!mount || mount->magic != MOUNT) {
        double_violation("%s on what is no mount", call);
        return NULL;
    }
    return double_container(mount->container, &error) && !error ? mount : NULL;
}

static struct object *object_of(void *object, const char *call)
{
    struct object *it = object;
    if (it && it->magic == OBJECT)
        return it;
    double_violation("%s on what is no open object", call);
    return NULL;
}

/* Descriptor of the parent, or -1 with an errno. */
static int parent_of(struct mount *mount, void *parent, const char *name, int *error)
{
    struct object *it = parent ? object_of(parent, "an entry") : NULL;
    struct stat facts;
    if (it && S_ISDIR(it->mode) && fstat(it->fd, &facts) == 0 && facts.st_nlink == 0)
        double_violation("an entry of a directory that was removed, which DAOS would make");
    *error = !mount || (parent && !it)         ? EINVAL
             : !name || !*name || strchr(name, '/') ? EINVAL
             : it && !S_ISDIR(it->mode)         ? ENOTDIR
                                                : 0;
    return *error ? -1 : it ? it->fd : mount->root;
}

static struct object *opened(int fd, int flags)
{
    struct object *it = calloc(1, sizeof *it);
    struct stat facts;
    fstat(fd, &facts);
    *it = (struct object){OBJECT, fd, flags, facts.st_mode};
    double_count("open objects", 1);
    return it;
}

/* -- mounts ---------------------------------------------------------------------------------- */
static int mount_it(handle_t container, void **made)
{
    char path[5000], type[32] = "POSIX";
    int error;
    const char *folder = double_container(container, &error);
    if (!folder) /* an owner that has left is noticed by the first operation */
        return error;
    snprintf(path, sizeof path, "%s/type", folder);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%31s", type) != 1)
        *type = 0;
    if (file)
        fclose(file);
    if (strcmp(type, "POSIX"))
        return EINVAL;
    snprintf(path, sizeof path, "%s/root", folder);
    struct mount *mount = calloc(1, sizeof *mount);
    *mount = (struct mount){MOUNT, container, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (mount->root < 0) {
        free(mount);
        return ENOENT;
    }
    double_count("mounts", 1);
    *made = mount;
    return 0;
}

int dfs_mount(handle_t pool, handle_t container, int flags, void **made)
{
    if (!double_ready("dfs_mount") || (pool.cookie & 15) != POOL || flags != O_RDWR)
        return EINVAL;
    return mount_it(container, made);
}

int dfs_umount(void *dfs)
{
    struct mount *mount = dfs;
    if (!mount || mount->magic != MOUNT) {
        double_violation("dfs_umount of what is no mount");
        return EINVAL;
    }
    close(mount->root);
    mount->magic = 0;
    free(mount);
    double_count("mounts", -1);
    return 0;
}

int dfs_local2global(void *dfs, iov_t *global)
{
    if (!mount_of(dfs, "dfs_local2global"))
        return EINVAL;
    if (global->buf && global->buf_len < 8)
        return ENOBUFS;
    if (global->buf)
        memcpy(global->buf, "mounted", global->len = 8);
    global->buf_len = 8;
    return 0;
}

int dfs_global2local(handle_t pool, handle_t container, int flags, iov_t global, void **made)
{
    (void)pool, (void)flags;
    if (global.len != 8 || memcmp(global.buf, "mounted", 8))
        return EINVAL;
    return mount_it(container, made);
}

/* -- entries --------------------------------------------------------------------------------- */
static int look_up(int at, const char *name, void **object, mode_t *mode)
{
    struct stat facts;
    if (fstatat(at, name, &facts, AT_SYMLINK_NOFOLLOW))
        return errno;
    const int way = S_ISDIR(facts.st_mode) ? O_RDONLY | O_DIRECTORY
                    : S_ISLNK(facts.st_mode) ? O_PATH | O_NOFOLLOW : O_RDWR;
    const int fd = openat(at, name, way | O_CLOEXEC);
    if (fd < 0)
        return errno;
    *mode = facts.st_mode;
    *object = opened(fd, O_RDWR);
    return 0;
}

int dfs_lookup(void *dfs, const char *path, int flags, void **object, mode_t *mode,
               struct stat *facts)
{
    struct mount *mount = mount_of(dfs, "dfs_lookup");
    if (!mount || flags != O_RDWR || facts || strcmp(path, "/"))
        return EINVAL;
    return look_up(mount->root, ".", object, mode);
}

int dfs_lookup_rel(void *dfs, void *parent, const char *name, int flags, void **object,
                   mode_t *mode, struct stat *facts)
{
    int error, at = parent_of(mount_of(dfs, "dfs_lookup_rel"), parent, name, &error);
    if (!(flags & O_NOFOLLOW))
        double_violation("dfs_lookup_rel that would follow links");
    return error || facts ? error : look_up(at, name, object, mode);
}

int dfs_open(void *dfs, void *parent, const char *name, mode_t mode, int flags, uint32_t oclass,
             uint64_t chunk_size, const char *target, void **object)
{
    struct stat facts;
    int error, at = parent_of(mount_of(dfs, "dfs_open"), parent, name, &error);
    if (error)
        return error;
    if (!S_ISREG(mode) || target || chunk_size % 4096)
        return EINVAL;
    if (flags & O_CREAT && oclass && double_fault("unfit"))
        return EINVAL;
    if (fstatat(at, name, &facts, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(facts.st_mode))
        return flags & O_EXCL ? EEXIST : EINVAL;
    const int fd = openat(at, name, (flags & ~O_ACCMODE) | O_RDWR | O_CLOEXEC, mode & 0777);
    if (fd < 0)
        return errno;
    *object = opened(fd, flags);
    return 0;
}

int dfs_release(void *object)
{
    struct object *it = object_of(object, "dfs_release");
    if (!it)
        return EINVAL;
    it->magic = 0;
    close(it->fd);
    free(it);
    double_count("open objects", -1);
    return 0;
}

int dfs_mkdir(void *dfs, void *parent, const char *name, mode_t mode, uint32_t oclass)
{
    int error, at = parent_of(mount_of(dfs, "dfs_mkdir"), parent, name, &error);
    (void)oclass;
    return error ? error : mkdirat(at, name, mode) ? errno : 0;
}

static int remove_at(int at, const char *name, bool force)
{
    struct stat facts;
    if (fstatat(at, name, &facts, AT_SYMLINK_NOFOLLOW))
        return errno;
    if (!S_ISDIR(facts.st_mode))
        return unlinkat(at, name, 0) ? errno : 0;
    DIR *folder = force ? fdopendir(openat(at, name, O_RDONLY | O_DIRECTORY)) : NULL;
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            remove_at(dirfd(folder), entry->d_name, true);
    if (folder)
        closedir(folder);
    return unlinkat(at, name, AT_REMOVEDIR) ? errno : 0;
}

int dfs_remove(void *dfs, void *parent, const char *name, bool force, void *id)
{
    int error, at = parent_of(mount_of(dfs, "dfs_remove"), parent, name, &error);
    (void)id;
    return error ? error : remove_at(at, name, force);
}

int dfs_move(void *dfs, void *parent, const char *name, void *parent2, const char *name2, void *id)
{
    int error, error2, at = parent_of(mount_of(dfs, "dfs_move"), parent, name, &error);
    const int at2 = parent_of(mount_of(dfs, "dfs_move"), parent2, name2, &error2);
    (void)id;
    return error ? error : error2 ? error2 : renameat(at, name, at2, name2) ? errno : 0;
}

int dfs_stat(void *dfs, void *parent, const char *name, struct stat *facts)
{
    int error, at = parent_of(mount_of(dfs, "dfs_stat"), parent, name, &error);
    return error ? error : fstatat(at, name, facts, AT_SYMLINK_NOFOLLOW) ? errno : 0;
}

int dfs_ostat(void *dfs, void *object, struct stat *facts)
{
    struct object *it = object_of(object, "dfs_ostat");
    return !mount_of(dfs, "dfs_ostat") || !it ? EINVAL : fstat(it->fd, facts) ? errno : 0;
}

int dfs_readdir(void *dfs, void *object, void *anchor, uint32_t *count, struct dirent *entries)
{
    struct { uint16_t type, shard; uint32_t flags; uint64_t sub, told; } *at = anchor;
    struct object *it = object_of(object, "dfs_readdir");
    uint64_t seen = 0;
    uint32_t n = 0;
    if (!mount_of(dfs, "dfs_readdir") || !it || !*count)
        return EINVAL;
    if (!S_ISDIR(it->mode))
        return ENOTDIR;
    if (at->type == 3)
        double_violation("dfs_readdir beyond the end of a directory");
    DIR *folder = fdopendir(openat(it->fd, ".", O_RDONLY | O_DIRECTORY));
    struct dirent *entry;
    while (n < *count && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && seen++ >= at->told)
            entries[n++] = *entry;
    closedir(folder);
    at->told += n;
    at->type = n < *count ? 3 : 2;
    *count = n;
    return 0;
}

/* -- data ------------------------------------------------------------------------------------ */
struct transfer {
    int fd;
    sgl_t *list;
    uint64_t offset, *got;
    int error; /* of an injected fault */
    bool half;
};

static int transfer(void *argument)
{
    struct transfer *it = argument;
    const iov_t *part = it->list->iovs;
    const bool der = double_fault("der");
    int error = it->error;
    if (it->list->nr != 1 || part->len > part->buf_len)
        double_violation("a list of buffers that is no longer what it was");
    if (!error && it->got) {
        const ssize_t n = pread(it->fd, part->buf, it->half ? part->len / 2 : part->len,
                                (off_t)it->offset);
        *it->got = n < 0 ? 0 : (uint64_t)n;
        error = n < 0 ? errno : 0;
    } else if (!error) {
        error = pwrite(it->fd, part->buf, part->len, (off_t)it->offset) < 0 ? errno : 0;
    }
    free(it);
    return der && error == ENOSPC ? -1007 : der && error ? -2001 : error;
}

static int begin(struct mount *mount, struct object *it, struct transfer what, event_t *event)
{
    if (!mount || !it || !S_ISREG(it->mode) || !what.list)
        return EINVAL;
    if ((it->flags & O_ACCMODE) == (what.got ? O_WRONLY : O_RDONLY))
        return EPERM;
    struct transfer *made = malloc(sizeof *made);
    *made = what;
    made->fd = it->fd;
    if (!event)
        return transfer(made);
    if (double_hits("refuse")) {
        free(made);
        return EIO;
    }
    const bool launched = double_hits("launched");
    if (launched)
        made->error = EIO;
    const int error = double_launch(event, transfer, made);
    return error ? error : launched ? EIO : 0;
}

int dfs_read(void *dfs, void *object, sgl_t *list, uint64_t offset, uint64_t *size, event_t *event)
{
    struct transfer what = {.list = list, .offset = offset, .got = size};
    what.error = double_hits("read") ? EIO : 0;
    what.half = double_hits("short");
    return begin(mount_of(dfs, "dfs_read"), object_of(object, "dfs_read"), what, event);
}

int dfs_write(void *dfs, void *object, sgl_t *list, uint64_t offset, event_t *event)
{
    struct transfer what = {.list = list, .offset = offset};
    what.error = double_hits("write") ? ENOSPC : 0;
    return begin(mount_of(dfs, "dfs_write"), object_of(object, "dfs_write"), what, event);
}

int dfs_punch(void *dfs, void *object, uint64_t offset, uint64_t size)
{
    struct object *it = object_of(object, "dfs_punch");
    if (!mount_of(dfs, "dfs_punch") || !it || !S_ISREG(it->mode) || size != WHOLE)
        return EINVAL;
    return ftruncate(it->fd, (off_t)offset) ? errno : 0;
}
