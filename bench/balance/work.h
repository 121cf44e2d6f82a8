/*
 * The work: a chain of integer steps, each of which needs the one before.  It
 * touches no memory and gains nothing from its neighbours, so that a thread's
 * CPU time is its progress.
 */
#ifndef BENCH_BALANCE_WORK_H
#define BENCH_BALANCE_WORK_H

#include <stdint.h>

/* The state after so many more steps. */
uint64_t work(uint64_t state, uint64_t steps);

/* The same by arithmetic, in about 64 steps: what the work has to come to. */
uint64_t work_expected(uint64_t state, uint64_t steps);

/* Steps a second of a thread that nobody disturbs: the best of several trials. */
double work_rate(void);

#endif
