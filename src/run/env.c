/* env.c - see run/env.h. */
#include "run/env.h"

#include "core/span.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const names[] = {
    "ONCE_KEY",   "ONCE_FENCE",  "ONCE_ATTEMPT", "ONCE_RECOVERY_POINT", "ONCE_CHECKPOINT_FILE",
    "ONCE_STORE", "ONCE_RECORD",
};

enum { NAME_COUNT = sizeof names / sizeof *names };

static bool is_ours(const char *variable)
{
    for (size_t i = 0; i < NAME_COUNT; i++) {
        size_t len = strlen(names[i]);
        if (strncmp(variable, names[i], len) == 0 && variable[len] == '=')
            return true;
    }
    return false;
}

/* A memfd with the bytes, sealed against changes. A temporary file would stay behind if we
 * were killed. */
static int checkpoint_open(once_span bytes)
{
    int fd = memfd_create("once-checkpoint", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    while (bytes.len > 0) {
        ssize_t n = write(fd, bytes.ptr, bytes.len);
        if (n <= 0) {
            int error = errno;
            close(fd);
            errno = error;
            return -1;
        }
        bytes = once_span_skip(bytes, (size_t)n);
    }
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    return fd;
}

/* Each variable with its NUL, one after the other. */
static void add_variables(struct once_run_env *env, const struct once_attempt *attempt, const char *url)
{
    const struct once_record *record = once_attempt_record(attempt);
    char key[ONCE_CHILD_KEY_LEN + 1], grant[ONCE_RECORD_TEXT_LEN];
    once_attempt_child_key(attempt, ONCE_LIT("run"), key);
    once_grant_format(record->grant, grant);
    struct once_buf *text = &env->text;
    once_buf_addf(text, "ONCE_KEY=%s%c", key, 0);
    once_buf_addf(text, "ONCE_FENCE=%" PRIu64 "%c", record->grant.fence, 0);
    once_buf_addf(text, "ONCE_ATTEMPT=%" PRIu32 "%c", record->attempt, 0);
    once_buf_addf(text, "ONCE_RECOVERY_POINT=%.*s%c", ONCE_SPAN_ARGS(record->recovery_point), 0);
    once_buf_addf(text, "ONCE_STORE=%s%c", url, 0);
    once_buf_addf(text, "ONCE_RECORD=%s%c", grant, 0);
    /* By our process id instead of "self": descendants that closed all descriptors can
     * open it too. */
    if (env->checkpoint >= 0)
        once_buf_addf(text, "ONCE_CHECKPOINT_FILE=/proc/%ld/fd/%d%c", (long)getpid(), env->checkpoint, 0);
}

static int collect(struct once_run_env *env)
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    env->envp = calloc(count + NAME_COUNT + 1, sizeof *env->envp);
    if (env->envp == NULL)
        return ENOMEM;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        if (!is_ours(environ[i]))
            env->envp[at++] = environ[i];
    char *end = (char *)env->text.ptr + env->text.len;
    for (char *variable = (char *)env->text.ptr; variable < end; variable += strlen(variable) + 1)
        env->envp[at++] = variable;
    return 0;
}

int once_run_env_init(struct once_run_env *env, const struct once_attempt *attempt, const char *url)
{
    *env = (struct once_run_env){ .checkpoint = -1 };
    once_buf_init(&env->text, 64 << 10);
    once_span checkpoint = once_attempt_record(attempt)->checkpoint;
    if (checkpoint.len > 0) {
        env->checkpoint = checkpoint_open(checkpoint);
        if (env->checkpoint < 0)
            return errno;
    }
    add_variables(env, attempt, url);
    return env->text.result == ONCE_OK ? collect(env) : ENOMEM;
}

void once_run_env_release(struct once_run_env *env)
{
    free(env->envp);
    once_buf_release(&env->text);
    if (env->checkpoint >= 0)
        close(env->checkpoint);
    *env = (struct once_run_env){ .checkpoint = -1 };
}

void once_grant_format(struct once_grant grant, char out[ONCE_RECORD_TEXT_LEN])
{
    for (size_t i = 0; i < sizeof grant.record; i++)
        snprintf(out + 2 * i, 3, "%02x", grant.record[i]);
    snprintf(out + 2 * sizeof grant.record, 22, ":%" PRIu64, grant.fence);
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

bool once_grant_parse(const char *text, struct once_grant *grant)
{
    struct once_grant result = { 0 };
    for (size_t i = 0; i < sizeof result.record; i++) {
        int high = hex_digit(text[2 * i]), low = high >= 0 ? hex_digit(text[2 * i + 1]) : -1;
        if (low < 0)
            return false;
        result.record[i] = (uint8_t)(high << 4 | low);
    }
    text += 2 * sizeof result.record;
    char *end = NULL;
    errno = 0;
    if (text[0] != ':' || text[1] < '0' || text[1] > '9')
        return false;
    result.fence = strtoull(text + 1, &end, 10);
    if (*end != '\0' || errno != 0)
        return false;
    *grant = result;
    return true;
}
