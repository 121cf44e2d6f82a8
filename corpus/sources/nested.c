// Nested teams of OpenMP: prints the sizes of both levels and a sum.
#include <omp.h>
#include <stdio.h>

int main(void) {
    long long total = 0;
    int outer = 0, inner = 0;
    for (int round = 0; round < 2000; round++) {
#pragma omp parallel reduction(+ : total)
        {
#pragma omp single
            outer = omp_get_num_threads();
            long long sum = 0;
#pragma omp parallel for reduction(+ : sum)
            for (long i = 0; i < 100000; i++)
                sum += i * (round + 7) % 1013;
            total += sum;
#pragma omp parallel
#pragma omp master
            if (omp_get_ancestor_thread_num(1) == 0)
                inner = omp_get_num_threads();
        }
    }
    printf("teams of %d and %d, total %lld\n", outer, inner, total);
    return 0;
}
