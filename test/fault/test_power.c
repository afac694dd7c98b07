/*
 * test_power.c - what a loss of power leaves (FAULT-10, FAULT-11, FAULT-12).
 *
 * A worker on a store is recorded: every write, change of size and sync of the store's
 * files, in order, and after how much of that each answer came. From that the files are
 * built as they may be after the power went at any moment: what was synced is there; of
 * what was not, a random part, torn at sectors of 512 bytes. Opened there, the store
 * must be sound and know every answer that was given before.
 *
 * A second part lets one sync fail, after which Linux forgets what was not written: no
 * later sync brings it back.
 *
 *     SEED=N SIZE=N    other moments, more of them
 */
#include "core/span.h"
#include "inject.h"
#include "once.h"

#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECTOR = 512, FILES = 4, KEYS_MAX = 600, BODY_LEN_MAX = 12000, FILE_LEN_MAX = 24 << 20 };

/* The files that count after a restart. The others only matter to those who run. */
static const char *const file_names[FILES] = { "once.db", "once.db-wal", "once.db-journal", "" };

static char folder[256], work_folder[300], test_folder[300];
static uint64_t seed;

static uint64_t random_next(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

/* ------------------------------------------------------------------ the record */

struct event {
    enum inject_event kind;
    int file;
    off_t offset;
    size_t len;
    uint8_t *bytes;
};

static struct event *events;
static size_t event_count, event_cap;

static int file_of(const char *name)
{
    for (int i = 0; i < FILES; i++)
        if (strcmp(file_names[i], name) == 0)
            return i;
    return -1;
}

static void on_event(enum inject_event kind, const char *name, const void *bytes, size_t len, off_t offset)
{
    int file = file_of(name);
    if (file < 0)
        return;
    if (event_count == event_cap) {
        event_cap = event_cap == 0 ? 4096 : event_cap * 2;
        events = realloc(events, event_cap * sizeof *events);
    }
    struct event *e = &events[event_count++];
    *e = (struct event){ kind, file, offset, len, NULL };
    if (len > 0)
        e->bytes = memcpy(malloc(len), bytes, len);
}

static void forget(void)
{
    for (size_t i = 0; i < event_count; i++)
        free(events[i].bytes);
    event_count = 0;
}

static void clean(const char *in)
{
    static const char *const names[] = { "once.db",      "once.db-wal",     "once.db-shm",
                                         "once.db-lock", "once.db-reserve", "once.db-journal" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", in, names[i]);
        unlink(path);
    }
}

/* ------------------------------------------------------------------ what a disk keeps */

struct image {
    uint8_t *bytes; /* FILE_LEN_MAX of them */
    size_t len;
    bool there;
};

struct disk {
    struct image files[FILES]; /* what is certain */
};

static struct disk disk; /* one for all: malloc() fills all of it with something, wherever Meson runs a test */

static void disk_init(void)
{
    for (int f = 0; f < FILES; f++)
        disk.files[f].bytes = malloc(FILE_LEN_MAX);
}

static void disk_release(void)
{
    for (int f = 0; f < FILES; f++)
        free(disk.files[f].bytes);
}

static void image_write(struct image *image, size_t offset, const uint8_t *bytes, size_t len)
{
    if (offset + len > FILE_LEN_MAX)
        abort();
    if (offset > image->len)
        memset(image->bytes + image->len, 0, offset - image->len);
    memcpy(image->bytes + offset, bytes, len);
    image->len = offset + len > image->len ? offset + len : image->len;
    image->there = true;
}

static void image_resize(struct image *image, size_t len)
{
    if (len > image->len)
        memset(image->bytes + image->len, 0, len - image->len);
    image->len = len;
}

static void image_apply(struct image *image, const struct event *e)
{
    if (e->kind == INJECT_WRITTEN)
        image_write(image, (size_t)e->offset, e->bytes, e->len);
    else if (e->kind == INJECT_RESIZED)
        image_resize(image, (size_t)e->offset);
}

/* Some of its sectors only. */
static void image_tear(struct image *image, const struct event *e)
{
    size_t at = 0;
    while (at < e->len) {
        size_t n = SECTOR - ((size_t)e->offset + at) % SECTOR;
        n = n < e->len - at ? n : e->len - at;
        if (random_next() % 2 == 0)
            image_write(image, (size_t)e->offset + at, e->bytes + at, n);
        at += n;
    }
}

enum loss { LOSE_ALL, LOSE_NOTHING, LOSE_SOME, LOSE_SECTORS, LOSSES };

static void image_lose(struct image *image, const struct event *e, enum loss loss)
{
    if (loss == LOSE_NOTHING || (loss != LOSE_ALL && random_next() % 2 == 0))
        image_apply(image, e);
    else if (loss == LOSE_SECTORS && e->kind == INJECT_WRITTEN)
        image_tear(image, e);
}

static bool *forgotten; /* per event: a sync that failed was its last chance */

/* The files after the power went behind `count` events. */
static void disk_build(size_t count, enum loss loss)
{
    size_t synced[FILES] = { 0 };
    size_t folder_synced = 0;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == INJECT_SYNCED)
            synced[events[i].file] = i;
        /* A folder is in the file system's own log: it keeps it, or it is not mounted again. */
        bool failed = events[i].kind == INJECT_SYNC_FAILED && *file_names[events[i].file] == '\0';
        if (events[i].kind == INJECT_DIR_SYNCED || failed)
            folder_synced = i;
    }
    for (int f = 0; f < FILES; f++)
        disk.files[f].len = 0, disk.files[f].there = false;
    for (size_t i = 0; i < count; i++) {
        const struct event *e = &events[i];
        struct image *image = &disk.files[e->file];
        if (e->kind == INJECT_UNLINKED) {
            if (i < folder_synced || loss == LOSE_NOTHING || (loss != LOSE_ALL && random_next() % 2 == 0))
                image->there = false, image->len = 0;
        } else if (forgotten != NULL && forgotten[i]) {
            continue;
        } else if (i < synced[e->file]) {
            image_apply(image, e);
        } else {
            image_lose(image, e, loss);
        }
    }
}

