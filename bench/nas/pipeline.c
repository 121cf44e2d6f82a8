/*
 * Threads that pass planes on.  See pipeline.h.
 */
#define _DEFAULT_SOURCE

#include "nas/pipeline.h"

#include "common/memory.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

/* So many looks before the CPU is given away: some microseconds. */
#define LOOKS 2000

struct pipeline_stage {
    _Alignas(128) _Atomic size_t planes;
};

void pipeline_begin(struct pipeline *pipeline)
{
#pragma omp single
    {
        const int threads = omp_get_num_threads();
        if (pipeline->stages != NULL && pipeline->threads != threads) {
            release(pipeline->stages, (size_t)pipeline->threads, sizeof *pipeline->stages);
            pipeline->stages = NULL;
        }
        if (pipeline->stages == NULL)
            pipeline->stages = allocate_untouched((size_t)threads, sizeof *pipeline->stages);
        pipeline->threads = threads;
    }
    /* That single construct ends with a barrier, before which nobody may forget planes that another still waits for. */
    atomic_store(&pipeline->stages[omp_get_thread_num()].planes, 0);
#pragma omp barrier
}

void pipeline_await(const struct pipeline *pipeline, int thread, size_t planes)
{
    if (thread < 0 || thread >= pipeline->threads)
        return;
    const struct pipeline_stage *stage = &pipeline->stages[thread];
    for (unsigned looks = 1; atomic_load_explicit(&stage->planes, memory_order_acquire) < planes; looks++)
        if (looks % LOOKS == 0)
            sched_yield();
}

void pipeline_done(struct pipeline *pipeline, int thread, size_t planes)
{
    atomic_store_explicit(&pipeline->stages[thread].planes, planes, memory_order_release);
}
