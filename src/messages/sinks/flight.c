/* flight.c - see flight.h. */
#include "messages/sinks/flight.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALONE_AFTER = 3 }; /* refusals, after which a message is sent alone */
static const char no_time[] = "there was no time to send it alone";

bool flights_init(struct flights *flights, size_t max, size_t bytes_max)
{
    *flights = (struct flights){ .slots = calloc(max, sizeof(struct flight)), .max = max, .bytes_max = bytes_max };
    return flights->slots != NULL;
}

void flights_release(struct flights *flights)
{
    free(flights->slots);
    flights->slots = NULL;
}

bool flights_have_room(const struct flights *flights, const struct message *message)
{
    if (flights->sent + flights->ended == flights->max || flights->waiting > 0 || flights->alone)
        return false; /* messages that must be sent alone go first */
    return flights->sent == 0 || flights->bytes + message->payload.len <= flights->bytes_max;
}

struct flight *flights_add(struct flights *flights, const struct message *message, once_time until)
{
    struct flight *f = flights->slots;
    while (f->state != FLIGHT_FREE)
        f++;
    assert(f < flights->slots + flights->max);
    *f = (struct flight){
        .message = message, .state = FLIGHT_WAITING, .until = until, .alone = message->refusals >= ALONE_AFTER
    };
    flights->waiting++;
    return f;
}

struct flight *flights_next(struct flights *flights)
{
    if (flights->waiting == 0 || flights->alone)
        return NULL;
    for (size_t i = 0; i < flights->max; i++) {
        struct flight *f = &flights->slots[i];
        if (f->state == FLIGHT_WAITING && (!f->alone || flights->sent == 0))
            return f;
    }
    return NULL;
}

static void leave(struct flights *flights, struct flight *flight)
{
    if (flight->state == FLIGHT_SENT) {
        flights->sent--;
        flights->alone = false; /* it was the only message in flight */
        flights->bytes -= flight->message->payload.len;
    } else {
        flights->waiting--;
    }
}

void flights_sent(struct flights *flights, struct flight *flight, uint64_t tag)
{
    assert(flight->state == FLIGHT_WAITING);
    leave(flights, flight);
    flight->state = FLIGHT_SENT;
    flights->alone = flight->alone;
    flight->returned = false;
    flight->tag = tag;
    flights->sent++;
    flights->bytes += flight->message->payload.len;
}

void flights_end(struct flights *flights, struct flight *flight, enum sink_result result, const char *format, ...)
{
    va_list args;
    assert(flight->state == FLIGHT_WAITING || flight->state == FLIGHT_SENT);
    leave(flights, flight);
    flight->state = FLIGHT_ENDED;
    flight->result = result;
    va_start(args, format);
    vsnprintf(flight->reason, sizeof flight->reason, format, args);
    va_end(args);
    flights->ended++;
}

void flights_refuse(struct flights *flights, struct flight *flight, const char *reason)
{
    if (flight->alone) {
        flights_end(flights, flight, SINK_REFUSED, "%.200s", reason);
        return;
    }
    if (flight->late) {
        flights_end(flights, flight, SINK_UNREACHED, "%s", no_time);
        return;
    }
    leave(flights, flight);
    flight->state = FLIGHT_WAITING;
    flight->alone = true;
    flights->waiting++;
}

void flights_expire(struct flights *flights, once_time now, int64_t late_ms)
{
    for (size_t i = 0; i < flights->max; i++) {
        struct flight *f = &flights->slots[i];
        if (now < f->until)
            continue;
        if (f->state == FLIGHT_WAITING) {
            flights_end(flights, f, SINK_UNREACHED, "%s", no_time);
        } else if (f->state == FLIGHT_SENT && late_ms > 0 && !f->late) {
            f->late = true;
            f->until = now + late_ms;
        } else if (f->state == FLIGHT_SENT) {
            flights_end(flights, f, SINK_REFUSED, "no confirmation: timeout");
        }
    }
}

void flights_report(struct flights *flights, struct sink *sink)
{
    for (size_t i = 0; i < flights->max && flights->ended > 0; i++) {
        struct flight f = flights->slots[i];
        if (f.state != FLIGHT_ENDED)
            continue;
        flights->slots[i].state = FLIGHT_FREE; /* done() may start another message */
        flights->ended--;
        sink->busy--;
        sink->options.done(sink->options.arg, f.message, f.result, 0, f.reason);
    }
}
