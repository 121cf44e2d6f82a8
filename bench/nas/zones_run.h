/*
 * Common part of the multi-zone benchmarks BT-MZ, SP-MZ and LU-MZ.
 *
 * A step: each zone takes the values at its sides from its neighbours, then is a flow problem
 * of its own until the next step.  There are two levels of threads, as
 * OMP_NUM_THREADS=OUTER,INNER names them: zones are distributed over the threads of an outer
 * team, and each of these works on its zones one by one with an inner team of its own.  Each
 * phase of a step is a parallel region of the inner team, as in the reference programs.
 */
#ifndef BENCH_NAS_ZONES_RUN_H
#define BENCH_NAS_ZONES_RUN_H

#include "common/arguments.h"
#include "common/problem_class.h"
#include "common/report.h"
#include "nas/zones.h"

/* Norms of the residual and of the error, and an integral. */
#define ZONES_VALUES (2 * FLOW_VARIABLES + 1)
#define ZONES_PHASES_MAX 8

struct zones_class {
    struct zones_cut cut;
    int steps;
    double dt;
    double residual[FLOW_VARIABLES]; /* reference norms after the last step, summed over zones */
    double error[FLOW_VARIABLES];
    double integral;                 /* over the surface, likewise; 0 where there is no reference */
};

struct zones_solver {
    struct bench_program program;
    const char *kernel;
    const struct zones_class *classes; /* CLASS_COUNT of them */
    /* Operations a step and zone, of the reference programs: factors of points, mean face, mean side and 1. */
    double operations[4];
    /* Whether the distance of points is 1 over a zone's intervals; if not, it is the number of zones over those of the
     * whole mesh, which differs a little. */
    bool spacing_of_zone;
    bool border_in_error; /* as in flow_error_norms */
    /* Adds data of the solver's own to a zone's fields, or NULL. */
    void (*prepare)(struct flow *flow);
    /* A step of one zone when its sides are up to date; each is called by all threads of a parallel region.  Ended by NULL. */
    void (*phases[ZONES_PHASES_MAX])(const struct flow *flow);
    /* A surface integral that is verified too, or NULL. */
    double (*integral)(const struct flow *flow);
};

/* The solver of a program; each program defines its own. */
extern const struct zones_solver zones_solver;

/* Sets up, solves and verifies: fills in values and all of the report but kernel and class.  The values are reached by
 * report->values. */
void zones_solve(const struct zones_solver *solver, const struct zones_class *problem, struct bench_report *report,
                 struct bench_value values[ZONES_VALUES]);

/* The requested size of the outer team, and of the inner teams on average. */
void zones_shape(const struct zones_class *problem, int *outer, int *inner);

#endif
