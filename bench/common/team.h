/*
 * The OpenMP thread team.
 */
#ifndef BENCH_COMMON_TEAM_H
#define BENCH_COMMON_TEAM_H

/*
 * The number of threads a parallel region really gets, which may be fewer than
 * omp_get_max_threads() returns.  Also starts the runtime's worker threads, so
 * that a timed section after the call does not pay for their creation.
 */
int team_size(void);

#endif
