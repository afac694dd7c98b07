/*
 * unknown.h - did this answer make a record unknown?
 *
 * For the socket and for the JSON API alike: whoever stores `unknown` through the daemon is noted, so that somebody is
 * told (escalate.h, which remembers what it told, and knows what time it is for the store).
 */
#ifndef ONCE_DAEMON_OBSERVERS_UNKNOWN_H
#define ONCE_DAEMON_OBSERVERS_UNKNOWN_H

#include "once.h"

/* `since`: it is known to be so since then, by the store's clock; 0: since now. */
typedef void unknown_fn(void *arg, struct once_grant grant, once_time since, const char *why);

/* A claim, or a takeover, that finds it unknown may be the one that made it so: if that is not long ago. */
static inline const char *unknown_reason(enum once_verb verb, const struct once_reply *reply, once_time *since)
{
    const struct once_record *r = &reply->record;
    *since = verb == ONCE_VERB_FINISH ? 0 : r->finished_at;
    if (verb == ONCE_VERB_FINISH && reply->arm == ONCE_ARM_DONE && r->state == ONCE_STATE_UNKNOWN)
        return "its holder says that nobody can know";
    bool asks = verb == ONCE_VERB_CLAIM || verb == ONCE_VERB_TAKE_OVER;
    if (asks && reply->arm == ONCE_ARM_UNKNOWN && r->status == 0)
        return "its holder is gone, something may have been sent";
    return NULL;
}

#endif
