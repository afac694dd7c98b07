/*
 * api.c - a program that has only once_client.h and libonce: sends, saves where it likes, resumes.
 *
 *     api send URL TOKEN FILE [crash]    saves into FILE; with `crash` it dies right after that
 *     api resume FILE
 *     api twice URL TOKEN                two requests on one client
 *     api threads URL TOKEN N            N threads with a client each
 *
 * Prints how it ended: "END STATUS replayed|fresh KEY BODY".
 */
#include <once_client.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *file;
static int crash;
static int tries_told;

static once_result save(void *arg, once_span key, once_span saved, struct once_error *err)
{
    FILE *out = fopen(arg, "w");
    (void)key, (void)err;
    if (out == NULL || fwrite(saved.ptr, 1, saved.len, out) != saved.len || fflush(out) != 0 || fsync(fileno(out)) != 0)
        abort();
    fclose(out);
    if (crash)
        _exit(99);
    return ONCE_OK;
}

static void on_try(void *arg, const struct once_client_try *attempt)
{
    (void)arg;
    tries_told += attempt->number == (unsigned)tries_told + 1 && attempt->reason[0] != '\0' && attempt->wait_ms >= 0;
}

static struct once_client *open_client(void)
{
    struct once_client_options options = {
        .save = file != NULL ? save : NULL, .save_arg = (void *)file, .on_try = on_try, .backoff_ms = 5, .tries = 5
    };
    struct once_client *client = NULL;
    struct once_error err;
    if (once_client_open(&options, &client, &err) != ONCE_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    return client;
}

static void print(const struct once_client_answer *a)
{
    once_span type = once_client_answer_header(a, "content-TYPE");
    if (a->status != 0 && (type.len == 0 || once_client_answer_header(a, "X-Nothing").ptr != NULL))
        abort();
    printf("%s %d %s %s %.*s", once_client_end_name(a->end), a->status, a->replayed ? "replayed" : "fresh", a->key,
           (int)a->body.len, a->body.len > 0 ? (const char *)a->body.ptr : "");
}

static once_result send_one(struct once_client *client, const char *url, const char *token)
{
    char line[200];
    snprintf(line, sizeof line, "X-Test: %s", token);
    once_span header = { (const uint8_t *)line, strlen(line) };
    struct once_client_request request = {
        .method = ONCE_LIT("POST"), .url = url, .headers = &header, .header_count = 1, .body = ONCE_LIT("x")
    };
    struct once_client_answer answer;
    struct once_error err;
    once_result r = once_client_send(client, &request, &answer, &err);
    if (r != ONCE_OK)
        fprintf(stderr, "%s\n", err.text);
    else
        print(&answer);
    if (r == ONCE_OK && tries_told != (int)answer.tries - 1 && file != NULL)
        abort();
    once_client_answer_release(&answer);
    return r;
}

static once_result resume(struct once_client *client)
{
    static uint8_t bytes[1 << 20];
    FILE *in = fopen(file, "r");
    size_t len = in != NULL ? fread(bytes, 1, sizeof bytes, in) : 0;
    struct once_client_saved saved;
    struct once_client_answer answer;
    struct once_error err;
    if (in != NULL)
        fclose(in);
    once_result r = once_client_saved_read((once_span){ bytes, len }, &saved, &err);
    if (r == ONCE_OK)
        r = once_client_resume(client, (once_span){ bytes, len }, NULL, 0, &answer, &err);
    if (r != ONCE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return r;
    }
    print(&answer);
    once_client_answer_release(&answer);
    return r;
}

struct job {
    pthread_t thread;
    const char *url, *token;
};

static void *work(void *arg)
{
    struct job *job = arg;
    struct once_client *client = open_client();
    once_result r = send_one(client, job->url, job->token);
    once_client_close(client);
    return r == ONCE_OK ? NULL : job;
}

static int in_threads(const char *url, const char *token, int count)
{
    static struct job jobs[16];
    int failed = 0;
    for (int i = 0; i < count; i++) {
        jobs[i] = (struct job){ .url = url, .token = token };
        failed += pthread_create(&jobs[i].thread, NULL, work, &jobs[i]) != 0;
    }
    for (int i = 0; i < count; i++) {
        void *result = NULL;
        pthread_join(jobs[i].thread, &result);
        failed += result != NULL;
    }
    return failed != 0;
}

int main(int argc, char **argv)
{
    once_result r = ONCE_INVALID;
    if (argc == 5 && strcmp(argv[1], "threads") == 0)
        return in_threads(argv[2], argv[3], (int)strtol(argv[4], NULL, 10) % 17);
    bool saves = strcmp(argv[1], "twice") != 0;
    file = saves ? argv[argc > 4 ? 4 : 2] : NULL;
    crash = argc > 5;
    struct once_client *client = open_client();
    if (argc == 3)
        r = resume(client);
    else
        r = send_one(client, argv[2], argv[3]);
    if (!saves && r == ONCE_OK)
        r = send_one(client, argv[2], argv[3]);
    once_client_close(client);
    return r != ONCE_OK;
}
