// Transforms by FFTW with two threads; estimated plans are the same every time.
#include <fftw3.h>
#include <math.h>
#include <stdio.h>

enum { SIDE = 1024 };

int main(void) {
    fftw_init_threads();
    fftw_plan_with_nthreads(2);
    fftw_complex *field = fftw_alloc_complex(SIDE * SIDE);
    fftw_plan there = fftw_plan_dft_2d(SIDE, SIDE, field, field, FFTW_FORWARD, FFTW_ESTIMATE);
    for (int i = 0; i < SIDE * SIDE; i++)
        field[i][0] = i * 7919L % 1013, field[i][1] = 0;
    for (int round = 0; round < 25; round++) {
        fftw_execute(there);
        for (int i = 0; i < SIDE * SIDE; i++)
            field[i][0] /= SIDE, field[i][1] /= SIDE;
    }
    double sum = 0;
    for (int i = 0; i < SIDE * SIDE; i++)
        sum += fabs(field[i][0]) + fabs(field[i][1]);
    printf("%.6e\n", sum);
    return 0;
}
