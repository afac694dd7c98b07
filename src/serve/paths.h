/*
 * paths.h - where `once serve` keeps its files, finds its programs, and as whom they run.
 *
 * Model: one running directory per address listened on, so that several gateways of one user
 *        do not meet. It is locked while in use and emptied at the end.
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
 * Invariant: SERVE-PATHS-1 a directory in which root writes belongs to root, and only root can change it;
 *        the daemon's socket has a directory of its own therefore.
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
    bool config_is_ours; /* the configuration is in the running directory and goes with it */
    int lock;            /* the running directory, locked; -1: not yet made */
    struct once_serve_user workers, daemon;
    char run[PATH_MAX], temp[PATH_MAX], socket_dir[PATH_MAX];
    char config[PATH_MAX], socket[PATH_MAX], pid_file[PATH_MAX];
    char store[ONCE_URL_LEN_MAX + 1];
    char nginx[PATH_MAX], module[PATH_MAX];
};

struct once_serve_settings { /* what the command line says; NULL: nothing */
    const char *store, *config_dir, *module, *nginx, *user;
    const struct once_serve_listen *listen;
};

/* Decides on all names; makes nothing. A program or module that is not found is an empty text
 * (once_serve_paths_find() has the message). */
ONCE_CHECKED once_result once_serve_paths_init(struct once_serve_paths *paths,
                                               const struct once_serve_settings *settings, struct once_error *err);

/* ONCE_UNAVAILABLE with a message that says what to do, if nginx or the module is missing. */
ONCE_CHECKED once_result once_serve_paths_find(const struct once_serve_paths *paths,
                                               const struct once_serve_settings *settings, struct once_error *err);

/* Makes and locks the directories; removes what a predecessor that was killed left there. */
ONCE_CHECKED once_result once_serve_paths_make(struct once_serve_paths *paths, struct once_error *err);

ONCE_CHECKED once_result once_serve_paths_write_config(const struct once_serve_paths *paths, once_span text,
                                                       struct once_error *err);

/* The end: removes what was made, but for the store and a configuration that was asked for. */
void once_serve_paths_clear(struct once_serve_paths *paths);

/* Is the store kept by a daemon that runs already ("once:PATH")? Its socket is then used. */
bool once_serve_paths_has_daemon(const struct once_serve_paths *paths);

/* The module where it should be installed, for texts. */
const char *once_serve_paths_module_default(void);

#endif
