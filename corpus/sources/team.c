// A team of OpenMP threads: says how many there are, and sums in an order that does not depend on it.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    long rounds = count > 1 ? atol(words[1]) : 160000;
    long long sum = 0;
    int threads = 0;
#pragma omp parallel
    {
#pragma omp single
        threads = omp_get_num_threads();
    }
    for (long round = 0; round < rounds; round++) {
#pragma omp parallel for reduction(+ : sum)
        for (long i = 0; i < 4096; i++)
            sum += (i * (round + 7)) % 1013;
    }
    printf("threads %d sum %lld\n", threads, sum);
    return 0;
}
