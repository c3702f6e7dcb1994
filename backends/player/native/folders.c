/* See fsm_folders.h.
 *
 * A directory is opened by openat2 with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS; before Linux 5.6
 * part by part by openat with O_NOFOLLOW.  On file systems of this machine the last directory stays
 * open, since looking its path up again costs more there than many an operation.  On all others
 * the names on the way may be asked of a server each time, which belongs to the operation: there
 * the directory is opened for each one.
 */
#define _GNU_SOURCE
#include "fsm_folders.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define RESOLVE_NO_SYMLINKS_ 0x04u
#define RESOLVE_BENEATH_ 0x08u
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342 /* which old headers lack too */
#endif
#define FOLDER (O_PATH | O_DIRECTORY | O_CLOEXEC)

struct open_how_ { /* linux/openat2.h, which old headers lack */
    uint64_t flags, mode, resolve;
};

static int by_openat2(int root, const char *name, int flags, mode_t mode)
{
    struct open_how_ how = {(uint64_t)(unsigned)flags, flags & O_CREAT ? mode : 0,
                            RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_};
    long fd;
    do
        fd = syscall(SYS_openat2, root, name, &how, sizeof how);
    while (fd < 0 && (errno == EINTR || errno == EAGAIN));
    return (int)fd;
}

static bool is_of_this_machine(int root)
{
    static const uint32_t kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
                                     F2FS_SUPER_MAGIC, NILFS_SUPER_MAGIC};
    struct statfs facts;
    if (fstatfs(root, &facts) != 0)
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((uint32_t)facts.f_type == kinds[i])
            return true;
    return false;
}

int fsm_folders_open(struct fsm_folders *folders, const char *root, bool openat2)
{
    folders->root = open(root, FOLDER);
    if (folders->root < 0)
        return errno;
    int probe = by_openat2(folders->root, ".", O_PATH | O_CLOEXEC, 0);
    folders->openat2 = openat2 && probe >= 0;
    if (probe >= 0)
        close(probe);
    folders->kept = is_of_this_machine(folders->root);
    return 0;
}

/* A directory in another one; ELOOP for a symbolic link. */
static int step_into(int fd, const char *part)
{
    struct stat facts;
    int next = openat(fd, part, FOLDER | O_NOFOLLOW);
    if (next < 0 && errno == ENOTDIR) {
        bool link = fstatat(fd, part, &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode);
        errno = link ? ELOOP : ENOTDIR;
    }
    return next;
}

/* Open the directory `path`, whose slashes are replaced on the way. */
static int part_by_part(int root, char *path)
{
    int fd = root;
    for (char *part = path, *end; part && fd >= 0; part = end) {
        if ((end = strchr(part, '/')))
            *end++ = 0;
        if (!*part)
            continue;
        int next = step_into(fd, part), error = errno;
        if (fd != root)
            close(fd);
        errno = error;
        fd = next;
    }
    return fd;
}

static int open_folder(const struct fsm_folders *folders, const char *path, uint32_t length)
{
    char copy[4096];
    memcpy(copy, path, length);
    copy[length] = 0;
    return folders->openat2 ? by_openat2(folders->root, copy, FOLDER, 0)
                            : part_by_part(folders->root, copy);
}

static const char *leaf_of(const struct fsm_file *file)
{
    return file->parent ? file->name + file->parent_end + 1 : file->name;
}

int fsm_open_beneath(const struct fsm_folders *folders, const struct fsm_file *file, int flags,
                     mode_t mode)
{
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
    if (folders->openat2)
        return by_openat2(folders->root, file->name, flags, mode);
    int folder = file->parent ? open_folder(folders, file->name, file->parent_end) : folders->root;
    int fd, error;
    if (folder < 0)
        return -1;
    do
        fd = openat(folder, leaf_of(file), flags, mode);
    while (fd < 0 && errno == EINTR);
    error = errno;
    if (folder != folders->root)
        close(folder);
    errno = error;
    return fd;
}

int fsm_folder_enter(const struct fsm_folders *folders, struct fsm_folder *folder,
                     const struct fsm_file *file, struct fsm_entry *entry)
{
    entry->leaf = leaf_of(file);
    entry->fd = folders->root;
    if (!file->parent)
        return 0;
    const uint64_t moved = __atomic_load_n(&folders->moved, __ATOMIC_ACQUIRE);
    const bool open = folder->fd >= 0 && folder->moved == moved &&
                      folder->length == file->parent_end &&
                      memcmp(folder->path, file->name, file->parent_end) == 0;
    if (!open) {
        fsm_folder_close(folder);
        folder->fd = open_folder(folders, file->name, file->parent_end);
        folder->moved = moved;
        folder->length = file->parent_end;
        memcpy(folder->path, file->name, file->parent_end);
    }
    entry->fd = folder->fd;
    return folder->fd < 0 ? -1 : !open;
}

void fsm_folder_leave(const struct fsm_folders *folders, struct fsm_folder *folder)
{
    if (!folders->kept)
        fsm_folder_close(folder);
}

void fsm_folders_moved(struct fsm_folders *folders, const struct fsm_entry *entry)
{
    struct stat facts;
    const int seen = fstatat(entry->fd, entry->leaf, &facts, AT_SYMLINK_NOFOLLOW);
    if (seen != 0 || S_ISDIR(facts.st_mode))
        __atomic_fetch_add(&folders->moved, 1, __ATOMIC_RELEASE);
}

void fsm_folder_close(struct fsm_folder *folder)
{
    const int error = errno;
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
    errno = error;
}
