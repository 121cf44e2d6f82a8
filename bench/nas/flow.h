/*
 * The flow problem of the NAS pseudo-applications BT, SP and LU, and of one zone
 * of their multi-zone versions.
 *
 * Problem: the compressible Navier-Stokes equations in a box, on a grid of points
 * with equal distances along each direction, with a forcing term chosen such that
 * polynomials given in the specification solve them exactly.  Each program marches
 * from a poor guess towards that solution by implicit time steps; they differ in
 * how a step solves its linear system, and in nothing else.
 *
 * Idea: one operator R, the spatial differences of fluxes, viscous terms and
 * fourth-order dissipation, serves everything.  The residual is R(u) + f, and
 * the forcing f is -R(exact).  R is the same along x, y and z but for the role
 * of the velocity's components, so it is written once, for any direction.
 *
 * Memory: 23 doubles a point.  Rows along x are dealt out to threads evenly, in the
 * order of y within z, and are first written by the thread that computes their residual.
 *
 * Source: D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA Ames,
 * 1994, section 3: the equations, their coefficients, the exact solution.
 */
#ifndef BENCH_NAS_FLOW_H
#define BENCH_NAS_FLOW_H

#include <stdbool.h>
#include <stddef.h>

/* Density, three momenta, energy: all per volume. */
#define FLOW_VARIABLES 5
#define FLOW_DIRECTIONS 3
#define FLOW_MAX_EXTENT 162

/* Coefficients of the specification. */
#define FLOW_GAMMA 1.4                  /* ratio of specific heats */
#define FLOW_GAS (FLOW_GAMMA - 1.0)     /* pressure over internal energy */
#define FLOW_VISCOSITY 0.1              /* c3 c4 */
#define FLOW_CONDUCTION 1.96            /* c1 c5, of energy per mass */
#define FLOW_DISSIPATION 0.25           /* of fourth order */

/* Quantities derived from a state that the operators need, computed once. */
struct flow_point {
    double inverse_density;
    double velocity[FLOW_DIRECTIONS];
    double kinetic;  /* energy per mass: half the velocity squared */
    double energy;   /* all energy, per mass */
    double pressure;
    double sound;    /* its speed */
};

struct handover;

struct flow {
    int extent[FLOW_DIRECTIONS];     /* points along x, y and z, with the border */
    double spacing[FLOW_DIRECTIONS]; /* h: the distance of two neighbours */
    double first[FLOW_DIRECTIONS];   /* 1 / 2h: weight of a central difference */
    double second[FLOW_DIRECTIONS];  /* 1 / h^2: weight of a second difference */
    double dt;
    double *u;     /* the state; FLOW_VARIABLES values a point, x runs fastest */
    double *forcing;
    double *residual; /* R(u) + f inside; what a solver makes of it; 0 on the border */
    struct flow_point *points;
    struct handover *handover; /* LU alone: how threads pass planes of a sweep on */
};

/* Linear second-order dissipation, by direction. */
static const double flow_diffusion[FLOW_DIRECTIONS] = {0.75, 0.75, 1.0};

/* From one point to the next along a direction. */
static inline size_t flow_stride(const struct flow *flow, int direction)
{
    const size_t nx = (size_t)flow->extent[0];
    return direction == 0 ? 1 : direction == 1 ? nx : nx * (size_t)flow->extent[1];
}

/* The number of a point in the fields. */
static inline size_t flow_index(const struct flow *flow, int z, int y, int x)
{
    return ((size_t)z * (size_t)flow->extent[1] + (size_t)y) * (size_t)flow->extent[0] + (size_t)x;
}

/* The fields of a box, with their forcing; flow_start must follow. */
struct flow make_flow(const int extent[FLOW_DIRECTIONS], const double spacing[FLOW_DIRECTIONS], double dt);

/* Sets the state to the initial guess: exact on the border, as that of the unit cube, and interpolated inside. */
void flow_start(const struct flow *flow);

/* Computes points and residual of the state.  The threads of the enclosing parallel region share this and
 * flow_advance, and must all call them. */
void flow_residual(const struct flow *flow);

/* Adds the residual, times this factor, to the state. */
void flow_advance(const struct flow *flow, double factor);

/* Roots of the mean squares over the inner points, by variable: of the residual, and of state minus exact solution.
 * They do not depend on the number of threads.  With the border, the squares of its points are added to the error's
 * sum, which is still divided by the number of inner points: the multi-zone versions of BT and SP define it so. */
void flow_residual_norms(const struct flow *flow, double norms[FLOW_VARIABLES]);
void flow_error_norms(const struct flow *flow, bool with_border, double norms[FLOW_VARIABLES]);

#endif
