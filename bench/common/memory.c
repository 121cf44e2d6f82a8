/*
 * Array storage by anonymous mappings.  See memory.h.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "common/memory.h"

#include "common/report.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

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

/* Memory available without swapping: the kernel's estimate, else all memory. */
static double available_memory(void)
{
    unsigned long long kibibytes = 0;
    bool found = false;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file != NULL) {
        char line[256];
        while (!found && fgets(line, sizeof line, file) != NULL)
            found = sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1;
        fclose(file);
    }
    if (found)
        return 1024.0 * (double)kibibytes;
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

void require_memory(double bytes)
{
    const double available = available_memory();
    if (bytes > available) {
        fprintf(stderr, "not enough memory: %.0f MiB are needed, %.0f MiB are available\n",
                bytes / 0x1p20, available / 0x1p20);
        exit(BENCH_EXIT_CANNOT_RUN);
    }
}
