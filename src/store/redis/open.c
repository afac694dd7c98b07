/*
 * open.c - connecting to a Redis: checks the server, and whether it still has this handle's writes.
 *
 * Refused: a replica, a cluster, a server before 6.0, an eviction policy that removes unfinished records (allkeys-*), a
 * WAITAOF that the server does not have. Logged as a warning: no append-only file, how it is synced, policies that
 * evict finished records.
 *
 * After a lost connection, another run id means a restart or a failover. The script that writes also counts the writes
 * of each handle; comparing that count with the acknowledged ones shows how many are lost. They are counted and logged.
 */
#include "store/redis/store.h"

#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "os/os.h"
#include "redis_lua.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void redis_store_warn(struct redis_store *s, const char *format, ...)
{
    if (s->warn == NULL)
        return;
    char place[320], text[700], all[1040];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    redis_url_text(&s->url, place, sizeof place);
    snprintf(all, sizeof all, "%s: %s", place, text);
    s->warn(s->warn_arg, all);
}

once_span redis_info(once_span info, const char *name)
{
    once_span wanted = once_span_str(name);
    while (info.len > 0) {
        once_span line, key, value, rest;
        once_span_cut(info, '\n', &line, &info);
        once_span_cut(line, '\r', &line, &rest);
        if (once_span_cut(line, ':', &key, &value) && once_span_equal(key, wanted))
            return value;
    }
    return once_span_of(NULL, 0);
}

uint64_t redis_info_number(once_span info, const char *name)
{
    once_span text = redis_info(info, name);
    uint64_t value = 0;
    for (size_t i = 0; i < text.len && i < 19 && text.ptr[i] >= '0' && text.ptr[i] <= '9'; i++)
        value = value * 10 + (uint64_t)(text.ptr[i] - '0');
    return value;
}

/* ------------------------------------------------------------------ commands */

/* One command on the open connection. An error reply is a failure. */
static once_result command(struct redis_store *s, int argc, const once_span *argv, redisReply **reply,
                           struct once_error *err)
{
    *reply = NULL;
    once_result r = redis_conn_ask(&s->conn, argc, argv, reply, err);
    if (r == ONCE_UNKNOWN)
        return ONCE_UNAVAILABLE; /* these commands change nothing */
    if (r != ONCE_OK)
        return r;
    if ((*reply)->type == REDIS_REPLY_ERROR) {
        bool gone;
        r = redis_error(*reply, &gone, err);
        freeReplyObject(*reply);
        *reply = NULL;
    }
    return r;
}

static once_result say_only(struct redis_store *s, int argc, const once_span *argv, struct once_error *err)
{
    redisReply *reply = NULL;
    once_result r = command(s, argc, argv, &reply, err);
    freeReplyObject(reply);
    return r;
}

once_result redis_store_ask(struct redis_store *s, int argc, const once_span *argv, redisReply **reply,
                            struct once_error *err)
{
    *reply = NULL;
    once_result r = s->conn.fd >= 0 ? ONCE_OK : redis_store_connect(s, err);
    return r == ONCE_OK ? command(s, argc, argv, reply, err) : r;
}