static void disk_write(void)
{
    clean(test_folder);
    for (int f = 0; f < FILES - 1; f++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", test_folder, file_names[f]);
        if (!disk.files[f].there)
            continue;
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, disk.files[f].bytes, disk.files[f].len) != (ssize_t)disk.files[f].len)
            abort();
        close(fd);
    }
}

/* ------------------------------------------------------------------ the work */

static struct answer {
    size_t claimed_at, finished_at; /* behind this many events; 0: not answered */
    uint64_t fence;
    size_t body_len;
} answers[KEYS_MAX];
static unsigned answer_count;
static once_time now;

static once_time clock_ms(void *arg)
{
    (void)arg;
    return now;
}

static void clock_boot(void *arg, uint8_t id[16])
{
    (void)arg;
    memset(id, 1, 16);
}

static const struct once_clock test_clock = { clock_ms, clock_ms, clock_boot, NULL };

static once_span body_of(unsigned number, size_t len)
{
    static uint8_t bytes[BODY_LEN_MAX];
    uint64_t x = number * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        bytes[i] = (uint8_t)x;
    }
    return once_span_of(bytes, len);
}

static struct once *open_store(const char *in, bool shared, struct once_error *err)
{
    char url[400];
    snprintf(url, sizeof url, "sqlite:%s/once.db?reserve=0", in);
    struct once *once = NULL;
    if (once_open(url, &(struct once_options){ .shared = shared, .clock = &test_clock }, &once, err) != ONCE_OK)
        return NULL;
    return once;
}

static void key_of(unsigned number, char key[32])
{
    snprintf(key, 32, "key %u", number);
}

static void work_on(struct once *once, unsigned number)
{
    struct answer *a = &answers[number];
    struct once_reply reply;
    char key[32];
    key_of(number, key);
    struct once_claim claim = { .key = once_span_str(key), .retention_ms = ONCE_NEVER };
    bool granted = once_claim(once, &claim, &reply, NULL) == ONCE_OK;
    struct once_grant grant = reply.record.grant;
    once_reply_release(&reply);
    if (!granted)
        return;
    a->claimed_at = event_count;
    a->fence = grant.fence;
    a->body_len = random_next() % BODY_LEN_MAX;
    struct once_outcome outcome = { .state = ONCE_STATE_SUCCEEDED,
                                    .status = (int32_t)number,
                                    .body = body_of(number, a->body_len) };
    if (once_finish(once, grant, &outcome, &reply, NULL) == ONCE_OK)
        a->finished_at = event_count;
    once_reply_release(&reply);
}

/* Two lives of a store; the first is long enough for checkpoints in between. */
static void work(bool shared, unsigned count)
{
    struct once_error err = { .text = "" };
    now = 1700000000000;
    memset(answers, 0, sizeof answers);
    answer_count = 0;
    for (unsigned life = 0; life < 2; life++) {
        struct once *once = open_store(work_folder, shared, &err);
        for (unsigned i = 0; once != NULL && i < (life == 0 ? count * 3 / 4 : count / 4); i++)
            work_on(once, answer_count++);
        once_close(once);
    }
}

