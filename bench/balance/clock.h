/*
 * Clocks, in seconds.  To be included after a feature macro for clock_gettime.
 */
#ifndef BENCH_BALANCE_CLOCK_H
#define BENCH_BALANCE_CLOCK_H

#include <time.h>

static inline double seconds_of(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0.0;
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
