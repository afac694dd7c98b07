/*
 * place_order.c - the flow: an order in three steps.
 *
 *     order     local   stores the order, not paid yet
 *     charge    call    the payment provider charges the card, or declines it
 *     receipt   local   marks the order paid and stages its receipt, or declines it; stores the answer
 */
#include "place_order.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_tree.h>

/* ---------------------------------------------------------------- order */

/* {"item": "tea", "cents": 2500, "card": "..."} */
static bool read_request(once_span request, char item[100], long *cents)
{
    char text[1000], problem[100];
    snprintf(text, sizeof text, "%.*s", (int)request.len, (const char *)request.ptr);
    yajl_val tree = yajl_tree_parse(text, problem, sizeof problem);
    const char *name = YAJL_GET_STRING(yajl_tree_get(tree, (const char *[]){ "item", NULL }, yajl_t_string));
    yajl_val amount = yajl_tree_get(tree, (const char *[]){ "cents", NULL }, yajl_t_number);
    bool ok = name != NULL && YAJL_IS_INTEGER(amount) && YAJL_GET_INTEGER(amount) > 0;
    if (ok) {
        snprintf(item, 100, "%s", name);
        *cents = (long)YAJL_GET_INTEGER(amount);
    }
    yajl_tree_free(tree);
    return ok;
}

static once_step_end finish(struct once_local *local, enum once_state state, int status, const char *body)
{
    struct once_outcome outcome = { .state = state,
                                    .status = status,
                                    .headers = ONCE_LIT("Content-Type: application/json\r\n"),
                                    .body = { (const uint8_t *)body, strlen(body) } };
    return once_local_finish(local, &outcome);
}

static once_step_end insert_order(struct once_local *local, void *arg)
{
    struct shop *shop = ((struct context *)arg)->shop;
    char item[100], state[64];
    long cents = 0, order = 0;
    if (!read_request(local->request, item, &cents))
        return finish(local, ONCE_STATE_FAILED, 400, "{\"error\": \"an order has an item, and cents\"}\n");
    if (!shop->ops->insert_order(shop, item, cents, &order))
        return once_local_fail(local, shop->error);
    int len = snprintf(state, sizeof state, "order=%ld&cents=%ld", order, cents);
    return once_local_next(local, (once_span){ (uint8_t *)state, (size_t)len });
}

/* ---------------------------------------------------------------- charge */

struct answer {
    char text[200];
    size_t len;
};

static size_t collect(char *bytes, size_t size, size_t count, void *arg)
{
    struct answer *answer = arg;
    size_t len = size * count;
    if (len >= sizeof answer->text - answer->len)
        return 0; /* longer than any answer of the provider: curl fails the transfer */
    memcpy(answer->text + answer->len, bytes, len);
    answer->len += len;
    answer->text[answer->len] = '\0';
    return len;
}

/* One request to the provider. *status is 0 unless a complete answer came. */
static CURLcode ask_provider(const struct context *context, const char *path, const struct once_call *call, bool post,
                             long *status, struct answer *answer)
{
    char url[300], key[80], fence[40];
    snprintf(url, sizeof url, "%s/charges%s", context->provider, path);
    snprintf(key, sizeof key, "Idempotency-Key: \"%s\"", call->key);
    snprintf(fence, sizeof fence, "Once-Fence: %llu", (unsigned long long)call->grant.fence);
    *answer = (struct answer){ .len = 0 };
    *status = 0;
    CURL *curl = curl_easy_init();
    if (curl == NULL)
        return CURLE_FAILED_INIT;
    struct curl_slist *headers = curl_slist_append(curl_slist_append(NULL, key), fence);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, context->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    if (post) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)call->state.len);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, call->state.ptr);
    }
    CURLcode rc = curl_easy_perform(curl);
    if (rc == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return rc;
}

