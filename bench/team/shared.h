/*
 * Collective operations as usually written by hand over memory that all ranks
 * see: copy, barrier, copy, barrier.
 *
 * Threads read each other's buffers in place.  Processes have buffers of their
 * own, as those of MPI do, and so copy into a shared mapping first and out of it
 * in the end.  Every operation has two barriers: one when the data are there,
 * one when they are not needed any more.
 */
#ifndef BENCH_TEAM_SHARED_H
#define BENCH_TEAM_SHARED_H

#include "team/measure.h"

/* Data shared by all ranks; a program appends its barrier. */
struct shared {
    void (*barrier)(struct rank *rank);
    bool staged;                      /* ranks are processes */
    unsigned char *sources[RANKS_MAX]; /* where others read what a rank has: its buffer, or its slot of the mapping */
    unsigned char *result;            /* of a reduction */
    double *table;                    /* of shared_gather */
};

/*
 * Maps memory for `cell` before there are ranks, so that children share it.
 * Ends the program if there is none.
 */
void shared_begin(struct shared *shared, const struct cell *cell);

/* For struct peer; rank->team must be a struct shared. */
void shared_prepare(struct rank *rank);
void shared_bcast(struct rank *rank);
void shared_allreduce(struct rank *rank);
void shared_alltoall(struct rank *rank);
void shared_gather(struct rank *rank, const double *mine, int count, double *all);

#endif
