/* paths.c - see serve/paths.h. */
#include "serve/paths.h"

#include "core/err.h"
#include "module_dir.h" /* made by the build */
#include "serve/config.h"
#include "store/url.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MODULE_NAME "ngx_http_once_module.so"
#define INSTALLED_MODULE ONCE_MODULE_DIR "/" MODULE_NAME

enum { TREE_DEPTH_MAX = 8 }; /* nginx makes three levels */

/* ---------------------------------------------------------------- names */

__attribute__((format(printf, 2, 3))) static bool name_path(char out[PATH_MAX], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, PATH_MAX, format, args);
    va_end(args);
    return n >= 0 && n < PATH_MAX;
}

/* An environment variable that names a directory: absolute, as the XDG specification asks. */
static const char *directory_of(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] == '/' ? value : NULL;
}

static once_result set_user(struct once_serve_user *user, const struct passwd *entry, struct once_error *err)
{
    const struct group *group = getgrgid(entry->pw_gid);
    user->uid = entry->pw_uid;
    user->gid = entry->pw_gid;
    int a = snprintf(user->name, sizeof user->name, "%s", entry->pw_name);
    int b = snprintf(user->group, sizeof user->group, "%s", group != NULL ? group->gr_name : entry->pw_name);
    int c = snprintf(user->home, sizeof user->home, "%s", entry->pw_dir);
    if (a < 0 || a >= (int)sizeof user->name || b < 0 || b >= (int)sizeof user->group || c < 0 ||
        c >= (int)sizeof user->home)
        return once_fail(err, ONCE_INVALID, "the names of user '%.60s' are too long", entry->pw_name);
    return ONCE_OK;
}

/* As root: sets the users that the workers and the daemon run as. */
static once_result choose_users(struct once_serve_paths *paths, const char *asked, struct once_error *err)
{
    if (!paths->root) {
        if (asked != NULL)
            return once_fail(err, ONCE_INVALID, "--user needs root: otherwise all processes run as the current user");
        return ONCE_OK;
    }
    const struct passwd *entry = getpwnam("www-data");
    if (entry == NULL)
        entry = getpwnam("nobody");
    if (entry == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "nginx's workers need a user www-data or nobody, and neither exists");
    once_result r = set_user(&paths->workers, entry, err);
    if (r != ONCE_OK)
        return r;
    entry = getpwnam(asked != NULL ? asked : "once");
    if (entry == NULL && asked != NULL)
        return once_fail(err, ONCE_INVALID, "--user: there is no user '%.60s'", asked);
    if (entry == NULL)
        entry = getpwuid(0);
    if (entry == NULL)
        return once_fail(err, ONCE_UNAVAILABLE, "the user database has no root");
    return set_user(&paths->daemon, entry, err);
}

static bool name_state_directory(char out[PATH_MAX])
{
    const char *state = directory_of("XDG_STATE_HOME"), *home = directory_of("HOME");
    if (state != NULL)
        return name_path(out, "%s/once", state);
    const struct passwd *user = home == NULL ? getpwuid(getuid()) : NULL;
    if (user != NULL)
        home = user->pw_dir;
    return home != NULL && name_path(out, "%s/.local/state/once", home);
}

static bool name_config(struct once_serve_paths *paths, const char *dir)
{
    char here[PATH_MAX];
    if (dir == NULL)
        return name_path(paths->config, "%s/nginx.conf", paths->run);
    if (dir[0] == '/')
        return name_path(paths->config, "%s/nginx.conf", dir);
    return getcwd(here, sizeof here) != NULL && name_path(paths->config, "%s/%s/nginx.conf", here, dir);
}

