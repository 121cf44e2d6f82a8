/*
 * NAS kernel IS by ranks.
 *
 * Problem.  That of nas/is.c: the ranks of integer keys, ten times over, changing two keys before each time.
 *
 * Method.  Each rank has an equal part of the keys, in the order given:
 *
 *     count     it counts its keys by bucket, their leading bits; the sums over all ranks give the beginning
 *               of each bucket,
 *     share     buckets are assigned to ranks, as evenly as possible: a bucket that begins in a rank's part of
 *               all keys belongs to that rank,
 *     exchange  keys are sorted by bucket into the outgoing memory, so that the keys for one rank are one piece,
 *     rank      each rank counts the keys that arrived by value, and sums the counts up.
 *
 * Buckets may be arbitrarily unequal: one may have all the keys, and most ranks nothing to rank.
 *
 * The values of the test keys travel with the sums of the buckets: the rank that has a test key adds it to
 * zeros.
 *
 * Source.  As of nas/is.c; the exchange is that of the NPB's own version for message passing.
 */
#include "team/kernels/kernel.h"

#include "nas/is_problem.h"

#include <stdint.h>
#include <string.h>

struct is {
    const struct is_class *problem;
    int ranks;
    int32_t keys; /* of all */
    int32_t max_key;
    int32_t buckets;
    int shift; /* a key's bucket is key >> shift */
    int32_t first, count; /* this rank's keys in the order given */
    int32_t *key;
    int32_t *mine;    /* counts by bucket, then test keys */
    int32_t *sums;    /* of all ranks */
    int32_t *begin;   /* where each bucket begins among all keys, and after the last, its end */
    int32_t *share;   /* the first bucket of each rank, and after the last, their number */
    int32_t *next;    /* where the next key of each bucket goes */
    int32_t *outgoing;
    uint64_t (*places)[2]; /* of each rank's parcel: where and how long, to be told; then as told */
    struct parcels parcels;
    int32_t *rank; /* of each value in this rank's buckets */
    int32_t changed[2 * IS_ITERATIONS + 1]; /* keys as they were before any iteration, of those that are changed */
    int right;     /* test keys of this rank's that had the right rank */
};

static size_t outgoing_bytes(const struct job *job)
{
    const size_t keys = (size_t)1 << is_classes[job->problem_class].keys_log2;
    const size_t ranks = (size_t)job->ranks;
    return (keys + ranks - 1) / ranks * sizeof(int32_t);
}

static int ranks_max(enum problem_class problem_class)
{
    return 1 << is_classes[problem_class].buckets_log2;
}

static double operations(enum problem_class problem_class)
{
    return IS_ITERATIONS * (double)(INT32_C(1) << is_classes[problem_class].keys_log2);
}

static void draw_keys(const struct rank *rank, struct is *s)
{
    is_draw_keys(s->problem, s->first, s->count, s->key);
    for (int32_t i = 0; i < s->count; i++) {
        const int64_t key = s->key[i];
        if (rank->job->keys == KEYS_LOW)
            s->key[i] = (int32_t)(key * key / s->max_key * key / s->max_key * key / s->max_key);
        else if (rank->job->keys == KEYS_ONE)
            s->key[i] = s->max_key / 2;
    }
}

/* ---- Ranking --------------------------------------------------------------- */

static bool has_key(const struct is *s, int32_t index)
{
    return index >= s->first && index - s->first < s->count;
}

static void set_key(const struct is *s, int32_t index, int32_t value)
{
    if (has_key(s, index))
        s->key[index - s->first] = value;
}

/* Counts by bucket, of this rank and of all, and with them the test keys. */
static void count(struct rank *rank, struct is *s)
{
    const int32_t *restrict key = s->key;
    int32_t *restrict mine = s->mine;
    const int shift = s->shift;

    memset(mine, 0, ((size_t)s->buckets + IS_TEST_KEYS) * sizeof *mine);
    for (int32_t i = 0; i < s->count; i++)
        mine[key[i] >> shift]++;
    for (int t = 0; t < IS_TEST_KEYS; t++) {
        const int32_t at = s->problem->test[t].index - s->first;
        if (at >= 0 && at < s->count)
            mine[s->buckets + t] = key[at];
    }
    all_sum(rank, mine, s->sums, (size_t)s->buckets + IS_TEST_KEYS, NUMBER_I32);
}

