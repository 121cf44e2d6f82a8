/*
 * Threads that pass planes of a sweep on to their neighbours.
 *
 * Each thread says how many planes it has done; the next waits until it has done
 * the one that it wants to begin.
 */
#ifndef BENCH_NAS_PIPELINE_H
#define BENCH_NAS_PIPELINE_H

#include <stddef.h>

struct pipeline {
    struct pipeline_stage *stages; /* one for each thread, on lines of their own */
    int threads;
};

/* Begins a sweep, when all threads have ended the last; all threads of the parallel region must call this. */
void pipeline_begin(struct pipeline *pipeline);

/* Waits until a thread has done so many planes; a thread that is not there has done all. */
void pipeline_await(const struct pipeline *pipeline, int thread, size_t planes);

/* Says so of the calling thread. */
void pipeline_done(struct pipeline *pipeline, int thread, size_t planes);

#endif
