/*
 * Equal threads with barriers, as an OpenMP team.
 *
 * The same work and report as balance_spmd, but the OpenMP runtime decides how
 * threads wait: the effect of OMP_WAIT_POLICY and similar variables is measured.
 * OMP_NUM_THREADS gives the number of threads, as in users' programs.
 */
#define _GNU_SOURCE

#include "balance/clock.h"
#include "balance/spmd.h"

#include <omp.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct spmd spmd = {.program = {"balance_omp", "equal OpenMP threads with barriers"},
                        .threads = omp_get_max_threads(),
                        .work = 1.0};
    spmd_begin(&spmd, NULL, 0, argc, argv);
    const size_t threads = (size_t)spmd.threads;
    struct worker *workers = aligned_alloc(_Alignof(struct worker), threads * sizeof *workers);
    if (workers == NULL)
        give_up(&spmd.program, "not enough memory");
    struct meter before = {0};
    double began = 0.0;
    int team = 0;

#pragma omp parallel num_threads((int)threads)
    {
        const int number = omp_get_thread_num();
        spmd_enter(&workers[number], (uint64_t)number);
#pragma omp barrier
#pragma omp single
        {
            team = omp_get_num_threads();
            before = read_meter(&spmd.hogs);
            began = seconds_of(CLOCK_MONOTONIC);
        }
        if (team == (int)threads)
            for (uint64_t phase = 0; phase < spmd.phases; phase++) {
                spmd_phase(&spmd, &workers[number]);
#pragma omp barrier
            }
        spmd_leave(&workers[number]);
    }
    const double seconds = seconds_of(CLOCK_MONOTONIC) - began;
    const struct meter after = read_meter(&spmd.hogs);
    if (team != (int)threads)
        give_up(&spmd.program, "the runtime gives fewer threads than asked for");
    const int status =
        spmd_report(&spmd, workers, "runtime", false, began, seconds, &before, &after);
    free(workers);
    return status;
}
