/* file.c - see sqlite/file.h. */
#include "store/sqlite/file.h"

#include "core/err.h"
#include "core/span.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { OWNER_WAIT_MS = 1000 }; /* an owner keeps its lock; only one that is about to end is worth waiting for */

static char *path_with(once_span path, const char *suffix)
{
    char *out = NULL;
    return asprintf(&out, "%.*s%s", ONCE_SPAN_ARGS(path), suffix) < 0 ? NULL : out;
}

/* The path with symbolic links in its directories resolved, since SQLite is told not to follow links: the file itself
 * must not be one. A missing directory is reported later. */
static char *path_resolved(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    char *dir = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    char *real = dir != NULL ? realpath(dir, NULL) : NULL;
    char *out = NULL;
    if (dir != NULL && (real != NULL || errno != ENOMEM) &&
        asprintf(&out, "%s/%s", real != NULL ? (strcmp(real, "/") == 0 ? "" : real) : dir, file) < 0)
        out = NULL;
    free(dir);
    free(real);
    return out;
}

once_result sqlite_path_check(once_span path, struct once_error *err)
{
    if (path.len == 0)
        return once_fail(err, ONCE_INVALID, "a store needs a path: sqlite:PATH");
    if (memchr(path.ptr, '\0', path.len) != NULL)
        return once_fail(err, ONCE_INVALID, "the path holds a NUL byte");
    return ONCE_OK;
}

once_result sqlite_files_init(struct sqlite_files *f, once_span path, uint64_t reserve_len, uint32_t lock_wait_ms,
                              struct once_error *err)
{
    *f = (struct sqlite_files){ .lock_fd = -1, .reserve_len = reserve_len, .lock_wait_ms = lock_wait_ms };
    once_result r = sqlite_path_check(path, err);
    if (r != ONCE_OK)
        return r;
    char *given = path_with(path, "");
    f->path = given != NULL ? path_resolved(given) : NULL;
    free(given);
    if (f->path != NULL) {
        f->lock_path = path_with(once_span_str(f->path), "-lock");
        f->reserve_path = path_with(once_span_str(f->path), "-reserve");
    }
    if (f->path == NULL || f->lock_path == NULL || f->reserve_path == NULL) {
        sqlite_files_release(f);
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a path");
    }
    return ONCE_OK;
}

void sqlite_files_release(struct sqlite_files *f)
{
    if (f->lock_fd >= 0)
        close(f->lock_fd);
    free(f->path);
    free(f->lock_path);
    free(f->reserve_path);
    *f = (struct sqlite_files){ .lock_fd = -1 };
}

/* The name of a network file system: file locks and shared memory do not work there. */
static const char *network_name(long type)
{
    switch ((unsigned long)type & 0xffffffffu) {
    case 0x6969:
        return "NFS";
    case 0x517b:
    case 0xff534d42:
    case 0xfe534d42:
        return "SMB";
    case 0x00c36400:
        return "Ceph";
    case 0x47504653:
        return "GPFS";
    case 0x5346414f:
        return "AFS";
    default:
        return NULL;
    }
}

