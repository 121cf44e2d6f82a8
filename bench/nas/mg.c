/*
 * NAS kernel MG, "multigrid".
 *
 * Problem.  Solve Poisson's equation, discretely and approximately, on a cube
 * with periodic sides: A u = v, where v is +1 at ten points, -1 at ten others
 * and zero elsewhere.  The result is the norm of the residual r = v - A u after
 * a given number of iterations from u = 0.
 *
 * Method.  Each iteration computes the residual and adds to u the correction
 * that one V-cycle finds for it, on grids of n, n/2, ..., 2 points a side:
 *
 *     down    restrict the residual from each grid to the next coarser,
 *     bottom  smooth it once,
 *     up      on each finer grid, interpolate the correction, compute what
 *             residual it leaves, and smooth that.
 *
 * The operators, described in mg_grid.c, are 27-point stencils.  On the finest
 * grid, with seven eighths of the points, they stream through arrays far larger
 * than caches; on the coarsest there is hardly work for one thread, let alone
 * many: MG measures memory bandwidth and the cost of synchronisation.
 *
 * Memory.  Three arrays of the finest grid (u, r and v) and two, u and r, of
 * each coarser.  Each row is first written by the thread that computes it.
 *
 * Source.  D. Bailey et al., "The NAS Parallel Benchmarks", RNR-94-007, NASA
 * Ames, 1994, kernel MG; class sizes, smoothers, reference norms, tolerance and
 * operation count (58 for each point and iteration) as published with NPB 3.
 */
#include "common/arguments.h"
#include "common/report.h"
#include "common/team.h"
#include "common/timer.h"
#include "nas/mg_charges.h"
#include "nas/mg_grid.h"

#include <stdio.h>

#define MAX_LEVELS 9 /* 2, 4, ..., 512 */
#define TOLERANCE 1e-8
#define OPERATIONS 58.0

_Static_assert(MG_MAX_EXTENT == 1 << MAX_LEVELS, "levels reach the largest extent");

/* A, which the iteration inverts, and the two smoothers, C. */
static const struct mg_stencil laplacian = {-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0};
static const struct mg_stencil smoother_a = {-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0};
static const struct mg_stencil smoother_b = {-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0, 0.0};

struct mg_class {
    int levels; /* the finest grid has 2 to this points a side */
    int iterations;
    const struct mg_stencil *smoother;
    double norm; /* of the last residual: reference value */
};

static const struct mg_class classes[CLASS_COUNT] = {
    [CLASS_S] = {5, 4, &smoother_a, 0.5307707005734e-04},
    [CLASS_W] = {7, 4, &smoother_a, 0.6467329375339e-05},
    [CLASS_A] = {8, 4, &smoother_a, 0.2433365309069e-05},
    [CLASS_B] = {8, 20, &smoother_b, 0.1800564401355e-05},
    [CLASS_C] = {9, 20, &smoother_b, 0.5706732285740e-06},
};

struct hierarchy {
    int top;                      /* level of the finest grid; the coarsest is 0 */
    struct mg_grid u[MAX_LEVELS]; /* solution; on coarser levels, its correction */
    struct mg_grid r[MAX_LEVELS]; /* residual */
    struct mg_grid v;             /* right-hand side, on the finest level */
    const struct mg_stencil *smoother;
};

static struct hierarchy make_hierarchy(const struct mg_class *problem)
{
    struct hierarchy h = {.top = problem->levels - 1, .smoother = problem->smoother};
    for (int level = 0; level <= h.top; level++) {
        h.u[level] = make_mg_grid(2 << level);
        h.r[level] = make_mg_grid(2 << level);
    }
    h.v = make_mg_grid(2 << h.top);
    place_mg_charges(&h.v);
    return h;
}

/* Makes r the residual of u. */
static void compute_residual(const struct hierarchy *h)
{
#pragma omp parallel
    mg_residual(&laplacian, &h->u[h->top], &h->v, &h->r[h->top]);
}

/* Starts from u = 0. */
static void start(const struct hierarchy *h)
{
#pragma omp parallel
    mg_clear(&h->u[h->top]);
    compute_residual(h);
}

/* One iteration: corrects u by a V-cycle for the residual r, then renews r. */
static void iterate(const struct hierarchy *h)
{
    const struct mg_grid *u = h->u;
    const struct mg_grid *r = h->r;
    const int top = h->top;

#pragma omp parallel
    {
        for (int level = top; level > 0; level--)
            mg_restrict(&r[level], &r[level - 1]);

        mg_clear(&u[0]);
        mg_smooth(h->smoother, &r[0], &u[0]);

        for (int level = 1; level < top; level++) {
            mg_prolong(&u[level - 1], &u[level], MG_SET);
            mg_residual(&laplacian, &u[level], &r[level], &r[level]);
            mg_smooth(h->smoother, &r[level], &u[level]);
        }
        mg_prolong(&u[top - 1], &u[top], MG_ADD);
        mg_residual(&laplacian, &u[top], &h->v, &r[top]);
        mg_smooth(h->smoother, &r[top], &u[top]);

        mg_residual(&laplacian, &u[top], &h->v, &r[top]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "mg", "NAS kernel MG: multigrid solution of a Poisson problem"};
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct mg_class *problem = &classes[options.problem_class];
    const long long n = 1LL << problem->levels;

    struct bench_report report = {
        .kernel = "MG",
        .problem_class = options.problem_class,
        .size = {n, n, n},
        .iterations = problem->iterations,
        .threads = team_size(),
        .operation = "floating point",
    };
    if (!options.json)
        print_heading(&report);

    /* Set up, with one untimed iteration to warm caches and page tables. */
    const double setup_start = wall_seconds();
    const struct hierarchy hierarchy = make_hierarchy(problem);
    start(&hierarchy);
    iterate(&hierarchy);
    start(&hierarchy);
    report.setup_seconds = wall_seconds() - setup_start;

    /* As in NPB the first residual is timed too, and its norm. */
    const double start_time = wall_seconds();
    compute_residual(&hierarchy);
    const double first_norm = mg_norm(&hierarchy.r[hierarchy.top]);
    for (int i = 0; i < problem->iterations; i++)
        iterate(&hierarchy);
    const double last_norm = mg_norm(&hierarchy.r[hierarchy.top]);
    report.seconds = wall_seconds() - start_time;
    report.mops = 1e-6 * OPERATIONS * problem->iterations * (double)(n * n * n) / report.seconds;

    const struct bench_value norm = {"norm", last_norm, problem->norm};
    report.values = &norm;
    report.value_count = 1;
    report.verified = values_agree(&norm, 1, TOLERANCE);
    if (!options.json)
        printf(" Norm of the residual: %.13e at first, %.13e at last\n\n", first_norm, last_norm);
    return finish_report(&report, options.json);
}
