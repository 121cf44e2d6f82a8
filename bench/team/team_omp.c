/*
 * An OpenMP team.  The compiler decides the runtime: libgomp with gcc, libomp
 * with clang.  Its settings (OMP_WAIT_POLICY, KMP_*) come from the environment,
 * as for every program.
 *
 * The operations are shared_...() between `#pragma omp barrier`s.  The clause
 * reduction(+: array) is not used: both runtimes put an array for each thread on
 * its stack, and add them up one thread after the other.
 */
#include "team/shared.h"

#include <omp.h>
#include <stdlib.h>

#ifdef __clang__
#define RUNTIME "libomp"
#else
#define RUNTIME "libgomp"
#endif

static void barrier(struct rank *rank)
{
    (void)rank;
#pragma omp barrier
}

static const struct peer peer = {
    .name = RUNTIME,
    .operate = {barrier, shared_bcast, shared_allreduce, shared_alltoall},
    .prepare = shared_prepare,
    .gather = shared_gather,
};

int main(int argc, char **argv)
{
    static struct shared shared = {.barrier = barrier};
    const struct cell cell = read_cell("team_" RUNTIME, false, true, argc, argv);
    int status = TEAM_EXIT_CANNOT_RUN;
    shared_begin(&shared, &cell);
    omp_set_dynamic(0);
#pragma omp parallel num_threads(cell.ranks)
    {
        struct rank rank = {.cell = &cell, .me = omp_get_thread_num(), .team = &shared};
        if (omp_get_num_threads() != cell.ranks)
            cannot("get a team of all threads");
        const int mine = measure(&peer, &rank);
        if (rank.me == 0)
            status = mine;
    }
    return status;
}