static once_result directory_check(const struct sqlite_files *f, struct once_error *err)
{
    const char *slash = strrchr(f->path, '/');
    char *dir = slash == NULL ? strdup(".") : strndup(f->path, slash == f->path ? 1 : (size_t)(slash - f->path));
    if (dir == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a path");
    once_result r = ONCE_OK;
    struct stat st;
    struct statfs fs;
    if (stat(dir, &st) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE, "directory '%s': %s; create it first", dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        r = once_fail(err, ONCE_UNAVAILABLE, "'%s' is not a directory", dir);
    else if (access(dir, W_OK | X_OK) != 0)
        r = once_fail(err, ONCE_UNAVAILABLE,
                      "directory '%s' cannot be written: %s; a store needs to create files in it", dir,
                      strerror(errno));
    else if (statfs(dir, &fs) == 0 && network_name(fs.f_type) != NULL)
        r = once_fail(err, ONCE_UNAVAILABLE,
                      "'%s' is on %s, where file locks and shared memory cannot be trusted; use a local disk", dir,
                      network_name(fs.f_type));
    free(dir);
    return r;
}

/* Gives an empty file that was made for us, by `touch` for example, the mode of one that we make; a file that only its
 * group may access was meant so. Another user's file keeps its mode; sqlite_files_check_private() reports that. With
 * O_PATH: closing any other descriptor would release the locks of a second handle of this process. */
static void make_private(const struct sqlite_files *f)
{
    struct stat st;
    char path[32];
    int fd = open(f->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && (st.st_mode & 0007) != 0 &&
        chmod(path, 0600) != 0)
        errno = 0; /* another user's file, or no /proc: reported later */
    close(fd);
}

once_result sqlite_files_check_private(const struct sqlite_files *f, struct once_error *err)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    once_result r = ONCE_OK;
    for (size_t i = 0; r == ONCE_OK && i < sizeof suffixes / sizeof *suffixes; i++) {
        struct stat st;
        char *path = path_with(once_span_str(f->path), suffixes[i]);
        if (path == NULL)
            return once_fail(err, ONCE_NO_MEMORY, "no memory for a path");
        if (lstat(path, &st) == 0 && (st.st_mode & 0007) != 0)
            r = once_fail(
                err, ONCE_INVALID,
                "everybody may access '%s', which holds answers and the store's secret; run: chmod o= '%s' '%s'-*",
                path, f->path, f->path);
        free(path);
    }
    return r;
}

once_result sqlite_files_prepare(const struct sqlite_files *f, bool may_create, struct once_error *err)
{
    once_result r = directory_check(f, err);
    if (r != ONCE_OK)
        return r;
    if (!may_create && access(f->path, F_OK) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "there is no such file");
    int fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        fchmod(fd, 0600);
        close(fd);
        return ONCE_OK;
    }
    if (errno != EEXIST)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot create '%s': %s", f->path, strerror(errno));
    struct stat st;
    if (lstat(f->path, &st) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "'%s': %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return once_fail(err, ONCE_UNAVAILABLE, "'%s' is not a regular file", f->path);
    if (st.st_size == 0) { /* before a secret is written into it */
        make_private(f);
        r = sqlite_files_check_private(f, err);
        if (r != ONCE_OK)
            return r;
    }
    if (access(f->path, R_OK | W_OK) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "'%s' cannot be read and written: %s", f->path, strerror(errno));
    return ONCE_OK;
}

static once_result lock_open(struct sqlite_files *f, struct once_error *err)
{
    if (f->lock_fd < 0)
        f->lock_fd = open(f->lock_path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (f->lock_fd < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open '%s': %s", f->lock_path, strerror(errno));
    return ONCE_OK;
}

bool sqlite_files_lock_is_current(const struct sqlite_files *f)
{
    struct stat ours, theirs;
    return fstat(f->lock_fd, &ours) == 0 && stat(f->lock_path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
           ours.st_dev == theirs.st_dev;
}

/* Not synced: after a power loss the log is what is on disk, suspect or not. If the disk is full the old text stays,
 * which does no harm. */
static void lock_write(const struct sqlite_files *f, const char *text)
{
    char padded[96];
    int n = snprintf(padded, sizeof padded, "%-80s\n", text);
    if (pwrite(f->lock_fd, padded, (size_t)n, 0) != n)
        return;
}

static void lock_sign(const struct sqlite_files *f, bool as_owner)
{
    char text[96];
    snprintf(text, sizeof text, "%s %ld %.40s", as_owner ? "owner" : "step", (long)getpid(),
             program_invocation_short_name);
    lock_write(f, text);
}

/* The text without trailing blanks; empty if there is none. */
static void lock_read(const struct sqlite_files *f, char text[96])
{
    ssize_t n = pread(f->lock_fd, text, 95, 0);
    text[n > 0 ? n : 0] = '\0';
    for (size_t len = strlen(text); len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\n'); len--)
        text[len - 1] = '\0';
}

static bool is_clean(const char *text)
{
    return text[0] == '\0' || strcmp(text, "clean") == 0;
}

once_result sqlite_files_lock(struct sqlite_files *f, bool as_owner, struct once_error *err)
{
    once_time start = once_os_monotonic_ms();
    useconds_t pause_us = 200;
    for (;;) {
        once_result r = lock_open(f, err);
        if (r != ONCE_OK)
            return r;
        if (flock(f->lock_fd, LOCK_EX | LOCK_NB) == 0) {
            if (sqlite_files_lock_is_current(f)) {
                char before[96];
                lock_read(f, before);
                f->suspect = !is_clean(before);
                lock_sign(f, as_owner);
                return ONCE_OK;
            }
            close(f->lock_fd);
            f->lock_fd = -1;
            continue;
        }
        if (errno != EWOULDBLOCK && errno != EINTR)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot lock '%s': %s", f->lock_path, strerror(errno));
        char who[96];
        lock_read(f, who);
        bool owned = strncmp(who, "owner ", 6) == 0;
        once_time waited = once_os_monotonic_ms() - start;
        if (waited >= (owned && f->lock_wait_ms > OWNER_WAIT_MS ? OWNER_WAIT_MS : (once_time)f->lock_wait_ms))
            return once_fail(err, ONCE_UNAVAILABLE, "'%s' is in use by another process (%s)", f->path,
                             who[0] != '\0' ? who : "unknown");
        usleep(pause_us);
        pause_us = pause_us < 5000 ? pause_us * 2 : 3000 + (useconds_t)(once_os_monotonic_ns() % 5000);
    }
}

void sqlite_files_unlock(struct sqlite_files *f, bool clean)
{
    if (f->lock_fd < 0)
        return;
    lock_write(f, clean ? "clean" : "suspect");
    flock(f->lock_fd, LOCK_UN);
}

bool sqlite_files_is_suspect(struct sqlite_files *f)
{
    char text[96];
    if (access(f->lock_path, F_OK) != 0 || lock_open(f, NULL) != ONCE_OK)
        return false;
    if (flock(f->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return false; /* another process holds the lock, and will recover */
    lock_read(f, text);
    flock(f->lock_fd, LOCK_UN);
    return !is_clean(text);
}

void sqlite_files_reserve_fill(const struct sqlite_files *f)
{
    if (!sqlite_files_reserve_is_gone(f))
        return;
    int fd = open(f->reserve_path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    /* There is no room for the reserve; the next open tries again. */
    if (posix_fallocate(fd, 0, (off_t)f->reserve_len) != 0)
        unlink(f->reserve_path);
    close(fd);
}

void sqlite_files_reserve_give(const struct sqlite_files *f)
{
    unlink(f->reserve_path);
}

bool sqlite_files_reserve_is_gone(const struct sqlite_files *f)
{
    struct stat st;
    return f->reserve_len > 0 && (stat(f->reserve_path, &st) != 0 || (uint64_t)st.st_size < f->reserve_len);
}

uint64_t sqlite_files_size(const struct sqlite_files *f)
{
    uint64_t total = 0;
    struct stat st;
    if (stat(f->path, &st) == 0)
        total += (uint64_t)st.st_size;
    char *wal = path_with(once_span_str(f->path), "-wal");
    if (wal != NULL && stat(wal, &st) == 0)
        total += (uint64_t)st.st_size;
    free(wal);
    return total;
}
