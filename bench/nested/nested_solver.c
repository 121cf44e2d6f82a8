/*
 * Nested solver: several independent linear systems at once.
 *
 * Problem.  A simulation that needs the derivatives of its result by Y
 * parameters sets up and solves Y independent systems.  The outer threads take
 * one each, and the team of Z that each opens sets it up and solves it.  How
 * long until all are done?  The program stands in for SHEMAT-Suite, which
 * simulates flow and heat in porous rock and has these two levels.
 *
 * Method.  Stationary flow through rock of varying conductivity k in a cube of
 * N^3 cells, value 0 outside, by finite volumes: the harmonic mean of k on each
 * of a cell's six faces, hence a symmetric positive definite matrix of seven
 * diagonals.  It is solved by the method of conjugate gradients, without a
 * preconditioner, from zero until the residual is 10^-8 of the right-hand side.
 * Nearly all the time goes into memory traffic: 15 numbers a cell and step.
 * k differs from system to system.
 *
 * Timing.  All teams start each repetition at a common barrier; set-up and
 * solution are each a parallel region, opened anew.  The time of a repetition
 * is from the first team's start to the last one's end.
 *
 * Memory.  Nine arrays of (N + 2)^3 for each team.  --init team: the team writes
 * to them first, with the loops that compute.  --init master: its master does.
 *
 * Verification.  The residual is computed afresh from the solution; it must be
 * within twice the tolerance, in every team.
 *
 * Source.  D. Schmidl, C. Terboven, D. an Mey and M. Buecker, "Binding Nested
 * OpenMP Programs on Hierarchical Memory Architectures", IWOMP 2010, for the
 * structure; M. R. Hestenes and E. Stiefel, "Methods of Conjugate Gradients for
 * Solving Linear Systems", J. Res. NBS 49, 1952.
 */
#include "common/memory.h"
#include "common/output.h"
#include "common/series.h"
#include "common/timer.h"
#include "nested/arguments.h"
#include "nested/teams.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#define TOLERANCE 1e-8
#define ARRAYS 9

/*
 * One system.  A cell's index is x + stride (y + stride z) with coordinates from
 * 1 to N; the cells around the cube stay zero, and spare the loops their edges.
 */
struct rock {
    long long cells;  /* N */
    long long stride; /* N + 2 */
    int team;         /* chooses the conductivities */
    int threads;
    double *east;     /* conductance of a cell's face to the next one in x, */
    double *north;    /* in y */
    double *top;      /* and in z */
    double *diagonal; /* sum of a cell's six faces */
    double *b;        /* right-hand side */
    double *x;        /* solution */
    double *p;        /* search direction */
    double *q;        /* A p */
    double *r;        /* residual */
};

/* Result of a solution. */
struct solution {
    long long steps;
    double residual; /* ||b - A x|| / ||b||, computed afresh */
};

static struct rock allocate_rock(long long cells, int team, int threads)
{
    const size_t stride = (size_t)cells + 2;
    const size_t count = stride * stride * stride;
    return (struct rock){
        .cells = cells,
        .stride = (long long)stride,
        .team = team,
        .threads = threads,
        .east = allocate_untouched(count, sizeof(double)),
        .north = allocate_untouched(count, sizeof(double)),
        .top = allocate_untouched(count, sizeof(double)),
        .diagonal = allocate_untouched(count, sizeof(double)),
        .b = allocate_untouched(count, sizeof(double)),
        .x = allocate_untouched(count, sizeof(double)),
        .p = allocate_untouched(count, sizeof(double)),
        .q = allocate_untouched(count, sizeof(double)),
        .r = allocate_untouched(count, sizeof(double)),
    };
}

/* All arrays of a rock, for what is done to each. */
static void list_arrays(const struct rock *rock, double *arrays[ARRAYS])
{
    double *const all[ARRAYS] = {rock->east, rock->north, rock->top, rock->diagonal, rock->b,
                                 rock->x,    rock->p,     rock->q,   rock->r};
    memcpy(arrays, all, sizeof all);
}

static size_t array_length(const struct rock *rock)
{
    return (size_t)(rock->stride * rock->stride * rock->stride);
}

