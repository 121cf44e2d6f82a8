/*
 * NAS kernel IS, "integer sort".
 *
 * Problem.  Find the rank of each of 2^k integer keys, that is, the number of
 * smaller keys, ten times over, changing two keys before each time.  A key is
 * the sum of four uniform pseudorandom numbers, scaled: the distribution is
 * bell-shaped.  The keys themselves need not be moved until the end.
 *
 * Method.  Equal keys share a rank, so a table over key values suffices.
 * Counting into the whole table at random would miss the caches; therefore the
 * keys are first dealt into buckets by their leading bits:
 *
 *     count     each thread counts its keys by bucket,
 *     place     from the counts, where each thread's share of each bucket begins,
 *     scatter   each thread copies its keys there,
 *     rank      each bucket's keys are counted by value, and the counts summed up.
 *
 * IS measures integer work, memory traffic and all-to-all communication: in
 * the scatter every thread writes to every part of the array.
 *
 * Memory.  Thread t of T counts and scatters the t-th of T equal parts of the
 * keys, by schedule(static).  Buckets differ in size, so they are not shared
 * out by number: the same thread ranks those that begin in the t-th part of
 * the bucketed array.  That balances the work and makes it local, if the
 * bucketed array was first written in equal parts as well.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel IS; class sizes, test ranks and operation count (one for
 * each key ranked) as published with NPB 2 and 3.
 */
#include "common/arguments.h"
#include "common/memory.h"
#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/is_problem.h"

#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ITERATIONS IS_ITERATIONS
#define TEST_KEYS IS_TEST_KEYS

struct sorter {
    int32_t keys;          /* how many */
    int32_t max_key;       /* every key is less */
    int32_t buckets;       /* how many */
    int shift;             /* a key's bucket is key >> shift */
    int32_t *key;          /* in the given order */
    int32_t *bucketed;     /* the keys again, bucket after bucket */
    int32_t *bucket_start; /* where each bucket begins there, and after the last, its end */
    int32_t *rank;         /* of each value below max_key */
    int32_t **share;       /* share[t][b]: of thread t in bucket b; see place_shares */
};

/* ---- Setting up ---------------------------------------------------------- */

static struct sorter allocate_sorter(const struct is_class *problem)
{
    const int threads = omp_get_max_threads();
    struct sorter s = {
        .keys = INT32_C(1) << problem->keys_log2,
        .max_key = INT32_C(1) << problem->max_key_log2,
        .buckets = INT32_C(1) << problem->buckets_log2,
        .shift = problem->max_key_log2 - problem->buckets_log2,
    };
    s.key = allocate_untouched((size_t)s.keys, sizeof *s.key);
    s.bucketed = allocate_untouched((size_t)s.keys, sizeof *s.bucketed);
    s.rank = allocate_untouched((size_t)s.max_key, sizeof *s.rank);
    s.bucket_start = allocate_untouched((size_t)s.buckets + 1, sizeof *s.bucket_start);
    s.share = allocate_untouched((size_t)threads, sizeof *s.share);
    for (int t = 0; t < threads; t++)
        s.share[t] = allocate_untouched((size_t)s.buckets, sizeof **s.share);
    return s;
}

/* Draws the keys.  Also the first to write to the bucketed array. */
static void draw_keys(const struct is_class *problem, const struct sorter *s)
{
    enum { CHUNK = 1024 }; /* divides the number of keys */

#pragma omp parallel for schedule(static)
    for (int32_t first = 0; first < s->keys; first += CHUNK) {
        is_draw_keys(problem, first, CHUNK, s->key + first);
        for (int32_t i = 0; i < CHUNK; i++)
            s->bucketed[first + i] = 0;
    }
}

/* ---- Ranking, by the threads of the enclosing parallel region -------------- */

/* Counts this thread's keys by bucket. */
static void count_share(const struct sorter *s, int32_t *restrict share)
{
    const int32_t *restrict key = s->key;
    const int shift = s->shift;

    memset(share, 0, (size_t)s->buckets * sizeof *share);
#pragma omp for schedule(static)
    for (int32_t i = 0; i < s->keys; i++)
        share[key[i] >> shift]++;
}

/*
 * Turns each share from a count into the place of its first key in the bucketed
 * array: buckets in order, and within a bucket the threads in order.
 */
static void place_shares(const struct sorter *s, int threads)
{
#pragma omp for schedule(static)
    for (int32_t b = 0; b < s->buckets; b++) {
        int32_t sum = 0;
        for (int t = 0; t < threads; t++) {
            const int32_t count = s->share[t][b];
            s->share[t][b] = sum;
            sum += count;
        }
        s->bucket_start[b + 1] = sum;
    }
#pragma omp single
    for (int32_t b = 0; b < s->buckets; b++)
        s->bucket_start[b + 1] += s->bucket_start[b];
}

/* Copies this thread's keys into their buckets. */
static void scatter_share(const struct sorter *s, int32_t *restrict share)
{
    const int32_t *restrict key = s->key;
    int32_t *restrict bucketed = s->bucketed;
    const int shift = s->shift;

    for (int32_t b = 0; b < s->buckets; b++)
        share[b] += s->bucket_start[b];
#pragma omp for schedule(static)
    for (int32_t i = 0; i < s->keys; i++) {
        const int32_t k = key[i];
        bucketed[share[k >> shift]++] = k;
    }
}

