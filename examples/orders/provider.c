/*
 * provider.c - a simulated payment provider that can fail in the ways that real ones do.
 *
 *     POST /charges         charges a card, once per Idempotency-Key: 200 "paid ch_17", or 402 "declined"
 *     GET  /charges/KEY     whether it happened: 200 with the same text, or 404
 *     PUT  /mode/MODE       how it behaves from now on, see the usage
 *     GET  /held            how many requests it is holding
 *
 * It stores keys and charges in its own SQLite file, durably, before it answers.
 */
#include "http.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: provider [--listen PORT] [--db FILE] [--mode MODE] [--no-keys]\n"
    "A payment provider to test with, on 127.0.0.1 (9100), with its ledger in FILE (provider.db).\n"
    "--no-keys: it does not look at Idempotency-Key, and charges whenever it is asked.\n"
    "\n"
    "Modes, also set with PUT /mode/MODE:\n"
    "  ok            charges, and answers\n"
    "  decline       declines, and answers 402\n"
    "  busy          answers 503, does nothing\n"
    "  slow          takes two seconds\n"
    "  hold          takes the request in, and waits for another mode; then charges and answers\n"
    "  hold-answer   charges, and waits for another mode; then answers\n"
    "  drop          charges, and drops the connection\n"
    "  crash         charges, and dies\n";

static const char *const modes[] = { "ok", "decline", "busy", "slow", "hold", "hold-answer", "drop", "crash", NULL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static const char *mode = "ok";
static int held;
static bool ignores_keys;
static sqlite3 *db;

static bool set_mode(const char *name)
{
    for (int i = 0; modes[i] != NULL; i++) {
        if (strcmp(modes[i], name) != 0)
            continue;
        pthread_mutex_lock(&lock);
        mode = modes[i];
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        return true;
    }
    return false;
}

static bool is_mode(const char *name)
{
    return strcmp(mode, name) == 0;
}

static void wait_while(const char *name)
{
    held += is_mode(name);
    bool was_held = is_mode(name);
    while (is_mode(name))
        pthread_cond_wait(&changed, &lock);
    held -= was_held;
}

/* ---------------------------------------------------------------- the ledger */

/* Call it with the lock. An existing charge under this key stays. */
static void charge(const char *key, const char *what, bool declined)
{
    char *sql = sqlite3_mprintf("INSERT OR IGNORE INTO charge (key, once, what, declined) VALUES (%Q, %Q, %Q, %d)", key,
                                ignores_keys ? NULL : key, what, declined);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "provider: %s\n", sqlite3_errmsg(db));
        abort(); /* it must not confirm a charge that it did not store */
    }
    sqlite3_free(sql);
}

static unsigned find(const char *key, char text[100])
{
    sqlite3_stmt *st = NULL;
    unsigned status = 404;
    snprintf(text, 100, "no such charge");
    sqlite3_prepare_v2(db, "SELECT id, declined FROM charge WHERE key = ? ORDER BY id DESC LIMIT 1", -1, &st, NULL);
    sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW) {
        status = sqlite3_column_int(st, 1) ? 402 : 200;
        if (status == 402)
            snprintf(text, 100, "declined");
        else
            snprintf(text, 100, "paid ch_%d", sqlite3_column_int(st, 0));
    }
    sqlite3_finalize(st);
    return status;
}

static bool open_ledger(const char *path)
{
    return sqlite3_open(path, &db) == SQLITE_OK && sqlite3_busy_timeout(db, 10000) == SQLITE_OK &&
           sqlite3_exec(
               db,
               "PRAGMA synchronous = EXTRA; CREATE TABLE IF NOT EXISTS charge (id INTEGER PRIMARY KEY, key TEXT,"
               " once TEXT UNIQUE, what TEXT, declined INTEGER)",
               NULL, NULL, NULL) == SQLITE_OK;
}

/* ---------------------------------------------------------------- HTTP */

