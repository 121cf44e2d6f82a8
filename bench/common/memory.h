/*
 * Array storage for NUMA measurements.
 *
 * Linux places a page on the node of the thread that first writes to it.  For
 * that to work, the pages must never have been touched before.  malloc cannot
 * promise this: it reuses memory that was freed earlier, already placed by its
 * first user.  The functions here map fresh pages from the system for every
 * array, so
 *
 *   - no page has a home until the program writes to it,
 *   - the contents read as zero, and
 *   - no two arrays share a page.
 *
 * The caller must therefore ensure that each part of an array is first written
 * by the thread that will use it: initialise in parallel, with the same static
 * schedule as the computation.
 */
#ifndef BENCH_COMMON_MEMORY_H
#define BENCH_COMMON_MEMORY_H

#include <stddef.h>

/*
 * An untouched array of count elements of the given size.  Ends the program
 * with a message and status BENCH_EXIT_CANNOT_RUN if there is no memory.
 * May be called by several threads at once.
 */
void *allocate_untouched(size_t count, size_t size);

/* Gives back an array allocated with the same count and size. */
void release(void *array, size_t count, size_t size);

/*
 * Ends the program with a message and status BENCH_EXIT_CANNOT_RUN if the
 * machine does not have that many bytes available.  Linux maps more than there
 * is, and kills a program that then writes to it; this function checks first.
 */
void require_memory(double bytes);

#endif
