/*
 * The work.  See work.h.
 */
#define _POSIX_C_SOURCE 200809L

#include "balance/work.h"

#include "balance/clock.h"

/* Knuth's MMIX generator, for its full period; nothing else depends on the numbers. */
#define FACTOR UINT64_C(6364136223846793005)
#define ADDEND UINT64_C(1442695040888963407)

#define TRIALS 15
#define TRIAL_STEPS UINT64_C(20000000)

uint64_t work(uint64_t state, uint64_t steps)
{
    for (uint64_t step = 0; step < steps; step++) {
        state = state * FACTOR + ADDEND;
        /* Keeps Clang from merging eight steps into one: the rate measured with one compiler is used
         * for the other. */
        __asm__ volatile("" : "+r"(state));
    }
    return state;
}

uint64_t work_expected(uint64_t state, uint64_t steps)
{
    /* A step is x -> f x + a; two steps make one of the same form, and so on by doubling. */
    uint64_t factor = FACTOR;
    uint64_t addend = ADDEND;
    for (; steps > 0; steps >>= 1) {
        if (steps & 1)
            state = state * factor + addend;
        addend += factor * addend;
        factor *= factor;
    }
    return state;
}

double work_rate(void)
{
    double best = 0.0;
    volatile uint64_t sink = 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        const double start = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        sink = work(sink, TRIAL_STEPS);
        const double rate =
            (double)TRIAL_STEPS / (seconds_of(CLOCK_THREAD_CPUTIME_ID) - start);
        if (rate > best)
            best = rate;
    }
    return best;
}