static once_result name_directories(struct once_serve_paths *paths, const struct once_serve_settings *settings,
                                    struct once_error *err)
{
    char instance[ONCE_SERVE_ADDRESS_LEN + 8], state[PATH_MAX];
    snprintf(instance, sizeof instance, "serve-%s", settings->listen->text);
    for (char *p = instance; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && *p != '.')
            *p = '-';
    bool fits;
    if (paths->root) {
        /* Not in /run/once, which belongs to the daemon's user if the daemon is a service (SERVE-PATHS-1). */
        fits =
            name_path(paths->run, "/run/once-%s", instance) && name_path(paths->temp, "/var/cache/once/%s", instance);
    } else {
        const char *runtime = directory_of("XDG_RUNTIME_DIR");
        if (!name_state_directory(state))
            return once_fail(err, ONCE_UNAVAILABLE, "there is no home directory; set XDG_STATE_HOME");
        fits = name_path(paths->temp, "%s/%s", state, instance) &&
               (runtime != NULL ? name_path(paths->run, "%s/once/%s", runtime, instance)
                                : name_path(paths->run, "%s/run/%s", state, instance));
    }
    paths->config_is_ours = settings->config_dir == NULL;
    fits = fits && name_path(paths->socket_dir, "%s/daemon", paths->run) &&
           name_path(paths->pid_file, "%s/nginx.pid", paths->run) &&
           name_path(paths->socket, "%s/once.sock", paths->socket_dir) && name_config(paths, settings->config_dir);
    if (!fits)
        return once_fail(err, ONCE_INVALID, "the path of the working directory is too long");
    return ONCE_OK;
}

