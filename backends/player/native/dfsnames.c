/* Operations of the dfs driver on names and on open files, all but reads and writes.
 *
 * libdfs has one call, remove, for files and empty directories.  What this player made or opened
 * under a name is remembered, and unlink of a directory or rmdir of a file refused as POSIX
 * does; of any other name the call decides, without a round trip more that only asks.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fsm_dfs.h"

#define CALLS fsm_dfs_calls
#define FILE_MODE (S_IFREG | 0644)
#define FOLDER_MODE 0755

struct entry { /* of a directory */
    struct dfs_folder *folder;
    void *parent;     /* its handle */
    const char *name; /* empty: the directory itself */
};

static int enter(struct dfs *dfs, const struct fsm_file *file, struct entry *entry)
{
    int error = fsm_dfs_folder_get(dfs, file->name, file->parent_end, &entry->folder);
    if (error)
        return error;
    entry->parent = entry->folder ? entry->folder->object : dfs->top;
    entry->name = file->name + file->parent_end + (file->parent ? 1 : 0);
    if (strcmp(entry->name, ".") == 0)
        entry->name = "";
    return 0;
}

static void leave(struct dfs *dfs, struct entry *entry)
{
    fsm_dfs_folder_put(dfs, entry->folder);
}

static enum dfs_type type_of(const struct dfs *dfs, uint32_t slot, const struct fsm_file *file)
{
    const struct dfs_file *remembered = &dfs->files[slot];
    return remembered->key == file->key ? remembered->type : DFS_UNKNOWN;
}

static void remember(struct dfs *dfs, uint32_t slot, const struct fsm_file *file,
                     enum dfs_type type)
{
    dfs->files[slot].type = type;
    dfs->files[slot].key = file->key;
}

static int open_flags(const struct fsm_op *op)
{
    int flags = op->flags & FSM_WRITE_ONLY  ? O_WRONLY
                : op->flags & FSM_READ_ONLY ? O_RDONLY
                                            : O_RDWR;
    flags |= op->flags & FSM_TRUNC ? O_TRUNC : 0;
    if (op->kind == FSM_CREATE)
        flags |= O_CREAT | (op->flags & FSM_EXCLUSIVE ? O_EXCL : 0);
    return flags;
}

/* libdfs says EINVAL where a name is no file; POSIX says what it is. */
static int why_no_file(struct dfs *dfs, const struct entry *entry)
{
    struct stat facts;
    if (CALLS.dfs_stat(dfs->mount, entry->parent, entry->name, &facts) != 0)
        return EINVAL;
    return S_ISDIR(facts.st_mode) ? EISDIR : S_ISLNK(facts.st_mode) ? ELOOP : EINVAL;
}

/* A directory opened for reading, as programs do that fsync or list it: its kept handle. */
static int open_folder(struct dfs *dfs, const struct fsm_op *op, struct fsm_file *file)
{
    struct dfs_file *made = &dfs->files[op->file];
    int error = fsm_dfs_folder_get(dfs, file->name, strlen(file->name), &made->folder);
    if (error)
        return error;
    made->is_folder = made->readable = true;
    made->writable = false;
    remember(dfs, op->file, file, DFS_FOLDER);
    file->handle = op->file;
    return 0;
}

static int close_handle(struct dfs *dfs, const struct dfs_file *open)
{
    if (!open->is_folder)
        return fsm_dfs_errno(CALLS.dfs_release(open->object));
    fsm_dfs_folder_put(dfs, open->folder);
    return 0;
}

static int open_file(struct dfs *dfs, const struct fsm_op *op, struct fsm_file *file,
                     const struct entry *entry)
{
    struct dfs_file *made = &dfs->files[op->file];
    const bool looking = op->kind == FSM_OPEN && op->flags & FSM_READ_ONLY;
    void *object;
    if (!*entry->name)
        return looking ? open_folder(dfs, op, file) : EISDIR;
    int error = CALLS.dfs_open(dfs->mount, entry->parent, entry->name, FILE_MODE, open_flags(op),
                               dfs->oclass, dfs->chunk_size, NULL, &object);
    if (error == EINVAL) {
        error = why_no_file(dfs, entry);
        return looking && error == EISDIR ? open_folder(dfs, op, file) : error;
    }
    if (error)
        return fsm_dfs_errno(error);
    made->object = object;
    made->is_folder = false;
    made->readable = !(op->flags & FSM_WRITE_ONLY);
    made->writable = op->flags & FSM_WRITE_ONLY || !(op->flags & FSM_READ_ONLY);
    remember(dfs, op->file, file, DFS_FILE);
    file->handle = op->file;
    return 0;
}

static int make_folder(struct dfs *dfs, const struct fsm_op *op, const struct fsm_file *file,
                       const struct entry *entry)
{
    if (!*entry->name)
        return EEXIST;
    int error = CALLS.dfs_mkdir(dfs->mount, entry->parent, entry->name, FOLDER_MODE,
                                dfs->folder_oclass);
    if (error)
        return fsm_dfs_errno(error);
    fsm_dfs_folder_forget(dfs, file->name);
    remember(dfs, op->file, file, DFS_FOLDER);
    return 0;
}

