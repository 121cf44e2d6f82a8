/*
 * Checks of the common library that no kernel's own verification makes.
 */
#include "common/memory.h"
#include "common/problem_class.h"
#include "common/random.h"
#include "common/report.h"
#include "common/series.h"
#include "common/team.h"

#include <math.h>
#include <stdio.h>

static int failures;

#define CHECK(condition) check((condition), #condition, __LINE__)

static void check(bool holds, const char *condition, int line)
{
    if (!holds) {
        fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, line, condition);
        failures++;
    }
}

/* The generator, done as the report describes it: in double precision halves. */
static double reference_randlc(double *x, double a)
{
    const double r23 = 0x1p-23;
    const double t23 = 0x1p23;
    const double a1 = floor(r23 * a);
    const double a2 = a - t23 * a1;
    const double x1 = floor(r23 * *x);
    const double x2 = *x - t23 * x1;
    const double cross = a1 * x2 + a2 * x1;
    const double z = cross - t23 * floor(r23 * cross);
    const double sum = t23 * z + a2 * x2;
    *x = sum - 0x1p46 * floor(0x1p-46 * sum);
    return 0x1p-46 * *x;
}

static void test_random(void)
{
    enum { COUNT = 10000 };
    const uint64_t start = 314159265;
    static double block[COUNT];
    uint64_t seed = start;
    uint64_t block_seed = start;
    double reference_seed = (double)start;
    bool same_as_reference = true;
    bool same_as_block = true;
    bool same_as_skip = true;

    vranlc(COUNT, &block_seed, RANDLC_MULTIPLIER, block);
    for (uint64_t i = 0; i < COUNT; i++) {
        const double value = randlc(&seed, RANDLC_MULTIPLIER);
        if (value != reference_randlc(&reference_seed, (double)RANDLC_MULTIPLIER))
            same_as_reference = false;
        if (value != block[i])
            same_as_block = false;
        if (seed != randlc_skip(start, RANDLC_MULTIPLIER, i + 1))
            same_as_skip = false;
    }
    CHECK(same_as_reference);
    CHECK(same_as_block);
    CHECK(same_as_skip);
    CHECK(seed == block_seed);
    CHECK(randlc_power(RANDLC_MULTIPLIER, 0) == 1);
    CHECK(randlc_power(RANDLC_MULTIPLIER, UINT64_C(1) << 44) == 1); /* the period */
}

static void test_classes(void)
{
    enum problem_class found = CLASS_S;
    CHECK(problem_class_parse("C", &found) && found == CLASS_C);
    CHECK(problem_class_parse("w", &found) && found == CLASS_W);
    CHECK(problem_class_letter(CLASS_B) == 'B');
    CHECK(!problem_class_parse("", &found));
    CHECK(!problem_class_parse("AB", &found));
    CHECK(!problem_class_parse("X", &found));
    CHECK(found == CLASS_W);
}

static void test_verification(void)
{
    const struct bench_value close[] = {{"a", -2.0 - 1e-12, -2.0}, {"b", 3.0, 3.0}};
    const struct bench_value far[] = {{"a", 2.0, 2.0}, {"b", 3.1, 3.0}};
    const struct bench_value none[] = {{"a", NAN, 2.0}};
    CHECK(values_agree(close, 2, 1e-10));
    CHECK(!values_agree(close, 2, 1e-14));
    CHECK(!values_agree(far, 2, 1e-10));
    CHECK(!values_agree(none, 1, 1e-10));
}

/* Writes the report of a wrong result to stdout, for check.sh to compare. */
static void test_wrong_result(void)
{
    const struct bench_value value = {"a", NAN, 2.0};
    const struct bench_report report = {
        .kernel = "NONE",
        .size = {4, 5, 6},
        .threads = 1,
        .seconds = 1.0,
        .mops = INFINITY,
        .operation = "none",
        .values = &value,
        .value_count = 1,
    };
    CHECK(finish_report(&report, true) == BENCH_EXIT_WRONG_RESULT);
}

static void test_series(void)
{
    const double odd[] = {3.0, -1.0, 2.0};
    const double even[] = {4.0, 1.0, 3.0, 2.0};
    const struct span spans[] = {{2.0, 5.0}, {1.5, 4.0}, {3.0, 4.5}};
    CHECK(least(odd, 3) == -1.0 && most(odd, 3) == 3.0 && median(odd, 3) == 2.0);
    CHECK(median(even, 4) == 2.5 && mean(even, 4) == 2.5 && even[0] == 4.0);
    CHECK(median(odd, 1) == 3.0);
    CHECK(wall_time(spans, 3) == 3.5);
}

static void test_memory(void)
{
    const size_t count = 100000;
    double *array = allocate_untouched(count, sizeof *array);
    bool zero = true;
    for (size_t i = 0; i < count; i++)
        if (array[i] != 0.0)
            zero = false;
    CHECK(zero);
    release(array, count, sizeof *array);
}

int main(void)
{
    test_random();
    test_classes();
    test_verification();
    test_wrong_result();
    test_series();
    test_memory();
    CHECK(team_size() >= 1);
    return failures == 0 ? 0 : 1;
}
