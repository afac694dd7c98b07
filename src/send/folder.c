/* folder.c - see send/folder.h. */
#include "send/folder.h"

#include "core/err.h"
#include "core/mac.h"
#include "core/span.h"
#include "os/crash_point.h"
#include "os/os.h"
#include "store/url.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that is being written. If it is older than NEW_AGE_S_MAX, its writer has died. */
#define NEW_PREFIX ".new-"
enum { NEW_AGE_S_MAX = 3600, LOCK_LOOKS = 10, LOCK_LOOK_MS = 20, PARENTS = 4 /* .local/state/once */ };

/* ------------------------------------------------------------------ the folder */

/* A new folder must survive a power failure, as its files must. Parents that may not be opened are not new. */
static void sync_parents(int fd)
{
    int at = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < PARENTS && at >= 0; i++) {
        fsync(at);
        int above = openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = above;
    }
    if (at >= 0)
        close(at);
}

once_result send_folder_open(const char *given, bool create, struct send_folder *folder, struct once_error *err)
{
    folder->fd = -1;
    if (given != NULL) {
        if (strlen(given) >= sizeof folder->path)
            return once_fail(err, ONCE_INVALID, "the path of the folder is too long");
        snprintf(folder->path, sizeof folder->path, "%s", given);
        if (create && mkdir(given, 0700) != 0 && errno != EEXIST)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot make directory '%s': %s", given, strerror(errno));
    } else {
        once_result r = once_state_directory("send", create, folder->path, err);
        if (r == ONCE_INVALID)
            return once_fail(err, r, "no home directory to keep requests in; use --state DIR");
        if (r != ONCE_OK)
            return r;
    }
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0 && (create || errno != ENOENT))
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open folder '%s': %s", folder->path, strerror(errno));
    if (create)
        sync_parents(folder->fd);
    return ONCE_OK;
}

void send_folder_close(struct send_folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    folder->fd = -1;
}

void send_id_of(once_span origin, once_span key, char id[SEND_ID_LEN_MAX + 1])
{
    uint8_t sum[ONCE_MAC_LEN];
    struct once_mac mac;
    once_span parts[] = { origin, key };
    once_mac_init(&mac, ONCE_LIT("once send"));
    once_mac_parts(&mac, parts, 2, sum);
    for (size_t i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", sum[i]);
}

static bool is_id(const char *name)
{
    size_t len = strlen(name);
    return len >= 32 && len <= SEND_ID_LEN_MAX && strspn(name, "0123456789abcdef-") == len;
}

/* ------------------------------------------------------------------ one file */

static bool write_all(int fd, once_span bytes)
{
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes = once_span_skip(bytes, (size_t)n);
    }
    return true;
}

/* Writes a file under a temporary name, then links it as its id (SEND-FOLDER-1, -2). 0 or an errno. */
static int put_file(struct send_folder *folder, const char *id, once_span saved, int *out)
{
    char new[64];
    uint32_t random;
    once_os_random(&random, sizeof random);
    snprintf(new, sizeof new, NEW_PREFIX "%ld-%08x", (long)getpid(), random);
    int fd = openat(folder->fd, new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int error = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || !write_all(fd, saved) || fsync(fd) != 0)
        error = errno != 0 ? errno : EIO;
    ONCE_CRASH_POINT("send.written");
    if (error == 0 && linkat(folder->fd, new, folder->fd, id, 0) != 0)
        error = errno;
    unlinkat(folder->fd, new, 0);
    if (error == 0 && fsync(folder->fd) != 0) {
        error = errno;
        unlinkat(folder->fd, id, 0); /* nothing was sent: remove it again */
    }
    if (error != 0)
        close(fd);
    else
        *out = fd;
    return error;
}

once_result send_folder_save(struct send_folder *folder, const char *id, once_span saved, struct send_pending *pending,
                             struct once_error *err)
{
    *pending = (struct send_pending){ .fd = -1 };
    once_buf_init(&pending->bytes, 0);
    int error = put_file(folder, id, saved, &pending->fd);
    if (error == EEXIST)
        return once_fail(err, ONCE_BUSY, "another process has just begun the same request");
    if (error != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot save the request in folder '%s', so nothing was sent: %s",
                         folder->path, strerror(error));
    snprintf(pending->id, sizeof pending->id, "%s", id);
    return ONCE_OK;
}