static once_step_end charge_card(struct once_call *call, void *arg)
{
    struct answer answer;
    long status = 0;
    CURLcode rc = ask_provider(arg, "", call, true, &status, &answer);
    if (rc == CURLE_COULDNT_CONNECT || rc == CURLE_COULDNT_RESOLVE_HOST || rc == CURLE_FAILED_INIT)
        return once_call_not_sent(call, curl_easy_strerror(rc));
    if (status == 429 || status == 503) /* this provider sends these before it does anything */
        return once_call_not_sent(call, "the provider is busy");
    if (status != 200 && status != 402) /* or no complete answer */
        return once_call_lost(call, rc != CURLE_OK ? curl_easy_strerror(rc) : "the provider's answer says nothing");
    return once_call_answered(call, (once_span){ (uint8_t *)answer.text, answer.len });
}

static once_step_end was_charged(struct once_call *call, void *arg)
{
    struct answer answer;
    long status = 0;
    char path[80];
    snprintf(path, sizeof path, "/%s", call->key);
    ask_provider(arg, path, call, false, &status, &answer);
    if (status == 404)
        return once_call_not_sent(call, "no such charge");
    if (status != 200)
        return once_call_lost(call, "the provider does not tell");
    return once_call_answered(call, (once_span){ (uint8_t *)answer.text, answer.len });
}

/* The same with the library's own probe. */
static once_step_end was_charged_by_url(struct once_call *call, void *arg)
{
    const struct context *context = arg;
    char url[300];
    snprintf(url, sizeof url, "%s/charges/{key}", context->provider);
    return once_call_probe_http(call, &(struct once_probe_http){ .url = url, .timeout_ms = context->timeout_ms });
}

/* ---------------------------------------------------------------- receipt */

/* The answer is "paid ch_17" or "declined". */
static once_step_end stage_receipt(struct once_local *local, void *arg)
{
    struct shop *shop = ((struct context *)arg)->shop;
    char state[64], charge[64] = "", body[200];
    long order = 0;
    snprintf(state, sizeof state, "%.*s", (int)local->state.len, (const char *)local->state.ptr);
    snprintf(charge, sizeof charge, "%.*s", (int)local->answer.len, (const char *)local->answer.ptr);
    sscanf(state, "order=%ld", &order);
    bool paid = strncmp(charge, "paid ", 5) == 0;
    if (paid ? !shop->ops->pay_order(shop, order, charge + 5) : !shop->ops->decline_order(shop, order))
        return once_local_fail(local, shop->error);
    if (!paid) {
        snprintf(body, sizeof body, "{\"order\": %ld, \"status\": \"declined\"}\n", order);
        return finish(local, ONCE_STATE_FAILED, 402, body);
    }
    snprintf(body, sizeof body, "{\"order\": %ld, \"status\": \"paid\", \"charge\": \"%s\"}\n", order, charge + 5);
    return finish(local, ONCE_STATE_SUCCEEDED, 201, body);
}

/* ---------------------------------------------------------------- the flow */

struct once_flow place_order = {
    .name = "orders",
    .steps = {
        ONCE_LOCAL("order", insert_order),
        ONCE_CALL("charge", charge_card, .callee = ONCE_CALLEE_IDEMPOTENT),
        ONCE_LOCAL("receipt", stage_receipt),
    },
    .lease_ms = 30000,
};

bool place_order_callee(const char *kind, bool intent)
{
    static const struct {
        const char *name;
        enum once_callee callee;
        once_call_fn *probe;
    } kinds[] = { { "opaque", ONCE_CALLEE_OPAQUE, NULL },
                  { "idempotent", ONCE_CALLEE_IDEMPOTENT, NULL },
                  { "probeable", ONCE_CALLEE_PROBEABLE, was_charged },
                  { "probeable-by-url", ONCE_CALLEE_PROBEABLE, was_charged_by_url } };
    struct once_flow_step *charge = &place_order.steps[1];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i].name) == 0) {
            charge->callee = kinds[i].callee;
            charge->probe = kinds[i].probe;
            charge->intent = intent;
            return true;
        }
    }
    return false;
}