static enum MHD_Result say(struct http_request *request, unsigned status, const char *text)
{
    return http_answer(request, status, "Content-Type: text/plain\r\n", text, strlen(text));
}

static enum MHD_Result post_charge(struct http_request *request, const char *key)
{
    char text[100];
    pthread_mutex_lock(&lock);
    if (is_mode("busy")) {
        pthread_mutex_unlock(&lock);
        return say(request, 503, "busy");
    }
    if (is_mode("slow")) {
        pthread_mutex_unlock(&lock);
        sleep(2);
        pthread_mutex_lock(&lock);
    }
    wait_while("hold");
    charge(key, request->body, is_mode("decline"));
    bool crash = is_mode("crash"), drop = is_mode("drop");
    wait_while("hold-answer");
    unsigned status = find(key, text);
    pthread_mutex_unlock(&lock);
    if (crash)
        kill(getpid(), SIGKILL);
    return drop ? MHD_NO : say(request, status, text);
}

static enum MHD_Result handle(void *arg, struct http_request *request)
{
    (void)arg;
    char text[100], key[100] = "";
    const char *field = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, "Idempotency-Key");
    if (field != NULL)
        snprintf(key, sizeof key, "%.*s", (int)strcspn(field + (*field == '"'), "\""), field + (*field == '"'));
    if (strcmp(request->method, "POST") == 0 && strcmp(request->path, "/charges") == 0)
        return key[0] != '\0' ? post_charge(request, key) : say(request, 400, "an Idempotency-Key is missing");
    if (strcmp(request->method, "PUT") == 0 && strncmp(request->path, "/mode/", 6) == 0)
        return set_mode(request->path + 6) ? say(request, 200, "ok") : say(request, 404, "no such mode");
    pthread_mutex_lock(&lock);
    unsigned status = 404;
    snprintf(text, sizeof text, "nothing here");
    if (strncmp(request->path, "/charges/", 9) == 0)
        status = find(request->path + 9, text);
    else if (strcmp(request->path, "/held") == 0)
        status = (unsigned)(snprintf(text, sizeof text, "%d", held) > 0 ? 200 : 500);
    pthread_mutex_unlock(&lock);
    return say(request, status == 402 ? 200 : status, text); /* "declined" is an answer as well */
}

int main(int argc, char **argv)
{
    static const struct option all[] = { { "listen", 1, NULL, 'l' }, { "db", 1, NULL, 'd' },
                                         { "mode", 1, NULL, 'm' },   { "no-keys", 0, NULL, 'n' },
                                         { "help", 0, NULL, 'h' },   { NULL, 0, NULL, 0 } };
    const char *path = "provider.db";
    long port = 9100;
    for (int c; (c = getopt_long(argc, argv, "", all, NULL)) != -1;) {
        if (c == 'l')
            port = strtol(optarg, NULL, 10);
        else if (c == 'd')
            path = optarg;
        else if (c == 'n')
            ignores_keys = true;
        else if (c != 'm' || !set_mode(optarg)) {
            fputs(usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 64;
        }
    }
    http_block_signals();
    if (optind < argc || port < 1 || port > 65535) {
        fputs(usage, stderr);
        return 64;
    }
    if (!open_ledger(path)) {
        fprintf(stderr, "provider: cannot open %s: %s\n", path, sqlite3_errmsg(db));
        return 1;
    }
    struct MHD_Daemon *daemon = http_listen((uint16_t)port, 0, handle, NULL);
    if (daemon == NULL) {
        fprintf(stderr, "provider: cannot listen on port %ld: %m\n", port);
        return 1;
    }
    printf("provider: listening on http://127.0.0.1:%ld\n", port);
    fflush(stdout);
    http_wait_for_signal();
    set_mode("ok"); /* answers the requests that are held */
    MHD_stop_daemon(daemon);
    sqlite3_close(db);
    return 0;
}
