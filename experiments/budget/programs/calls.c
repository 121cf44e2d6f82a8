// Cost of a call of BLAS: products of matrices of 4 x 4, timed in batches. One line of JSON on standard output.
#include <stdio.h>
#include <time.h>

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

int main(void) {
    double a[16] = {1, 2, 3}, c[16];
    enum { COUNT = 20000, BATCHES = 20 };
    for (int batch = 0; batch < BATCHES; batch++) {
        double begin = now_ns();
        for (int call = 0; call < COUNT; call++) cblas_dgemm(101, 111, 111, 4, 4, 4, 1, a, 4, a, 4, 0, c, 4);
        printf("%s%.1f", batch ? ", " : "[", (now_ns() - begin) / COUNT);
    }
    printf("]\n");
    return 0;
}
