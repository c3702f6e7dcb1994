/* Codes of DAOS in words: DER codes (daos_errno.h) and errno values. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fsm_dfs.h"

static const struct {
    int code, error;
    const char *name, *meaning;
} codes[] = {
    {1001, EPERM, "DER_NO_PERM", "not permitted"},
    {1002, EINVAL, "DER_NO_HDL", "no such handle"},
    {1003, EINVAL, "DER_INVAL", "invalid argument"},
    {1004, EEXIST, "DER_EXIST", "it exists"},
    {1005, ENOENT, "DER_NONEXIST", "it does not exist"},
    {1006, EHOSTUNREACH, "DER_UNREACH", "a server cannot be reached"},
    {1007, ENOSPC, "DER_NOSPACE", "no space left on a target"},
    {1008, EALREADY, "DER_ALREADY", "it was done already"},
    {1009, ENOMEM, "DER_NOMEM", "out of memory"},
    {1010, ENOSYS, "DER_NOSYS", "not implemented"},
    {1011, ETIMEDOUT, "DER_TIMEDOUT", "no answer in time"},
    {1012, EBUSY, "DER_BUSY", "it is in use"},
    {1013, EAGAIN, "DER_AGAIN", "to be tried again"},
    {1014, EPROTO, "DER_PROTO", "client and server speak different protocols"},
    {1015, EINVAL, "DER_UNINIT", "DAOS is not initialised"},
    {1016, ENOBUFS, "DER_TRUNC", "the buffer is too short"},
    {1017, EOVERFLOW, "DER_OVERFLOW", "too long"},
    {1018, ECANCELED, "DER_CANCELED", "cancelled"},
    {1019, EIO, "DER_OOG", "not among the members of the group"},
    {1020, EIO, "DER_HG", "an error of the network layer"},
    {1021, EPROTO, "DER_UNREG", "the server does not know this request"},
    {1025, EIO, "DER_MISC", "an error without a name of its own"},
    {1026, ENOTDIR, "DER_BADPATH", "not a valid path"},
    {1027, ENOTDIR, "DER_NOTDIR", "not a directory"},
    {1030, EIO, "DER_NOTATTACH", "not attached to the system"},
    {1031, EPROTO, "DER_MISMATCH", "versions do not match"},
    {1032, EIO, "DER_EXCLUDED", "the rank is excluded"},
    {1042, EDQUOT, "DER_QUOTA_LIMIT", "a quota is used up"},
    {2001, EIO, "DER_IO", "input or output failed"},
    {2003, ENOENT, "DER_ENOENT", "no such entry"},
    {2007, ESTALE, "DER_STALE", "the pool map is out of date"},
    {2008, EAGAIN, "DER_NOTLEADER", "not the leader of the service"},
    {2012, E2BIG, "DER_KEY2BIG", "a key is too large"},
    {2013, E2BIG, "DER_REC2BIG", "a record is too large"},
    {2014, EINVAL, "DER_IO_INVAL", "buffers and extents do not match"},
    {2015, EBUSY, "DER_EQ_BUSY", "the event queue is in use"},
    {2017, ESHUTDOWN, "DER_SHUTDOWN", "the service is going down"},
    {2018, EINPROGRESS, "DER_INPROGRESS", "it is under way"},
    {2021, EIO, "DER_CSUM", "a checksum is wrong"},
    {2022, EINVAL, "DER_DF_INVAL", "the format on the media is not supported"},
    {2023, EINVAL, "DER_DF_INCOMPT", "the format on the media is of another version"},
    {2025, EAGAIN, "DER_TX_RESTART", "the transaction must begin again"},
    {2026, EIO, "DER_DATA_LOSS", "data is lost"},
    {2028, EBUSY, "DER_TX_BUSY", "the transaction is not committed"},
    {2029, EPROTO, "DER_AGENT_INCOMPAT", "daos_agent is of another version than libdaos"},
    {2031, EIO, "DER_RF", "more has failed than the redundancy bears"},
    {2034, EHOSTUNREACH, "DER_AGENT_COMM", "daos_agent cannot be reached"},
    {2035, EINVAL, "DER_ID_MISMATCH", "identities do not match"},
    {2037, ENOTSUP, "DER_NOTSUPPORTED", "not supported"},
    {2038, EPROTO, "DER_CONTROL_INCOMPAT", "parts of the control plane differ in version"},
    {2039, EHOSTUNREACH, "DER_NO_SERVICE", "the pool has no service"},
    {2042, EIO, "DER_NVME_IO", "an NVMe device failed"},
    {2043, EACCES, "DER_NO_CERT", "a certificate cannot be read"},
    {2044, EACCES, "DER_BAD_CERT", "a certificate is not valid"},
    {2050, ENOENT, "DER_CONT_NONEXIST", "the container does not exist"},
};

static size_t row(int code)
{
    size_t i = 0;
    while (i < sizeof codes / sizeof *codes && codes[i].code != -code)
        i++;
    return i;
}

int fsm_dfs_errno(int code)
{
    const size_t i = row(code);
    if (code >= 0)
        return code;
    return i < sizeof codes / sizeof *codes ? codes[i].error : code > -1000 ? -code : EIO;
}

const char *fsm_dfs_words(int code, char *text, size_t size)
{
    const size_t i = row(code);
    const int error = fsm_dfs_errno(code);
    const char *words = strerror(error);
    if (code < 0 && i < sizeof codes / sizeof *codes)
        snprintf(text, size, "%s(%d), %s; errno %d, %s", codes[i].name, code, codes[i].meaning,
                 error, words);
    else if (code < 0)
        snprintf(text, size, "DAOS error %d; errno %d, %s", code, error, words);
    else
        snprintf(text, size, "errno %d, %s", error, words);
    return text;
}

const char *fsm_dfs_agent(char *text, size_t size)
{
    const char *folder = getenv("DAOS_AGENT_DRPC_DIR");
    if (!folder || !*folder)
        folder = "/var/run/daos_agent";
    const size_t length = strlen(folder);
    snprintf(text, size, "%s%sdaos_agent.sock", folder, folder[length - 1] == '/' ? "" : "/");
    return text;
}
