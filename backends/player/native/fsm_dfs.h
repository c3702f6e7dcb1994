/* The dfs driver's own parts: what it uses of libdaos and libdfs, its connection and lanes. */
#ifndef FSM_DFS_H
#define FSM_DFS_H

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fsm_driver.h"
#include "fsm_root.h"

/* Structures of daos_types.h and gurt/types.h: the same from DAOS 2.0 to 2.8. */
struct dfs_handle { /* daos_handle_t */
    uint64_t cookie;
};

struct dfs_iov { /* d_iov_t */
    void *data;
    size_t capacity, length;
};

struct dfs_list { /* d_sg_list_t */
    uint32_t count, returned;
    struct dfs_iov *parts;
};

struct dfs_event { /* daos_event_t */
    int error;
    uint64_t internal[20], debug;
};
_Static_assert(sizeof(struct dfs_event) == 176, "dfs_event must be laid out as daos_event_t");

struct dfs_anchor { /* daos_anchor_t */
    uint16_t type, shard;
    uint32_t flags;
    uint64_t sub;
    uint8_t internal[104];
};
_Static_assert(sizeof(struct dfs_anchor) == 120, "dfs_anchor must be laid out as daos_anchor_t");

#define DFS_ANCHOR_END 3u   /* DAOS_ANCHOR_TYPE_EOF */
#define DFS_WHOLE UINT64_MAX /* DFS_MAX_FSIZE */

/* X(member, result, arguments) of libdaos.so.2; results are 0 or a negative DER code. */
#define FSM_DAOS_CALLS(X)                                                                     \
    X(init, int, (void))                                                                      \
    X(fini, int, (void))                                                                      \
    X(pool_disconnect, int, (struct dfs_handle pool, struct dfs_event *event))                \
    X(pool_local2global, int, (struct dfs_handle pool, struct dfs_iov *global))               \
    X(pool_global2local, int, (struct dfs_iov global, struct dfs_handle *pool))               \
    X(cont_close, int, (struct dfs_handle container, struct dfs_event *event))                \
    X(cont_local2global, int, (struct dfs_handle container, struct dfs_iov *global))          \
    X(cont_global2local, int,                                                                 \
      (struct dfs_handle pool, struct dfs_iov global, struct dfs_handle *container))          \
    X(eq_create, int, (struct dfs_handle *queue))                                             \
    X(eq_destroy, int, (struct dfs_handle queue, int flags))                                  \
    X(eq_poll, int, (struct dfs_handle queue, int only_running, int64_t microseconds,         \
                     unsigned most, struct dfs_event **events))                               \
    X(event_init, int,                                                                        \
      (struct dfs_event *event, struct dfs_handle queue, struct dfs_event *parent))           \
    X(event_fini, int, (struct dfs_event *event))                                             \
    X(oclass_name2id, int, (const char *name))

/* The same whose names carry a 2 wherever labels are taken: 2.0 and newer. */
#define FSM_DAOS_CALLS_2(X)                                                                   \
    X(pool_connect, int, (const char *pool, const char *system, unsigned flags,               \
                          struct dfs_handle *made, void *facts, struct dfs_event *event))     \
    X(cont_open, int, (struct dfs_handle pool, const char *container, unsigned flags,         \
                       struct dfs_handle *made, void *facts, struct dfs_event *event))

/* X(member, result, arguments) of libdfs.so; results are 0 or a positive errno. */
#define FSM_DFS_CALLS(X)                                                                      \
    X(mount, int,                                                                             \
      (struct dfs_handle pool, struct dfs_handle container, int flags, void **made))          \
    X(umount, int, (void *dfs))                                                               \
    X(local2global, int, (void *dfs, struct dfs_iov *global))                                 \
    X(global2local, int, (struct dfs_handle pool, struct dfs_handle container, int flags,     \
                          struct dfs_iov global, void **made))                                \
    X(lookup, int, (void *dfs, const char *path, int flags, void **object, mode_t *mode,      \
                    struct stat *facts))                                                      \
    X(lookup_rel, int, (void *dfs, void *parent, const char *name, int flags, void **object,  \
                        mode_t *mode, struct stat *facts))                                    \
    X(open, int, (void *dfs, void *parent, const char *name, mode_t mode, int flags,          \
                  uint32_t oclass, uint64_t chunk_size, const char *target, void **object))   \
    X(release, int, (void *object))                                                           \
    X(read, int, (void *dfs, void *object, struct dfs_list *list, uint64_t offset,            \
                  uint64_t *size, struct dfs_event *event))                                   \
    X(write, int, (void *dfs, void *object, struct dfs_list *list, uint64_t offset,           \
                   struct dfs_event *event))                                                  \
    X(punch, int, (void *dfs, void *object, uint64_t offset, uint64_t size))                  \
    X(readdir, int, (void *dfs, void *object, struct dfs_anchor *anchor, uint32_t *count,     \
                     struct dirent *entries))                                                 \
    X(mkdir, int,                                                                             \
      (void *dfs, void *parent, const char *name, mode_t mode, uint32_t oclass))              \
    X(remove, int, (void *dfs, void *parent, const char *name, bool force, void *id))         \
    X(move, int, (void *dfs, void *parent, const char *name, void *parent2,                   \
                  const char *name2, void *id))                                               \
    X(stat, int, (void *dfs, void *parent, const char *name, struct stat *facts))             \
    X(ostat, int, (void *dfs, void *object, struct stat *facts))

