/*
 * One cell of the comparison: a number of ranks, one operation, one size, one
 * call mode, measured in batches with one line of JSON each.
 *
 *     PROGRAM -n RANKS -o barrier|bcast|allreduce|alltoall -z BYTES
 *             -m stream|strict -B BATCHES -T MS_PER_BATCH [-p]
 *
 * Libraries differ in how ranks are created and in how they exchange data, and
 * a program here defines only that (struct peer).  The rest decides whether
 * results are comparable, and is therefore written once:
 *
 *   - results are verified before anything is measured, and again after every
 *     batch, with values that change from batch to batch: an operation that
 *     returns old data is detected;
 *   - every rank rewrites its buffers before each batch;
 *   - a batch lasts as long as requested, with as many calls as that takes, the
 *     same number in every rank;
 *   - its time is that of the slowest rank, its CPU time that of all ranks;
 *   - the share of the machine that other processes used is reported with it.
 *
 * "stream" calls follow each other and ranks may drift apart as far as the
 * operation lets them, as in MPI.  "strict" puts a barrier before and one after
 * each call.  The barrier itself is the same in both.
 */
#ifndef BENCH_TEAM_MEASURE_H
#define BENCH_TEAM_MEASURE_H

#include "team/machine.h"

#include <stdbool.h>
#include <stddef.h>

/* Largest number of values that a rank gathers at a time. */
#define GATHER_MAX 4

enum op { OP_BARRIER, OP_BCAST, OP_ALLREDUCE, OP_ALLTOALL, OP_COUNT };

struct cell {
    int ranks;
    enum op op;
    size_t bytes;    /* of the array; for all-to-all of the block from each rank to each; 0 for a barrier */
    bool strict;
    int batches;
    double seconds;  /* that a batch shall last */
    bool pinned;     /* rank i on the CPU i modulo their number, of those allowed at the start */
    bool processes;  /* ranks are processes, for a program that can have both */
};

/* A rank, in its own thread or process. */
struct rank {
    const struct cell *cell;
    int me;
    unsigned char *in;  /* of broadcast: what the root sends and the others receive */
    unsigned char *out; /* of allreduce and all-to-all */
    void *team;         /* the program's own */
};

/* Bytes of each of a rank's two buffers. */
size_t buffer_bytes(const struct cell *cell);

typedef void operation(struct rank *rank);

/* Implementation of the operations by a library. */
struct peer {
    const char *name;              /* in the report: "openmpi" */
    bool processes;                /* ranks are processes here */
    operation *operate[OP_COUNT];  /* root is rank 0; allreduce adds doubles */
    operation *prepare;            /* after the buffers are there, before anything is called; may be NULL */
    /* Gives every rank `count` numbers of every rank, at all[rank * count]. */
    void (*gather)(struct rank *rank, const double *mine, int count, double *all);
};

/*
 * Reads the command line.  Ends the program for -h, and with TEAM_EXIT_BAD_USAGE
 * for an invalid command line; prints a message only if `loud`, so that only one
 * of many ranks with the same command line does.
 */
struct cell read_cell(const char *program, bool may_choose_kind, bool loud, int argc, char **argv);

/*
 * Measures the cell; called by all ranks, with `cell`, `me` and `team` set.
 * Rank 0 prints.  Returns the exit status, the same in every rank.
 */
int measure(const struct peer *peer, struct rank *rank);

#endif
