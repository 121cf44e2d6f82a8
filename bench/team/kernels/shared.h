/*
 * Interface of the kernels for ranks that are threads, written by hand: all
 * ranks see each other's memory, and wait at barriers.
 */
#ifndef BENCH_TEAM_KERNELS_SHARED_H
#define BENCH_TEAM_KERNELS_SHARED_H

#include "team/kernels/kernel.h"

/* Data shared by all ranks; rank->team points to it.  Initially zero. */
struct shared {
    const void *given[RANKS_MAX];       /* what each rank lets others see, from one barrier to the next */
    unsigned char *outgoing[RANKS_MAX];
};

/* For struct ways, all but the barrier. */
void shared_sum(struct rank *rank, const void *in, void *out, size_t count, enum number type);
void shared_alltoall(struct rank *rank, const void *in, void *out, size_t bytes);
void shared_gather(struct rank *rank, const double *mine, int count, double *all);
unsigned char *shared_outgoing(struct rank *rank, size_t bytes);
void shared_exchange(struct rank *rank, struct parcels *parcels);
void shared_over(struct rank *rank);

#endif
