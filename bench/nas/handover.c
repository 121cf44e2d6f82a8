/*
 * Threads that pass planes on.  See handover.h.
 */
#define _DEFAULT_SOURCE

#include "nas/handover.h"

#include "common/memory.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

/* Readings of a counter before the CPU is yielded: some microseconds. */
#define LOOKS 2000

/* Progress of a thread: the number of its planes, or whether one is done that has not been taken. */
struct stage {
    _Alignas(128) atomic_int done;
};

struct handover {
    enum handover_kind kind;
    struct stage *stages; /* one for each rank, on lines of their own */
};

struct handover *make_handover(enum handover_kind kind)
{
    struct handover *handover = allocate_untouched(1, sizeof *handover);
    handover->kind = kind;
    handover->stages = allocate_untouched((size_t)omp_get_max_threads(), sizeof *handover->stages);
    return handover;
}

void handover_begin(struct handover *handover)
{
#pragma omp barrier
    /* All flags of the last sweep have been lowered by the threads that they were raised
     * for. */
    if (handover->kind == HANDOVER_FLAGS)
        return;
    atomic_store(&handover->stages[omp_get_thread_num()].done, 0);
#pragma omp barrier
}

static void await_count(struct stage *stage, int plane)
{
    for (unsigned looks = 1; atomic_load_explicit(&stage->done, memory_order_acquire) < plane; looks++)
        if (looks % LOOKS == 0)
            sched_yield();
}

static void await_flag(struct stage *stage, int value)
{
    while (atomic_load_explicit(&stage->done, memory_order_acquire) != value)
        continue;
}

void handover_await(struct handover *handover, int rank, int plane)
{
    if (rank == 0)
        return;
    struct stage *before = &handover->stages[rank - 1];
    if (handover->kind == HANDOVER_COUNTERS) {
        await_count(before, plane);
    } else {
        await_flag(before, 1);
        atomic_store_explicit(&before->done, 0, memory_order_release);
    }
}

void handover_pass(struct handover *handover, int rank, int plane)
{
    /* After the last rank there is no thread to lower a flag. */
    if (rank == omp_get_num_threads() - 1)
        return;
    struct stage *own = &handover->stages[rank];
    if (handover->kind == HANDOVER_COUNTERS) {
        atomic_store_explicit(&own->done, plane, memory_order_release);
    } else {
        await_flag(own, 0);
        atomic_store_explicit(&own->done, 1, memory_order_release);
    }
}
