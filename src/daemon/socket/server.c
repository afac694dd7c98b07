/* server.c - see server.h. */
#include "daemon/socket/server.h"

#include "core/err.h"
#include "core/span.h"
#include "daemon/reaper/reaper.h"
#include "daemon/socket/conn.h"
#include "engine/daemon_api.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "os/stderr_log.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 1024,
    EVENTS_MAX = 64,
    DISPATCH_MAX = 4096,
    DRAIN_MS_MAX = 10 * 1000, /* for calls under way when the daemon ends */
    DRAIN_LOOK_MS = 20,
    PAUSE_MS = 100,
    LOCK_MS_MAX = 5 * 1000, /* for the lock on the socket's folder, which others hold briefly */
    LOCK_LOOK_US = 5 * 1000,
};

/* An event source of the server itself. */
struct own_event_source {
    struct event_source event_source;
    struct server *server;
    int fd;
};

struct server {
    struct server_shared shared;
    struct reaper *reaper;
    struct own_event_source listener, signals, completions, answers;
    struct sockaddr_un address;
    struct stat socket;     /* of the file that we made, to recognise it */
    once_time paused_until; /* monotonic ms: no descriptor was left to accept a connection. 0: accepting */
    bool is_short;          /* of descriptors: the log says so, and not yet that it is over */
    bool completed;         /* the engine has answers */
    int signal;             /* that ended server_run() */
};

/* ------------------------------------------------------------------ accepting */

static once_result admit(const struct server *s, int fd, struct once_error *err)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (s->shared.count >= CONNECTIONS_MAX)
        return once_fail(err, ONCE_UNAVAILABLE, "this daemon has %d clients already", CONNECTIONS_MAX);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "this daemon cannot tell the client's user");
    bool allowed = peer.uid == geteuid() || peer.uid == 0;
    for (size_t i = 0; i < s->shared.options.user_count; i++)
        allowed = allowed || peer.uid == s->shared.options.users[i];
    if (allowed)
        return ONCE_OK;
    once_os_log("once daemon", "refused user %u (process %d): not allowed (see --allow)", (unsigned)peer.uid,
                (int)peer.pid);
    return once_fail(err, ONCE_UNAVAILABLE, "user %u is not allowed at this daemon (see its --allow)",
                     (unsigned)peer.uid);
}

