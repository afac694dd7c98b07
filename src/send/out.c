/* out.c - see send/out.h. */
#include "send/out.h"

#include "core/span.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(FILE *file, once_span bytes)
{
    if (bytes.len > 0)
        fwrite(bytes.ptr, 1, bytes.len, file);
}

static void write_answer(FILE *file, const struct once_client_answer *answer, bool include)
{
    if (include) {
        put(file, answer->head);
        fputs("\r\n", file);
    }
    put(file, answer->body);
}

/* A pipe, a terminal, /dev/null: written directly, not replaced. */
static bool is_special(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

/* Makes the new name durable. If the folder may not be opened, only the file itself is durable. */
static void sync_folder_of(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int len = slash != NULL ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", len, path);
    int fd = open(slash == NULL ? "." : len == 0 ? "/" : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

/* Writes a file beside it, then renames that. 0 or an errno. */
static int replace_file(const char *path, const struct once_client_answer *answer, bool include)
{
    char new[PATH_MAX];
    int n = snprintf(new, sizeof new, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof new)
        return ENAMETOOLONG;
    int fd = mkostemp(new, O_CLOEXEC);
    if (fd < 0)
        return errno;
    mode_t mask = umask(0);
    umask(mask);
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        int error = errno;
        close(fd);
        unlink(new);
        return error;
    }
    fchmod(fd, 0666 & ~mask);
    write_answer(file, answer, include);
    int error = 0;
    if (fflush(file) != 0 || ferror(file) || fsync(fd) != 0)
        error = errno != 0 ? errno : EIO;
    if (fclose(file) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(new, path) != 0)
        error = errno;
    if (error == 0)
        sync_folder_of(path);
    else
        unlink(new);
    return error;
}

int send_out(const struct once_cli *cli, const struct once_client_answer *answer, const char *path, bool include)
{
    if (path == NULL || strcmp(path, "-") == 0) {
        write_answer(stdout, answer, include);
        return once_cli_finish(cli, ONCE_EXIT_OK);
    }
    int error;
    if (is_special(path)) {
        FILE *file = fopen(path, "we");
        error = file == NULL ? errno : 0;
        if (file != NULL) {
            write_answer(file, answer, include);
            error = ferror(file) ? EIO : 0;
            if (fclose(file) != 0)
                error = errno;
        }
    } else {
        error = replace_file(path, answer, include);
    }
    return error == 0 ? ONCE_EXIT_OK : once_cli_fail(cli, ONCE_EXIT_IO, "cannot write '%s': %s", path, strerror(error));
}
