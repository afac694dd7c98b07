/* answer.c - see api/answer.h. */
#include "daemon/api/answer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>

static const struct {
    unsigned status;
    const char *code;
    bool retryable;
    const char *title;
} problems[] = {
#define API__PROBLEM(name, status, code, retryable, title) [API_PROBLEM_##name] = { status, code, retryable, title },
    API_PROBLEMS(API__PROBLEM)
#undef API__PROBLEM
};

enum { RETRY_AFTER_S = 1 };

FILE *api_answer_begin(struct api_answer *answer, unsigned status, const char *type)
{
    api_answer_release(answer);
    answer->status = status;
    answer->type = type;
    answer->file = open_memstream(&answer->body, &answer->len);
    if (answer->file == NULL)
        api_answer_end(answer);
    return answer->file;
}

/* Without memory even for the problem document. */
static void give_up(struct api_answer *answer)
{
    free(answer->body);
    *answer = (struct api_answer){ .status = 503, .type = "text/plain", .retry_after = RETRY_AFTER_S };
}

void api_answer_end(struct api_answer *answer)
{
    FILE *file = answer->file;
    answer->file = NULL;
    if (file == NULL) {
        give_up(answer);
        return;
    }
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed || answer->body == NULL)
        give_up(answer);
}

void api_answer_release(struct api_answer *answer)
{
    assert(answer->file == NULL);
    free(answer->body);
    *answer = (struct api_answer){ 0 };
}

void api_answer_problem(struct api_answer *answer, enum api_problem problem, const char *member, const char *format,
                        ...)
{
    char detail[700], type[64];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    snprintf(type, sizeof type, "urn:once:problem:%s", problems[problem].code);
    const char *allow = answer->allow;
    FILE *file = api_answer_begin(answer, problems[problem].status, "application/problem+json");
    if (file == NULL)
        return;
    answer->allow = allow;
    answer->retry_after = answer->status == 429 || answer->status == 503 ? RETRY_AFTER_S : 0;
    struct once_json json = { .file = file };
    once_json_open(&json, NULL, '{');
    once_json_text(&json, "type", type);
    once_json_text(&json, "title", problems[problem].title);
    once_json_uint(&json, "status", answer->status);
    once_json_text(&json, "code", problems[problem].code);
    once_json_text(&json, "detail", detail);
    once_json_bool(&json, "retryable", problems[problem].retryable);
    if (member != NULL && member[0] != '\0')
        once_json_text(&json, "member", member);
    once_json_close(&json);
    api_answer_end(answer);
}

void api_answer_error(struct api_answer *answer, const struct once_error *err)
{
    static const enum api_problem of[] = {
        [ONCE_INVALID] = API_PROBLEM_INVALID,     [ONCE_LIMIT] = API_PROBLEM_LIMIT,
        [ONCE_BUSY] = API_PROBLEM_BUSY,           [ONCE_UNAVAILABLE] = API_PROBLEM_UNAVAILABLE,
        [ONCE_UNKNOWN] = API_PROBLEM_UNKNOWN,     [ONCE_CORRUPT] = API_PROBLEM_CORRUPT,
        [ONCE_NO_MEMORY] = API_PROBLEM_NO_MEMORY, [ONCE_QUOTA] = API_PROBLEM_QUOTA,
    };
    assert(err->result != ONCE_OK);
    assert((size_t)err->result < sizeof of / sizeof *of);
    api_answer_problem(answer, of[err->result], NULL, "%s", err->text);
}
