/* test_redis.c - what needs no server: URLs, error replies, records that may be anything. */
#include "store/redis/conn.h"
#include "store/redis/op.h"
#include "store/redis/url.h"

#include "../test.h"
#include "core/span.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ------------------------------------------------------------------ URLs */

static const struct accepted {
    const char *url;
    const char *host, *port, *db, *user, *password, *prefix;
} accepted[] = {
    { "redis://h?tier=best-effort", "h", "6379", "0", "", "", "once:" },
    { "redis://?tier=best-effort", "127.0.0.1", "6379", "0", "", "", "once:" },
    { "redis://h:1234/15?tier=best-effort", "h", "1234", "15", "", "", "once:" },
    { "redis://u:p@h:1/2?tier=best-effort", "h", "1", "2", "u", "p", "once:" },
    { "redis://:p%40%3a%2F@h?tier=best-effort", "h", "6379", "0", "", "p@:/", "once:" },
    { "redis://u:a@b@h?tier=best-effort", "h", "6379", "0", "u", "a@b", "once:" },
    { "redis://[::1]:7/3?tier=best-effort&prefix=a-b_c.9", "::1", "7", "3", "", "", "a-b_c.9:" },
    { "rediss://[fe80::1]?tier=best-effort", "fe80::1", "6379", "0", "", "", "once:" },
    { "redis+unix:/run/r.sock?tier=best-effort&db=4&user=u", "/run/r.sock", "", "4", "u", "", "once:" },
    { "redis+unix:///run/r.sock?tier=best-effort", "/run/r.sock", "", "0", "", "", "once:" },
};

static void url__parts_are_found(void)
{
    unsetenv("ONCE_REDIS_PASSWORD");
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        const struct accepted *row = &accepted[i];
        struct redis_url url;
        struct once_error err = { .text = "" };
        EXPECT_ROW(row->url, redis_url_parse(once_span_str(row->url), &url, &err) == ONCE_OK);
        EXPECT_ROW(row->url, strcmp(url.host, row->host) == 0 && strcmp(url.port, row->port) == 0);
        EXPECT_ROW(row->url, strcmp(url.db, row->db) == 0 && strcmp(url.prefix, row->prefix) == 0);
        EXPECT_ROW(row->url, strcmp(url.user, row->user) == 0 && strcmp(url.password, row->password) == 0);
        char text[400];
        redis_url_text(&url, text, sizeof text);
        EXPECT_ROW(row->url, row->password[0] == '\0' || strstr(text, row->password) == NULL);
    }
}

static const struct refused {
    const char *url, *said;
} refused[] = {
    { "redis://h", "tier=best-effort" },
    { "redis://h?tier=durable", "tier=best-effort" },
    { "redis:h?tier=best-effort", "redis://" },
    { "redis://h:99999?tier=best-effort", "port" },
    { "redis://h:?tier=best-effort&db=x", "database" },
    { "redis://h/-1?tier=best-effort", "database" },
    { "redis://h/1/2?tier=best-effort", "database" },
    { "redis://[::1?tier=best-effort", "]" },
    { "redis://[::1]x?tier=best-effort", "between" },
    { "redis://%?tier=best-effort", "hexadecimal" },
    { "redis://%4?tier=best-effort", "hexadecimal" },
    { "redis://%4g@h?tier=best-effort", "hexadecimal" },
    { "redis://%00@h?tier=best-effort", "zero byte" },
    { "redis+unix:relative?tier=best-effort", "redis+unix:/PATH" },
    { "redis://h?tier=best-effort&wait=101", "wait" },
    { "redis://h?tier=best-effort&wait=-1", "wait" },
    { "redis://h?tier=best-effort&wait_ms=0", "wait_ms" },
    { "redis://h?tier=best-effort&wait_ms=30000", "wait_ms" }, /* as long as any answer is waited for */
    { "redis://h?tier=best-effort&waitaof=yes", "waitaof" },
    { "redis://h?tier=best-effort&prefix=", "prefix" },
    { "redis://h?tier=best-effort&prefix=a*", "prefix" },
    { "redis://h?tier=best-effort&prefix=a:b", "prefix" },
    { "redis://h?tier=best-effort&keytext=maybe", "keytext" },
    { "redis://h?tier=best-effort&nosuch=1", "nosuch" },
    { "redis://:p@h?tier=best-effort&password_file=/nowhere", "and a password_file" },
    { "redis://h?tier=best-effort&password_file=/nowhere/at/all", "/nowhere/at/all" },
};

