/*
 * replay.c - runs a fuzz target on files, without a fuzzer.
 *
 *     replay_key FOLDER...
 *
 * Feeds every file of the folders to LLVMFuzzerTestOneInput(), in a block of exactly its
 * size, so that a sanitizer sees a read beyond it. A property that does not hold aborts
 * after the file's name was printed. A folder without files is an error: it is misspelt.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { FILE_LEN_MAX = 16 << 20 };

static void die(const char *what, const char *name)
{
    fprintf(stderr, "cannot %s '%s'\n", what, name);
    exit(2);
}

/* False: it is no file. */
static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0)
        die("open", path);
    bool regular = S_ISREG(info.st_mode);
    if (regular) {
        if (info.st_size > FILE_LEN_MAX)
            die("take all of", path);
        size_t size = (size_t)info.st_size;
        uint8_t *data = malloc(size > 0 ? size : 1);
        if (data == NULL || fread(data, 1, size, file) != size)
            die("read", path);
        printf("# %s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, size);
        free(data);
    }
    fclose(file);
    return regular;
}

static size_t replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        die("open folder", folder);
    size_t count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        char path[4096];
        int len = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (len < 0 || (size_t)len >= sizeof path)
            die("name all of", folder);
        count += replay_file(path);
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        die("run without a folder", argv[0]);
    for (int i = 1; i < argc; i++) {
        size_t count = replay_folder(argv[i]);
        if (count == 0)
            die("find a file in", argv[i]);
        printf("%zu files of %s\n", count, argv[i]);
    }
    return 0;
}
