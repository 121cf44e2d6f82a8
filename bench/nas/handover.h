/*
 * How threads pass planes of a sweep on to their neighbours, and how they wait for them.
 *
 * The threads of a team stand in a line, by their ranks.  Rank r begins with a plane when
 * rank r - 1 has done its part of the same.
 */
#ifndef BENCH_NAS_HANDOVER_H
#define BENCH_NAS_HANDOVER_H

enum handover_kind {
    /* Each thread counts the planes that it has done, and may be any number of planes ahead.  Waiting is by spinning, with
     * the CPU given away when it takes long. */
    HANDOVER_COUNTERS,
    /* Each thread has one flag, which it raises for a plane and its neighbour lowers: a thread is at most one plane
     * ahead.  Waiting for either is by spinning, and nothing else: the OpenMP runtime does not know of it, so no wait
     * policy reaches it, and with more threads than CPUs a thread spins through its turn while the one that it waits for
     * has none.  The reference programs of LU and LU-MZ wait so. */
    HANDOVER_FLAGS
};

struct handover;

/* One for teams of at most as many threads as a parallel region that begins here has. */
struct handover *make_handover(enum handover_kind kind);

/* Begins a sweep when all threads have ended the last; all threads of the parallel region must call this. */
void handover_begin(struct handover *handover);

/* Waits until the thread of the rank before has passed this plane; planes of a sweep are numbered from 1. */
void handover_await(struct handover *handover, int rank, int plane);

/* Tells the thread of the next rank that this plane is done. */
void handover_pass(struct handover *handover, int rank, int plane);

#endif
