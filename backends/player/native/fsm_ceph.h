/* What the drivers of librados and libcephfs tell their library before they connect. */
#ifndef FSM_CEPH_H
#define FSM_CEPH_H

#include "fsm_root.h"

struct fsm_ceph_setting {
    const char *option, *value;
};

struct fsm_ceph_client { /* librados and libcephfs configure in the same way */
    void *handle;
    int (*read_file)(void *handle, const char *path);
    int (*set)(void *handle, const char *option, const char *value);
};

/* The root's user, or the default one. */
const char *fsm_ceph_user(const struct fsm_root *root);
/* The file, then ours (`more` among them, up to one without a name), then the user's options, as
 * the root gives them.  0 or an errno, explained. */
int fsm_ceph_configure(const struct fsm_ceph_client *client, const struct fsm_root *root,
                       const struct fsm_ceph_setting *more);

#endif
