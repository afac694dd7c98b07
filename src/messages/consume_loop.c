/* consume_loop.c - see consume_loop.h. */
#include "messages/consume_loop.h"

#include "core/buf.h"
#include "core/duration.h"
#include "core/err.h"
#include "core/limits.h"
#include "core/span.h"
#include "messages/dead_letters/dead_letter_sink.h"
#include "os/crash_point.h"
#include "os/os.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>

enum {
    TICK_MS = 1000,
    RECONNECT_MS = 250,
    WAIT_MS = 200,
    SHORT_WAIT_MS = 10,
    SAY_MS = 5000,    /* between two log lines about failures */
    SETTLE_MS = 1000, /* per tick, for settling messages that could not be settled before */
};

/* A message that was read and is not settled. */
struct item {
    struct delivery delivery;
    struct incoming dead_letter; /* of a dead letter from the table; its spans point into `bytes` */
    char id[ONCE_KEY_LEN_MAX + 1];
    struct once_buf bytes; /* empty: the message belongs to the source */
    struct item *next;     /* in `retried` or `unsettled` */
};

struct consume_loop {
    const struct consume_options *o;
    struct source *source;
    struct consumer *consumer;
    struct dead_letter_sink dead_letters;
    char sink_url[ONCE_URL_LEN_MAX + 1];
    struct item *retried; /* dead letters of the table that are being delivered */
    /* Messages whose dead letter could not be stored, or removed, yet; oldest first. */
    struct item *unsettled, *unsettled_last;
    size_t unsettled_count;
    once_time tick_at, report_at, say_at;
};

static bool must_stop(struct consume_loop *loop)
{
    return loop->o->must_stop(loop->o->arg);
}

/* Logs a failure, at most once in SAY_MS. */
static void say(struct consume_loop *loop, const char *what)
{
    char text[sizeof(struct once_error) + 32];
    once_time now = once_os_monotonic_ms();
    if (now < loop->say_at)
        return;
    loop->say_at = now + SAY_MS;
    snprintf(text, sizeof text, "%s; trying again", what);
    loop->o->say(loop->o->arg, text);
}

/* ------------------------------------------------------------------ counting */

static void count(struct consume_loop *loop)
{
    struct consume_counters *to = loop->o->counters;
    struct consumer_counts c;
    consumer_counts(loop->consumer, &c);
    atomic_store(&to->done, c.done);
    atomic_store(&to->duplicates, c.duplicates);
    atomic_store(&to->failed, c.failed);
    atomic_store(&to->delayed, c.delayed);
    atomic_store(&to->dead, c.dead);
    atomic_store(&to->open_count, (int64_t)(consumer_busy(loop->consumer) + loop->unsettled_count));
}

static void report(struct consume_loop *loop)
{
    struct once_error err;
    int64_t lag = -1, dead = -1;
    count(loop);
    if (source_lag(loop->source, &lag, &err) != ONCE_OK)
        lag = -1;
    if (loop->dead_letters.table == NULL ||
        dead_letters_count(loop->dead_letters.table, loop->o->consumer.name, &dead, &err) != ONCE_OK)
        dead = -1;
    atomic_store(&loop->o->counters->lag, lag);
    atomic_store(&loop->o->counters->dead_letters, dead);
    if (loop->o->report != NULL)
        loop->o->report(loop->o->arg);
}

/* ------------------------------------------------------------------ items */

static void free_item(struct item *item)
{
    once_buf_release(&item->bytes);
    free(item);
}

static void forget_retried(struct consume_loop *loop, const struct item *item)
{
    for (struct item **at = &loop->retried; *at != NULL; at = &(*at)->next)
        if (*at == item) {
            *at = item->next;
            return;
        }
}

static size_t open_count(const struct consume_loop *loop)
{
    return consumer_busy(loop->consumer) + loop->unsettled_count;
}

