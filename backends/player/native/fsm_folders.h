/* Directories below one root, opened without following any symbolic link: what changes a name works
 * in its open directory, so that nobody can lead it elsewhere in between. */
#ifndef FSM_FOLDERS_H
#define FSM_FOLDERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fsm_driver.h"

struct fsm_folders { /* of a connection */
    int root;        /* O_PATH */
    bool openat2;
    bool kept; /* directories stay open: the file system is of this machine */
    uint64_t moved; /* renames of directories by any lane: what is kept may have another name now */
};

struct fsm_folder { /* of a lane: the last one that it used */
    int fd;         /* below 0: none */
    uint64_t moved;
    uint32_t length;
    char path[4096];
};

struct fsm_entry { /* a name, as the *at calls take it */
    int fd;
    const char *leaf;
};

/* 0 or an errno. */
int fsm_folders_open(struct fsm_folders *folders, const char *root, bool openat2);
/* As openat below the root: a descriptor, or -1 and errno, which is ELOOP at a symbolic link. */
int fsm_open_beneath(const struct fsm_folders *folders, const struct fsm_file *file, int flags,
                     mode_t mode);
/* The entry of a name; its directory is opened unless `folder` is it: 1, else 0,
 * or -1 and errno. */
int fsm_folder_enter(const struct fsm_folders *folders, struct fsm_folder *folder,
                     const struct fsm_file *file, struct fsm_entry *entry);
/* The operation on it is done: the directory is closed, unless such are kept. */
void fsm_folder_leave(const struct fsm_folders *folders, struct fsm_folder *folder);
/* A name was renamed to this entry. */
void fsm_folders_moved(struct fsm_folders *folders, const struct fsm_entry *entry);
void fsm_folder_close(struct fsm_folder *folder);

#endif
