/*
 * The problem of NAS kernel IS: number of keys, their values, and known ranks.
 * Shared by the versions for threads and for ranks.
 */
#ifndef BENCH_NAS_IS_PROBLEM_H
#define BENCH_NAS_IS_PROBLEM_H

#include "common/problem_class.h"

#include <stdint.h>

#define IS_ITERATIONS 10
#define IS_TEST_KEYS 5

/*
 * A key whose rank is known.  The two keys changed in an iteration become one of
 * the smallest and one of the largest, so the rank of a small key grows by one
 * each time, and that of a large key falls by one.
 */
struct is_test_key {
    int32_t index;
    int32_t rank;  /* in iteration 0, if there were one */
    int32_t drift; /* by which the rank changes each time */
};

struct is_class {
    int keys_log2;
    int max_key_log2; /* keys are less than 2 to this */
    int buckets_log2;
    struct is_test_key test[IS_TEST_KEYS];
};

extern const struct is_class is_classes[CLASS_COUNT];

/* Draws `count` keys, starting with number `first`. */
void is_draw_keys(const struct is_class *problem, int32_t first, int32_t count, int32_t *key);

#endif
