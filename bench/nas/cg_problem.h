/*
 * The problem of NAS kernel CG: the matrix's parameters, iterations, and the known eigenvalue.
 * Shared by the versions for threads and for ranks.
 */
#ifndef BENCH_NAS_CG_PROBLEM_H
#define BENCH_NAS_CG_PROBLEM_H

#include "common/problem_class.h"

#include <stdint.h>

#define CG_STEPS 25 /* of conjugate gradients in an iteration */
#define CG_MAX_ITERATIONS 75
#define CG_TOLERANCE 1e-10

struct cg_class {
    int32_t na;     /* order of the matrix */
    int32_t nonzer; /* random elements of each generating vector */
    int niter;      /* inverse power iterations */
    double shift;
    double zeta; /* reference value */
};

extern const struct cg_class cg_classes[CLASS_COUNT];

/* Floating point operations of the timed section, as NPB counts them. */
double cg_operations(const struct cg_class *problem);

#endif