static void touch_alone(const struct rock *rock)
{
    double *arrays[ARRAYS];
    list_arrays(rock, arrays);
    for (int i = 0; i < ARRAYS; i++)
        memset(arrays[i], 0, array_length(rock) * sizeof(double));
}

static void release_rock(const struct rock *rock)
{
    double *arrays[ARRAYS];
    list_arrays(rock, arrays);
    for (int i = 0; i < ARRAYS; i++)
        release(arrays[i], array_length(rock), sizeof(double));
}

/* Conductivity of a cell: smooth, between 0.1 and 10. */
static double conductivity(const struct rock *rock, long long x, long long y, long long z)
{
    const double scale = 9.0 / (double)(rock->cells + 1);
    const double phase = (double)rock->team;
    return pow(10.0, sin(scale * (double)x + phase) * cos(scale * (double)y) *
                         sin(scale * (double)z + 0.5 * phase));
}

static double between(double here, double there)
{
    return 2.0 * here * there / (here + there);
}

/*
 * Sets up the matrix and the right-hand side, a source in each cell that differs
 * from its neighbours' and is nowhere zero.  Every cell writes its upper faces;
 * those at the lower edge of the cube write the faces there too, which belong to
 * no other cell.  Beyond an edge the rock is like the cell before it.
 */
static void set_up(const struct rock *rock)
{
    const long long n = rock->cells;
    const long long sy = rock->stride;
    const long long sz = sy * sy;
    double *restrict conductivities = rock->q; /* not in use yet */

#pragma omp parallel num_threads(rock->threads)
    {
#pragma omp for collapse(2) schedule(static)
        for (long long z = 1; z <= n; z++)
            for (long long y = 1; y <= n; y++)
                for (long long x = 1; x <= n; x++)
                    conductivities[x + sy * y + sz * z] = conductivity(rock, x, y, z);

#pragma omp for collapse(2) schedule(static)
        for (long long z = 1; z <= n; z++)
            for (long long y = 1; y <= n; y++)
                for (long long x = 1; x <= n; x++) {
                    const long long c = x + sy * y + sz * z;
                    const double *k = &conductivities[c];
                    const double west = x == 1 ? *k : between(k[-1], *k);
                    const double south = y == 1 ? *k : between(k[-sy], *k);
                    const double bottom = z == 1 ? *k : between(k[-sz], *k);
                    const double east = x == n ? *k : between(*k, k[1]);
                    const double north = y == n ? *k : between(*k, k[sy]);
                    const double top = z == n ? *k : between(*k, k[sz]);
                    if (x == 1)
                        rock->east[c - 1] = west;
                    if (y == 1)
                        rock->north[c - sy] = south;
                    if (z == 1)
                        rock->top[c - sz] = bottom;
                    rock->east[c] = east;
                    rock->north[c] = north;
                    rock->top[c] = top;
                    rock->diagonal[c] = west + east + south + north + bottom + top;
                    rock->b[c] = (double)((7 * x + 5 * y + 3 * z + rock->team) % 11) - 4.5;
                }
    }
}

/* One element of A v. */
static double row(const struct rock *rock, const double *v, long long c)
{
    const long long sy = rock->stride;
    const long long sz = sy * sy;
    return rock->diagonal[c] * v[c] - rock->east[c] * v[c + 1] - rock->east[c - 1] * v[c - 1] -
           rock->north[c] * v[c + sy] - rock->north[c - sy] * v[c - sy] -
           rock->top[c] * v[c + sz] - rock->top[c - sz] * v[c - sz];
}

#define CELL_INDEX(x, y, z) ((x) + stride * ((y) + stride * (z)))

