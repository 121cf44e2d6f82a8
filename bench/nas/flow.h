/*
 * The flow problem of the NAS pseudo-applications BT, SP and LU.
 *
 * Problem: the compressible Navier-Stokes equations in the unit cube, on n points
 * a side, with a forcing term chosen such that polynomials given in the
 * specification solve them exactly.  Each program marches from a poor guess
 * towards that solution by implicit time steps; they differ in how a step solves
 * its linear system, and in nothing else.
 *
 * Idea: one operator R, the spatial differences of fluxes, viscous terms and
 * fourth-order dissipation, serves everything.  The residual is R(u) + f, and
 * the forcing f is -R(exact).  R is the same along x, y and z but for the role
 * of the velocity's components, so it is written once, for any direction.
 *
 * Memory: 23 doubles a point.  Planes along z are dealt out to threads evenly,
 * and are first written by the thread that computes their residual.
 *
 * Source: D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA Ames,
 * 1994, section 3: the equations, their coefficients, the exact solution.
 */
#ifndef BENCH_NAS_FLOW_H
#define BENCH_NAS_FLOW_H

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

/* What the operators need of a state, worked out once. */
struct flow_point {
    double inverse_density;
    double velocity[FLOW_DIRECTIONS];
    double kinetic;  /* energy per mass: half the velocity squared */
    double energy;   /* all energy, per mass */
    double pressure;
    double sound;    /* its speed */
};

struct flow {
    int n;
    double dt;
    double first;  /* 1 / 2h: weight of a central difference */
    double second; /* 1 / h^2: weight of a second difference */
    double *u;     /* the state; FLOW_VARIABLES values a point, x runs fastest */
    double *forcing;
    double *residual; /* R(u) + f inside; what a solver makes of it; 0 on the border */
    struct flow_point *points;
};

/* Linear second-order dissipation, by direction. */
static const double flow_diffusion[FLOW_DIRECTIONS] = {0.75, 0.75, 1.0};

/* From one point to the next along a direction. */
static inline size_t flow_stride(const struct flow *flow, int direction)
{
    const size_t n = (size_t)flow->n;
    return direction == 0 ? 1 : direction == 1 ? n : n * n;
}

/* The fields of a cube with n points a side, with their forcing; flow_start must follow. */
struct flow make_flow(int n, double dt);

/* Sets the state to the initial guess: exact on the border, interpolated inside. */
void flow_start(const struct flow *flow);

/* Works out points and residual of the state.  This and flow_advance are shared out among the threads of
 * the enclosing parallel region, which all must call them. */
void flow_residual(const struct flow *flow);

/* Adds so many times what is in residual to the state. */
void flow_advance(const struct flow *flow, double factor);

/* Roots of the mean squares over the inner points, by variable: of the residual, and of state minus exact solution.
 * They do not depend on the number of threads. */
void flow_residual_norms(const struct flow *flow, double norms[FLOW_VARIABLES]);
void flow_error_norms(const struct flow *flow, double norms[FLOW_VARIABLES]);

#endif
