/*
 * What the kernels need of UPC++, as C functions: ranks, sums, and one-sided reads of other ranks' memory.
 * A rank calls them from one thread; all but upcxx_read and upcxx_read_all are called by all ranks together.
 */
#ifndef BENCH_TEAM_UPCXX_RANKS_H
#define BENCH_TEAM_UPCXX_RANKS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts the ranks of this program.  With the conduit for one machine this call forks them. */
void upcxx_begin(int *me, int *ranks);
void upcxx_end(void);

void upcxx_meet(void);
void upcxx_sum_i32(const int32_t *in, int32_t *out, size_t count);
void upcxx_sum_f64(const double *in, double *out, size_t count);

/* Memory of this rank in the shared segment, filled with zeros; NULL if there is not enough.  Its number, from 0,
 * grows by one with each call. */
unsigned char *upcxx_area(size_t bytes);

/* Begins to read from place `at` of an area of another rank. */
void upcxx_read(int rank, int area, size_t at, void *to, size_t bytes);
/* Returns when all reads that were begun have ended. */
void upcxx_read_all(void);

#ifdef __cplusplus
}
#endif

#endif
