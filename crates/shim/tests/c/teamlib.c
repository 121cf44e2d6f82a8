// A library that opens a team without a number.
#include <omp.h>

int size_of_team(void) {
    int size = 0;
#pragma omp parallel
#pragma omp single
    size = omp_get_num_threads();
    return size;
}
