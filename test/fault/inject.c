/* inject.c - see inject.h. */
#include "inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

/* ------------------------------------------------------------------ the plan */

static struct {
    struct inject_plan plan;
    bool armed;
    atomic_bool active, failing, reached;
    atomic_ulong counts[INJECT_KINDS];
    atomic_long live;
} inject;

void inject_arm(const struct inject_plan *plan)
{
    inject.plan = *plan;
    inject.armed = true;
    inject.active = inject.failing = inject.reached = false;
    for (int kind = 0; kind < INJECT_KINDS; kind++)
        inject.counts[kind] = 0;
}

void inject_begin(void)
{
    inject.active = inject.armed;
}

void inject_end(void)
{
    inject.active = false;
    if (inject.plan.span == INJECT_STEP)
        inject.failing = false;
}

bool inject_disarm(void)
{
    inject.active = inject.armed = false;
    return inject.reached;
}

unsigned long inject_count(enum inject_kind kind)
{
    return inject.counts[kind];
}

/* Counts a call. Does it fail, and how? */
static int failure(enum inject_kind kind)
{
    if (!inject.active)
        return 0;
    unsigned long count = atomic_fetch_add(&inject.counts[kind], 1) + 1;
    if (kind != inject.plan.kind)
        return 0;
    if (count == inject.plan.nth) {
        inject.reached = true;
        inject.failing = inject.plan.span != INJECT_ONE;
        return inject.plan.error;
    }
    return inject.failing ? inject.plan.error : 0;
}

/* ------------------------------------------------------------------ memory */

#ifdef INJECT_BY_WRAP

#define REAL(name) __real_##name
#define OURS(name) __wrap_##name

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

#else

#define REAL(name) __libc_##name
#define OURS(name) name

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *ptr);

#endif

static bool no_memory(void)
{
    int error = failure(INJECT_ALLOC);
    if (error != 0)
        errno = error;
    return error != 0;
}

static void *lives(void *ptr)
{
    inject.live += ptr != NULL;
    return ptr;
}

PUBLIC void *OURS(malloc)(size_t size)
{
    return no_memory() ? NULL : lives(REAL(malloc)(size));
}

PUBLIC void *OURS(calloc)(size_t count, size_t size)
{
    return no_memory() ? NULL : lives(REAL(calloc)(count, size));
}

PUBLIC void *OURS(realloc)(void *ptr, size_t size)
{
    if (size > 0 && no_memory())
        return NULL;
    if (ptr != NULL && size == 0)
        inject.live--;
    void *moved = REAL(realloc)(ptr, size);
    return ptr == NULL ? lives(moved) : moved;
}

#ifndef INJECT_BY_WRAP