static size_t room_of(const struct consume_loop *loop)
{
    size_t busy = open_count(loop);
    return busy < loop->o->consumer.window ? loop->o->consumer.window - busy : 0;
}

/* ------------------------------------------------------------------ settling */

/* False: it failed, and is to be tried again. After true the item is freed. */
static bool settle(struct consume_loop *loop, struct item *item)
{
    struct delivery *d = &item->delivery;
    struct once_error err;
    bool dead_letter = item->bytes.len > 0;
    once_result r = ONCE_OK;
    if (d->verdict == CONSUMER_DEAD_LETTER)
        r = dead_letter_sink_put(&loop->dead_letters, d, &err);
    else if (d->verdict == CONSUMER_DONE && dead_letter)
        r = dead_letters_settle(loop->dead_letters.table, item->dead_letter.message.id, &err);
    if (r != ONCE_OK) {
        say(loop, err.text);
        return false;
    }
    if (d->verdict == CONSUMER_DEAD_LETTER)
        ONCE_CRASH_POINT("consume.dead_lettered");
    if (dead_letter)
        forget_retried(loop, item);
    else if (d->verdict == CONSUMER_RETURN)
        source_nack(loop->source, d->incoming);
    else
        source_ack(loop->source, d->incoming);
    if (d->verdict != CONSUMER_RETURN)
        ONCE_CRASH_POINT("consume.acknowledged");
    free_item(item);
    return true;
}

static void queue_unsettled(struct consume_loop *loop, struct item *item)
{
    if (item->bytes.len > 0)
        forget_retried(loop, item);
    item->next = NULL;
    if (loop->unsettled == NULL)
        loop->unsettled = item;
    else
        loop->unsettled_last->next = item;
    loop->unsettled_last = item;
    loop->unsettled_count++;
}

/* Storing a dead letter in a topic may take as long as its timeout: while others wait for it, this one queues behind
 * them. */
static void settle_or_queue(struct consume_loop *loop, struct item *item)
{
    bool behind = item->delivery.verdict == CONSUMER_DEAD_LETTER && loop->unsettled != NULL;
    if (behind || !settle(loop, item))
        queue_unsettled(loop, item);
}

static void settle_ended(struct consume_loop *loop, int ms)
{
    for (struct delivery *d; (d = consumer_take(loop->consumer, ms)) != NULL; ms = 0)
        settle_or_queue(loop, d->owner);
}

/* Each in turn, for a bounded time: meanwhile the broker gets no keep-alive, and would give up on this consumer. */
static void settle_queued(struct consume_loop *loop)
{
    once_time until = once_os_monotonic_ms() + SETTLE_MS;
    for (size_t left = loop->unsettled_count; left > 0 && once_os_monotonic_ms() < until; left--) {
        struct item *item = loop->unsettled;
        loop->unsettled = item->next;
        loop->unsettled_count--;
        if (!settle(loop, item))
            queue_unsettled(loop, item);
    }
}

/* ------------------------------------------------------------------ admitting */

static void admit(struct consume_loop *loop, struct incoming *incoming)
{
    struct item *item = calloc(1, sizeof *item);
    size_t len = 0;
    bool dead = false;
    if (item == NULL) {
        source_nack(loop->source, incoming);
        return;
    }
    atomic_fetch_add(&loop->o->counters->received, 1);
    struct delivery *d = &item->delivery;
    d->incoming = incoming;
    d->owner = item;
    ONCE_CRASH_POINT("consume.received");
    if (message_id_find(loop->o->rules, loop->o->rule_count, incoming, item->id, &len, &dead)) {
        d->id = once_span_of(item->id, len);
        incoming->is_dead_letter = dead; /* it came from a topic of dead letters: its failures are counted from 0 */
        consumer_admit(loop->consumer, d);
        return;
    }
    d->verdict = CONSUMER_DEAD_LETTER;
    d->id = once_span_str(incoming->position);
    snprintf(d->reason, sizeof d->reason, "the message has no id (--id-from)");
    settle_or_queue(loop, item);
}

