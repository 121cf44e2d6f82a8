/*
 * The NAS pseudorandom number generator.
 *
 * Linear congruential, modulo 2^46 (RNR-94-007, "A Pseudorandom Number Generator
 * for the Parallel NAS Kernels"):
 *
 *     x[k+1] = a x[k]  mod 2^46,        r[k] = 2^-46 x[k],   0 < r[k] < 1.
 *
 * With an odd seed and a = 5^13 the period is 2^44.  Since
 * x[k+n] = a^n x[k] mod 2^46, any point of the stream can be reached in
 * O(log n) multiplications; the parallel kernels use this to let each thread
 * start at its own part of one common stream.
 *
 * The published description works in double precision halves because it dates
 * from machines without 64-bit integers.  Here seeds are plain integers; the
 * sequence is the same, bit for bit.
 */
#ifndef BENCH_COMMON_RANDOM_H
#define BENCH_COMMON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* The multiplier that every NAS kernel uses, 5^13. */
#define RANDLC_MULTIPLIER UINT64_C(1220703125)

/* Advances the seed *x by one step and returns the new value in (0, 1). */
double randlc(uint64_t *x, uint64_t a);

/* Fills y[0..n) with the next n values of the stream and advances *x past them. */
void vranlc(size_t n, uint64_t *x, uint64_t a, double *y);

/* a^n mod 2^46: the multiplier that advances a stream by n steps at once. */
uint64_t randlc_power(uint64_t a, uint64_t n);

/* The seed n steps after x. */
uint64_t randlc_skip(uint64_t x, uint64_t a, uint64_t n);

#endif