static int remove_name(struct dfs *dfs, const struct fsm_op *op, const struct fsm_file *file,
                       const struct entry *entry)
{
    const bool folder = op->kind == FSM_RMDIR;
    if (!*entry->name)
        return folder ? EINVAL : EISDIR;
    if (type_of(dfs, op->file, file) == (folder ? DFS_FILE : DFS_FOLDER))
        return folder ? ENOTDIR : EISDIR;
    int error = CALLS.dfs_remove(dfs->mount, entry->parent, entry->name, false, NULL);
    if (error)
        return fsm_dfs_errno(error);
    if (folder)
        fsm_dfs_folder_forget(dfs, file->name);
    remember(dfs, op->file, file, DFS_UNKNOWN);
    return 0;
}

static int rename_entry(struct dfs *dfs, const struct fsm_op *op, const struct fsm_file *file,
                        const struct fsm_file *file2, const struct entry *entry)
{
    struct entry to;
    int error = enter(dfs, file2, &to);
    if (error)
        return error;
    if (!*entry->name || !*to.name)
        error = EBUSY;
    else
        error = fsm_dfs_errno(CALLS.dfs_move(dfs->mount, entry->parent, entry->name, to.parent,
                                             to.name, NULL));
    leave(dfs, &to);
    if (error)
        return error;
    const enum dfs_type type = type_of(dfs, op->file, file);
    if (type != DFS_FILE) {
        fsm_dfs_folder_forget(dfs, file->name);
        fsm_dfs_folder_forget(dfs, file2->name);
    }
    remember(dfs, op->file, file, DFS_UNKNOWN);
    remember(dfs, op->file2, file2, type);
    return 0;
}

static int look_at(struct dfs *dfs, const struct entry *entry)
{
    struct stat facts;
    if (!*entry->name)
        return fsm_dfs_errno(CALLS.dfs_ostat(dfs->mount, entry->parent, &facts));
    return fsm_dfs_errno(CALLS.dfs_stat(dfs->mount, entry->parent, entry->name, &facts));
}

static int read_folder(struct dfs_lane *lane, const struct fsm_file *file)
{
    struct dfs *dfs = lane->dfs;
    struct dfs_folder *folder;
    struct dfs_anchor anchor = {0};
    int error = fsm_dfs_folder_get(dfs, file->name, strlen(file->name), &folder);
    if (error)
        return error;
    while (!error && anchor.type != DFS_ANCHOR_END) {
        uint32_t count = DFS_ENTRIES;
        error = CALLS.dfs_readdir(dfs->mount, folder ? folder->object : dfs->top, &anchor, &count,
                                  lane->entries);
    }
    fsm_dfs_folder_put(dfs, folder);
    return fsm_dfs_errno(error);
}

static int on_handle(struct dfs *dfs, const struct fsm_op *op, struct fsm_file *file)
{
    struct dfs_file *open = &dfs->files[file->handle];
    switch (op->kind) {
    case FSM_TRUNCATE:
        if (!open->writable)
            return EINVAL; /* as ftruncate */
        return fsm_dfs_errno(CALLS.dfs_punch(dfs->mount, open->object, op->offset, DFS_WHOLE));
    case FSM_CLOSE:
        file->handle = -1;
        return close_handle(dfs, open);
    default: /* FSM_FSYNC, FSM_EVICT: what was written is durable, and nothing is kept here */
        return 0;
    }
}

int fsm_dfs_name(struct dfs_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                 struct fsm_file *file2)
{
    struct dfs *dfs = lane->dfs;
    struct entry entry;
    if (file->handle >= 0 && FSM_BIT(op->kind) & (FSM_BIT(FSM_TRUNCATE) | FSM_BIT(FSM_CLOSE) |
                                                  FSM_BIT(FSM_FSYNC) | FSM_BIT(FSM_EVICT)))
        return on_handle(dfs, op, file);
    if (op->kind == FSM_READDIR)
        return read_folder(lane, file);
    int error = enter(dfs, file, &entry);
    if (error)
        return error;
    switch (op->kind) {
    case FSM_OPEN:
    case FSM_CREATE:
        error = open_file(dfs, op, file, &entry);
        break;
    case FSM_STAT:
        error = look_at(dfs, &entry);
        break;
    case FSM_MKDIR:
        error = make_folder(dfs, op, file, &entry);
        break;
    case FSM_UNLINK:
    case FSM_RMDIR:
        error = remove_name(dfs, op, file, &entry);
        break;
    case FSM_RENAME:
        error = rename_entry(dfs, op, file, file2, &entry);
        break;
    default:
        error = ENOTSUP;
    }
    leave(dfs, &entry);
    return error;
}
