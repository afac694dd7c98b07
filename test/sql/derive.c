/*
 * derive.c - what libonce derives from a store's secret, for comparison with the SQL functions.
 *
 * usage: derive URL FOLDER
 * Prints a line per file of FOLDER (NAME TAB fingerprint TAB fingerprint with exclusions), then
 * the child key "charge" of the record of tenant "shop", key "order-1".
 */
#include "once.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t body[1 << 20];

static void print_one(const struct once *once, const char *name, size_t len, bool exclude)
{
    const once_span pointers[] = { ONCE_LIT("/a"), ONCE_LIT("/0"), ONCE_LIT("/b/c"), ONCE_LIT("/~1~0") };
    const struct once_header headers[] = { { ONCE_LIT("X-B"), ONCE_LIT(" 2\t") },
                                           { ONCE_LIT("x-a"), ONCE_LIT("1") },
                                           { ONCE_LIT("x-b"), ONCE_LIT("3") } };
    struct once_http http = { .method = ONCE_LIT("POST"),
                              .path = ONCE_LIT("/v1"),
                              .query = ONCE_LIT("q=1"),
                              .headers = headers,
                              .header_count = 3,
                              .body = { body, len },
                              .json = true,
                              .exclude = pointers,
                              .exclude_count = exclude ? 4 : 0 };
    struct once_fingerprint print;
    struct once_error err;
    if (once_fingerprint_http(once, ONCE_LIT("shop"), &http, &print, &err) != ONCE_OK) {
        fprintf(stderr, "%s: %s\n", name, err.text);
        exit(1);
    }
    putchar('\t');
    for (size_t i = 0; i < sizeof print.bytes; i++)
        printf("%02x", print.bytes[i]);
}

static void print_folder(const struct once *once, const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char file[1000];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        FILE *in = entry->d_name[0] != '.' ? fopen(file, "re") : NULL;
        if (in == NULL)
            continue;
        size_t len = fread(body, 1, sizeof body, in);
        fclose(in);
        printf("%s", entry->d_name);
        print_one(once, file, len, false);
        print_one(once, file, len, true);
        putchar('\n');
    }
    if (folder != NULL)
        closedir(folder);
}

int main(int argc, char **argv)
{
    struct once *once = NULL;
    struct once_error err;
    if (argc != 3)
        return 2;
    if (once_open(argv[1], NULL, &once, &err) != ONCE_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    print_folder(once, argv[2]);
    struct once_claim claim = { .tenant = ONCE_LIT("shop"), .key = ONCE_LIT("order-1") };
    struct once_reply reply;
    char key[ONCE_CHILD_KEY_LEN + 1];
    if (once_claim(once, &claim, &reply, &err) != ONCE_OK)
        return 1;
    once_child_key(once, &reply.record.grant, ONCE_LIT("charge"), key);
    printf("child\t%s\t", key);
    for (int i = 0; i < 16; i++)
        printf("%02x", reply.record.grant.record[i]);
    putchar('\n');
    once_reply_release(&reply);
    once_close(once);
    return 0;
}
