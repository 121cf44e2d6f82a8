/*
 * Equal threads that pass planes on, as an OpenMP team that waits by itself.
 *
 * The same work and report as balance_omp, but there are no barriers: phases are
 * the planes of sweeps, forth and back.  In a forward sweep a thread may begin a
 * plane when its predecessor has finished that plane, in a backward sweep when its
 * successor has.  It busy-waits on the neighbour's flag: it neither yields its
 * CPU, nor does the runtime know that it waits.  The published NAS LU for OpenMP
 * passes planes on in this way, and so do many programs with flags of their own;
 * OMP_WAIT_POLICY and similar variables have no effect on it.
 */
#define _GNU_SOURCE

#include "balance/clock.h"
#include "balance/spmd.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Planes of a sweep: those of LU, class W. */
#define PLANES 32

struct stage {
    _Alignas(128) _Atomic uint64_t phases;
};

static void await_neighbour(const struct stage *neighbour, uint64_t phases)
{
    while (atomic_load_explicit(&neighbour->phases, memory_order_acquire) < phases)
        ;
}

int main(int argc, char **argv)
{
    struct spmd spmd = {.program = {"balance_pipeline", "equal OpenMP threads that pass planes on"},
                        .threads = omp_get_max_threads(),
                        .work = 1.0,
                        .phase = 0.001};
    spmd_begin(&spmd, NULL, 0, argc, argv);
    const size_t threads = (size_t)spmd.threads;
    struct worker *workers = aligned_alloc(_Alignof(struct worker), threads * sizeof *workers);
    struct stage *stages = aligned_alloc(_Alignof(struct stage), threads * sizeof *stages);
    if (workers == NULL || stages == NULL)
        give_up(&spmd.program, "not enough memory");
    struct meter before = {0};
    double began = 0.0;
    int team = 0;

#pragma omp parallel num_threads((int)threads)
    {
        const int number = omp_get_thread_num();
        spmd_enter(&workers[number], (uint64_t)number);
        atomic_init(&stages[number].phases, 0);
#pragma omp barrier
#pragma omp single
        {
            team = omp_get_num_threads();
            before = read_meter(&spmd.hogs);
            began = seconds_of(CLOCK_MONOTONIC);
        }
        if (team == (int)threads)
            for (uint64_t phase = 1; phase <= spmd.phases; phase++) {
                const int neighbour = (phase - 1) / PLANES % 2 == 0 ? number - 1 : number + 1;
                if (neighbour >= 0 && neighbour < team)
                    await_neighbour(&stages[neighbour], phase);
                spmd_phase(&spmd, &workers[number]);
                atomic_store_explicit(&stages[number].phases, phase, memory_order_release);
            }
        spmd_leave(&workers[number]);
    }
    const double seconds = seconds_of(CLOCK_MONOTONIC) - began;
    const struct meter after = read_meter(&spmd.hogs);
    if (team != (int)threads)
        give_up(&spmd.program, "the runtime gives fewer threads than asked for");
    const int status = spmd_report(&spmd, workers, "flags", false, began, seconds, &before, &after);
    free(stages);
    free(workers);
    return status;
}
