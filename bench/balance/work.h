/*
 * The work: a chain of integer steps, each of which needs the one before.  It
 * touches no memory and is not made faster by neighbouring threads, so that a
 * thread's CPU time is its progress.
 */
#ifndef BENCH_BALANCE_WORK_H
#define BENCH_BALANCE_WORK_H

#include <stdint.h>

/* The state after this number of further steps. */
uint64_t work(uint64_t state, uint64_t steps);

/* The same state computed in about 64 steps: the expected result of the work. */
uint64_t work_expected(uint64_t state, uint64_t steps);

/* Steps per second of an undisturbed thread: the best of several trials. */
double work_rate(void);

#endif
