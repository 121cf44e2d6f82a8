/*
 * NAS pseudo-application LU, with threads that wait for each other as in the reference
 * program.
 *
 * Problem, method, memory and source are those of lu.c.  A thread that waits for a
 * neighbour's plane spins without limit on a flag in the program's own code, without
 * yielding its CPU.  With a CPU for each thread that is the fastest way to wait; with fewer
 * CPUs than threads, or with other work on one of them, it is the slowest.
 */
#include "nas/handover.h"
#include "nas/lu_problem.h"

static void prepare(struct flow *flow)
{
    flow->handover = make_handover(HANDOVER_FLAGS);
}

int main(int argc, char **argv)
{
    const struct bench_program program = {"lu-flags", "NAS pseudo-application LU, whose threads spin on flags of their own"};
    return run_lu(program, "LU-FLAGS", prepare, argc, argv);
}
