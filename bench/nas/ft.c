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
#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/ft_problem.h"
#include "nas/ft_reference.h"
#include "nas/ft_transform.h"

#include <stdio.h>

#define CHECKSUM_POINTS FT_CHECKSUM_POINTS

struct solver {
    struct ft_grid space;    /* u */
    struct ft_grid spectrum; /* of u at time 0 */
    struct ft_roots roots;
    struct ft_factors factors; /* of the current time step */
};

/* Fills the grid with the random stream: real and imaginary parts, x fastest. */
static void draw_initial_values(const struct ft_class *problem, const struct ft_grid *grid)
{
#pragma omp parallel for collapse(2) schedule(static)
    for (int z = 0; z < grid->nz; z++)
        for (int y = 0; y < grid->ny; y++)
            ft_draw_row(problem, y, z, ft_row(grid, y, z));
}

/* Computes the spectrum, all from the beginning. */
static void start(struct solver *s, const struct ft_class *problem)
{
    ft_make_roots(&s->roots);
    draw_initial_values(problem, &s->space);
#pragma omp parallel
    ft_forward(&s->roots, &s->space, &s->spectrum);
}

/* Computes u at time t. */
static void evolve(struct solver *s, int t)
{
    ft_decay(s->space.nx, t, s->factors.x);
    ft_decay(s->space.ny, t, s->factors.y);
    ft_decay(s->space.nz, t, s->factors.z);
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
    const struct ft_class *problem = &ft_classes[options.problem_class];
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
    start(&solver, problem);
    evolve(&solver, 1);
    report.setup_seconds = wall_seconds() - setup_start;

    const double start_time = wall_seconds();
    start(&solver, problem);
    for (int t = 1; t <= problem->iterations; t++) {
        evolve(&solver, t);
        sums[t - 1] = checksum(&solver.space);
    }
    report.seconds = wall_seconds() - start_time;
    report.mops = 1e-6 * ft_operation_count(problem) / report.seconds;

    const int last = problem->iterations - 1;
    const struct ft_complex *reference = ft_reference[options.problem_class];
    const struct bench_value values[] = {
        {"re", sums[last].re, reference[last].re},
        {"im", sums[last].im, reference[last].im},
    };
    report.values = values;
    report.value_count = sizeof values / sizeof values[0];
    report.verified = ft_checksums_agree(sums, reference, problem->iterations);
    if (!options.json)
        print_checksums(sums, problem->iterations);
    return finish_report(&report, options.json);
}
