// Ranks of MPI with OpenMP in each: every rank says how many threads it has and how many CPUs they may use.
#define _GNU_SOURCE
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>

int main(int count, char **words) {
    int rank, ranks, threads = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long long sum = 0, total = 0;
    for (int round = 0; round < 200; round++) {
#pragma omp parallel for reduction(+ : sum)
        for (long i = rank; i < 1000000; i += ranks)
            sum += (i * (round + 3)) % 1013;
        MPI_Allreduce(&sum, &total, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    }
#pragma omp parallel
#pragma omp single
    threads = omp_get_num_threads();
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    printf("rank %d of %d: threads %d, CPUs %d, total %lld\n", rank, ranks, threads, CPU_COUNT(&mask), total);
    MPI_Finalize();
    return 0;
}