static void url__what_is_wrong_is_said(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct redis_url url;
        struct once_error err = { .text = "" };
        EXPECT_ROW(refused[i].url, redis_url_parse(once_span_str(refused[i].url), &url, &err) != ONCE_OK);
        EXPECT_ROW(refused[i].url, strstr(err.text, refused[i].said) != NULL);
    }
}

static void url__password_comes_from_the_environment_last(void)
{
    struct redis_url url;
    setenv("ONCE_REDIS_PASSWORD", "outside", 1);
    EXPECT(redis_url_parse(ONCE_LIT("redis://h?tier=best-effort"), &url, NULL) == ONCE_OK);
    EXPECT(strcmp(url.password, "outside") == 0);
    EXPECT(redis_url_parse(ONCE_LIT("redis://:own@h?tier=best-effort"), &url, NULL) == ONCE_OK);
    EXPECT(strcmp(url.password, "own") == 0);
    unsetenv("ONCE_REDIS_PASSWORD");
}

/* ------------------------------------------------------------------ error replies */

static const struct error_row {
    const char *text;
    once_result result;
    bool gone;
    const char *said;
} error_rows[] = {
    { "OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:1.", ONCE_BUSY, false,
      "maxmemory" },
    { "BUSY Redis is busy running a script.", ONCE_BUSY, false, "SCRIPT KILL" },
    { "LOADING Redis is loading the dataset in memory", ONCE_UNAVAILABLE, false, "loading" },
    { "READONLY You can't write against a read only replica. script: abc", ONCE_UNAVAILABLE, true, "replica" },
    { "MASTERDOWN Link with MASTER is down", ONCE_UNAVAILABLE, true, "lost its master" },
    { "MISCONF Redis is configured to save RDB snapshots", ONCE_UNAVAILABLE, false, "disk" },
    { "NOREPLICAS Not enough good replicas to write.", ONCE_UNAVAILABLE, false, "min-replicas-to-write" },
    { "NOAUTH Authentication required.", ONCE_UNAVAILABLE, true, "ONCE_REDIS_PASSWORD" },
    { "WRONGPASS invalid username-password pair", ONCE_UNAVAILABLE, true, "user and password" },
    { "NOPERM this user has no permissions", ONCE_UNAVAILABLE, false, "docs/redis.md" },
    { "MOVED 1 127.0.0.1:1", ONCE_UNAVAILABLE, true, "cluster" },
    { "ERR something new", ONCE_UNAVAILABLE, false, "ERR something new" },
    { "ERR unknown command 'AUTH', with args beginning with: 'secret' ", ONCE_UNAVAILABLE, false, "'AUTH'" },
    { "", ONCE_UNAVAILABLE, false, "Redis says" },
    { "OOMPH", ONCE_UNAVAILABLE, false, "OOMPH" },
};

static void error__every_word_has_its_result(void)
{
    for (size_t i = 0; i < sizeof error_rows / sizeof *error_rows; i++) {
        const struct error_row *row = &error_rows[i];
        char copy[200];
        snprintf(copy, sizeof copy, "%s", row->text);
        redisReply reply = { .type = REDIS_REPLY_ERROR, .str = copy };
        reply.len = strlen(copy);
        struct once_error err = { .text = "" };
        bool gone = !row->gone;
        EXPECT_ROW(row->text, redis_error(&reply, &gone, &err) == row->result && gone == row->gone);
        EXPECT_ROW(row->text, err.result == row->result && strstr(err.text, row->said) != NULL);
        EXPECT_ROW(row->text, strstr(err.text, "secret") == NULL);
    }
}

/* ------------------------------------------------------------------ what may be anything */

