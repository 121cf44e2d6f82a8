// A library that opens a team: without a number, or with STATED threads.
#include <omp.h>

int size_of_team(void) {
    int size = 0;
#ifdef STATED
#pragma omp parallel num_threads(STATED)
#else
#pragma omp parallel
#endif
#pragma omp single
    size = omp_get_num_threads();
    return size;
}