static bool is_in(const struct item *items, const char *dead_letter)
{
    for (; items != NULL; items = items->next)
        if (strcmp(items->dead_letter.message.id, dead_letter) == 0)
            return true;
    return false;
}

static void admit_dead_letter(void *arg, once_span message_id, const struct incoming *from)
{
    struct consume_loop *loop = arg;
    const char *id = from->message.id;
    if (is_in(loop->retried, id) || is_in(loop->unsettled, id))
        return;
    struct item *item = room_of(loop) > 0 ? calloc(1, sizeof *item) : NULL;
    if (item == NULL || message_id.len > ONCE_KEY_LEN_MAX) {
        free(item);
        return;
    }
    item->dead_letter = *from;
    struct message *m = &item->dead_letter.message;
    once_span *spans[] = { &m->topic, &m->key, &m->content_type, &m->headers, &m->payload };
    size_t at = 1;
    once_buf_init(&item->bytes, SOURCE_PAYLOAD_LEN_MAX + (1 << 20));
    once_buf_add_byte(&item->bytes, 0); /* so that `bytes` is not empty */
    for (size_t i = 0; i < 5; i++)
        once_buf_add(&item->bytes, *spans[i]);
    for (size_t i = 0; i < 5 && item->bytes.result == ONCE_OK; at += spans[i]->len, i++)
        spans[i]->ptr = item->bytes.ptr + at;
    if (item->bytes.result != ONCE_OK) {
        free_item(item);
        return;
    }
    if (message_id.len == 0) /* the message had no id: the dead letter's own is used */
        message_id = once_span_str(id);
    memcpy(item->id, message_id.ptr, message_id.len);
    item->delivery = (struct delivery){ .incoming = &item->dead_letter,
                                        .owner = item,
                                        .id = once_span_of(item->id, message_id.len) };
    item->next = loop->retried;
    loop->retried = item;
    consumer_admit(loop->consumer, &item->delivery);
}

static void admit_retried(struct consume_loop *loop)
{
    struct once_error err;
    size_t room = room_of(loop);
    if (loop->dead_letters.table == NULL || room == 0)
        return;
    /* The query finds those that are being delivered as well. */
    size_t count = 0;
    for (const struct item *i = loop->retried; i != NULL; i = i->next)
        count++;
    if (dead_letters_due(loop->dead_letters.table, loop->o->consumer.name, (int32_t)(room + count), admit_dead_letter,
                         loop, &err) != ONCE_OK)
        say(loop, err.text);
}

/* ------------------------------------------------------------------ the loop */

static void reconnect(struct consume_loop *loop, const struct once_error *why)
{
    struct once_error err = *why;
    struct pollfd wake = { .fd = loop->o->wake, .events = POLLIN };
    atomic_store(&loop->o->counters->up, false);
    do {
        say(loop, err.text);
        settle_ended(loop, 0);
        poll(&wake, 1, RECONNECT_MS);
    } while (!must_stop(loop) && source_connect(loop->source, &err) != ONCE_OK);
    atomic_store(&loop->o->counters->up, !must_stop(loop));
}

static void tick(struct consume_loop *loop)
{
    char text[DELIVER_REASON_LEN];
    once_time now = once_os_monotonic_ms();
    if (now < loop->tick_at)
        return;
    loop->tick_at = now + TICK_MS;
    count(loop);
    settle_queued(loop);
    admit_retried(loop);
    if (consumer_last_failure(loop->consumer, text))
        say(loop, text);
    if (now >= loop->report_at) {
        loop->report_at = now + loop->o->report_ms;
        report(loop);
    }
}

