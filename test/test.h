/*
 * test.h - a small TAP harness.
 *
 *     static void lease__older_fence_changes_nothing(void) { CHECK(x == y); }
 *     int main(int argc, char **argv)
 *     {
 *         static const struct test tests[] = { TEST(lease__older_fence_changes_nothing), ... };
 *         return test_main(argc, argv, tests, sizeof tests / sizeof *tests);
 *     }
 *
 * A failed CHECK prints where and what, marks the case failed and leaves the case
 * function (CHECK) or goes on (EXPECT). Arguments select cases by substring.
 * Table-driven cases print their row: EXPECT_ROW(row->name, condition).
 */
#ifndef ONCE_TEST_H
#define ONCE_TEST_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct test {
    const char *name;
    void (*run)(void);
};

#define TEST(fn)                                                                                                       \
    {                                                                                                                  \
#fn, fn                                                                                                        \
    }

static int test_failures; /* of the running case */
static jmp_buf test_escape;

__attribute__((unused)) static void test_failed(const char *file, int line, const char *row, const char *what)
{
    test_failures++;
    printf("# %s:%d: %s%s%s\n", file, line, row != NULL ? row : "", row != NULL ? ": " : "", what);
}

#define EXPECT_ROW(row, cond) ((cond) ? (void)0 : test_failed(__FILE__, __LINE__, (row), #cond))
#define EXPECT(cond) EXPECT_ROW(NULL, cond)
#define CHECK(cond)                                                                                                    \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            test_failed(__FILE__, __LINE__, NULL, #cond);                                                              \
            longjmp(test_escape, 1);                                                                                   \
        }                                                                                                              \
    } while (0)

__attribute__((unused)) static int test_main(int argc, char **argv, const struct test *tests, size_t count)
{
    volatile int number = 0, failed = 0; /* live across longjmp */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (volatile size_t i = 0; i < count; i++) {
        bool wanted = argc <= 1;
        for (int a = 1; a < argc; a++)
            wanted = wanted || strstr(tests[i].name, argv[a]) != NULL;
        if (!wanted)
            continue;
        test_failures = 0;
        if (setjmp(test_escape) == 0)
            tests[i].run();
        number = number + 1;
        printf("%sok %d - %s\n", test_failures ? "not " : "", number, tests[i].name);
        failed = failed + (test_failures != 0);
    }
    printf("1..%d\n", number);
    return failed != 0;
}

#endif
