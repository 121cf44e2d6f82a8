/*
 * Wall-clock time.
 */
#ifndef BENCH_COMMON_TIMER_H
#define BENCH_COMMON_TIMER_H

/* Seconds since an arbitrary fixed moment, never running backwards. */
double wall_seconds(void);

#endif
