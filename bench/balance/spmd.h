/*
 * Common part of the programs with equal threads: their options, the work of
 * each thread, and the report.
 */
#ifndef BENCH_BALANCE_SPMD_H
#define BENCH_BALANCE_SPMD_H

#include "balance/meter.h"
#include "balance/options.h"

#include <stdbool.h>
#include <stdint.h>

#define THREADS_MAX 4096

struct spmd {
    struct balance_program program;
    long long threads;
    double work;  /* seconds of CPU time a thread */
    double phase; /* seconds of it between two barriers; 0 for one barrier at the end */
    double rate;  /* steps a second; 0 to measure */
    bool calibrate;
    struct counts hogs;
    /* Derived from the work above: */
    uint64_t phases;
    uint64_t steps; /* of a thread in a phase */
};

/* Results of a thread, on cache lines of its own. */
struct worker {
    _Alignas(64) uint64_t state;
    double compute;         /* CPU seconds of its work */
    double cpu;             /* and of all it did, waiting too */
    double arrived;         /* at the last barrier, on CLOCK_MONOTONIC */
    long long voluntary;    /* switches */
    long long involuntary;
};

/* Common options, with room for more; reads them, calibrates if requested, and divides the work. */
void spmd_begin(struct spmd *spmd, const struct balance_option *more, size_t count, int argc,
                char **argv);

/* Runs one phase of one worker. */
void spmd_phase(const struct spmd *spmd, struct worker *worker);

/* Begins and ends a worker, in its own thread. */
void spmd_enter(struct worker *worker, uint64_t number);
void spmd_leave(struct worker *worker);

/* Verifies and reports on one line of JSON; returns the exit status. */
int spmd_report(const struct spmd *spmd, const struct worker *workers, const char *wait,
                bool pinned, double began, double seconds, const struct meter *before,
                const struct meter *after);

#endif