once_result redis_store_now(struct redis_store *s, once_time *now, struct once_error *err)
{
    if (s->clock != NULL) {
        *now = s->clock->wall(s->clock->arg);
        return ONCE_OK;
    }
    redisReply *reply = NULL;
    once_result r = redis_store_ask(s, 1, (once_span[]){ ONCE_LIT("TIME") }, &reply, err);
    if (r == ONCE_OK &&
        (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
         reply->element[1]->type != REDIS_REPLY_STRING))
        r = once_fail(err, ONCE_CORRUPT, "Redis does not tell the time");
    if (r == ONCE_OK)
        *now = strtoll(reply->element[0]->str, NULL, 10) * 1000 + strtoll(reply->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(reply);
    return r;
}

/* ------------------------------------------------------------------ the server */

static once_result log_in(struct redis_store *s, struct once_error *err)
{
    once_span user = once_span_str(s->url.user), password = once_span_str(s->url.password);
    once_result r = ONCE_OK;
    if (user.len > 0)
        r = say_only(s, 3, (once_span[]){ ONCE_LIT("AUTH"), user, password }, err);
    else if (password.len > 0)
        r = say_only(s, 2, (once_span[]){ ONCE_LIT("AUTH"), password }, err);
    if (r == ONCE_OK)
        r = say_only(s, 2, (once_span[]){ ONCE_LIT("SELECT"), once_span_str(s->url.db) }, err);
    return r;
}

/* The value of a setting, or "" where CONFIG is not allowed, as with hosted servers. */
static void read_setting(struct redis_store *s, const char *name, char *out, size_t len)
{
    redisReply *reply = NULL;
    once_span argv[] = { ONCE_LIT("CONFIG"), ONCE_LIT("GET"), once_span_str(name) };
    out[0] = '\0';
    if (command(s, 3, argv, &reply, NULL) == ONCE_OK && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        reply->element[1]->type == REDIS_REPLY_STRING)
        snprintf(out, len, "%s", reply->element[1]->str);
    freeReplyObject(reply);
}

static once_result check_version(struct redis_store *s, once_span info, struct once_error *err)
{
    once_span version = redis_info(info, "redis_version");
    unsigned major = 0, minor = 0;
    char text[32];
    snprintf(text, sizeof text, "%.*s", version.len < 31 ? (int)version.len : 31,
             version.ptr != NULL ? (const char *)version.ptr : "");
    if (sscanf(text, "%u.%u", &major, &minor) != 2)
        return once_fail(err, ONCE_UNAVAILABLE, "this server does not tell which Redis it is");
    if (major < 6)
        return once_fail(err, ONCE_INVALID, "Redis %s is too old; 6.0 is needed", text);
    if (s->url.fsync && (major < 7 || (major == 7 && minor < 2)))
        return once_fail(err, ONCE_INVALID,
                         "waitaof=1 needs WAITAOF, which Redis has from 7.2 on; this is %s: use appendfsync always",
                         text);
    return ONCE_OK;
}

/* Refuses servers that cannot hold a store. */
static once_result check_server(struct redis_store *s, once_span info, struct once_error *err)
{
    once_result r = check_version(s, info, err);
    if (r != ONCE_OK)
        return r;
    if (once_span_equal(redis_info(info, "redis_mode"), ONCE_LIT("cluster")))
        return once_fail(err, ONCE_INVALID,
                         "this Redis is part of a cluster: fences need one sequence for all records, so Once needs a "
                         "Redis outside of a cluster, with replicas if needed");
    if (!once_span_equal(redis_info(info, "role"), ONCE_LIT("master")))
        return once_fail(err, ONCE_UNAVAILABLE, "this Redis is a replica, which takes no writes; name the master");
    once_span policy = redis_info(info, "maxmemory_policy");
    if (once_span_starts(policy, ONCE_LIT("allkeys-")))
        return once_fail(err, ONCE_INVALID,
                         "maxmemory-policy %.*s evicts records that are running: set noeviction (or volatile-ttl, "
                         "which evicts finished ones)",
                         ONCE_SPAN_ARGS(policy));
    if (s->url.fsync && redis_info_number(info, "aof_enabled") == 0)
        return once_fail(err, ONCE_INVALID, "waitaof=1 needs the append-only file, which is off: appendonly yes");
    return ONCE_OK;
}

/* Logs settings under which writes may be lost. */
static void log_settings(struct redis_store *s, once_span info)
{
    char fsync[32];
    bool aof = redis_info_number(info, "aof_enabled") != 0;
    read_setting(s, "appendfsync", fsync, sizeof fsync);
    once_span policy = redis_info(info, "maxmemory_policy"), version = redis_info(info, "redis_version");
    redis_store_warn(
        s, "tier best-effort, Redis %.*s, appendonly %s, appendfsync %s, maxmemory-policy %.*s, %" PRIu64 " replicas%s",
        ONCE_SPAN_ARGS(version), aof ? "yes" : "no",
        !aof               ? "-"
        : fsync[0] != '\0' ? fsync
                           : "not told",
        ONCE_SPAN_ARGS(policy), redis_info_number(info, "connected_slaves"),
        s->url.fsync          ? ", writes wait for its disk"
        : s->url.replicas > 0 ? ", writes wait for replicas"
                              : "");
    if (!aof)
        redis_store_warn(s, "warning: no append-only file: when Redis ends, every record since its last snapshot is "
                            "lost, and their operations may be executed again; set appendonly yes");
    else if (!s->url.fsync && fsync[0] != '\0' && strcmp(fsync, "always") != 0)
        redis_store_warn(s,
                         "warning: appendfsync %s: when the machine fails, every write acknowledged in the last "
                         "seconds is lost; set appendfsync always",
                         fsync);
    if (once_span_starts(policy, ONCE_LIT("volatile-")))
        redis_store_warn(s, "warning: maxmemory-policy %.*s may evict finished records before their retention is over",
                         ONCE_SPAN_ARGS(policy));
    if (redis_info_number(info, "connected_slaves") < s->url.replicas)
        redis_store_warn(s, "warning: wait=%u, but Redis has fewer replicas now: no write will be answered",
                         s->url.replicas);
}

/* ------------------------------------------------------------------ the same server, the same store? */

once_result redis_store_load(struct redis_store *s, struct once_error *err)
{
    const char *const texts[REDIS_SCRIPT_COUNT] = { redis_once, redis_open, redis_abandoned };
    for (int i = 0; i < REDIS_SCRIPT_COUNT; i++) {
        redisReply *reply = NULL;
        once_span argv[] = { ONCE_LIT("SCRIPT"), ONCE_LIT("LOAD"), once_span_str(texts[i]) };
        once_result r = command(s, 3, argv, &reply, err);
        if (r == ONCE_OK && (reply->type != REDIS_REPLY_STRING || reply->len != 40))
            r = once_fail(err, ONCE_CORRUPT, "Redis did not return the digest of a script");
        if (r == ONCE_OK)
            memcpy(s->sha[i], reply->str, 41);
        freeReplyObject(reply);
        if (r != ONCE_OK)
            return r;
    }
    return ONCE_OK;
}

/* Counts a restart if this is not the same server process as before. */
static void compare_process(struct redis_store *s, once_span info)
{
    char run_id[41];
    once_span id = redis_info(info, "run_id");
    snprintf(run_id, sizeof run_id, "%.*s", id.len < 40 ? (int)id.len : 40, id.ptr != NULL ? (const char *)id.ptr : "");
    if (s->opened && strcmp(run_id, s->run_id) != 0) {
        s->restarts++;
        redis_store_warn(s, "another process than before: Redis was restarted, or failed over");
    }
    if (strcmp(run_id, s->run_id) != 0)
        s->evicted_seen = s->opened ? 0 : redis_info_number(info, "evicted_keys");
    memcpy(s->run_id, run_id, sizeof run_id);
}

static bool is_store(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 7)
        return false;
    for (size_t i = 0; i < 7; i++)
        if (reply->element[i]->type != (i < 3 ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER))
            return false;
    return reply->element[1]->len == ONCE_MAC_LEN && reply->element[2]->len == 16;
}

