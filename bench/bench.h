/* bench.h - the two things that `once-bench` measures; argv[0] is the word that chose one. */
#ifndef ONCE_BENCH_BENCH_H
#define ONCE_BENCH_BENCH_H

int bench_store_main(int argc, char **argv);
int bench_relay_main(int argc, char **argv);

#endif
