// Two threads multiply matrices by a BLAS, each twenty times, and print a value of their last product.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, double, double *, int);

enum { SIZE = 300 };

static void *work(void *result) {
    double *a = malloc(SIZE * SIZE * sizeof *a), *c = calloc(SIZE * SIZE, sizeof *c);
    for (int at = 0; at < SIZE * SIZE; at++) a[at] = 1;
    for (int time = 0; time < 20; time++) {
        cblas_dgemm(101, 111, 111, SIZE, SIZE, SIZE, 1, a, SIZE, a, SIZE, 0, c, SIZE);
    }
    *(double *)result = c[4];
    return 0;
}

int main(void) {
    double result[2];
    pthread_t thread[2];
    for (int at = 0; at < 2; at++) pthread_create(&thread[at], 0, work, &result[at]);
    for (int at = 0; at < 2; at++) pthread_join(thread[at], 0);
    printf("%.0f %.0f\n", result[0], result[1]);
    return 0;
}