/* Logs how many acknowledged writes of this handle are lost (the script counted them), and the likely cause. */
static void compare_store(struct redis_store *s, const redisReply *reply)
{
    uint64_t lost = (uint64_t)reply->element[3]->integer;
    bool other = s->opened && memcmp(s->generation, reply->element[2]->str, 16) != 0;
    s->lost += lost;
    if (other || (s->opened && reply->element[6]->integer != 0))
        redis_store_warn(s,
                         "LOST: everything; the store was made again. %" PRIu64
                         " acknowledged writes of this process are lost: their operations may be executed again",
                         lost);
    else if (lost > 0)
        redis_store_warn(s,
                         "LOST: %" PRIu64 " acknowledged writes of this process are lost: their operations "
                         "may be done again",
                         lost);
}

static once_result take_store(struct redis_store *s, const redisReply *reply, struct once_error *err)
{
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 1 && reply->element[0]->type == REDIS_REPLY_NIL)
        return once_fail(err, ONCE_UNAVAILABLE, "there is no store in this Redis, and it must not be made now");
    if (!is_store(reply))
        return once_fail(err, ONCE_CORRUPT, "the store in this Redis was not made by Once");
    if (strcmp(reply->element[0]->str, "1") != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "the store in this Redis is of version %.20s; use a newer program",
                         reply->element[0]->str);
    if (s->opened && memcmp(s->base.secret.key, reply->element[1]->str, ONCE_MAC_LEN) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "this Redis has another store now: open it again");
    compare_store(s, reply);
    if (!s->opened)
        once_mac_init(&s->base.secret, once_span_of(reply->element[1]->str, ONCE_MAC_LEN));
    memcpy(s->generation, reply->element[2]->str, 16);
    if ((uint64_t)reply->element[5]->integer > s->floor)
        s->floor = (uint64_t)reply->element[5]->integer;
    return ONCE_OK;
}

