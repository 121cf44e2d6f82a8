/* Prints for every thread of nested OpenMP teams, whose number and size are the arguments, its path, its mask and
   CPU, and the nodes of the pages that it touches. */
#include "seen.h"
#include "pages.h"
#include <omp.h>

int main(int argc, char **argv) {
    int outer = argc > 1 ? atoi(argv[1]) : 2, inner = argc > 2 ? atoi(argv[2]) : 2;
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(outer)
    {
        int team = omp_get_thread_num();
#pragma omp parallel num_threads(inner)
        {
            char own[8192], pages[4096];
            const char *where = touched(16, pages);
#pragma omp critical
            printf("thread %d.%d mask %s cpu %d pages%s\n", team, omp_get_thread_num(), mask(own), sched_getcpu(), where);
        }
    }
    return 0;
}
