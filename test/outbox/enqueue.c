/*
 * enqueue.c - a service with an SQLite database that enqueues: for the tests of the outbox.
 *
 *     enqueue DATABASE        reads lines from standard input, each one a step:
 *     begin, commit, rollback
 *     message TOPIC KEY PAYLOAD [NOT-BEFORE-IN-MS]     "-" is no key; prints the id
 *
 * It answers each step with a line: "ok", an id, or the error.
 */
#include "core/span.h"
#include "once.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static void message(struct once_sqlite *bound, char *words)
{
    char topic[300] = "", key[300] = "", payload[300] = "", id[ONCE_UUID_LEN + 1];
    long long in_ms = 0;
    struct once_error err;
    sscanf(words, "%299s %299s %299s %lld", topic, key, payload, &in_ms);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct once_message m = { .topic = once_span_str(topic),
                              .payload = once_span_str(payload),
                              .content_type = ONCE_LIT("text/plain"),
                              .headers = ONCE_LIT("traceparent: 00-1-2-01\r\n") };
    if (strcmp(key, "-") != 0)
        m.key = once_span_str(key);
    if (in_ms != 0)
        m.not_before = now.tv_sec * 1000LL + now.tv_nsec / 1000000 + in_ms;
    puts(once_sqlite_enqueue(bound, &m, id, &err) == ONCE_OK ? id : err.text);
}

int main(int argc, char **argv)
{
    sqlite3 *db = NULL;
    struct once_sqlite *bound = NULL;
    struct once_error err;
    char line[2000];
    if (argc != 2 || sqlite3_open(argv[1], &db) != SQLITE_OK)
        return 2;
    sqlite3_busy_timeout(db, 60000);
    sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    if (once_sqlite_bind(db, NULL, &bound, &err) != ONCE_OK)
        return fprintf(stderr, "%s\n", err.text), 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "message ", 8) == 0)
            message(bound, line + 8);
        else
            puts(sqlite3_exec(db, strcmp(line, "begin") == 0 ? "BEGIN IMMEDIATE" : line, NULL, NULL, NULL) == SQLITE_OK
                     ? "ok"
                     : sqlite3_errmsg(db));
        fflush(stdout);
    }
    once_sqlite_unbind(bound);
    sqlite3_close(db);
    return 0;
}
