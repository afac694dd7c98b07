/*
 * paths.h - the files, programs and users of `once serve`.
 *
 * Model: each gateway has its own running directory, named after its listening address. It is
 *        locked while in use and removed at the end.
 *
 *                     as root                       as a plain user
 *        running      /run/once-serve-ADDRESS       $XDG_RUNTIME_DIR/once/serve-ADDRESS, or under
 *                                                   the state directory if that is not set
 *        temporary    /var/cache/once/...           the state directory/serve-ADDRESS
 *        store        /var/lib/once/once.db         $XDG_STATE_HOME/once or ~/.local/state/once
 *        workers      www-data, else nobody         the user
 *        daemon       once if there is one (or      the user
 *                     --user), else root
 *
 * Invariant: SERVE-PATHS-1 a directory in which root writes belongs to root, and only root can change it.
 *        Therefore the daemon's socket has its own directory.
 */
#ifndef ONCE_SERVE_PATHS_H
#define ONCE_SERVE_PATHS_H

#include "core/limits.h"
#include "serve/address.h"

#include <limits.h>
#include <sys/types.h>

struct once_serve_user {
    char name[64], group[64], home[PATH_MAX];
    uid_t uid;
    gid_t gid;
};

struct once_serve_paths {
    bool root;
    bool config_is_ours; /* nginx.conf is in the running directory and is removed with it */
    int lock;            /* descriptor of the running directory, locked; -1: not locked */
    struct once_serve_user workers, daemon;
    char run[PATH_MAX], temp[PATH_MAX], socket_dir[PATH_MAX];
    char config[PATH_MAX], socket[PATH_MAX], pid_file[PATH_MAX];
    char store[ONCE_URL_LEN_MAX + 1];
    char nginx[PATH_MAX], module[PATH_MAX];
};

struct once_serve_settings { /* values of options; NULL: not given */
    const char *store, *config_dir, *module, *nginx, *user;
    const struct once_serve_listen *listen;
};

/* Sets all names and creates nothing. A program or module that is not found gets an empty name;
 * once_serve_paths_find() reports it. */
ONCE_CHECKED once_result once_serve_paths_init(struct once_serve_paths *paths,
                                               const struct once_serve_settings *settings, struct once_error *err);

/* ONCE_UNAVAILABLE, with advice in the message, if nginx or the module is missing. */
ONCE_CHECKED once_result once_serve_paths_find(const struct once_serve_paths *paths,
                                               const struct once_serve_settings *settings, struct once_error *err);

/* Creates and locks the directories; removes the pid file that a killed predecessor left. */
ONCE_CHECKED once_result once_serve_paths_make(struct once_serve_paths *paths, struct once_error *err);

ONCE_CHECKED once_result once_serve_paths_write_config(const struct once_serve_paths *paths, once_span text,
                                                       struct once_error *err);

/* Removes all that was created, except the store and a configuration written for --config. */
void once_serve_paths_clear(struct once_serve_paths *paths);

/* True if the store is a daemon that runs already ("once:PATH"); nginx then uses its socket. */
bool once_serve_paths_has_daemon(const struct once_serve_paths *paths);

/* The path at which the module is installed by default, for messages. */
const char *once_serve_paths_module_default(void);

#endif