/* Solves A x = b; returns the steps taken. */
static long long solve(const struct rock *rock)
{
    const long long n = rock->cells;
    const long long stride = rock->stride;
    const long long most_steps = 1000 + 20 * n; /* four times what it takes */
    double *restrict x = rock->x;
    double *restrict p = rock->p;
    double *restrict q = rock->q;
    double *restrict r = rock->r;
    const double *restrict b = rock->b;
    double bb = 0.0;      /* b . b */
    double rr = 0.0;      /* r . r */
    double rr_next = 0.0; /* the same after a step */
    double pq = 0.0;      /* p . A p */
    long long steps = 0;

#pragma omp parallel num_threads(rock->threads)
    {
#pragma omp for collapse(2) schedule(static) reduction(+ : bb)
        for (long long k = 1; k <= n; k++)
            for (long long j = 1; j <= n; j++)
                for (long long i = 1; i <= n; i++) {
                    const long long c = CELL_INDEX(i, j, k);
                    x[c] = 0.0;
                    r[c] = b[c];
                    p[c] = b[c];
                    bb += b[c] * b[c];
                }
#pragma omp single
        rr = bb;

        /* Every thread sees the same rr here: single and for end in barriers. */
        while (rr > TOLERANCE * TOLERANCE * bb && steps < most_steps) {
#pragma omp for collapse(2) schedule(static) reduction(+ : pq)
            for (long long k = 1; k <= n; k++)
                for (long long j = 1; j <= n; j++)
                    for (long long i = 1; i <= n; i++) {
                        const long long c = CELL_INDEX(i, j, k);
                        q[c] = row(rock, p, c);
                        pq += p[c] * q[c];
                    }

            const double alpha = rr / pq;
#pragma omp for collapse(2) schedule(static) reduction(+ : rr_next)
            for (long long k = 1; k <= n; k++)
                for (long long j = 1; j <= n; j++)
                    for (long long i = 1; i <= n; i++) {
                        const long long c = CELL_INDEX(i, j, k);
                        x[c] += alpha * p[c];
                        r[c] -= alpha * q[c];
                        rr_next += r[c] * r[c];
                    }

            const double beta = rr_next / rr;
#pragma omp for collapse(2) schedule(static)
            for (long long k = 1; k <= n; k++)
                for (long long j = 1; j <= n; j++)
                    for (long long i = 1; i <= n; i++) {
                        const long long c = CELL_INDEX(i, j, k);
                        p[c] = r[c] + beta * p[c];
                    }
#pragma omp single
            {
                rr = rr_next;
                rr_next = 0.0;
                pq = 0.0;
                steps++;
            }
        }
    }
    return steps;
}

/* ||b - A x|| / ||b|| */
static double residual(const struct rock *rock)
{
    const long long n = rock->cells;
    const long long stride = rock->stride;
    double rr = 0.0;
    double bb = 0.0;

#pragma omp parallel for collapse(2) schedule(static) num_threads(rock->threads) \
    reduction(+ : rr, bb)
    for (long long k = 1; k <= n; k++)
        for (long long j = 1; j <= n; j++)
            for (long long i = 1; i <= n; i++) {
                const long long c = CELL_INDEX(i, j, k);
                const double left = rock->b[c] - row(rock, rock->x, c);
                rr += left * left;
                bb += rock->b[c] * rock->b[c];
            }
    return sqrt(rr / bb);
}

struct solver {
    const char *program;
    struct team_shape shape;
    long long init;
    long long cells;
    long long repetitions;
};

/* Runs all repetitions; fills in spans[repetition * Y + team] and the last
 * solutions. */
static void measure(const struct solver *solver, struct span *spans, struct solution *solutions)
{
#pragma omp parallel num_threads(solver->shape.outer)
    {
        const int team = omp_get_thread_num();
        const struct rock rock = allocate_rock(solver->cells, team, solver->shape.inner);
        if (solver->init == TOUCHED_BY_MASTER)
            touch_alone(&rock);

        for (long long repetition = 0; repetition < solver->repetitions; repetition++) {
            struct span *span = &spans[repetition * solver->shape.outer + team];
#pragma omp barrier
            span->start = wall_seconds();
            set_up(&rock);
            solutions[team].steps = solve(&rock);
            span->end = wall_seconds();
        }
        solutions[team].residual = residual(&rock);
        release_rock(&rock);
    }
}

/* One team's seconds by repetition, or those of all together for a team of -1. */
static void list_seconds(const struct solver *solver, const struct span *spans, int team,
                         double *seconds)
{
    for (long long i = 0; i < solver->repetitions; i++) {
        const struct span *span = &spans[i * solver->shape.outer];
        seconds[i] = team < 0 ? wall_time(span, (size_t)solver->shape.outer)
                              : span[team].end - span[team].start;
    }
}

