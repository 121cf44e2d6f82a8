/*
 * The kernels by the threads of an OpenMP team, in the role of ranks.  The
 * compiler decides the runtime: libgomp with gcc, libomp with clang.  The
 * environment (OMP_WAIT_POLICY, KMP_*) decides how they wait.
 *
 * The kernels as OpenMP programs are usually written, with shared loops, are
 * nas/ft.c and nas/is.c.
 */
#include "team/kernels/shared.h"

#include <omp.h>

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

static const struct ways ways = {
    .name = RUNTIME,
    .kind = "thread",
    .barrier = barrier,
    .sum = shared_sum,
    .alltoall = shared_alltoall,
    .gather = shared_gather,
    .outgoing = shared_outgoing,
    .exchange = shared_exchange,
    .over = shared_over,
};

int main(int argc, char **argv)
{
    static struct shared shared;
    const struct job job = read_job("kernels_" RUNTIME, false, true, argc, argv);
    int status = TEAM_EXIT_CANNOT_RUN;
    omp_set_dynamic(0);
#pragma omp parallel num_threads(job.ranks)
    {
        struct rank rank = {.job = &job, .ways = &ways, .me = omp_get_thread_num(), .team = &shared};
        if (omp_get_num_threads() != job.ranks)
            cannot("get a team of all threads");
        const int mine = run_kernel(&rank);
        if (rank.me == 0)
            status = mine;
    }
    return status;
}