/* Sends the reason and closes: the client can still read it, even if what the client sent was never read. */
static void refuse_client(int fd, const struct once_error *why)
{
    struct once_buf said;
    once_buf_init(&said, WIRE_HEAD_LEN + 1 + 4 + sizeof why->text);
    wire_put_failed(&said, 0, why->result, why->text);
    if (said.result == ONCE_OK && send(fd, said.ptr, said.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        once_os_log("once daemon", "cannot send a client why it was refused: %s", strerror(errno));
    once_buf_release(&said);
    close(fd);
}

/* Clients in the listener's queue keep it readable: without free descriptors the loop would spin. */
static void pause_accepting(struct server *s, bool paused)
{
    struct epoll_event event = { .events = paused ? 0 : EPOLLIN, .data.ptr = &s->listener.event_source };
    epoll_ctl(s->shared.epoll, EPOLL_CTL_MOD, s->listener.fd, &event);
    s->paused_until = paused ? once_os_monotonic_ms() + PAUSE_MS : 0;
}

/* When it begins and when it is over. */
static void warn_short(struct server *s, bool is_short, int error)
{
    if (is_short && !s->is_short)
        once_os_log("once daemon", "cannot accept connections: %s; new clients are queued", strerror(error));
    else if (!is_short && s->is_short)
        once_os_log("once daemon", "accepts connections again");
    s->is_short = is_short;
}

static void on_connect(struct event_source *event_source, uint32_t events)
{
    struct server *s = ((struct own_event_source *)event_source)->server;
    (void)events;
    for (;;) {
        int fd = accept4(s->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            warn_short(s, is_short, errno);
            if (is_short)
                pause_accepting(s, true);
            return;
        }
        struct once_error err;
        if (admit(s, fd, &err) != ONCE_OK)
            refuse_client(fd, &err);
        else if (conn_open(&s->shared, fd, &err) != ONCE_OK)
            once_os_log("once daemon", "%s", err.text);
    }
}

/* ------------------------------------------------------------------ answering */

static void continue_all(struct server *s)
{
    for (struct conn *c = s->shared.first, *next; c != NULL; c = next) {
        next = c->next;
        conn_continue(c);
    }
}

static void on_completions(struct event_source *event_source, uint32_t events)
{
    struct server *s = ((struct own_event_source *)event_source)->server;
    (void)events;
    s->completed = true;
}

/* After the sockets' events: a client that hung up must be known before its grant counts as sent. */
static void answer_completed(struct server *s)
{
    s->completed = false;
    once_dispatch(s->shared.options.once, DISPATCH_MAX);
    continue_all(s);
}

static void on_answers(struct event_source *event_source, uint32_t events)
{
    struct server *s = ((struct own_event_source *)event_source)->server;
    (void)events;
    uint64_t count;
    ssize_t n = read(s->answers.fd, &count, sizeof count);
    (void)n;
    for (struct admin_query *job; (job = admin_queries_next(s->shared.admin_queries)) != NULL;)
        conn_answer_admin_query(job);
    continue_all(s);
}

static void on_signal(struct event_source *event_source, uint32_t events)
{
    struct server *s = ((struct own_event_source *)event_source)->server;
    (void)events;
    struct signalfd_siginfo info;
    if (read(s->signals.fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->signal = (int)info.ssi_signo;
}

/* ------------------------------------------------------------------ running */

static void handle_events(struct server *s, int wait_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(s->shared.epoll, events, EVENTS_MAX, s->paused_until != 0 ? PAUSE_MS : wait_ms);
    if (s->paused_until != 0 && once_os_monotonic_ms() >= s->paused_until)
        pause_accepting(s, false);
    for (int i = 0; i < count; i++) {
        struct event_source *event_source = events[i].data.ptr;
        event_source->ready(event_source, events[i].events);
    }
    if (s->completed)
        answer_completed(s);
    if (s->shared.resume_reading) {
        s->shared.resume_reading = false;
        continue_all(s);
    }
    if (s->shared.submitted) {
        s->shared.submitted = false;
        once_kick(s->shared.options.once);
    }
    conns_free_closed(&s->shared);
}

static bool is_quiet(const struct server *s)
{
    for (const struct conn *c = s->shared.first; c != NULL; c = c->next)
        if (!conn_is_quiet(c))
            return false;
    return true;
}

static void drain(struct server *s)
{
    s->shared.stopping = true;
    once_end_waits(s->shared.options.once); /* their clients will ask the next daemon */
    close(s->listener.fd);
    s->listener.fd = -1;
    s->paused_until = 0;
    once_time until = once_os_monotonic_ms() + DRAIN_MS_MAX;
    while (!is_quiet(s) && once_os_monotonic_ms() < until)
        handle_events(s, DRAIN_LOOK_MS);
}

int server_run(struct server *s)
{
    once_os_short_slices(); /* every answer passes through this thread */
    while (s->signal == 0)
        handle_events(s, -1);
    if (s->shared.options.ending != NULL)
        s->shared.options.ending(s->shared.options.arg);
    drain(s);
    return s->signal;
}

/* ------------------------------------------------------------------ open, close */

static once_result watch(struct server *s, struct own_event_source *own, int fd,
                         void (*ready)(struct event_source *, uint32_t), struct once_error *err)
{
    *own = (struct own_event_source){ { ready }, s, fd };
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &own->event_source };
    if (fd < 0 || epoll_ctl(s->shared.epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot watch a descriptor: %s", strerror(errno));
    return ONCE_OK;
}

/* The folder is locked while the path is checked and changed: if two daemons start at once, neither removes the other's
 * socket. -1: failed. */
static int lock_folder(const struct sockaddr_un *address, struct once_error *err)
{
    char folder[sizeof address->sun_path + 1] = ".";
    const char *slash = strrchr(address->sun_path, '/');
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash + 1 - address->sun_path), address->sun_path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    once_time until = once_os_monotonic_ms() + LOCK_MS_MAX;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        if (error == EWOULDBLOCK && once_os_monotonic_ms() < until) {
            usleep(LOCK_LOOK_US);
        } else if (error != EINTR) {
            close(fd);
            fd = -1;
            errno = error;
        }
    }
    if (fd < 0)
        once_fail(err, ONCE_UNAVAILABLE, "cannot listen on '%s': cannot lock '%s': %s", address->sun_path, folder,
                  strerror(errno));
    return fd;
}

/* A socket file on which no process listens is from a daemon that was killed. One that cannot be connected to for
 * another reason, for example another user's, may be in use. */
static once_result remove_stale(const struct sockaddr_un *address, struct once_error *err)
{
    struct stat st;
    if (lstat(address->sun_path, &st) != 0)
        return ONCE_OK;
    if (!S_ISSOCK(st.st_mode))
        return once_fail(err, ONCE_INVALID, "'%s' exists and is not a socket", address->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    if (fd >= 0)
        close(fd);
    if (error == 0 || error == EAGAIN) /* EAGAIN: its queue is full */
        return once_fail(err, ONCE_UNAVAILABLE, "a daemon is listening on '%s' already", address->sun_path);
    if (error != ECONNREFUSED)
        return once_fail(err, ONCE_UNAVAILABLE, "'%s' exists, and cannot be connected to: %s", address->sun_path,
                         strerror(error));
    if (unlink(address->sun_path) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot remove '%s': %s", address->sun_path, strerror(errno));
    return ONCE_OK;
}

static once_result listen_locked(struct server *s, const struct sockaddr_un *address, struct once_error *err)
{
    once_result r = remove_stale(address, err);
    if (r != ONCE_OK)
        return r;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(s->shared.options.user_count > 0 ? 0111 : 0177); /* admit() checks each client as well */
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    umask(before);
    if (bound && lstat(address->sun_path, &s->socket) == 0)
        s->address = *address; /* remove_socket() may remove it */
    if (!bound || listen(fd, SOMAXCONN) != 0) {
        once_fail(err, ONCE_UNAVAILABLE, "cannot listen on '%s': %s", address->sun_path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ONCE_UNAVAILABLE;
    }
    return watch(s, &s->listener, fd, on_connect, err);
}

once_result server_path_check(const char *path, struct once_error *err)
{
    const size_t max = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
    if (strlen(path) > max)
        return once_fail(err, ONCE_INVALID, "the socket's path is %zu bytes long, the limit is %zu", strlen(path), max);
    return ONCE_OK;
}

static once_result listen_on(struct server *s, const char *path, struct once_error *err)
{
    once_result r = server_path_check(path, err);
    if (r != ONCE_OK)
        return r;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    memcpy(address.sun_path, path, strlen(path) + 1);
    int lock = lock_folder(&address, err);
    if (lock < 0)
        return ONCE_UNAVAILABLE;
    r = listen_locked(s, &address, err);
    close(lock);
    return r;
}

/* Another daemon may have taken the path since we stopped listening. */
static void remove_socket(const struct server *s)
{
    struct stat st;
    int lock = lock_folder(&s->address, NULL);
    if (lock < 0)
        return; /* the next daemon replaces it */
    if (lstat(s->address.sun_path, &st) == 0 && st.st_dev == s->socket.st_dev && st.st_ino == s->socket.st_ino)
        unlink(s->address.sun_path);
    close(lock);
}

once_result server_open(const struct server_options *options, struct server **out, struct once_error *err)
{
    struct server *s = calloc(1, sizeof *s);
    if (s == NULL) {
        once_close(options->once);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for the daemon");
    }
    s->shared.options = *options;
    s->listener.fd = s->answers.fd = -1;
    s->shared.epoll = epoll_create1(EPOLL_CLOEXEC);
    once_result r = watch(s, &s->signals, options->signals, on_signal, err);
    if (r == ONCE_OK)
        r = watch(s, &s->completions, once_eventfd(options->once), on_completions, err);
    if (r == ONCE_OK)
        r = watch(s, &s->answers, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), on_answers, err);
    if (r == ONCE_OK)
        r = reaper_start(options->once, options->manual_expiry, &s->reaper, err);
    if (r == ONCE_OK)
        r = admin_queries_start(options->once, s->reaper, s->answers.fd, &s->shared.admin_queries, err);
    if (r == ONCE_OK)
        r = listen_on(s, options->socket_path, err);
    if (r != ONCE_OK) {
        server_close(s);
        return r;
    }
    *out = s;
    return ONCE_OK;
}

static void end_all(struct server *s)
{
    for (struct conn *c = s->shared.first, *next; c != NULL; c = next) {
        next = c->next;
        conn_end(c);
    }
}

void server_close(struct server *s)
{
    if (s->address.sun_path[0] != '\0')
        remove_socket(s);
    end_all(s);
    if (s->shared.admin_queries != NULL) {
        admin_queries_stop(s->shared.admin_queries);
        for (struct admin_query *job; (job = admin_queries_next(s->shared.admin_queries)) != NULL;)
            conn_answer_admin_query(job);
        admin_queries_free(s->shared.admin_queries);
    }
    reaper_stop(s->reaper);
    once_close(s->shared.options.once); /* answers the calls of closed connections */
    conns_free_closed(&s->shared);
    client_grants_release(&s->shared.client_grants);
    if (s->listener.fd >= 0)
        close(s->listener.fd);
    if (s->answers.fd >= 0)
        close(s->answers.fd);
    close(s->shared.epoll);
    free(s);
}

const struct expiry_counters *server_expiry(const struct server *s)
{
    return reaper_counters(s->reaper);
}