/* Assigns buckets to ranks: the same at all ranks. */
static void share_out(struct is *s)
{
    for (int32_t b = 0; b < s->buckets; b++)
        s->begin[b + 1] = s->begin[b] + s->sums[b];
    int32_t bucket = 0;
    for (int r = 0; r < s->ranks; r++) {
        const int32_t place = first_of(s->keys, r, s->ranks);
        while (bucket < s->buckets && s->begin[bucket] < place)
            bucket++;
        s->share[r] = bucket;
    }
    s->share[s->ranks] = s->buckets;
}

/* Sorts this rank's keys into the outgoing memory, buckets in order, and sends the positions of its pieces to
 * all ranks. */
static void deal(struct rank *rank, struct is *s)
{
    const int32_t *restrict key = s->key;
    int32_t *restrict outgoing = s->outgoing;
    int32_t *restrict next = s->next;
    const int shift = s->shift;

    int32_t dealt = 0;
    for (int r = 0; r < s->ranks; r++) {
        const int32_t from = dealt;
        for (int32_t b = s->share[r]; b < s->share[r + 1]; b++) {
            next[b] = dealt;
            dealt += s->mine[b];
        }
        s->parcels.send_at[r] = (size_t)from * sizeof *key;
        s->parcels.send[r] = (size_t)(dealt - from) * sizeof *key;
        s->places[r][0] = s->parcels.send_at[r];
        s->places[r][1] = s->parcels.send[r];
    }
    for (int32_t i = 0; i < s->count; i++)
        outgoing[next[key[i] >> shift]++] = key[i];
    all_to_all(rank, s->places, s->places + s->ranks, sizeof *s->places);
    for (int r = 0; r < s->ranks; r++) {
        s->parcels.take_at[r] = (size_t)s->places[s->ranks + r][0];
        s->parcels.take[r] = (size_t)s->places[s->ranks + r][1];
    }
}

/* The keys that arrived from a rank. */
static const int32_t *arrived(const struct is *s, int from, size_t *many)
{
    *many = s->parcels.take[from] / sizeof(int32_t);
    return (const int32_t *)(const void *)s->parcels.arrived[from];
}

/* Ranks the keys that arrived. */
static void rank_keys(const struct is *s, int me)
{
    const int32_t low = s->share[me] << s->shift;
    const int32_t width = (s->share[me + 1] << s->shift) - low;
    int32_t *restrict ranks = s->rank;

    memset(ranks, 0, (size_t)width * sizeof *ranks);
    for (int from = 0; from < s->ranks; from++) {
        size_t many;
        const int32_t *restrict key = arrived(s, from, &many);
        for (size_t i = 0; i < many; i++)
            ranks[key[i] - low]++;
    }
    int32_t smaller = s->begin[s->share[me]];
    for (int32_t k = 0; k < width; k++) {
        const int32_t equal = ranks[k];
        ranks[k] = smaller;
        smaller += equal;
    }
}

/* Number of test keys that belong to this rank and have the right rank. */
static int test(const struct is *s, int me, int iteration)
{
    int right = 0;
    for (int t = 0; t < IS_TEST_KEYS; t++) {
        const int32_t key = s->sums[s->buckets + t];
        const int32_t bucket = key >> s->shift;
        if (bucket < s->share[me] || bucket >= s->share[me + 1])
            continue;
        const int32_t rank = s->rank[key - (s->share[me] << s->shift)];
        if (rank == s->problem->test[t].rank + iteration * s->problem->test[t].drift)
            right++;
    }
    return right;
}

/* Changes two keys and ranks all.  Other ranks may read the sent data until exchange_is_over(). */
static int iterate(struct rank *rank, struct is *s, int iteration)
{
    set_key(s, iteration, iteration);
    set_key(s, iteration + IS_ITERATIONS, s->max_key - iteration);
    count(rank, s);
    share_out(s);
    deal(rank, s);
    exchange(rank, &s->parcels);
    rank_keys(s, rank->me);
    return test(s, rank->me, iteration);
}

/* ---- Setting up and verifying ---------------------------------------------- */

