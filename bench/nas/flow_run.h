/*
 * Common part of the programs BT, SP and LU.
 */
#ifndef BENCH_NAS_FLOW_RUN_H
#define BENCH_NAS_FLOW_RUN_H

#include "common/arguments.h"
#include "common/problem_class.h"
#include "nas/flow.h"

struct flow_class {
    int n;
    int steps;
    double dt;
    double residual[FLOW_VARIABLES]; /* reference norms, after the last step */
    double error[FLOW_VARIABLES];
    double integral;                 /* over the surface; 0 where there is no reference */
};

struct flow_solver {
    struct bench_program program;
    const char *kernel;
    const struct flow_class *classes; /* CLASS_COUNT of them */
    /* Operations a step, of the reference programs: factors of n^3, n^2, n and 1. */
    double operations[4];
    /* Adds data of the solver's own to the fields, or NULL. */
    void (*prepare)(struct flow *flow);
    /* Turns the residual into the change of the state; called by all threads of a parallel region. */
    void (*solve)(const struct flow *flow);
    double factor; /* by which the change is then taken */
    /* A surface integral that is verified too, or NULL. */
    double (*integral)(const struct flow *flow);
};

/* The main program; returns the exit status. */
int run_flow(const struct flow_solver *solver, int argc, char **argv);

#endif