static void print_json(const struct solver *solver, const struct span *spans,
                       const struct solution *solutions, double *seconds, bool verified)
{
    const size_t count = (size_t)solver->repetitions;
    printf("{\"kernel\":\"%s\",\"outer\":%d,\"inner\":%d", solver->program, solver->shape.outer,
           solver->shape.inner);
    printf(",\"init\":\"%s\",\"cells\":%lld,\"repetitions\":%lld,\"seconds\":",
           first_touch_words[solver->init], solver->cells, solver->repetitions);
    list_seconds(solver, spans, -1, seconds);
    print_json_series(least(seconds, count), seconds, count);
    printf(",\"teams\":[");
    for (int team = 0; team < solver->shape.outer; team++) {
        printf("%s{\"seconds\":", team == 0 ? "" : ",");
        list_seconds(solver, spans, team, seconds);
        print_json_series(least(seconds, count), seconds, count);
        printf(",\"steps\":%lld,\"residual\":", solutions[team].steps);
        print_json_number(solutions[team].residual);
        printf("}");
    }
    printf("],\"verified\":%s}\n", verified ? "true" : "false");
}

static void print_words(const struct solver *solver, const struct span *spans,
                        const struct solution *solutions, double *seconds, bool verified)
{
    const size_t count = (size_t)solver->repetitions;
    printf(" %-14s %10s %10s %8s %10s\n", "seconds", "best", "median", "steps", "residual");
    list_seconds(solver, spans, -1, seconds);
    printf(" %-14s %10.4f %10.4f\n", "all teams", least(seconds, count), median(seconds, count));
    for (int team = 0; team < solver->shape.outer; team++) {
        list_seconds(solver, spans, team, seconds);
        printf(" team %-9d %10.4f %10.4f %8lld %10.1e\n", team, least(seconds, count),
               median(seconds, count), solutions[team].steps, solutions[team].residual);
    }
    printf("\n %s\n", verified ? "VERIFICATION SUCCESSFUL" : "VERIFICATION FAILED");
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        "nested_solver", "independent linear systems, each solved by a team of threads"};
    struct solver solver = {
        .program = program.name,
        .init = TOUCHED_BY_TEAM,
        .cells = 64,
        .repetitions = 3,
    };
    const struct nested_option options[] = {
        first_touch_option(&solver.init),
        {"--cells", "edge of each system's cube of cells", NULL, 1, 4096, &solver.cells},
        {"--repetitions", "how often each system is set up and solved", NULL, 1, 100000,
         &solver.repetitions},
    };
    const struct nested_arguments arguments =
        parse_nested_arguments(&program, options, sizeof options / sizeof options[0], argc, argv);
    solver.shape = arguments.shape;

    const size_t teams = (size_t)solver.shape.outer;
    const size_t repetitions = (size_t)solver.repetitions;
    const double stride = (double)solver.cells + 2.0;
    require_memory(ARRAYS * sizeof(double) * stride * stride * stride * (double)teams +
                   (double)sizeof(struct span) * (double)(teams * repetitions));
    if (!arguments.json) {
        printf("\n Nested solver, %d teams of %d, %lld^3 cells a system, %lld repetitions,\n"
               " data first written by the %s\n\n",
               solver.shape.outer, solver.shape.inner, solver.cells, solver.repetitions,
               first_touch_words[solver.init]);
    }

    struct span *spans = allocate_untouched(teams * repetitions, sizeof *spans);
    struct solution *solutions = allocate_untouched(teams, sizeof *solutions);
    double *seconds = allocate_untouched(repetitions, sizeof *seconds);
    start_teams(program.name, solver.shape);
    measure(&solver, spans, solutions);
    end_teams();

    bool verified = true;
    for (size_t team = 0; team < teams; team++)
        if (!(solutions[team].residual <= 2.0 * TOLERANCE)) /* a NaN must fail too */
            verified = false;
    if (arguments.json)
        print_json(&solver, spans, solutions, seconds, verified);
    else
        print_words(&solver, spans, solutions, seconds, verified);
    return finish_output(verified);
}