/* A store whose data is lost while we know its secret is made again with that secret: child keys stay the same, and
 * callees that honour them still recognise a repetition. */
static once_result open_store(struct redis_store *s, struct once_error *err)
{
    static const char *const names[3] = { "meta", "fence", "witness" };
    char keys[3][REDIS_PREFIX_MAX + 16], told[24], floor[24];
    uint8_t secret[ONCE_MAC_LEN], generation[16];
    once_os_random(secret, sizeof secret);
    once_os_random(generation, sizeof generation);
    if (s->opened)
        memcpy(secret, s->base.secret.key, sizeof secret);
    for (int i = 0; i < 3; i++)
        snprintf(keys[i], sizeof keys[i], "%s%s", s->url.prefix, names[i]);
    snprintf(told, sizeof told, "%" PRIu64, s->told);
    snprintf(floor, sizeof floor, "%" PRIu64, s->floor);
    once_span argv[] = { ONCE_LIT("EVALSHA"),
                         once_span_str(s->sha[REDIS_SCRIPT_OPEN]),
                         ONCE_LIT("3"),
                         once_span_str(keys[0]),
                         once_span_str(keys[1]),
                         once_span_str(keys[2]),
                         once_span_str(s->handle),
                         once_span_str(told),
                         once_span_str(floor),
                         once_span_of(secret, sizeof secret),
                         once_span_of(generation, sizeof generation),
                         s->may_make || s->opened ? ONCE_LIT("1") : ONCE_LIT("0") };
    redisReply *reply = NULL;
    once_result r = command(s, sizeof argv / sizeof *argv, argv, &reply, err);
    if (r == ONCE_OK)
        r = take_store(s, reply, err);
    freeReplyObject(reply);
    explicit_bzero(secret, sizeof secret);
    return r;
}

static once_result arrive(struct redis_store *s, struct once_error *err)
{
    redisReply *reply = NULL;
    once_result r = redis_conn_open(&s->conn, err);
    if (r == ONCE_OK)
        r = log_in(s, err);
    if (r == ONCE_OK)
        r = command(s, 1, (once_span[]){ ONCE_LIT("INFO") }, &reply, err);
    if (r != ONCE_OK)
        return r;
    once_span info = once_span_of(reply->str, reply->type == REDIS_REPLY_STRING ? (size_t)reply->len : 0);
    r = check_server(s, info, err);
    if (r == ONCE_OK)
        r = redis_store_load(s, err);
    if (r == ONCE_OK) {
        compare_process(s, info);
        r = open_store(s, err);
    }
    if (r == ONCE_OK && !s->opened)
        log_settings(s, info);
    freeReplyObject(reply);
    return r;
}

once_result redis_store_connect(struct redis_store *s, struct once_error *err)
{
    once_time now = once_os_monotonic_ms();
    if (now < s->next_try)
        usleep((useconds_t)(s->next_try - now) * 1000);
    s->conn.patience_ms = ONCE_REDIS_CONNECT_MS; /* a server that does not answer a greeting soon is not waited for */
    once_result r = arrive(s, err);
    s->conn.patience_ms = ONCE_REDIS_ANSWER_MS;
    s->waiting = false;
    s->seen = s->told;
    if (r == ONCE_OK) {
        s->opened = true;
        s->pause_ms = 0;
        s->next_try = 0;
        return ONCE_OK;
    }
    redis_conn_close(&s->conn);
    redis_conn_init(&s->conn, &s->url);
    s->pause_ms = s->pause_ms == 0 ? ONCE_REDIS_PAUSE_MS : 2 * s->pause_ms;
    if (s->pause_ms > ONCE_REDIS_PAUSE_MS_MAX)
        s->pause_ms = ONCE_REDIS_PAUSE_MS_MAX;
    uint8_t chance; /* random, so that clients that lost the server together do not reconnect together */
    once_os_random(&chance, 1);
    s->next_try = once_os_monotonic_ms() + s->pause_ms / 2 + s->pause_ms * chance / 512;
    char place[320];
    redis_url_text(&s->url, place, sizeof place);
    once_error_prefix(err, "%s", place);
    return s->opened && r != ONCE_NO_MEMORY ? ONCE_UNAVAILABLE : r;
}
