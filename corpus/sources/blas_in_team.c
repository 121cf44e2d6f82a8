// A team of OpenMP in which each thread multiplies matrices by a BLAS with teams of its own. Prints a sum.
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 300, ROUNDS = 60 };

int main(void) {
    double total = 0;
#pragma omp parallel for reduction(+ : total) schedule(static, 1)
    for (int part = 0; part < 4; part++) {
        double *a = malloc(sizeof(double) * SIZE * SIZE), *b = malloc(sizeof(double) * SIZE * SIZE);
        for (int i = 0; i < SIZE * SIZE; i++)
            a[i] = (i + part) % 7;
        for (int round = 0; round < ROUNDS; round++) {
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, SIZE, SIZE, SIZE, 1.0, a, SIZE, a, SIZE, 0.0, b, SIZE);
            for (int i = 0; i < SIZE * SIZE; i++)
                a[i] = (long)b[i] % 7;
        }
        for (int i = 0; i < SIZE * SIZE; i++)
            total += a[i];
        free(a);
        free(b);
    }
    printf("total %.0f\n", total);
    return 0;
}