static void meta__only_its_own_form_is_read(void)
{
    uint8_t m[REDIS_META_LEN + 1] = { REDIS_META_VERSION, ONCE_STATE_RUNNING };
    struct redis_meta meta;
    EXPECT(redis_meta_read(once_span_of(m, REDIS_META_LEN), 0, &meta));
    for (size_t len = 0; len <= REDIS_META_LEN + 1; len++)
        EXPECT(redis_meta_read(once_span_of(m, len), 0, &meta) == (len == REDIS_META_LEN));
    m[0] = REDIS_META_VERSION + 1;
    EXPECT(!redis_meta_read(once_span_of(m, REDIS_META_LEN), 0, &meta));
    m[0] = REDIS_META_VERSION;
    for (int state = 0; state < 256; state++) {
        m[1] = (uint8_t)state;
        EXPECT(redis_meta_read(once_span_of(m, REDIS_META_LEN), 0, &meta) ==
               (state >= ONCE_STATE_RUNNING && state <= ONCE_STORED_SUPERSEDED));
    }
}

/* Replies that our scripts do not make: an error of the operation, never a crash, never an answer. */
static void answer__other_forms_are_refused(void)
{
    redisReply nil = { .type = REDIS_REPLY_NIL }, zero = { .type = REDIS_REPLY_INTEGER },
               arm = { .type = REDIS_REPLY_INTEGER, .integer = ONCE_ARM_EXECUTE };
    char bytes[] = "short";
    redisReply text = { .type = REDIS_REPLY_STRING, .str = bytes, .len = 5 };
    redisReply *lists[][5] = {
        { &nil, &nil, &nil, &nil, &nil },     { &zero, &arm, &nil, &zero, &text },
        { &zero, &arm, &zero, &text, &text }, { &text, &arm, &zero, &zero, &text },
        { &zero, &arm, &zero, &zero, &text }, { &zero, &arm, &zero, &zero, &nil },
    };
    struct once_buf scratch;
    once_buf_init(&scratch, 1000);
    struct once_request request = { .verb = ONCE_VERB_CLAIM };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        redisReply reply = { .type = REDIS_REPLY_ARRAY, .elements = 5, .element = lists[i] };
        struct once_op op = { .request = &request };
        uint64_t writes = 1;
        EXPECT(redis_op_take(&reply, &op, &scratch, &writes, NULL) == ONCE_OK && writes == 0);
        EXPECT(op.result == ONCE_CORRUPT && op.reply.memory == NULL);
    }
    redisReply plain = { .type = REDIS_REPLY_STATUS, .str = bytes, .len = 5 };
    struct once_op op = { .request = &request };
    uint64_t writes;
    EXPECT(redis_op_take(&plain, &op, &scratch, &writes, NULL) == ONCE_OK && op.result == ONCE_CORRUPT);
    once_buf_release(&scratch);
}

/* Whoever answers there is no Redis, and the message says what it said. */
static void conn__another_protocol_is_told(void)
{
    struct redis_url url;
    struct redis_conn conn;
    struct once_error err = { .text = "" };
    int ends[2];
    EXPECT(redis_url_parse(ONCE_LIT("redis://h?tier=best-effort"), &url, NULL) == ONCE_OK);
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    EXPECT(write(ends[1], "HTTP/1.1 400 Bad Request\r\n", 26) == 26);
    redis_conn_init(&conn, &url);
    conn.fd = ends[0];
    conn.reader = redisReaderCreate();
    redisReply *reply = NULL;
    EXPECT(redis_conn_ask(&conn, 1, (once_span[]){ ONCE_LIT("PING") }, &reply, &err) == ONCE_UNKNOWN && reply == NULL);
    EXPECT(strstr(err.text, "Protocol error, got \"H\"") != NULL);
    redis_conn_close(&conn);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        TEST(url__parts_are_found),
        TEST(url__what_is_wrong_is_said),
        TEST(url__password_comes_from_the_environment_last),
        TEST(error__every_word_has_its_result),
        TEST(meta__only_its_own_form_is_read),
        TEST(answer__other_forms_are_refused),
        TEST(conn__another_protocol_is_told),
    };
    return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
