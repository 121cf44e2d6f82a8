/*
 * NAS pseudo-application LU, "lower-upper".
 *
 * Problem.  The flow problem of flow.h, by implicit time steps, and an integral
 * of the pressure over a surface inside.
 *
 * Method.  The step's linear system, of one 5 x 5 block for each point and one
 * for each of its six neighbours, is solved approximately by one step of
 * symmetric successive over-relaxation: a sweep from the corner where all
 * coordinates are least, in which each point needs its three neighbours before
 * it, and one back, in which it needs the three behind.  A point's own block has
 * only viscous terms, which makes it lower triangular.
 *
 * Threads pass the planes of a sweep on to each other (lu_sweeps.h), by counters: a
 * thread may be several planes ahead, and one that waits long gives its CPU away.
 * lu-flags is the same with the flags of the reference program.
 *
 * Memory.  That of the flow problem.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, section 3; class sizes, reference values, tolerance and operation
 * count as published with NPB 3.
 */
#include "nas/handover.h"
#include "nas/lu_problem.h"

static void prepare(struct flow *flow)
{
    flow->handover = make_handover(HANDOVER_COUNTERS);
}

int main(int argc, char **argv)
{
    const struct bench_program program = {"lu", "NAS pseudo-application LU: a flow by symmetric over-relaxation"};
    return run_lu(program, "LU", prepare, argc, argv);
}