struct fsm_dfs_calls {
#define FSM_MEMBER(name, result, arguments) result(*daos_##name) arguments;
    FSM_DAOS_CALLS(FSM_MEMBER)
    FSM_DAOS_CALLS_2(FSM_MEMBER)
#undef FSM_MEMBER
#define FSM_MEMBER(name, result, arguments) result(*dfs_##name) arguments;
    FSM_DFS_CALLS(FSM_MEMBER)
#undef FSM_MEMBER
};
extern struct fsm_dfs_calls fsm_dfs_calls;

#define DFS_FOLDERS 1024u /* directories whose handles are kept */
#define DFS_ENTRIES 64u   /* of a directory, read at once */

struct dfs_folder { /* one open directory */
    void *object;
    char *path; /* relative, without "." and double slashes; NULL: the place is free */
    uint32_t users;
    bool stale; /* to be released by its last user */
};

struct dfs_folders {
    pthread_mutex_t mutex;
    struct dfs_folder *kept[DFS_FOLDERS]; /* by hash of the path */
};

enum dfs_type { DFS_UNKNOWN, DFS_FILE, DFS_FOLDER };

struct dfs_file { /* of one slot */
    void *object; /* while it is open */
    struct dfs_folder *folder; /* the same of a directory; NULL: the top itself */
    bool readable, writable, is_folder;
    enum dfs_type type; /* of what this player made or opened under the name ... */
    uint64_t key;       /* ... that has this key */
};

enum dfs_asking { DFS_AGENT, DFS_SERVERS };

struct dfs {
    struct dfs_handle pool, container;
    void *mount, *top; /* top: the directory that names begin at */
    bool initialised, pool_open, container_open;
    int asking; /* enum dfs_asking, while it connects */
    uint32_t depth, threads, oclass, folder_oclass;
    uint64_t chunk_size;
    double timeout; /* seconds for connecting */
    struct dfs_file *files; /* [slots] */
    struct dfs_folders folders;
    struct fsm_root root;
};

struct dfs_request { /* one read or write in flight */
    struct dfs_event event; /* first: the address that is polled */
    struct dfs_iov part;
    struct dfs_list list;
    uint64_t size, tag; /* size: asked for, and what a read got */
    uint32_t asked;
    bool reading, busy;
};

struct dfs_lane {
    struct dfs *dfs;
    struct dfs_handle queue;
    bool queued;                  /* there is a queue */
    struct dfs_request *requests; /* [depth] */
    struct dfs_event **events;    /* [depth] */
    uint32_t in_flight;
    int lost; /* errno of the queue's own failure: nothing more goes through it */
    struct dirent entries[DFS_ENTRIES];
};

/* dfserrors.c: an errno for a DER code or an errno of whatever sign, and its words. */
int fsm_dfs_errno(int code);
const char *fsm_dfs_words(int code, char *text, size_t size);
const char *fsm_dfs_agent(char *text, size_t size); /* path of the agent's socket */

/* dfsfolders.c: 0 or an errno.  What was got is put back; NULL is the top itself. */
int fsm_dfs_folders_open(struct dfs_folders *folders);
void fsm_dfs_folders_close(struct dfs_folders *folders); /* all are forgotten before */
int fsm_dfs_folder_get(struct dfs *dfs, const char *path, size_t length, struct dfs_folder **got);
void fsm_dfs_folder_put(struct dfs *dfs, struct dfs_folder *folder);
/* Forget a directory and all below it: it is removed, moved or made anew. */
void fsm_dfs_folder_forget(struct dfs *dfs, const char *path);
void fsm_dfs_folder_forget_all(struct dfs_folders *folders);

/* dfsnames.c: all kinds but reads and writes */
int fsm_dfs_name(struct dfs_lane *lane, const struct fsm_op *op, struct fsm_file *file,
                 struct fsm_file *file2);

/* dfsconnect.c */
int fsm_dfs_connect(const struct fsm_config *config, void **connection);
void fsm_dfs_disconnect(void *connection);
int fsm_dfs_lane_open(void *connection, void **lane);
void fsm_dfs_lane_close(void *lane);
/* dfsattach.c: DAOS, pool, container, mount; from handles of another process if there are.
 * 0 or an errno, explained; what was made then is still to be detached. */
int fsm_dfs_attach(struct dfs *dfs);
void fsm_dfs_detach(struct dfs *dfs);
int fsm_dfs_share(void *connection, char **text);

#endif