static once_result read_kept(struct send_pending *pending, struct once_error *err)
{
    once_buf_init(&pending->bytes, ONCE_CLIENT_SAVED_LEN_MAX);
    for (;;) {
        uint8_t chunk[65536];
        ssize_t n = read(pending->fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot read '%s': %s", pending->id, strerror(errno));
        if (n == 0)
            break;
        once_buf_add(&pending->bytes, once_span_of(chunk, (size_t)n));
        if (pending->bytes.result != ONCE_OK)
            return once_fail(err, pending->bytes.result == ONCE_LIMIT ? ONCE_CORRUPT : ONCE_NO_MEMORY,
                             "'%s' is too large", pending->id);
    }
    once_result r = once_client_saved_read(once_buf_span(&pending->bytes), &pending->saved, err);
    if (r != ONCE_OK)
        once_error_prefix(err, "'%s'", pending->id);
    return r;
}

static once_result open_kept(struct send_folder *folder, const char *id, struct send_pending *pending,
                             struct once_error *err)
{
    *pending = (struct send_pending){ .fd = -1 };
    once_buf_init(&pending->bytes, 0);
    snprintf(pending->id, sizeof pending->id, "%s", id);
    if (folder->fd >= 0)
        pending->fd = openat(folder->fd, id, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (pending->fd < 0 && folder->fd >= 0 && errno != ENOENT)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open '%s/%s': %s", folder->path, id, strerror(errno));
    return pending->fd >= 0 ? ONCE_OK : once_fail(err, ONCE_INVALID, "no pending request '%.40s'", id);
}

/* A process that only lists holds the lock for a moment: wait for it. */
static bool lock(int fd)
{
    for (int i = 0; i < LOCK_LOOKS; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        poll(NULL, 0, LOCK_LOOK_MS);
    }
    return false;
}

once_result send_folder_lock(struct send_folder *folder, const char *id, struct send_pending *pending,
                             struct once_error *err)
{
    struct stat status;
    once_result r = open_kept(folder, id, pending, err);
    if (r != ONCE_OK)
        return r;
    if (!lock(pending->fd))
        r = once_fail(err, ONCE_BUSY, "another process is sending '%s'", id);
    else if (fstat(pending->fd, &status) != 0 || status.st_nlink == 0)
        r = once_fail(err, ONCE_INVALID, "no pending request '%.40s'", id); /* it was answered meanwhile */
    if (r != ONCE_OK) {
        send_pending_release(pending);
        return r;
    }
    return read_kept(pending, err);
}

once_result send_folder_look(struct send_folder *folder, const char *id, struct send_pending *pending, bool *sending,
                             struct once_error *err)
{
    once_result r = open_kept(folder, id, pending, err);
    if (r != ONCE_OK)
        return r;
    *sending = flock(pending->fd, LOCK_SH | LOCK_NB) != 0;
    if (!*sending)
        flock(pending->fd, LOCK_UN);
    return read_kept(pending, err);
}

once_result send_folder_forget(struct send_folder *folder, struct send_pending *pending, struct once_error *err)
{
    bool gone = unlinkat(folder->fd, pending->id, 0) == 0 && fsync(folder->fd) == 0;
    int error = errno;
    send_pending_release(pending);
    return gone ? ONCE_OK
                : once_fail(err, ONCE_UNAVAILABLE, "cannot remove '%s/%s': %s", folder->path, pending->id,
                            strerror(error));
}

void send_pending_release(struct send_pending *pending)
{
    if (pending->fd >= 0)
        close(pending->fd);
    pending->fd = -1;
    once_buf_release(&pending->bytes);
}

/* ------------------------------------------------------------------ all of them */

static int entry_order(const void *a, const void *b)
{
    const struct send_entry *x = a, *y = b;
    if (x->modified != y->modified)
        return x->modified < y->modified ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* Removes a temporary file whose writer died. */
static void remove_stale(struct send_folder *folder, const char *name)
{
    struct stat status;
    if (fstatat(folder->fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        status.st_mtime < once_os_clock.wall(once_os_clock.arg) / 1000 - NEW_AGE_S_MAX)
        unlinkat(folder->fd, name, 0);
}

once_result send_folder_list(struct send_folder *folder, struct send_entry **entries, size_t *count,
                             struct once_error *err)
{
    *entries = NULL;
    *count = 0;
    if (folder->fd < 0)
        return ONCE_OK;
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct send_entry *all = dir != NULL ? calloc(SEND_LIST_MAX, sizeof *all) : NULL;
    if (all == NULL) {
        int error = errno;
        if (dir != NULL)
            closedir(dir);
        else if (fd >= 0)
            close(fd);
        return once_fail(err, ONCE_UNAVAILABLE, "cannot read folder '%s': %s", folder->path, strerror(error));
    }
    size_t n = 0;
    for (struct dirent *entry; n < SEND_LIST_MAX && (entry = readdir(dir)) != NULL;) {
        struct stat status;
        if (strncmp(entry->d_name, NEW_PREFIX, strlen(NEW_PREFIX)) == 0)
            remove_stale(folder, entry->d_name);
        if (!is_id(entry->d_name) || fstatat(folder->fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        snprintf(all[n].id, sizeof all[n].id, "%s", entry->d_name);
        all[n++].modified = (once_time)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
    }
    closedir(dir);
    qsort(all, n, sizeof *all, entry_order);
    *entries = all;
    *count = n;
    return ONCE_OK;
}