static void *prepare(struct rank *rank)
{
    const struct is_class *problem = &is_classes[rank->job->problem_class];
    const size_t ranks = (size_t)rank->job->ranks;
    const size_t buckets = (size_t)1 << problem->buckets_log2;
    struct is *s = fresh(1, sizeof *s);
    s->problem = problem;
    s->ranks = rank->job->ranks;
    s->keys = INT32_C(1) << problem->keys_log2;
    s->max_key = INT32_C(1) << problem->max_key_log2;
    s->buckets = INT32_C(1) << problem->buckets_log2;
    s->shift = problem->max_key_log2 - problem->buckets_log2;
    s->first = first_of(s->keys, rank->me, s->ranks);
    s->count = first_of(s->keys, rank->me + 1, s->ranks) - s->first;
    s->key = fresh((size_t)s->count, sizeof *s->key);
    s->mine = fresh(buckets + IS_TEST_KEYS, sizeof *s->mine);
    s->sums = fresh(buckets + IS_TEST_KEYS, sizeof *s->sums);
    s->begin = fresh(buckets + 1, sizeof *s->begin);
    s->next = fresh(buckets, sizeof *s->next);
    s->share = fresh(ranks + 1, sizeof *s->share);
    s->places = fresh(2 * ranks, sizeof *s->places);
    s->rank = fresh((size_t)s->max_key, sizeof *s->rank);
    s->parcels = make_parcels(s->ranks);
    s->outgoing = (int32_t *)(void *)rank->ways->outgoing(rank, outgoing_bytes(rank->job));
    draw_keys(rank, s);
    for (int32_t i = 0; i <= 2 * IS_ITERATIONS; i++)
        s->changed[i] = has_key(s, i) ? s->key[i - s->first] : 0;
    iterate(rank, s, 1);
    exchange_is_over(rank);
    return s;
}

static void repeat(struct rank *rank, void *state)
{
    struct is *s = state;
    s->right = 0;
    for (int32_t i = 0; i <= 2 * IS_ITERATIONS; i++)
        set_key(s, i, s->changed[i]);
    for (int i = 1; i <= IS_ITERATIONS; i++) {
        s->right += iterate(rank, s, i);
        exchange_is_over(rank);
    }
}

/*
 * Sorts this rank's keys by their ranks, after one more iteration, and returns
 * the number of keys in their right place: after a key that is not greater.  Uses
 * up the ranks.
 */
static int32_t sort(struct is *s, int me, int64_t *sum)
{
    const int32_t low = s->share[me] << s->shift;
    const int32_t begin = s->begin[s->share[me]];
    const int32_t many = s->begin[s->share[me + 1]] - begin;
    int32_t *sorted = fresh((size_t)many, sizeof *sorted);
    int32_t in_order = 0;

    for (int32_t i = 0; i < many; i++)
        sorted[i] = -1; /* shows places that no key gets */
    for (int from = 0; from < s->ranks; from++) {
        size_t taken;
        const int32_t *key = arrived(s, from, &taken);
        for (size_t i = 0; i < taken; i++) {
            const int32_t place = s->rank[key[i] - low]++ - begin;
            if (place >= 0 && place < many)
                sorted[place] = key[i];
        }
    }
    /* Keys of other ranks' buckets are below `low`, or above. */
    for (int32_t i = 0; i < many; i++) {
        if (sorted[i] >= (i == 0 ? low : sorted[i - 1]) && sorted[i] >> s->shift < s->share[me + 1])
            in_order++;
        *sum += sorted[i];
    }
    give_back(sorted, (size_t)many, sizeof *sorted);
    return in_order;
}

static bool is_right(struct rank *rank, void *state)
{
    struct is *s = state;
    int64_t change = 0;
    iterate(rank, s, IS_ITERATIONS);
    const int32_t in_order = sort(s, rank->me, &change);
    exchange_is_over(rank);
    for (int32_t i = 0; i < s->count; i++)
        change -= s->key[i];
    /* Whole numbers that a double holds. */
    const double mine[3] = {s->right, in_order, (double)change};
    double all[3] = {0.0, 0.0, 1.0};
    all_sum(rank, mine, all, 3, NUMBER_F64);
    const bool tested = rank->job->keys != KEYS_BELL || all[0] == IS_ITERATIONS * IS_TEST_KEYS;
    return tested && all[1] == s->keys && all[2] == 0.0;
}

const struct kernel_program kernel_is = {"is", outgoing_bytes, ranks_max, operations, prepare, repeat, is_right};
