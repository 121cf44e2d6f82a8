/*
 * A barrier whose waiters spin, yield, sleep, or spin briefly and then sleep.
 */
#ifndef BENCH_BALANCE_BARRIER_H
#define BENCH_BALANCE_BARRIER_H

#include <stdatomic.h>
#include <stdint.h>

enum wait { WAIT_SPIN, WAIT_YIELD, WAIT_SLEEP, WAIT_HYB };
extern const char *const wait_words[];

/* One cache line for the arrivals and one that the waiters read. */
struct barrier {
    _Alignas(64) _Atomic unsigned arrived;
    _Alignas(64) _Atomic uint32_t round;
    _Alignas(64) unsigned threads;
    enum wait wait;
};

void barrier_wait(struct barrier *barrier);

#endif
