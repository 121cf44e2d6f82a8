/*
 * The problem of NAS kernel MG: classes, stencils and known norms.  Shared by the versions for threads and for ranks.
 */
#ifndef BENCH_NAS_MG_PROBLEM_H
#define BENCH_NAS_MG_PROBLEM_H

#include "common/problem_class.h"
#include "nas/mg_grid.h"

#define MG_MAX_LEVELS 9 /* 2, 4, ..., 512 */
#define MG_TOLERANCE 1e-8
#define MG_OPERATIONS 58.0 /* for each point and iteration, as NPB counts them */

_Static_assert(MG_MAX_EXTENT == 1 << MG_MAX_LEVELS, "levels reach the largest extent");

/* A, which the iteration inverts. */
extern const struct mg_stencil mg_laplacian;

struct mg_class {
    int levels; /* the finest grid has 2 to this points a side */
    int iterations;
    const struct mg_stencil *smoother; /* C */
    double norm;                       /* of the last residual: reference value */
};

extern const struct mg_class mg_classes[CLASS_COUNT];

#endif
