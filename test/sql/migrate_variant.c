/*
 * migrate_variant.c - `once migrate` with other migrations than the program's own: those that
 * it is linked with. For tests. usage: migrate-VARIANT URL
 */
#include "once.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    struct once_error err;
    int version = 0;
    if (argc != 2)
        return fprintf(stderr, "usage: %s URL\n", argv[0]), 64;
    if (once_migrate(argv[1], &version, &err) != ONCE_OK)
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("version %d\n", version);
    return 0;
}
