/* Prints the mask and the CPU of each OpenMP thread, twice, and those of the initial thread before and after. */
#include "seen.h"
#include <omp.h>

int main(void) {
    char text[8192];
    printf("begin %s\n", mask(text));
    for (int round = 0; round < 2; round++) {
#pragma omp parallel
#pragma omp critical
        {
            char own[8192];
            printf("thread %d mask %s cpu %d\n", omp_get_thread_num(), mask(own), sched_getcpu());
        }
    }
    printf("procs %d\n", omp_get_num_procs());
    return 0;
}
