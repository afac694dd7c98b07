/* seal_keys.c - see seal_keys.h. */
#include "store/wrap/seal_keys.h"

#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMAND_MS_MAX = 30000 };

extern char **environ;

/* Text that is wiped when it is released or moved. */
struct text {
    uint8_t *ptr;
    size_t len, room;
};

static void text_release(struct text *t)
{
    if (t->ptr != NULL)
        explicit_bzero(t->ptr, t->room);
    free(t->ptr);
}

/* Doubles the room, and wipes the old one. */
static bool text_grow(struct text *t)
{
    size_t room = t->room == 0 ? 4096 : 2 * t->room;
    uint8_t *bigger = room <= 2 * (size_t)ONCE_SEAL_TEXT_LEN_MAX ? malloc(room) : NULL;
    if (bigger == NULL)
        return false;
    if (t->len > 0)
        memcpy(bigger, t->ptr, t->len);
    text_release(t);
    t->ptr = bigger;
    t->room = room;
    return true;
}

/* One read. 1: go on; 0: that was all; -1: errno says why. */
static int text_read(struct text *t, int fd)
{
    if (t->len == t->room && !text_grow(t)) {
        errno = t->len >= ONCE_SEAL_TEXT_LEN_MAX ? EFBIG : ENOMEM;
        return -1;
    }
    ssize_t n = read(fd, t->ptr + t->len, t->room - t->len);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 1 : -1;
    t->len += (size_t)n;
    return n > 0;
}

/* ------------------------------------------------------------------ a file */

static once_result check_file(int fd, const char *path, struct once_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot stat the key file '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return once_fail(err, ONCE_INVALID, "the key file '%s' is not a regular file", path);
    if ((st.st_mode & 077) != 0)
        return once_fail(err, ONCE_INVALID, "the key file '%s' has mode %04o, others can read or write it: chmod 0600",
                         path, (unsigned)(st.st_mode & 07777));
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return once_fail(err, ONCE_INVALID, "the key file '%s' belongs to user %ld, neither to you nor to root", path,
                         (long)st.st_uid);
    return ONCE_OK;
}

once_result once_seal_keys_file(const char *path, struct once_seal_ring **out, struct once_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open the key file '%s': %s", path, strerror(errno));
    struct text text = { .len = 0 };
    once_result r = check_file(fd, path, err);
    if (r == ONCE_OK) {
        int more;
        while ((more = text_read(&text, fd)) > 0)
            ;
        if (more < 0)
            r = once_fail(err, ONCE_UNAVAILABLE, "cannot read the key file '%s': %s", path, strerror(errno));
    }
    close(fd);
    if (r == ONCE_OK)
        r = once_seal_ring_parse(once_span_of(text.ptr, text.len), path, out, err);
    text_release(&text);
    return r;
}

/* ------------------------------------------------------------------ a command */

/* In its own process group, so that the command can be killed with its children. */
static int spawn(const char *command, int out, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, fast;
    sigemptyset(&none);
    sigemptyset(&fast);
    sigaddset(&fast, SIGPIPE);
    if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&attributes) != 0)
        return ENOMEM;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &fast);
    char shell[] = "sh", option[] = "-c", *words = strdup(command);
    char *argv[] = { shell, option, words, NULL };
    int error = words == NULL ? ENOMEM : posix_spawn(pid, "/bin/sh", &actions, &attributes, argv, environ);
    free(words);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error;
}

/* Reads all that the command prints; NULL, or why it failed. */
static const char *read_output(struct text *text, int fd)
{
    once_time end = once_os_monotonic_ms() + COMMAND_MS_MAX;
    for (;;) {
        once_time left = end - once_os_monotonic_ms();
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        if (left <= 0)
            return "it took longer than 30 s";
        if (poll(&ready, 1, (int)left) <= 0)
            continue;
        int more = text_read(text, fd);
        if (more <= 0)
            return more < 0 ? strerror(errno) : NULL;
    }
}

once_result once_seal_keys_command(const char *command, struct once_seal_ring **out, struct once_error *err)
{
    int pipes[2];
    pid_t pid = 0;
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot run the command for keys: %s", strerror(errno));
    int error = spawn(command, pipes[1], &pid);
    close(pipes[1]);
    if (error != 0) {
        close(pipes[0]);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot run the command for keys: %s", strerror(error));
    }
    struct text text = { .len = 0 };
    const char *wrong = read_output(&text, pipes[0]);
    close(pipes[0]);
    if (wrong != NULL)
        kill(-pid, SIGKILL);
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
        ;
    once_result r = ONCE_OK;
    if (ended != pid) /* SIGCHLD is ignored: the kernel reaped it, and its status is lost */
        r = once_fail(err, ONCE_UNAVAILABLE, "the exit status of the command for keys is not known");
    else if (wrong != NULL)
        r = once_fail(err, ONCE_UNAVAILABLE, "cannot read what the command for keys prints: %s", wrong);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "the command for keys failed: %s %d",
                      WIFEXITED(status) ? "exit status" : "signal",
                      WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    if (r == ONCE_OK)
        r = once_seal_ring_parse(once_span_of(text.ptr, text.len), "what the command for keys printed,", out, err);
    text_release(&text);
    return r;
}
