/*
 * Solution of LU's linear system for a step: one step of symmetric successive
 * over-relaxation.
 *
 * A sweep goes from the corner where all coordinates are least, in which each point needs
 * its three neighbours before it, and a second one goes back, in which each needs the three
 * behind.  Within a sweep planes of z follow each other.  In each plane threads have ranges
 * of y; a thread begins a plane when its neighbour has done its range of that plane.  After
 * a few planes all threads work, each one plane behind the thread that it waits for.  The
 * handover defines how they wait.
 */
#ifndef BENCH_NAS_LU_SWEEPS_H
#define BENCH_NAS_LU_SWEEPS_H

#include "nas/flow.h"

/* Omega of the over-relaxation, and the factor by which the resulting change is
 * taken. */
#define LU_RELAXATION 1.2
#define LU_FACTOR (1.0 / (LU_RELAXATION * (2.0 - LU_RELAXATION)))

/* Turns the residual into the change of the state; called by all threads of a parallel region.  The flow has a handover. */
void lu_sweeps(const struct flow *flow);

/* The pressure over the surface of the box inside that the specification names, by the trapezoidal rule.  Points are
 * those of the last residual. */
double lu_surface_integral(const struct flow *flow);

#endif