/* Reads a message, if there is room and one comes. *idle: none came. */
static once_result read_some(struct consume_loop *loop, bool *idle, struct once_error *err)
{
    struct incoming *incoming = NULL;
    size_t room = room_of(loop);
    *idle = false;
    if (room == 0) {
        settle_ended(loop, WAIT_MS / 2);
        return ONCE_OK;
    }
    once_result r = source_next(loop->source, room, open_count(loop) > 0 ? SHORT_WAIT_MS : WAIT_MS, &incoming, err);
    if (r == ONCE_OK && incoming != NULL)
        admit(loop, incoming);
    *idle = incoming == NULL;
    return r;
}

static bool is_drained(struct consume_loop *loop)
{
    struct once_error err;
    int64_t lag = -1;
    return loop->o->drain && open_count(loop) == 0 && source_lag(loop->source, &lag, &err) == ONCE_OK && lag == 0;
}

static void consume(struct consume_loop *loop)
{
    struct once_error err;
    while (!must_stop(loop)) {
        bool idle = false;
        tick(loop);
        settle_ended(loop, 0);
        once_result r = source_keep_alive(loop->source, room_of(loop) == 0, &err);
        if (r == ONCE_OK)
            r = read_some(loop, &idle, &err);
        if (r != ONCE_OK)
            reconnect(loop, &err);
        else if (idle && is_drained(loop))
            break;
    }
}

/* The deliveries that are under way end and are settled; the other messages go back to the broker. */
static void stop(struct consume_loop *loop)
{
    struct once_error err;
    consumer_stop(loop->consumer);
    if (consumer_working(loop->consumer) > 0)
        loop->o->say(loop->o->arg, "stopping after the deliveries under way");
    while (consumer_working(loop->consumer) > 0) {
        must_stop(loop); /* a second signal may end the process */
        settle_ended(loop, WAIT_MS / 2);
        (void)!source_keep_alive(loop->source, true, &err);
    }
    consumer_join(loop->consumer);
    settle_ended(loop, 0);
    settle_queued(loop);
    while (loop->unsettled != NULL) { /* not acknowledged, so the broker delivers it again */
        struct item *item = loop->unsettled;
        loop->unsettled = item->next;
        if (item->bytes.len == 0)
            source_nack(loop->source, item->delivery.incoming);
        free_item(item);
    }
}

/* ------------------------------------------------------------------ open, run, close */

static once_result open_dead_letters(struct consume_loop *loop, struct once_error *err)
{
    const struct consume_options *o = loop->o;
    loop->dead_letters.consumer = o->consumer.name;
    if (o->dead_letter_topic == NULL)
        return dead_letters_open(o->store_url, &loop->dead_letters.table, err);
    source_sink_url(loop->source, loop->sink_url, sizeof loop->sink_url);
    struct sink_options like = { .url = loop->sink_url,
                                 .timeout_ms = CONSUME_BROKER_MS,
                                 .ca_file = o->source.ca_file,
                                 .nats_creds = o->source.nats_creds,
                                 .amqp_login = o->source.amqp_login,
                                 .kafka_conf = o->source.kafka_conf };
    return dead_letter_sink_open_topic(&loop->dead_letters, o->dead_letter_topic, &like, err);
}

once_result consume_loop_open(const struct consume_options *options, struct consume_loop **out, struct once_error *err)
{
    struct consume_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return once_fail(err, ONCE_NO_MEMORY, "no memory for a consumer");
    loop->o = options;
    atomic_store(&options->counters->lag, -1);
    atomic_store(&options->counters->dead_letters, -1);
    once_result r = source_open(&options->source, &loop->source, err);
    if (r == ONCE_OK)
        r = open_dead_letters(loop, err);
    if (r == ONCE_OK)
        *out = loop;
    else
        consume_loop_close(loop);
    return r;
}

