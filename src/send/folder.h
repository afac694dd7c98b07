/*
 * folder.h - the folder of pending requests of `once send`: one file for each.
 *
 * A file is named after its id and holds a saved request (once_client_saved_read()). It exists, complete and synced,
 * before the first byte is sent, and is removed after the answer was printed. The process that sends the request holds
 * the file's lock (flock), which ends with the process; a file without a lock is pending.
 *
 * Invariants: SEND-FOLDER-1 a file with an id is complete: it was written under another name and linked when it
 *                was synced.
 *             SEND-FOLDER-2 an id is taken once: two processes that begin the same request at the same time do not
 *                overwrite each other.
 *             SEND-FOLDER-3 mode 0600 in a folder of mode 0700; no symbolic link to a file is followed.
 */
#ifndef ONCE_SEND_FOLDER_H
#define ONCE_SEND_FOLDER_H

#include "core/buf.h"
#include "once_client.h"

#include <limits.h>

enum { SEND_ID_LEN_MAX = ONCE_UUID_LEN, SEND_LIST_MAX = 10000 };

struct send_folder {
    char path[PATH_MAX];
    int fd; /* -1: it does not exist, which counts as empty */
};

/* One pending request; no other process sends it while we hold it. */
struct send_pending {
    char id[SEND_ID_LEN_MAX + 1];
    int fd; /* -1: not held */
    struct once_buf bytes;
    struct once_client_saved saved; /* points into bytes */
};

/* `given`: --state, or NULL for the folder beside the default store. */
once_result send_folder_open(const char *given, bool create, struct send_folder *folder, struct once_error *err);
void send_folder_close(struct send_folder *folder);

/* The id of a request whose key the caller chose: the same key for the same server gives the same id. */
void send_id_of(once_span origin, once_span key, char id[SEND_ID_LEN_MAX + 1]);

/* Saves a request durably, and holds it. ONCE_BUSY: another process has just begun one with this id. */
once_result send_folder_save(struct send_folder *folder, const char *id, once_span saved, struct send_pending *pending,
                             struct once_error *err);

/* Reads and holds a request. ONCE_INVALID: no request has this id; ONCE_BUSY: another process is sending it. A
 * damaged file (ONCE_CORRUPT) is held as well, so that it can be forgotten. */
once_result send_folder_lock(struct send_folder *folder, const char *id, struct send_pending *pending,
                             struct once_error *err);
/* Reads a request without holding it. *sending: another process holds it. */
once_result send_folder_look(struct send_folder *folder, const char *id, struct send_pending *pending, bool *sending,
                             struct once_error *err);
/* Removes a held request, durably. */
once_result send_folder_forget(struct send_folder *folder, struct send_pending *pending, struct once_error *err);
/* Releases it, held or not. */
void send_pending_release(struct send_pending *pending);

struct send_entry {
    char id[SEND_ID_LEN_MAX + 1];
    once_time modified;
};

/* The requests, oldest first, SEND_LIST_MAX at most; the caller frees them. Also removes half-written files. */
once_result send_folder_list(struct send_folder *folder, struct send_entry **entries, size_t *count,
                             struct once_error *err);

#endif
