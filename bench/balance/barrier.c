/*
 * A central barrier with a counter of rounds.  See barrier.h.
 */
#define _GNU_SOURCE

#include "balance/barrier.h"

#include "balance/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Spinning time before sleeping: ten times the cost of sleeping and being
 * woken. */
#define MOMENT 50e-6
/* Iterations of the loop between two readings of the clock. */
#define TURNS 64

const char *const wait_words[] = {"spin", "yield", "sleep", "hyb", 0};

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void wait_for_change(struct barrier *barrier, uint32_t round)
{
    double until = 0.0;
    for (unsigned turn = 1; atomic_load_explicit(&barrier->round, memory_order_acquire) == round;
         turn++) {
        switch (barrier->wait) {
        case WAIT_SPIN:
            pause_cpu();
            break;
        case WAIT_YIELD:
            sched_yield();
            break;
        case WAIT_SLEEP:
            futex(&barrier->round, FUTEX_WAIT, round);
            break;
        case WAIT_HYB:
            pause_cpu();
            if (turn % TURNS != 0)
                break;
            const double now = seconds_of(CLOCK_MONOTONIC);
            if (until == 0.0)
                until = now + MOMENT;
            else if (now > until)
                futex(&barrier->round, FUTEX_WAIT, round);
            break;
        }
    }
}

void barrier_wait(struct barrier *barrier)
{
    const uint32_t round = atomic_load(&barrier->round);
    if (atomic_fetch_add(&barrier->arrived, 1) + 1 < barrier->threads) {
        wait_for_change(barrier, round);
        return;
    }
    atomic_store(&barrier->arrived, 0);
    atomic_store(&barrier->round, round + 1);
    if (barrier->wait == WAIT_SLEEP || barrier->wait == WAIT_HYB)
        futex(&barrier->round, FUTEX_WAKE, INT_MAX);
}
