/*
 * main.c - `once-bench`: measures a store or the relay on this machine, as ratios in one run.
 *
 * A program of its own, for people who change Once; it is not installed.
 */
#include "bench.h"

#include "program/cli.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "store") == 0)
        return bench_store_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "relay") == 0)
        return bench_relay_main(argc - 1, argv + 1);
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs("usage: once-bench store [OPTIONS]    claims, finishes and replays of a store\n"
          "       once-bench relay [OPTIONS]    the relay beside two home-made ones\n"
          "\n"
          "once-bench store --help and once-bench relay --help list the options.\n",
          help ? stdout : stderr);
    return help ? ONCE_EXIT_OK : ONCE_EXIT_USAGE;
}
