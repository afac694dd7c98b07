/*
 * unknown.h - did this answer make a record unknown?
 *
 * For the socket and for the JSON API alike: whoever stores `unknown` through the daemon is noted, so that somebody is
 * told (escalate.h, which remembers what it told).
 */
#ifndef ONCE_DAEMON_UNKNOWN_H
#define ONCE_DAEMON_UNKNOWN_H

#include "once.h"
#include "os/os.h"

typedef void unknown_fn(void *arg, struct once_grant grant, const char *why);

enum { UNKNOWN_FRESH_MS = 10000 };

/* A claim, or a takeover, that finds it unknown may be the one that made it so: if that is not long ago. */
static inline const char *unknown_by(enum once_verb verb, const struct once_reply *reply)
{
    const struct once_record *r = &reply->record;
    if (verb == ONCE_VERB_FINISH && reply->arm == ONCE_ARM_DONE && r->state == ONCE_STATE_UNKNOWN)
        return "its holder says that nobody can know";
    bool asks = verb == ONCE_VERB_CLAIM || verb == ONCE_VERB_TAKE_OVER;
    if (asks && reply->arm == ONCE_ARM_UNKNOWN && r->status == 0 &&
        once_os_clock.wall(NULL) - r->finished_at < UNKNOWN_FRESH_MS)
        return "its holder is gone, something may have been sent";
    return NULL;
}

#endif
