/*
 * The problem of NAS kernel FT: sizes, initial values, their decay, and the
 * expected result.  Shared by the versions for threads and for ranks.
 */
#ifndef BENCH_NAS_FT_PROBLEM_H
#define BENCH_NAS_FT_PROBLEM_H

#include "common/problem_class.h"
#include "nas/ft_transform.h"

#include <stdbool.h>

#define FT_CHECKSUM_POINTS 1024

struct ft_class {
    int nx, ny, nz;
    int iterations;
};

extern const struct ft_class ft_classes[CLASS_COUNT];

/* Row y of plane z of the initial values: the random stream, real and imaginary parts, x fastest. */
void ft_draw_row(const struct ft_class *problem, int y, int z, struct ft_complex *row);

/* The factors of one dimension at time t: the second half of n wave numbers is negative. */
void ft_decay(int n, int t, double *factor);

/* True if all checksums are within the relative tolerance; a NaN never is. */
bool ft_checksums_agree(const struct ft_complex *sums, const struct ft_complex *reference, int count);

/* Floating point operations of the timed section, as NPB counts them. */
double ft_operation_count(const struct ft_class *problem);

#endif
