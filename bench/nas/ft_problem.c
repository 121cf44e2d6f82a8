/*
 * Problem of NAS kernel FT.  See ft_problem.h.
 */
#include "nas/ft_problem.h"

#include "common/random.h"

#include <math.h>

#define SEED UINT64_C(314159265)
#define ALPHA 1e-6
#define TOLERANCE 1e-12

const struct ft_class ft_classes[CLASS_COUNT] = {
    [CLASS_S] = {64, 64, 64, 6},
    [CLASS_W] = {128, 128, 32, 6},
    [CLASS_A] = {256, 256, 128, 6},
    [CLASS_B] = {512, 256, 256, 20},
    [CLASS_C] = {512, 512, 512, 20},
};

void ft_draw_row(const struct ft_class *problem, int y, int z, struct ft_complex *row)
{
    const size_t row_numbers = 2 * (size_t)problem->nx;
    const size_t rows_before = (size_t)z * (size_t)problem->ny + (size_t)y;
    uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, rows_before * row_numbers);
    double number[2 * FT_MAX_EXTENT];

    vranlc(row_numbers, &seed, RANDLC_MULTIPLIER, number);
    for (int x = 0; x < problem->nx; x++)
        row[x] = (struct ft_complex){number[2 * x], number[2 * x + 1]};
}

void ft_decay(int n, int t, double *factor)
{
    const double pi = 3.14159265358979323846;
    for (int i = 0; i < n; i++) {
        const double wave_number = i < n / 2 ? i : i - n;
        factor[i] = exp(-4.0 * ALPHA * pi * pi * t * wave_number * wave_number);
    }
}

bool ft_checksums_agree(const struct ft_complex *sums, const struct ft_complex *reference, int count)
{
    for (int i = 0; i < count; i++) {
        const double error = hypot(sums[i].re - reference[i].re, sums[i].im - reference[i].im);
        if (!(error <= TOLERANCE * hypot(reference[i].re, reference[i].im)))
            return false;
    }
    return true;
}

double ft_operation_count(const struct ft_class *problem)
{
    const double n = (double)problem->nx * problem->ny * problem->nz;
    return n * (14.8157 + 7.19641 * log(n) +
                (5.23518 + 7.21113 * log(n)) * problem->iterations);
}
