/*
 * A delay: the work of a thread inside a synchronisation construct, so that the
 * construct is neither empty nor long.
 */
#ifndef BENCH_NESTED_DELAY_H
#define BENCH_NESTED_DELAY_H

/* Keeps a core busy for that many steps, touching no shared memory. */
void delay(long long length);

/* The length that takes about this number of nanoseconds on the calling thread. */
long long calibrated_delay(double nanoseconds);

#endif