/* ------------------------------------------------------------------ the proof */

static void on_problem(void *arg, const struct once_problem *problem)
{
    printf("# %s: %s at fence %llu: %s\n", (const char *)arg, problem->invariant, (unsigned long long)problem->fence,
           problem->text);
}

static bool is_backed(struct once *once, unsigned number, size_t moment, const char *where)
{
    const struct answer *a = &answers[number];
    bool claimed = a->claimed_at != 0 && a->claimed_at <= moment;
    bool finished = a->finished_at != 0 && a->finished_at <= moment;
    if (!claimed)
        return true;
    char key[32];
    key_of(number, key);
    struct once_reply reply;
    struct once_error err = { .text = "" };
    once_result r = once_lookup(once, once_span_of(NULL, 0), once_span_str(key), &reply, &err);
    const struct once_record *record = &reply.record;
    bool right = r == ONCE_OK && reply.arm == ONCE_ARM_FOUND && record->grant.fence == a->fence;
    if (right && (finished || record->state != ONCE_STATE_RUNNING))
        right = record->state == ONCE_STATE_SUCCEEDED && record->status == (int32_t)number &&
                once_span_equal(record->body, body_of(number, a->body_len));
    if (!right)
        printf("# %s: key %u, %s, is %s %s %s %s\n", where, number, finished ? "finished" : "claimed",
               once_result_name(r), once_arm_name(reply.arm), once_state_name(record->state), err.text);
    once_reply_release(&reply);
    return right;
}

/* K2: what was granted before is never granted again. */
static bool grants_anew(struct once *once, size_t moment, const char *where)
{
    uint64_t newest = 0;
    for (unsigned i = 0; i < answer_count; i++)
        if (answers[i].claimed_at != 0 && answers[i].claimed_at <= moment && answers[i].fence > newest)
            newest = answers[i].fence;
    struct once_reply reply;
    struct once_error err = { .text = "" };
    once_result r = once_claim(once, &(struct once_claim){ .key = ONCE_LIT("afterwards") }, &reply, &err);
    bool right = r == ONCE_OK && reply.arm == ONCE_ARM_EXECUTE && reply.record.grant.fence > newest;
    if (!right)
        printf("# %s: a new claim is %s %s fence %llu after %llu %s\n", where, once_result_name(r),
               once_arm_name(reply.arm), (unsigned long long)reply.record.grant.fence, (unsigned long long)newest,
               err.text);
    once_reply_release(&reply);
    return right;
}

static bool holds_after(size_t moment, enum loss loss, bool shared)
{
    static const char *const losses[LOSSES] = { "all", "nothing", "some", "sectors" };
    char where[100];
    snprintf(where, sizeof where, "power lost at %zu of %zu, unsynced writes lost: %s", moment, event_count,
             losses[loss]);
    disk_build(moment, loss);
    disk_write();
    struct once_error err = { .text = "" };
    struct once *once = open_store(test_folder, shared, &err);
    if (once == NULL) {
        printf("# %s: cannot open: %s\n", where, err.text);
        return false;
    }
    struct once_check_report report;
    bool ok = once_check(once, on_problem, where, &report, &err) == ONCE_OK && report.problems == 0;
    for (unsigned i = 0; ok && i < answer_count; i++)
        ok = is_backed(once, i, moment, where);
    ok = ok && grants_anew(once, moment, where);
    once_close(once);
    return ok;
}

static unsigned long env_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoul(text, NULL, 10) : otherwise;
}

/* Every moment next to a sync, in turn with moments in between, up to `runs`. */
static void try_moments(bool shared, unsigned long runs)
{
    size_t syncs = 0;
    for (size_t i = 0; i < event_count; i++)
        syncs += events[i].kind == INJECT_SYNCED;
    unsigned long done = 0, failures = 0, due = 0;
    for (size_t i = 0; i < event_count && failures < 3; i++) {
        bool at_sync = events[i].kind == INJECT_SYNCED;
        due += at_sync ? runs : 0;
        if (!at_sync || due < syncs)
            continue;
        for (; due >= syncs && failures < 3; due -= syncs) {
            /* Just before the sync, just after it, or a little earlier. */
            size_t back = random_next() % 3 == 0 ? random_next() % 40 : 0;
            size_t moment = i + 1 - (done % 2 == 0) - (back < i ? back : 0);
            failures += !holds_after(moment, (enum loss)(random_next() % LOSSES), shared && done % 3 != 0);
            done++;
        }
    }
    printf("# %lu moments of %zu events with %zu syncs\n", done, event_count, syncs);
    EXPECT(failures == 0);
    EXPECT(done >= runs / 2);
}

