// Cost of opening a region: an empty one, flat or nested, timed in batches. One line of JSON on standard output.
//
//   region OUTER INNER COUNT BATCHES     teams of OUTER; INNER 0: flat, else each member opens teams of INNER
//
// A sample is the time of COUNT regions, divided by COUNT. Nested regions are opened COUNT times in one outer region.
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void flat(int outer, long count)
{
    for (long i = 0; i < count; i++) {
#pragma omp parallel num_threads(outer)
        __asm__ volatile("" ::: "memory");
    }
}

static void nested(int outer, int inner, long count)
{
#pragma omp parallel num_threads(outer)
    for (long i = 0; i < count; i++) {
#pragma omp parallel num_threads(inner)
        __asm__ volatile("" ::: "memory");
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: region OUTER INNER COUNT BATCHES\n");
        return 2;
    }
    int outer = atoi(argv[1]), inner = atoi(argv[2]), batches = atoi(argv[4]);
    long count = atol(argv[3]);
    if (outer < 1 || inner < 0 || count < 1 || batches < 1)
        return 2;
    omp_set_max_active_levels(2);
    for (int batch = -2; batch < batches; batch++) { // two to warm up
        double begin = now_ns();
        if (inner > 0)
            nested(outer, inner, count);
        else
            flat(outer, count);
        double each = (now_ns() - begin) / (double)count;
        if (batch == 0)
            printf("[");
        if (batch >= 0)
            printf("%s%.1f", batch > 0 ? ", " : "", each);
    }
    printf("]\n");
    return 0;
}
