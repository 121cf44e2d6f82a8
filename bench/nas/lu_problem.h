/*
 * Common part of the programs of LU with one zone: classes, reference values, the step.
 */
#ifndef BENCH_NAS_LU_PROBLEM_H
#define BENCH_NAS_LU_PROBLEM_H

#include "nas/flow_run.h"

/* The main program; returns the exit status.  prepare adds the handover. */
int run_lu(struct bench_program program, const char *kernel, void (*prepare)(struct flow *flow), int argc, char **argv);

#endif
