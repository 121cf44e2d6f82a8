/* Latencies of MPI collectives: each call after a barrier, its time that of the slowest rank. Prints operation, bytes of a rank, and the
 * median, the 99th percentile and the greatest time in microseconds. With and without libtrimtab_mpi preloaded it measures both.
 *
 *     mpicc -O2 latency.c -o latency && mpirun -n 2 ./latency [MILLISECONDS of each line, 60 [ROOT, 0]] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 20000, MOST_BYTES = 1 << 20 };
static double times[MOST_CALLS], slowest[MOST_CALLS];
static int me, all, root, counts[1024], places[1024];

static int ascending(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

static const char *const names[] = {"barrier", "bcast", "reduce", "allreduce", "gather", "allgather", "scatter", "alltoall", "alltoallv", "reduce_scatter", "scan", "exscan"};
enum { KINDS = 12 };

static void call(int kind, char *in, char *out, int bytes) {
    int n = bytes / (int)sizeof(double), block = n / all;
    switch (kind) {
    case 0: MPI_Barrier(MPI_COMM_WORLD); break;
    case 1: MPI_Bcast(out, n, MPI_DOUBLE, root, MPI_COMM_WORLD); break;
    case 2: MPI_Reduce(in, out, n, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD); break;
    case 3: MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case 4: MPI_Gather(in, block, MPI_DOUBLE, out, block, MPI_DOUBLE, root, MPI_COMM_WORLD); break;
    case 5: MPI_Allgather(in, block, MPI_DOUBLE, out, block, MPI_DOUBLE, MPI_COMM_WORLD); break;
    case 6: MPI_Scatter(in, block, MPI_DOUBLE, out, block, MPI_DOUBLE, root, MPI_COMM_WORLD); break;
    case 7: MPI_Alltoall(in, block, MPI_DOUBLE, out, block, MPI_DOUBLE, MPI_COMM_WORLD); break;
    case 8: MPI_Alltoallv(in, counts, places, MPI_DOUBLE, out, counts, places, MPI_DOUBLE, MPI_COMM_WORLD); break;
    case 9: MPI_Reduce_scatter_block(in, out, block, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case 10: MPI_Scan(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    case 11: MPI_Exscan(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); break;
    }
}

int main(int count, char **words) {
    static const int sizes[] = {64, 1024, 16384, 131072, MOST_BYTES};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    double limit = (count > 1 ? atof(words[1]) : 60) * 1e-3;
    root = count > 2 ? atoi(words[2]) : 0;
    char *in = malloc(MOST_BYTES), *out = malloc(MOST_BYTES);
    memset(out, 0, MOST_BYTES);
    for (int i = 0; i < 64; i++) MPI_Barrier(MPI_COMM_WORLD);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int s = 0; s < (kind ? 5 : 1); s++) {
            int bytes = kind ? sizes[s] : 0, calls = 0, go = 1;
            for (int r = 0; r < all; r++) {
                counts[r] = bytes / 8 / all;
                places[r] = r * counts[r];
            }
            double begin = MPI_Wtime();
            while (go && calls < MOST_CALLS) {
                for (int i = 0; i < 10 && calls < MOST_CALLS; i++, calls++) {
                    for (int at = 0; at < bytes; at += 64) *(double *)(in + at) = me + calls;
                    MPI_Barrier(MPI_COMM_WORLD);
                    double from = MPI_Wtime();
                    call(kind, in, out, bytes);
                    times[calls] = MPI_Wtime() - from;
                }
                go = MPI_Wtime() - begin < limit;
                MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
            }
            MPI_Reduce(times, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
            if (me) continue;
            qsort(slowest, (size_t)calls, sizeof *slowest, ascending);
            printf("%s %d %.2f %.2f %.1f %d\n", names[kind], bytes, slowest[calls / 2] * 1e6, slowest[calls * 99 / 100] * 1e6, slowest[calls - 1] * 1e6, calls);
        }
    }
    MPI_Finalize();
    return 0;
}
