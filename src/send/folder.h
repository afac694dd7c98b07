/*
 * folder.h - where `once send` keeps what it has begun: a folder, a file for each request.
 *
 * A file is named after its id and holds what once_client_saved_read() reads. It is there, whole and synced, before
 * the first byte is sent, and is removed after the answer was printed. Whoever is sending it holds its lock (flock),
 * which ends with the process; a file without one was left behind.
 *
 * Invariants: SEND-FOLDER-1 a file with an id is whole: it was written under another name and linked when it was
 * synced. SEND-FOLDER-2 a name is taken once: two processes that begin the same at the same time do not overwrite each
 * other. SEND-FOLDER-3 mode 0600 in a folder of mode 0700; no symbolic links are followed to a file.
 */
#ifndef ONCE_SEND_FOLDER_H
#define ONCE_SEND_FOLDER_H

#include "core/buf.h"
#include "once_client.h"

#include <limits.h>

enum { SEND_ID_LEN_MAX = ONCE_UUID_LEN, SEND_LIST_MAX = 10000 };

struct send_folder {
    char path[PATH_MAX];
    int fd; /* -1: it is not there, which is as good as empty */
};

/* One request, ours while it is held. */
struct send_pending {
    char id[SEND_ID_LEN_MAX + 1];
    int fd; /* -1: not held */
    struct once_buf bytes;
    struct once_client_saved saved; /* points into bytes */
};

/* `given`: --state, or NULL for the folder beside the default store. */
once_result send_folder_open(const char *given, bool create, struct send_folder *folder, struct once_error *err);
void send_folder_close(struct send_folder *folder);

/* The id of a request under a key that the caller chose: the same key at the same server, the same id. */
void send_id_of(once_span origin, once_span key, char id[SEND_ID_LEN_MAX + 1]);

/* Durably, and held. ONCE_BUSY: somebody else has just begun one with this id. */
once_result send_folder_save(struct send_folder *folder, const char *id, once_span saved, struct send_pending *pending,
                             struct once_error *err);

/* Takes what is there. ONCE_INVALID: there is none of this id; ONCE_BUSY: another process is sending it. A damaged file
 * (ONCE_CORRUPT) is held, so that it can be forgotten. */
once_result send_folder_lock(struct send_folder *folder, const char *id, struct send_pending *pending,
                             struct once_error *err);
/* Reads it without holding it. *sending: somebody else does. */
once_result send_folder_look(struct send_folder *folder, const char *id, struct send_pending *pending, bool *sending,
                             struct once_error *err);
/* Removes it, durably. */
once_result send_folder_forget(struct send_folder *folder, struct send_pending *pending, struct once_error *err);
/* Lets go of it, wherever it is. Harmless on what is not held. */
void send_pending_release(struct send_pending *pending);

struct send_entry {
    char id[SEND_ID_LEN_MAX + 1];
    once_time modified;
};

/* What is there, oldest first, SEND_LIST_MAX at most. To be freed. Also removes what a crash left half written. */
once_result send_folder_list(struct send_folder *folder, struct send_entry **entries, size_t *count,
                             struct once_error *err);

#endif
