/*
 * The problem of NAS kernel EP: number of pairs, batches, and known sums.
 * Shared by the versions for threads and for ranks.
 */
#ifndef BENCH_NAS_EP_PROBLEM_H
#define BENCH_NAS_EP_PROBLEM_H

#include "common/problem_class.h"

#include <stddef.h>
#include <stdint.h>

#define EP_BATCH_LOG2 16
#define EP_BATCH_NUMBERS ((size_t)2 << EP_BATCH_LOG2)
#define EP_ANNULI 10 /* the fixed stream has no deviate near 10 */
#define EP_TOLERANCE 1e-8

struct ep_class {
    int m;     /* log2 of the number of pairs */
    double sx; /* reference sums */
    double sy;
};

extern const struct ep_class ep_classes[CLASS_COUNT];

/* Sums and counts of a set of Gaussian pairs. */
struct tally {
    double sx;
    double sy;
    int64_t count[EP_ANNULI];
};

void add_tally(struct tally *total, const struct tally *part);

/* Turns a batch of uniform pairs into Gaussian pairs and adds them; `uniform` has room for a batch. */
void tally_batch(int64_t batch, double *uniform, struct tally *total);

#endif