static once_result name_store(struct once_serve_paths *paths, const char *given, struct once_error *err)
{
    const char *environment = getenv("ONCE_STORE");
    if (given == NULL && paths->root && (environment == NULL || environment[0] == '\0'))
        given = "sqlite:/var/lib/once/once.db";
    once_result r = once_store_url(given, false, paths->store, err);
    if (r == ONCE_OK && once_serve_paths_has_daemon(paths) && !name_path(paths->socket, "%s", paths->store + 5))
        return once_fail(err, ONCE_INVALID, "the path of the daemon's socket is too long");
    /* nginx would resolve a relative path against its own prefix. */
    if (r == ONCE_OK && paths->socket[0] != '/')
        return once_fail(err, ONCE_INVALID, "--store once:PATH: the path must be absolute");
    if (r == ONCE_OK && strlen(paths->socket) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return once_fail(err, ONCE_INVALID, "the socket's path '%.200s' is longer than %zu bytes; %s", paths->socket,
                         sizeof((struct sockaddr_un *)NULL)->sun_path - 1,
                         paths->root ? "choose a shorter one" : "set XDG_RUNTIME_DIR to a shorter directory");
    return r;
}

bool once_serve_paths_has_daemon(const struct once_serve_paths *paths)
{
    return strncmp(paths->store, "once:", 5) == 0;
}

/* ---------------------------------------------------------------- programs */

const char *once_serve_paths_module_default(void)
{
    return INSTALLED_MODULE;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Looks beside this program, in a build folder or an installation under the same prefix, and then
 * in the module directory that the build was configured with. */
static void find_module(struct once_serve_paths *paths)
{
    char self[PATH_MAX], candidate[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    if (slash != NULL && name_path(candidate, "%s/../gateway/" MODULE_NAME, self) && is_file(candidate) &&
        realpath(candidate, paths->module) != NULL)
        return;
    if (slash != NULL && name_path(candidate, "%s/../lib/once/" MODULE_NAME, self) && is_file(candidate) &&
        realpath(candidate, paths->module) != NULL)
        return;
    paths->module[0] = '\0';
    if (is_file(INSTALLED_MODULE))
        name_path(paths->module, "%s", INSTALLED_MODULE);
}

/* Looks in $PATH and in the directories of system programs, which a plain user's $PATH may lack. */
static void find_nginx(struct once_serve_paths *paths, const char *name)
{
    const char *path = getenv("PATH");
    char list[2 * PATH_MAX];
    paths->nginx[0] = '\0';
    if (strchr(name, '/') != NULL) {
        if (access(name, X_OK) == 0 && is_file(name) && realpath(name, paths->nginx) == NULL)
            paths->nginx[0] = '\0';
        return;
    }
    snprintf(list, sizeof list, "/usr/sbin:/usr/local/sbin:/sbin");
    if (path != NULL && strlen(path) < PATH_MAX)
        snprintf(list, sizeof list, "%s:/usr/sbin:/usr/local/sbin:/sbin", path);
    char *rest = list;
    for (char *dir; (dir = strsep(&rest, ":")) != NULL;) {
        if (dir[0] == '/' && name_path(paths->nginx, "%s/%s", dir, name) && access(paths->nginx, X_OK) == 0 &&
            is_file(paths->nginx))
            return;
        paths->nginx[0] = '\0';
    }
}

once_result once_serve_paths_find(const struct once_serve_paths *paths, const struct once_serve_settings *settings,
                                  struct once_error *err)
{
    if (paths->nginx[0] == '\0')
        return once_fail(err, ONCE_UNAVAILABLE,
                         "cannot find the program %.200s; install it (apt-get install nginx), or give --nginx FILE",
                         settings->nginx != NULL ? settings->nginx : "nginx");
    if (paths->module[0] == '\0')
        return once_fail(err, ONCE_UNAVAILABLE,
                         "cannot find the nginx module: neither beside this program nor at %s; build it with 'make', "
                         "or give --module FILE",
                         INSTALLED_MODULE);
    if (access(paths->module, R_OK) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot read the nginx module '%.200s': %s", paths->module,
                         strerror(errno));
    return ONCE_OK;
}

once_result once_serve_paths_init(struct once_serve_paths *paths, const struct once_serve_settings *settings,
                                  struct once_error *err)
{
    *paths = (struct once_serve_paths){ .root = geteuid() == 0, .lock = -1 };
    once_result r = choose_users(paths, settings->user, err);
    if (r == ONCE_OK)
        r = name_directories(paths, settings, err);
    if (r == ONCE_OK)
        r = name_store(paths, settings->store, err);
    if (r != ONCE_OK)
        return r;
    find_nginx(paths, settings->nginx != NULL ? settings->nginx : "nginx");
    if (settings->module == NULL) {
        find_module(paths);
    } else if (realpath(settings->module, paths->module) == NULL) {
        return once_fail(err, ONCE_UNAVAILABLE, "--module: cannot find '%.200s': %s", settings->module,
                         strerror(errno));
    }
    const char *const written[] = { paths->run, paths->temp, paths->socket, paths->module };
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        if (written[i][0] != '\0' && !once_serve_config_is_plain(written[i]))
            return once_fail(err, ONCE_INVALID,
                             "'%.200s' contains a '$' or a control character: nginx cannot use that path", written[i]);
    return ONCE_OK;
}

/* ---------------------------------------------------------------- directories */

/* Makes the path and its missing parents, with the same mode. Existing directories are not changed. */
static once_result make_directories(const char *path, mode_t mode, struct once_error *err)
{
    char at[PATH_MAX];
    name_path(at, "%s", path);
    for (char *p = at + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char was = *p;
        *p = '\0';
        if (mkdir(at, mode) == 0)
            chmod(at, mode); /* independent of the umask */
        else if (errno != EEXIST && errno != EROFS)
            return once_fail(err, ONCE_UNAVAILABLE, "cannot create directory '%s': %s", at, strerror(errno));
        *p = was;
        if (was == '\0')
            break;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return once_fail(err, ONCE_UNAVAILABLE, "'%s' is not a directory", path);
    if (access(path, W_OK | X_OK) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot write to directory '%s': %s", path, strerror(errno));
    return ONCE_OK;
}

/* SERVE-PATHS-1: only root may have put files into a directory that root uses. */
static once_result check_owner(const char *path, struct once_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "'%s' is not a directory that only its owner, user %u, can change",
                         path, (unsigned)geteuid());
    return ONCE_OK;
}

/* The parent too: its owner could replace the directory by another one. */
static once_result check_owners(const char *path, struct once_error *err)
{
    char above[PATH_MAX];
    name_path(above, "%s", path);
    *strrchr(above, '/') = '\0';
    once_result r = check_owner(path, err);
    return r == ONCE_OK && geteuid() == 0 ? check_owner(above, err) : r;
}

static once_result lock_running(struct once_serve_paths *paths, struct once_error *err)
{
    paths->lock = open(paths->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (paths->lock < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot open directory '%s': %s", paths->run, strerror(errno));
    if (flock(paths->lock, LOCK_EX | LOCK_NB) == 0)
        return ONCE_OK;
    int error = errno;
    close(paths->lock);
    paths->lock = -1;
    if (error == EWOULDBLOCK)
        return once_fail(err, ONCE_UNAVAILABLE, "another 'once serve' with this address is running or stopping: %s",
                         paths->run);
    return once_fail(err, ONCE_UNAVAILABLE, "cannot lock directory '%s': %s", paths->run, strerror(error));
}

/* Removes `name` in the directory `at` with its contents, and follows no links: parts of it
 * belong to users that root does not trust. nftw(3) has a race between its check and its open. */
static void remove_tree_at(int at, const char *name, int depth)
{
    if (unlinkat(at, name, 0) == 0 || depth > TREE_DEPTH_MAX)
        return;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_tree_at(fd, entry->d_name, depth + 1);
    closedir(dir);
    unlinkat(at, name, AT_REMOVEDIR);
}

static void remove_tree(const char *path)
{
    remove_tree_at(AT_FDCWD, path, 0);
}

/* As root: gives the directory of the default store to the daemon's user. */
static once_result make_store_directory(const struct once_serve_paths *paths, struct once_error *err)
{
    static const char dir[] = "/var/lib/once";
    if (!paths->root || strncmp(paths->store, "sqlite:/var/lib/once/", 21) != 0)
        return ONCE_OK;
    once_result r = make_directories(dir, 0755, err);
    struct stat st;
    if (r == ONCE_OK && stat(dir, &st) == 0 && st.st_uid != paths->daemon.uid &&
        (chown(dir, paths->daemon.uid, paths->daemon.gid) != 0 || chmod(dir, 0700) != 0))
        return once_fail(err, ONCE_UNAVAILABLE, "cannot give '%s' to user %s: %s", dir, paths->daemon.name,
                         strerror(errno));
    return r;
}

once_result once_serve_paths_make(struct once_serve_paths *paths, struct once_error *err)
{
    mode_t mode = paths->root ? 0755 : 0700;
    once_result r = make_directories(paths->run, mode, err);
    if (r == ONCE_OK)
        r = check_owners(paths->run, err);
    if (r == ONCE_OK)
        r = lock_running(paths, err);
    if (r == ONCE_OK)
        r = make_directories(paths->temp, mode, err);
    if (r == ONCE_OK)
        r = check_owners(paths->temp, err);
    if (r == ONCE_OK)
        r = make_directories(paths->socket_dir, mode, err);
    if (r != ONCE_OK)
        return r;
    if (paths->root && lchown(paths->socket_dir, paths->daemon.uid, paths->daemon.gid) != 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot give '%s' to user %s: %s", paths->socket_dir,
                         paths->daemon.name, strerror(errno));
    unlink(paths->pid_file);
    return make_store_directory(paths, err);
}

/* ---------------------------------------------------------------- the configuration */

static bool begins_with_mark(const char *path)
{
    char text[sizeof ONCE_SERVE_CONFIG_MARK - 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* do not wait for the writer of a FIFO */
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text);
    close(fd);
    return n == (ssize_t)sizeof text && memcmp(text, ONCE_SERVE_CONFIG_MARK, sizeof text) == 0;
}

once_result once_serve_paths_write_config(const struct once_serve_paths *paths, once_span text, struct once_error *err)
{
    struct stat st;
    char fresh[PATH_MAX + 8], dir[PATH_MAX];
    if (!paths->config_is_ours) {
        name_path(dir, "%.*s", (int)(strrchr(paths->config, '/') - paths->config), paths->config);
        once_result r = make_directories(dir[0] != '\0' ? dir : "/", 0755, err);
        if (r != ONCE_OK)
            return r;
        if (lstat(paths->config, &st) == 0 && !begins_with_mark(paths->config))
            return once_fail(err, ONCE_UNAVAILABLE,
                             "'%s' was not written by once serve; remove it, or give another --config", paths->config);
    }
    snprintf(fresh, sizeof fresh, "%s.new", paths->config);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return once_fail(err, ONCE_UNAVAILABLE, "cannot write '%s': %s", paths->config, strerror(errno));
    ssize_t n = write(fd, text.ptr, text.len);
    int error = n == (ssize_t)text.len ? 0 : n < 0 ? errno : ENOSPC;
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(fresh, paths->config) != 0)
        error = errno;
    if (error == 0)
        return ONCE_OK;
    unlink(fresh);
    return once_fail(err, ONCE_UNAVAILABLE, "cannot write '%s': %s", paths->config, strerror(error));
}

void once_serve_paths_clear(struct once_serve_paths *paths)
{
    if (paths->lock < 0)
        return;
    remove_tree(paths->temp);
    remove_tree(paths->run);
    close(paths->lock);
    paths->lock = -1;
}