static void record_and_try(bool shared)
{
    unsigned long size = env_number("SIZE", 1);
    clean(work_folder);
    inject_record(work_folder, on_event);
    work(shared, shared ? 200 : 400);
    inject_record(NULL, NULL);
    size_t finished = 0, checkpoints = 0;
    for (unsigned i = 0; i < answer_count; i++)
        finished += answers[i].finished_at != 0;
    for (size_t i = 0; i < event_count; i++)
        checkpoints += events[i].kind == INJECT_SYNCED && events[i].file == 0;
    printf("# %zu finished, %zu checkpoints\n", finished, checkpoints);
    EXPECT(finished == answer_count);
    EXPECT(checkpoints > 1);
    try_moments(shared, 15 * size);
    forget();
}

/* ------------------------------------------------------------------ a sync that failed */

/* What was written to the file since its last good sync has no other chance. */
static void mark_forgotten(void)
{
    forgotten = calloc(event_count + 1, sizeof *forgotten);
    size_t synced[FILES] = { 0 };
    for (size_t i = 0; i < event_count; i++) {
        int f = events[i].file;
        if (events[i].kind == INJECT_SYNCED)
            synced[f] = i;
        if (events[i].kind != INJECT_SYNC_FAILED)
            continue;
        for (size_t k = synced[f]; k < i; k++)
            forgotten[k] = forgotten[k] || (events[k].file == f && events[k].kind == INJECT_WRITTEN);
    }
}

static bool holds_after_failed_sync(bool shared, unsigned long nth, bool *reached)
{
    clean(work_folder);
    inject_record(work_folder, on_event);
    inject_arm(&(struct inject_plan){ .kind = INJECT_SYNC, .nth = nth, .error = EIO });
    inject_begin();
    work(shared, 24);
    inject_end();
    *reached = inject_disarm();
    inject_record(NULL, NULL);
    mark_forgotten();
    bool ok = true;
    /* Behind many answers, and at the end. */
    unsigned step = env_number("SIZE", 1) < 4 ? 12 : 3;
    for (unsigned i = 0; ok && i < answer_count; i += step)
        if (answers[i].finished_at != 0)
            ok = holds_after(answers[i].finished_at, LOSE_ALL, shared);
    ok = ok && holds_after(event_count, LOSE_ALL, shared);
    free(forgotten);
    forgotten = NULL;
    forget();
    return ok;
}

static void sweep_failed_syncs(bool shared)
{
    bool reached = true;
    unsigned long n = 0, failures = 0;
    while (reached) {
        bool ok = holds_after_failed_sync(shared, ++n, &reached);
        failures += !ok;
        if (!ok)
            printf("# that was with sync %lu failed\n", n);
    }
    printf("# %lu runs\n", n);
    EXPECT(failures == 0);
    EXPECT(n > 20);
}

/* ------------------------------------------------------------------ the cases */

static void power_lost__owned(void)
{
    record_and_try(false);
}

static void power_lost__shared(void)
{
    record_and_try(true);
}

static void power_lost_after_a_failed_sync__owned(void)
{
    sweep_failed_syncs(false);
}

static void power_lost_after_a_failed_sync__shared(void)
{
    sweep_failed_syncs(true);
}

int main(int argc, char **argv)
{
    inject_init();
    seed = env_number("SEED", 1) * 0x9e3779b97f4a7c15u + 88172645463325252u;
    printf("# SEED=%lu SIZE=%lu\n", env_number("SEED", 1), env_number("SIZE", 1));
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/once-power.XXXXXX", tmp != NULL ? tmp : "/tmp");
    char *real = mkdtemp(folder) != NULL ? realpath(folder, NULL) : NULL;
    if (real == NULL)
        abort();
    snprintf(work_folder, sizeof work_folder, "%s/work", real);
    snprintf(test_folder, sizeof test_folder, "%s/test", real);
    free(real);
    if (mkdir(work_folder, 0700) != 0 || mkdir(test_folder, 0700) != 0)
        abort();
    static const struct test tests[] = {
        TEST(power_lost__owned),
        TEST(power_lost_after_a_failed_sync__owned),
        TEST(power_lost__shared),
        TEST(power_lost_after_a_failed_sync__shared),
    };
    disk_init();
    int failed = test_main(argc, argv, tests, sizeof tests / sizeof *tests);
    disk_release();
    clean(work_folder);
    clean(test_folder);
    rmdir(work_folder);
    rmdir(test_folder);
    rmdir(folder);
    free(events);
    return failed;
}
