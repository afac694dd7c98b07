/*
 * story.h - one life of a store: opened, worked on in every way, closed; and the proof
 * afterwards that every answer it gave was true.
 *
 * Each call is a step of inject.h. What is answered goes through model.h at once; a call
 * that fails is repeated as a client would, with its nonce or grant.
 */
#ifndef ONCE_TEST_FAULT_STORY_H
#define ONCE_TEST_FAULT_STORY_H

#include "model.h"

enum { STORY_KEYS = 20, STORY_OLD = 6, STORY_RESULTS = 8 };

struct story {
    char url[4200];
    bool shared;
    struct once *once;
    once_time now;
    struct model_key keys[STORY_KEYS];
    size_t key_count;
    uint64_t fence_max;              /* of all grants seen (K2) */
    unsigned results[STORY_RESULTS]; /* how often each was answered */
    uint64_t settled;
    unsigned nonces, nonces_asked;
    char lie[1000]; /* "": none was found */
};

/* A story on the store in `folder`, behind a wrapper ("" or "fault+"). `old`: story_found() made it. */
void story_init(struct story *s, const char *folder, const char *wrapper, bool shared, bool old);
/* Makes a store of a few finished records, as a process leaves it that was killed: with its log. */
void story_found(const char *folder);
/* Removes a store's files, or makes them a copy of those in `from`. */
void story_reset(const char *folder, const char *from);

void story_tell(struct story *s);
/* Opens the store again, with nothing failing, and holds it against what was answered. */
void story_verify(struct story *s, bool shared);

#endif
