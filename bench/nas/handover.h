/*
 * Handover of planes of a sweep between neighbouring threads, and their way to wait.
 *
 * The threads of a team form a line, by their ranks.  Rank r begins a plane when rank r - 1
 * has done its part of that plane.
 */
#ifndef BENCH_NAS_HANDOVER_H
#define BENCH_NAS_HANDOVER_H

enum handover_kind {
    /* Each thread counts the planes that it has done, and may be any number of planes ahead.  Waiting threads spin, and
     * yield the CPU after some time. */
    HANDOVER_COUNTERS,
    /* Each thread has one flag, which it raises for a plane and its neighbour lowers: a thread is at most one plane
     * ahead.  Waiting for either is by spinning, and nothing else: the OpenMP runtime does not know of it, so no wait
     * policy affects it, and with more threads than CPUs a thread spins through its time slice while the thread that it
     * waits for has no CPU.  The reference programs of LU and LU-MZ wait in this way. */
    HANDOVER_FLAGS
};

struct handover;

/* Creates a handover for teams with at most as many threads as a parallel region that
 * begins here. */
struct handover *make_handover(enum handover_kind kind);

/* Begins a sweep when all threads have ended the last one; all threads of the parallel region must call this. */
void handover_begin(struct handover *handover);

/* Waits until the thread of the rank before has passed this plane; planes of a sweep are numbered from 1. */
void handover_await(struct handover *handover, int rank, int plane);

/* Signals to the thread of the next rank that this plane is done. */
void handover_pass(struct handover *handover, int rank, int plane);

#endif
