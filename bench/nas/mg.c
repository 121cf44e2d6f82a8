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
#include "nas/mg_problem.h"

#include <stdio.h>

struct hierarchy {
    int top;                      /* level of the finest grid; the coarsest is 0 */
    struct mg_grid u[MG_MAX_LEVELS]; /* solution; on coarser levels, its correction */
    struct mg_grid r[MG_MAX_LEVELS]; /* residual */
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
    mg_residual(&mg_laplacian, &h->u[h->top], &h->v, &h->r[h->top]);
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
            mg_residual(&mg_laplacian, &u[level], &r[level], &r[level]);
            mg_smooth(h->smoother, &r[level], &u[level]);
        }
        mg_prolong(&u[top - 1], &u[top], MG_ADD);
        mg_residual(&mg_laplacian, &u[top], &h->v, &r[top]);
        mg_smooth(h->smoother, &r[top], &u[top]);

        mg_residual(&mg_laplacian, &u[top], &h->v, &r[top]);
    }
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "mg", "NAS kernel MG: multigrid solution of a Poisson problem"};
    const struct bench_options options = parse_arguments(&program, argc, argv);
    const struct mg_class *problem = &mg_classes[options.problem_class];
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
    report.mops = 1e-6 * MG_OPERATIONS * problem->iterations * (double)(n * n * n) / report.seconds;

    const struct bench_value norm = {"norm", last_norm, problem->norm};
    report.values = &norm;
    report.value_count = 1;
    report.verified = values_agree(&norm, 1, MG_TOLERANCE);
    if (!options.json)
        printf(" Norm of the residual: %.13e at first, %.13e at last\n\n", first_norm, last_norm);
    return finish_report(&report, options.json);
}
