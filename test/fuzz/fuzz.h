/*
 * fuzz.h - the shape of a fuzz target.
 *
 * A target is one file with the one function below. Linked with libFuzzer it is fuzzed;
 * linked with replay.c it runs its kept corpus as an ordinary test. A property that does
 * not hold ends the process, so that libFuzzer keeps the input.
 */
#ifndef ONCE_TEST_FUZZ_H
#define ONCE_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOLDS(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond);                                  \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