/* The first bucket that thread t of `threads` threads ranks; t = threads gives the
 * end. */
static int32_t first_bucket(const struct sorter *s, int t, int threads)
{
    const int64_t place = (int64_t)s->keys * t / threads;
    int32_t b = 0;
    while (b < s->buckets && (t == threads || s->bucket_start[b] < place))
        b++;
    return b;
}

/* Ranks the keys of bucket b. */
static void rank_bucket(const struct sorter *s, int32_t b)
{
    const int32_t width = INT32_C(1) << s->shift;
    const int32_t *restrict bucketed = s->bucketed;
    int32_t *restrict rank = s->rank;

    memset(rank + b * width, 0, (size_t)width * sizeof *rank);
    for (int32_t i = s->bucket_start[b]; i < s->bucket_start[b + 1]; i++)
        rank[bucketed[i]]++;

    int32_t smaller = s->bucket_start[b];
    for (int32_t k = b * width; k < (b + 1) * width; k++) {
        const int32_t count = rank[k];
        rank[k] = smaller;
        smaller += count;
    }
}

static void rank_keys(const struct sorter *s)
{
#pragma omp parallel
    {
        const int thread = omp_get_thread_num();
        const int threads = omp_get_num_threads();

        count_share(s, s->share[thread]);
        place_shares(s, threads);
        scatter_share(s, s->share[thread]);
        const int32_t end = first_bucket(s, thread + 1, threads);
        for (int32_t b = first_bucket(s, thread, threads); b < end; b++)
            rank_bucket(s, b);
    }
}

/* ---- Iterating and verifying --------------------------------------------- */

/* Changes two keys and ranks all; returns how many test keys have the right rank. */
static int iterate(const struct sorter *s, const struct is_test_key test[TEST_KEYS], int iteration)
{
    int32_t key[TEST_KEYS];
    int right = 0;

    s->key[iteration] = iteration;
    s->key[iteration + ITERATIONS] = s->max_key - iteration;
    rank_keys(s);
    for (int i = 0; i < TEST_KEYS; i++)
        key[i] = s->key[test[i].index];
    for (int i = 0; i < TEST_KEYS; i++)
        if (s->rank[key[i]] == test[i].rank + iteration * test[i].drift)
            right++;
    return right;
}

/*
 * Sorts the keys by their ranks, in place of the unsorted ones, and returns the
 * number of keys in their right place: after a key that is not greater.  Returns 0
 * if the sums before and after show that keys were changed.  Uses up the ranks.
 */
static int32_t sort_keys(const struct sorter *s)
{
    int32_t in_order = 0;
    int64_t change = 0;

#pragma omp parallel
    {
        const int thread = omp_get_thread_num();
        const int threads = omp_get_num_threads();

#pragma omp for schedule(static) reduction(+ : change)
        for (int32_t i = 0; i < s->keys; i++) {
            change -= s->key[i];
            s->key[i] = -1; /* shows places that no key gets */
        }

        const int32_t begin = s->bucket_start[first_bucket(s, thread, threads)];
        const int32_t end = s->bucket_start[first_bucket(s, thread + 1, threads)];
        for (int32_t i = begin; i < end; i++)
            s->key[s->rank[s->bucketed[i]]++] = s->bucketed[i];
#pragma omp barrier

#pragma omp for schedule(static) reduction(+ : in_order, change)
        for (int32_t i = 0; i < s->keys; i++) {
            if (s->key[i] >= (i == 0 ? 0 : s->key[i - 1]))
                in_order++;
            change += s->key[i];
        }
    }
    return change == 0 ? in_order : 0;
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "is", "NAS kernel IS: ranks of integer keys by bucketed counting"};
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct is_class *problem = &is_classes[options.problem_class];

    struct bench_report report = {
        .kernel = "IS",
        .problem_class = options.problem_class,
        .size = {1LL << problem->keys_log2},
        .iterations = ITERATIONS,
        .threads = team_size(),
        .operation = "keys ranked",
    };
    if (!options.json)
        print_heading(&report);

    /* Set up, with one untimed iteration to warm caches and page tables. */
    const double setup_start = wall_seconds();
    const struct sorter sorter = allocate_sorter(problem);
    draw_keys(problem, &sorter);
    iterate(&sorter, problem->test, 1);
    report.setup_seconds = wall_seconds() - setup_start;

    int right = 0;
    const double start = wall_seconds();
    for (int i = 1; i <= ITERATIONS; i++)
        right += iterate(&sorter, problem->test, i);
    report.seconds = wall_seconds() - start;
    report.mops = 1e-6 * ITERATIONS * sorter.keys / report.seconds;

    const struct bench_value values[] = {
        {"ranks", right, ITERATIONS * TEST_KEYS},
        {"sorted", sort_keys(&sorter), sorter.keys},
    };
    report.values = values;
    report.value_count = sizeof values / sizeof values[0];
    report.verified = values_agree(values, report.value_count, 0.0);
    return finish_report(&report, options.json);
}
