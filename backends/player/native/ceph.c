/* See fsm_ceph.h. */
#define _GNU_SOURCE
#include "fsm_ceph.h"

#include <errno.h>

#define TIMEOUT "10" /* seconds; Ceph's own is 300 */

const char *fsm_ceph_user(const struct fsm_root *root)
{
    const char *user = fsm_root_value(root, "user");
    return *user ? user : "admin";
}

static int set(const struct fsm_ceph_client *client, const char *option, const char *value)
{
    const int result = client->set(client->handle, option, value);
    return result < 0 ? fsm_explain(-result, "Ceph does not take %s=%s: %m", option, value) : 0;
}

static int read_file(const struct fsm_ceph_client *client, const char *conf)
{
    const int result = client->read_file(client->handle, *conf ? conf : NULL);
    if (result >= 0 || (!*conf && result == -ENOENT))
        return 0;
    return fsm_explain(-result, "configuration %s cannot be read: %m", *conf ? conf : "of Ceph");
}

int fsm_ceph_configure(const struct fsm_ceph_client *client, const struct fsm_root *root,
                       const struct fsm_ceph_setting *more)
{
    const char *keyring = fsm_root_value(root, "keyring");
    int error = read_file(client, fsm_root_value(root, "conf"));
    if (!error)
        error = set(client, "client_mount_timeout", TIMEOUT);
    if (!error)
        error = set(client, "rados_mon_op_timeout", TIMEOUT);
    for (; !error && more->option; more++)
        error = set(client, more->option, more->value);
    if (!error && *keyring)
        error = set(client, "keyring", keyring);
    for (size_t i = 0; !error && i < root->count; i++) {
        const char *option = fsm_root_option(root, i);
        if (option)
            error = set(client, option, root->lines[i].value);
    }
    return error;
}
