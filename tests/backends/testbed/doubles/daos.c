/* A double of daos_server, daos_agent and daos_engine: what the test bed sees of them, no storage.

   Server: says in its log that it waits to be formatted, waits for the file `formatted` beside its
   configuration, mounts a tmpfs, and runs the engine, which ends with it, in the environment that
   the configuration gives.  Agent: listens on its socket.  Engine: waits. */

#define _GNU_SOURCE
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char log_file[4096], mount_point[4096], sockets[4096], *variables[64];
static int count;

static int value(const char *line, const char *key, char *into)
{
    size_t length = strlen(key);
    return strncmp(line, key, length) == 0 && sscanf(line + length, ": %4095s", into) == 1;
}

static void read_configuration(const char *path)
{
    char line[4096], *text;
    FILE *file = fopen(path, "r");
    if (!file)
        exit(3);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        text = line + strspn(line, " -");
        if (!value(text, "control_log_file", log_file) && !value(text, "scm_mount", mount_point) &&
            !value(text, "runtime_dir", sockets) && strchr(text, '=') && count < 63)
            variables[count++] = strdup(text);
    }
    fclose(file);
}

static void say(const char *words)
{
    FILE *file = fopen(log_file, "a");
    if (!file)
        exit(4);
    fprintf(file, "%s\n", words);
    fclose(file);
}

static int serve(char *configuration)
{
    char flag[4096];
    char *folder = dirname(strdup(configuration)); /* its own command line stays as it is */
    FILE *file;
    pid_t engine;
    say("SCM format required on instance 0");
    snprintf(flag, sizeof flag, "%.4000s/formatted", folder);
    while (access(flag, F_OK))
        usleep(10000);
    if (mount("tmpfs", mount_point, "tmpfs", 0, "size=4g")) {
        say("the tmpfs cannot be mounted");
        return 5;
    }
    engine = fork();
    if (engine == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvpe("daos_engine", (char *[]){"daos_engine", "-t", "1", NULL}, variables);
        _exit(127);
    }
    snprintf(flag, sizeof flag, "%.4000s/joined", folder);
    if (!(file = fopen(flag, "w")))
        return 6;
    fclose(file);
    for (;;)
        pause();
}

static int listen_there(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int handle = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "%.80s/daos_agent.sock", sockets);
    unlink(name.sun_path);
    if (bind(handle, (struct sockaddr *)&name, sizeof name) || listen(handle, 8))
        return 7;
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    int index;
    for (index = 1; index < argc - 1; index++)
        if (!strcmp(argv[index], "--config") || !strcmp(argv[index], "--config-path")) {
            read_configuration(argv[index + 1]);
            return *sockets ? listen_there() : serve(argv[index + 1]);
        }
    for (;;) /* the engine */
        pause();
}
