/*
 * Array storage by anonymous mappings.  See memory.h.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "common/memory.h"

#include "common/report.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void *allocate_untouched(size_t count, size_t size)
{
    void *array = MAP_FAILED;
    if (size != 0 && count <= SIZE_MAX / size)
        array = mmap(NULL, count * size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array == MAP_FAILED) {
        fprintf(stderr, "cannot allocate an array of %zu x %zu bytes\n", count, size);
        exit(BENCH_EXIT_CANNOT_RUN);
    }
    return array;
}

void release(void *array, size_t count, size_t size)
{
    munmap(array, count * size);
}