/* FAULT-59: a message would be delivered twice if its id is forgotten while the broker may still deliver it again. */
static once_result check_retention(struct consume_loop *loop, struct once_error *err)
{
    const struct consume_options *o = loop->o;
    int64_t window = o->redelivery_window_ms, keeps = o->consumer.retention_ms;
    char text[400], kept[ONCE_DURATION_TEXT_LEN], needed[ONCE_DURATION_TEXT_LEN];
    if (keeps == ONCE_NEVER)
        return ONCE_OK;
    once_result r = window == 0 ? source_redelivery_window(loop->source, &window, err) : ONCE_OK;
    if (r != ONCE_OK)
        return r;
    once_duration_format(keeps, kept);
    if (window == ONCE_NEVER || window == 0) {
        snprintf(text, sizeof text,
                 "the broker %s; a message that it delivers again more than %s after its delivery is delivered twice "
                 "(--retention%s)",
                 window == 0 ? "does not tell how long it keeps messages" : "keeps messages without end", kept,
                 window == 0 ? ", --redelivery-window" : "");
        o->say(o->arg, text);
    }
    if (window == ONCE_NEVER || window <= keeps)
        return ONCE_OK;
    once_duration_format(window, needed);
    return once_fail(err, ONCE_INVALID,
                     "--retention %s is shorter than the %s for which the broker may deliver a message again: it would "
                     "be delivered twice",
                     kept, needed);
}

once_result consume_loop_connect(struct consume_loop *loop, struct once_error *err)
{
    once_result r = source_connect(loop->source, err);
    return r == ONCE_OK ? check_retention(loop, err) : r;
}

once_result consume_loop_run(struct consume_loop *loop, struct once_error *err)
{
    once_result r = consumer_open(&loop->o->consumer, &loop->consumer, err);
    if (r != ONCE_OK)
        return r;
    loop->report_at = once_os_monotonic_ms() + loop->o->report_ms;
    atomic_store(&loop->o->counters->up, true);
    consume(loop);
    stop(loop);
    report(loop);
    atomic_store(&loop->o->counters->up, false);
    return ONCE_OK;
}

void consume_loop_close(struct consume_loop *loop)
{
    if (loop == NULL)
        return;
    consumer_close(loop->consumer);
    source_close(loop->source); /* before the sink: closing the last sink may close the library of both */
    dead_letter_sink_close(&loop->dead_letters);
    free(loop);
}

/* ------------------------------------------------------------------ metrics */

static void put_one(FILE *file, const char *name, const char *type, const char *help, int64_t value)
{
    fprintf(file, "# HELP once_consume_%s %s\n# TYPE once_consume_%s %s\nonce_consume_%s %" PRId64 "\n", name, help,
            name, type, name, value);
}

void consume_counters_put(const struct consume_counters *c, FILE *file)
{
    put_one(file, "up", "gauge", "Whether the broker is reached.", atomic_load(&c->up));
    put_one(file, "received_total", "counter", "Messages that the broker delivered.",
            (int64_t)atomic_load(&c->received));
    put_one(file, "done_total", "counter", "Messages that are done, duplicates included.",
            (int64_t)atomic_load(&c->done));
    put_one(file, "duplicates_total", "counter", "Messages that were done before.",
            (int64_t)atomic_load(&c->duplicates));
    put_one(file, "failed_total", "counter", "Deliveries that failed.", (int64_t)atomic_load(&c->failed));
    put_one(file, "delayed_total", "counter", "Deliveries that were not sent, or asked for later.",
            (int64_t)atomic_load(&c->delayed));
    put_one(file, "dead_letters_total", "counter", "Messages that became dead letters.",
            (int64_t)atomic_load(&c->dead));
    put_one(file, "in_flight", "gauge", "Messages that were read and are not settled.", atomic_load(&c->open_count));
    if (atomic_load(&c->lag) >= 0)
        put_one(file, "lag", "gauge", "Messages that wait at the broker.", atomic_load(&c->lag));
    if (atomic_load(&c->dead_letters) >= 0)
        put_one(file, "dead_letters", "gauge", "Dead letters of this consumer in the table.",
                atomic_load(&c->dead_letters));
}