PUBLIC void free(void *ptr)
{
    inject.live -= ptr != NULL;
    __libc_free(ptr);
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
    return no_memory() ? NULL : lives(__libc_memalign(alignment, size));
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

PUBLIC int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

long inject_live_blocks(void)
{
    return inject.live;
}

void inject_init(void)
{
}

#else

long inject_live_blocks(void)
{
    return -1;
}

/* SQLite's own calls are in a shared library, where the linker cannot wrap them. */
static void *sqlite_malloc(int size)
{
    return malloc((size_t)size);
}

static void *sqlite_realloc(void *ptr, int size)
{
    return realloc(ptr, (size_t)size);
}

static int sqlite_size(void *ptr)
{
    return ptr == NULL ? 0 : (int)malloc_usable_size(ptr);
}

static int sqlite_roundup(int size)
{
    return (size + 7) & ~7;
}

static int sqlite_init(void *arg)
{
    (void)arg;
    return SQLITE_OK;
}

static void sqlite_shutdown(void *arg)
{
    (void)arg;
}

void inject_init(void)
{
    static const sqlite3_mem_methods methods = { sqlite_malloc,  free,        sqlite_realloc,  sqlite_size,
                                                 sqlite_roundup, sqlite_init, sqlite_shutdown, NULL };
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        abort();
}

#endif

/* ------------------------------------------------------------------ recording */

static struct {
    char folder[PATH_MAX];
    size_t folder_len;
    inject_record_fn *record;
    pthread_mutex_t lock;
} recorder = { .lock = PTHREAD_MUTEX_INITIALIZER };

void inject_record(const char *folder, inject_record_fn *record)
{
    recorder.record = folder != NULL ? record : NULL;
    if (folder != NULL)
        recorder.folder_len = (size_t)snprintf(recorder.folder, sizeof recorder.folder, "%s", folder);
}

/* The name inside the folder; "" for the folder itself; NULL: elsewhere. */
static const char *name_inside(const char *path)
{
    if (strncmp(path, recorder.folder, recorder.folder_len) != 0)
        return NULL;
    const char *rest = path + recorder.folder_len;
    return *rest == '/' ? rest + 1 : *rest == '\0' ? rest : NULL;
}

static void record(int fd, enum inject_event event, const void *bytes, size_t len, off_t offset)
{
    if (recorder.record == NULL)
        return;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = '\0';
    const char *name = name_inside(path);
    if (name == NULL)
        return;
    if (*name == '\0' && event == INJECT_SYNCED)
        event = INJECT_DIR_SYNCED;
    pthread_mutex_lock(&recorder.lock);
    recorder.record(event, name, bytes, len, offset);
    pthread_mutex_unlock(&recorder.lock);
}

/* ------------------------------------------------------------------ files */

/* Everything here is built with 64-bit offsets, where the names end in 64. */

/* The next definition of a function: libc's, or a sanitizer's around it. */
#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (next == NULL)                                                                                                  \
    next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

static int fail_with(int error)
{
    errno = error;
    return -1;
}

PUBLIC ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t offset)
{
    NEXT(pwrite64);
    int error = failure(INJECT_WRITE);
    if (error > 0)
        return fail_with(error);
    if (error == INJECT_SHORT)
        len /= 2;
    ssize_t n = next(fd, bytes, len, offset);
    if (n > 0)
        record(fd, INJECT_WRITTEN, bytes, (size_t)n, offset);
    return n;
}

PUBLIC ssize_t write(int fd, const void *bytes, size_t len)
{
    NEXT(write);
    if (fd <= STDERR_FILENO)
        return next(fd, bytes, len);
    int error = failure(INJECT_WRITE);
    if (error > 0)
        return fail_with(error);
    if (error == INJECT_SHORT)
        len /= 2;
    off_t offset = recorder.record != NULL ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t n = next(fd, bytes, len);
    if (n > 0)
        record(fd, INJECT_WRITTEN, bytes, (size_t)n, offset);
    return n;
}

static int sync_file(int fd)
{
    int error = failure(INJECT_SYNC);
    record(fd, error != 0 ? INJECT_SYNC_FAILED : INJECT_SYNCED, NULL, 0, 0);
    return error != 0 ? fail_with(error) : 0;
}

PUBLIC int fsync(int fd)
{
    return sync_file(fd);
}

PUBLIC int fdatasync(int fd)
{
    return sync_file(fd);
}

PUBLIC int ftruncate64(int fd, off64_t len)
{
    NEXT(ftruncate64);
    int error = failure(INJECT_SIZE);
    if (error != 0)
        return fail_with(error);
    int rc = next(fd, len);
    if (rc == 0)
        record(fd, INJECT_RESIZED, NULL, 0, len);
    return rc;
}

PUBLIC int posix_fallocate64(int fd, off64_t offset, off64_t len)
{
    NEXT(posix_fallocate64);
    int error = failure(INJECT_SIZE);
    return error != 0 ? error : next(fd, offset, len);
}

PUBLIC int unlink(const char *path)
{
    NEXT(unlink);
    int rc = next(path);
    const char *name = rc == 0 && recorder.record != NULL ? name_inside(path) : NULL;
    if (name != NULL) {
        pthread_mutex_lock(&recorder.lock);
        recorder.record(INJECT_UNLINKED, name, NULL, 0, 0);
        pthread_mutex_unlock(&recorder.lock);
    }
    return rc;
}

PUBLIC int open64(const char *path, int flags, ...)
{
    NEXT(open64);
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    int error = failure(INJECT_OPEN);
    return error != 0 ? fail_with(error) : next(path, flags, mode);
}

PUBLIC int usleep(useconds_t us)
{
    (void)us;
    return sched_yield();
}

int inject_open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return -1;
    int count = -1; /* without the one of this folder */
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}
