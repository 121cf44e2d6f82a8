/*
 * NAS kernel FT, "3-D fast Fourier transform".
 *
 * Problem.  Solve the diffusion equation du/dt = alpha laplacian(u) on a
 * periodic box, spectrally, from a pseudorandom complex u.  For each
 * t = 1, 2, ..., transform back the spectrum of u multiplied by
 *
 *     exp(-4 alpha pi^2 (i^2 + j^2 + k^2) t),
 *
 * with wave numbers i, j and k from -n/2 to n/2 - 1, and add up 1024 of its
 * points.  These checksums are the result.
 *
 * Method.  The spectrum is computed once.  The factor above is a product of
 * three, each of one wave number; so three short tables a time step replace
 * an exponential for each point, and multiplying by them is part of the first
 * pass of the inverse transform.  Transforms are described in ft_transform.c.
 * FT measures floating point arithmetic and, as every pass streams through
 * the whole array and one of three transposes it, memory bandwidth and
 * all-to-all communication.
 *
 * Memory.  Two complex arrays, the spectrum and u, each first written in the
 * parts in which the threads use it.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel FT; class sizes, tolerance and operation count as
 * published with NPB 3, which times everything from the first numbers drawn.
 */
#include "common/arguments.h"
#include "common/random.h"
#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/ft_reference.h"
#include "nas/ft_transform.h"

#include <math.h>
#include <stdio.h>

#define SEED UINT64_C(314159265)
#define ALPHA 1e-6
#define CHECKSUM_POINTS 1024
#define TOLERANCE 1e-12

struct ft_class {
    int nx, ny, nz;
    int iterations;
};

static const struct ft_class classes[CLASS_COUNT] = {
    [CLASS_S] = {64, 64, 64, 6},
    [CLASS_W] = {128, 128, 32, 6},
    [CLASS_A] = {256, 256, 128, 6},
    [CLASS_B] = {512, 256, 256, 20},
    [CLASS_C] = {512, 512, 512, 20},
};

struct solver {
    struct ft_grid space;    /* u */
    struct ft_grid spectrum; /* of u at time 0 */
    struct ft_roots roots;
    struct ft_factors factors; /* of the current time step */
};

static double points(const struct ft_class *problem)
{
    return (double)problem->nx * problem->ny * problem->nz;
}

/* Fills the grid with the random stream: real and imaginary parts, x fastest. */
static void draw_initial_values(const struct ft_grid *grid)
{
    const size_t row_numbers = 2 * (size_t)grid->nx;

#pragma omp parallel for collapse(2) schedule(static)
    for (int z = 0; z < grid->nz; z++)
        for (int y = 0; y < grid->ny; y++) {
            const size_t rows_before = (size_t)z * (size_t)grid->ny + (size_t)y;
            uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, rows_before * row_numbers);
            double number[2 * FT_MAX_EXTENT];
            struct ft_complex *row = ft_row(grid, y, z);
            vranlc(row_numbers, &seed, RANDLC_MULTIPLIER, number);
            for (int x = 0; x < grid->nx; x++)
                row[x] = (struct ft_complex){number[2 * x], number[2 * x + 1]};
        }
}

/* Computes the spectrum, all from the beginning. */
static void start(struct solver *s)
{
    ft_make_roots(&s->roots);
    draw_initial_values(&s->space);
#pragma omp parallel
    ft_forward(&s->roots, &s->space, &s->spectrum);
}

/* The factors of one dimension: the second half of n wave numbers is negative. */
static void decay(int n, int t, double *factor)
{
    const double pi = 3.14159265358979323846;
    for (int i = 0; i < n; i++) {
        const double wave_number = i < n / 2 ? i : i - n;
        factor[i] = exp(-4.0 * ALPHA * pi * pi * t * wave_number * wave_number);
    }
}

/* Computes u at time t. */
static void evolve(struct solver *s, int t)
{
    decay(s->space.nx, t, s->factors.x);
    decay(s->space.ny, t, s->factors.y);
    decay(s->space.nz, t, s->factors.z);
#pragma omp parallel
    ft_inverse(&s->roots, &s->factors, &s->spectrum, &s->space);
}

/* The sum of prescribed points of u.  Also divides by n, which the transform left out. */
static struct ft_complex checksum(const struct ft_grid *u)
{
    const double n = (double)u->nx * u->ny * u->nz;
    double re = 0.0;
    double im = 0.0;

#pragma omp parallel for schedule(static) reduction(+ : re, im)
    for (int j = 1; j <= CHECKSUM_POINTS; j++) {
        const struct ft_complex *point = ft_row(u, 3 * j % u->ny, 5 * j % u->nz) + j % u->nx;
        re += point->re;
        im += point->im;
    }
    return (struct ft_complex){re / n, im / n};
}

/* True if all checksums are within the relative tolerance; a NaN never is. */
static bool checksums_agree(const struct ft_complex *sums, const struct ft_complex *reference,
                            int count)
{
    for (int i = 0; i < count; i++) {
        const double error = hypot(sums[i].re - reference[i].re, sums[i].im - reference[i].im);
        if (!(error <= TOLERANCE * hypot(reference[i].re, reference[i].im)))
            return false;
    }
    return true;
}

/* Floating point operations of the timed section, as NPB counts them. */
static double operation_count(const struct ft_class *problem)
{
    const double n = points(problem);
    return n * (14.8157 + 7.19641 * log(n) +
                (5.23518 + 7.21113 * log(n)) * problem->iterations);
}

static void print_checksums(const struct ft_complex *sums, int count)
{
    printf("        time                 checksum\n");
    for (int i = 0; i < count; i++)
        printf("    %8d    %20.12e %20.12e\n", i + 1, sums[i].re, sums[i].im);
    printf("\n");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "ft", "NAS kernel FT: a diffusion equation by 3-D fast Fourier transforms"};
    static struct solver solver;
    static struct ft_complex sums[FT_MAX_ITERATIONS];
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct ft_class *problem = &classes[options.problem_class];
    const int nx = problem->nx;
    const int ny = problem->ny;
    const int nz = problem->nz;

    struct bench_report report = {
        .kernel = "FT",
        .problem_class = options.problem_class,
        .size = {nx, ny, nz},
        .iterations = problem->iterations,
        .threads = team_size(),
        .operation = "floating point",
    };
    if (!options.json)
        print_heading(&report);

    /* Set up, with one untimed iteration to warm caches and page tables. */
    const double setup_start = wall_seconds();
    solver.space = make_ft_grid_by_z(nx, ny, nz);
    solver.spectrum = make_ft_grid_by_y(nx, ny, nz);
    start(&solver);
    evolve(&solver, 1);
    report.setup_seconds = wall_seconds() - setup_start;

    const double start_time = wall_seconds();
    start(&solver);
    for (int t = 1; t <= problem->iterations; t++) {
        evolve(&solver, t);
        sums[t - 1] = checksum(&solver.space);
    }
    report.seconds = wall_seconds() - start_time;
    report.mops = 1e-6 * operation_count(problem) / report.seconds;

    const int last = problem->iterations - 1;
    const struct ft_complex *reference = ft_reference[options.problem_class];
    const struct bench_value values[] = {
        {"re", sums[last].re, reference[last].re},
        {"im", sums[last].im, reference[last].im},
    };
    report.values = values;
    report.value_count = sizeof values / sizeof values[0];
    report.verified = checksums_agree(sums, reference, problem->iterations);
    if (!options.json)
        print_checksums(sums, problem->iterations);
    return finish_report(&report, options.json);
}
